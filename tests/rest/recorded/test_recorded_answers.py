"""Every route's answer, byte for byte as it was recorded: what a change of the code must not change by the way.

A change that is meant is recorded with `ROWLOCK_RECORD=1` before this test's command line; the file's diff then shows it to a reader.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.rest.recorded.busy_world import BusyWorld, busy_world
from tests.rest.recorded.walk import Recording

from rowlock import __version__
from rowlock.rest.openapi.operations import OPERATIONS

FILE = Path(__file__).with_name("answers.txt")
ENTRY, AGAIN, NEWLINE = "\x1e", "\x1f", "\x1d"
"""What begins an entry, what stands before the mark of a part that has been there, and what stands for a newline."""
LONG = 30
"""Characters from which on a part is not written twice."""
MOST_SHOWN = 5
"""Answers whose differences are shown."""


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BusyWorld]:
    numbers = count(1)
    for name in ("token_hex", "token_urlsafe"):
        monkeypatch.setattr(secrets, name, lambda size: f"{'made up ' * 8}{next(numbers)}")
    yield from busy_world(tmp_path, monkeypatch)


def record(world: BusyWorld) -> dict[str, str]:
    """Each request and its answer: status, warning, body."""
    recorded: dict[str, str] = {}
    times: Counter[str] = Counter()
    for method, path, body in Recording(world).asks():
        answer = world.ask(method, path, body)
        warning = f" [{told}]" if (told := answer.headers.get("warning")) else ""
        title = f"{method} {path}"
        times[title] += 1
        text = answer.content.decode().replace(f'"version":"{__version__}"', '"version":"this"')
        recorded[f"{title} #{times[title]}"] = f"{answer.status_code}{warning} {text}"
    return recorded


def read(text: str) -> dict[str, str]:
    """What `write` has written."""
    recorded: dict[str, str] = {}
    known: dict[str, str] = {}
    for entry in text.split(f"\n{ENTRY} ")[1:]:
        title, *parts = entry.split("\n")
        for number, part in enumerate(parts):
            if part.startswith(AGAIN):
                parts[number] = known[part]
            known[mark(parts[number])] = parts[number]
        recorded[title] = "".join(parts).replace(NEWLINE, "\n")
    return recorded


def write(recorded: dict[str, str]) -> str:
    """One part of an answer a line, so that a reader sees what changes; of a part that has been there its mark alone."""
    lines: list[str] = []
    seen: set[str] = set()
    for title, answer in recorded.items():
        lines.append(f"\n{ENTRY} {title}")
        for part in re.split(r"(?<=[\]}],)", answer.replace("\n", NEWLINE)):
            known = len(part) > LONG and part in seen
            lines.append(f"\n{mark(part) if known else part}")
            seen.add(part)
    return "".join(lines)


def mark(part: str) -> str:
    """What stands for a part the second time: four billion marks for some thousand parts."""
    return f"{AGAIN}{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def test_every_answer_is_as_recorded(busy: BusyWorld) -> None:
    recorded = record(busy)
    if os.environ.get("ROWLOCK_RECORD"):
        FILE.write_bytes(write(recorded).encode())
        assert read(write(recorded)) == recorded
    wanted = read(FILE.read_bytes().decode())
    wrong = [title for title in [*wanted, *(recorded.keys() - wanted)] if recorded.get(title) != wanted.get(title)]
    shown = [
        "\n".join(difference(title, wanted.get(title, ""), recorded.get(title, ""))) for title in wrong[:MOST_SHOWN]
    ]
    assert not wrong, (
        f"{len(wrong)} answers differ. Where that is meant, record them anew: ROWLOCK_RECORD=1 before this command.\n"
        + "\n".join(shown)
    )


def difference(title: str, before: str, after: str) -> Iterator[str]:
    """Lines that say where two answers differ."""
    yield title
    old, new = (text.replace(',"', '\n,"').splitlines() for text in (before, after))
    yield from list(difflib.unified_diff(old, new, "recorded", "now", n=1, lineterm=""))[2:40]


def test_every_route_is_recorded() -> None:
    asked = [title.split(" ")[:2] for title in read(FILE.read_bytes().decode())]
    for method, path in OPERATIONS:
        pattern = re.compile("(/runai)?" + re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + r"(\?.*)?")
        assert any(verb == method and pattern.fullmatch(address) for verb, address in asked), (method, path)
