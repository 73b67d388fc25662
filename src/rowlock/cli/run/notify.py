"""`--notify` of `rowlock run` and `rowlock rerun`, and `rowlock notify test`: the address, and what its receiver answered."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import PROJECTS, find_project
from rowlock.cli.output import show, show_json

if TYPE_CHECKING:
    from rowlock.answers.workloads import NotifyTrial

_LONGEST_FILE = 4096
FLAG_OF = {"notify.url": "--notify", "notify.key": "--notify-key-file", "notify.on": "--notify-on"}
"""Field of the request → the flag that sets it."""


def notify_field(line: CommandLine, url: str | None) -> dict[str, Any]:
    """The request's `notify`, as the one field of a dict; {} without an address. Raises CommandError."""
    if not url:
        for flag, value in (
            ("--notify-key-file", line.notify_key_file),
            ("--notify-on", getattr(line, "notify_on", None)),
        ):
            if value:
                raise CommandError(f"{flag} goes with an address: --notify URL", 2)
        return {}
    notify: dict[str, Any] = {"url": read_value(url[1:], "--notify") if url.startswith("@") else url}
    if line.notify_key_file:
        notify["key"] = read_value(line.notify_key_file, "--notify-key-file")
    if words := getattr(line, "notify_on", None):
        notify["on"] = [word.strip() for word in words.split(",")]
    return {"notify": notify}


def read_value(path: str, flag: str) -> str:
    """What a file has, for the flag. Raises CommandError."""
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_LONGEST_FILE).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{flag}: {path} cannot be read: {getattr(error, 'strerror', None) or error}", 2) from None


def test(line: CommandLine) -> int:
    url = line.words[0] if line.words else None
    body = {"projectId": project(line), **notify_field(line, url)}
    server, path = client.connect(line), "/api/v1/notify/test"
    if not url and line.project:
        path, body = f"{PROJECTS}/{find_project(server, line.project)['id']}/notify/test", {}
    answer: NotifyTrial = server.post(path, body)
    if line.json:
        show_json(answer)
    elif answer["delivered"]:
        signed = ", signed" if answer["signed"] else ""
        how = f"answered {answer['status']}" if answer["status"] else "was told"
        show(f"{answer['target']} {how}{_answer_text(answer)}{signed}")
    else:
        reason = answer["reason"] or f"it answered {answer['status']}{_answer_text(answer)}"
        print(f"error: {answer['target']} was not told: {reason}", file=sys.stderr)
    return 0 if answer["delivered"] else 1


def _answer_text(answer: NotifyTrial) -> str:
    return f": {answer['answer']}" if answer["answer"] else ""
