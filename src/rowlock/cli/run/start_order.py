"""`--after` and `--start-after`: what a job waits for, as the request has it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.output import parse_duration

_HOURS = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def start_order(line: CommandLine) -> dict[str, Any]:
    """The fields `after` and `startAfter` that the flags give. Raises CommandError."""
    after = [_parse_awaited(word) for word in line.after or ()]
    start = parse_start(line.start_after, datetime.now().astimezone()) if line.start_after else ""
    return {**({"after": after} if after else {}), **({"startAfter": start} if start else {})}


def _parse_awaited(word: str) -> dict[str, Any]:
    name, colon, how = word.partition(":")
    if colon and how not in ("succeeded", "ended"):
        nearest = suggest_nearest(how, ["succeeded", "ended"])
        raise CommandError(f"--after takes JOB, or JOB:succeeded, not {word}.{nearest}", 2)
    return {"job": name, **({"succeeded": True} if how == "succeeded" else {})}


def parse_start(text: str, now: datetime) -> str:
    """A time that a person writes, as RFC 3339 in UTC: `22:00` is the next one, `2h` is from now, others have a date. `now` has the local
    zone, which is meant where none is given. Raises CommandError."""
    if match := _HOURS.fullmatch(text):
        at = now.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        at += timedelta(days=1) if at <= now else timedelta()
    elif re.fullmatch(r"[0-9.]+(ms|s|m|h|d).*", text):
        at = now + timedelta(seconds=parse_duration(text, "--start-after"))
    else:
        try:
            at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise CommandError(
                f"--start-after takes a time such as 22:00, 2026-12-24T22:00 or 2h, not {text[:60]!r}", 2
            ) from None
        at = at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
