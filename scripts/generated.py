"""Writes a generated file of this repository, or checks that it is current. For the other scripts of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


def write_or_check(target: Path, made: str, source: str) -> int:
    """Write a file. With `--check` on the command line nothing is written: 1 and a sentence when the file is not `source`, as the end of
    "it is not …"."""
    name = target.relative_to(REPO)
    if "--check" not in sys.argv:
        target.write_text(made, encoding="utf-8")
        print(f"wrote {name}")
    elif not target.exists() or target.read_text(encoding="utf-8") != made:
        print(f"{name} is not {source}: run `make docs` and commit it", file=sys.stderr)
        return 1
    return 0
