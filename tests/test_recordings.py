"""Every recorded file is in the table of `tests/data/README.md`, and every program that records one again starts."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.evidence import DATA

REPO = DATA.parents[1]
README = (DATA / "README.md").read_text(encoding="utf-8")
ROWS = [
    row.split("|")[1:-1] for row in README.splitlines() if re.match(r"\| `[\w./*-]+` \|", row) and row.count("|") == 5
]
"""The file's name or pattern, what it holds, whence it is, how to record it again."""


def patterns() -> list[str]:
    return [row[0].strip().strip("`") for row in ROWS]


def programs() -> list[tuple[str, ...]]:
    """The Python programs of the last column, each once, as arguments of the interpreter."""
    commands = re.findall(r"python (-m [\w.]+|scripts/[\w./]+)", " ".join(row[3] for row in ROWS))
    return [tuple(command.split()) for command in dict.fromkeys(commands)]


def test_every_file_is_in_the_table() -> None:
    listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=DATA, capture_output=True, text=True, check=True).stdout
    files = {name for name in listed.split("\0") if name} - {"README.md"}
    known = {
        str(path.relative_to(DATA)) for pattern in patterns() for path in DATA.glob(pattern) if ".." not in pattern
    }
    assert files and files <= known, f"not in tests/data/README.md: {sorted(files - known)}"


def test_the_table_names_files_that_are_there() -> None:
    for pattern in patterns():
        assert list(DATA.glob(pattern)) or (DATA / pattern).exists(), f"tests/data/README.md names {pattern}"


@pytest.mark.parametrize("program", programs(), ids=" ".join)
def test_what_records_it_again_starts(program: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *program, "--help"], cwd=REPO, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr


def test_there_are_such_programs() -> None:
    assert {("-m", "tests.kubectl"), ("-m", "tests.operator_cases"), ("scripts/record_refusals.py",)} <= {*programs()}
