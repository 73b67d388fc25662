"""A log of 400,000 lines: every byte of it, whoever asks, while the program writes and when it has ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.end_to_end.cluster import Cluster, lent

LINES = 400_000
SCRIPT = f"seq {LINES}"
EXPECTED = "".join(f"[rank 0] {number}\n" for number in range(1, LINES + 1))
"""As the commands show it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("logs")) as made:
        made.up()
        yield made


def said(cluster: Cluster, *argv: str) -> str:
    done = subprocess.run(argv, env=cluster.env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def check_whole(text: str) -> None:
    """Without printing megabytes when it is not."""
    lines = text.count("\n")
    assert lines == LINES, f"{LINES - lines} lines are missing; the last is {text[-40:]!r}"
    assert text == EXPECTED


def test_no_line_is_missing(place: Cluster) -> None:
    ran = said(place, "rowlock", "run", "--name", "long", "--", "sh", "-c", SCRIPT)
    check_whole("".join(line for line in ran.splitlines(keepends=True) if line.startswith("[rank 0] ")))
    check_whole(said(place, "rowlock", "logs", "-f", "long"))
