"""Write `sdk/client.py`, the synchronous Python client, from `sdk/async_client.py`. `--check` fails when the file is not that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from generated import REPO, write_or_check

SDK = REPO / "src" / "rowlock" / "sdk"
SOURCE, TARGET = SDK / "async_client.py", SDK / "client.py"
DOCSTRING = '"""`Client`: rowlock from Python. `make docs` writes this file from `async_client.py`: change that one."""'
REPLACEMENTS = (
    (r'\A""".*?"""', DOCSTRING),
    (r"\nimport asyncio\n", "\n"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"asyncio\.to_thread\(([\w.]+)\)", r"\1()"),
    (r"an `async with` statement, or await `close`; one event loop uses it", "a `with` statement, or call `close`. Threads may share it"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\[(line\.text for line in self\.logs\(\))\]", r"(\1)"),  # logs may be long: no list of them
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bAsync(Client|JobHandle|Iterator)\b", r"\1"),
    (r"\.a(close|read|iter_bytes)\(", r".\1("),
)  # fmt: skip
"""What differs between the two clients: patterns and what stands for them, carried out in this order."""


def synchronous(source: str) -> str:
    """The text of the synchronous client, formatted."""
    for pattern, replacement in REPLACEMENTS:
        source, count = re.subn(pattern, replacement, source, flags=re.S)
        assert count, f"{SOURCE.name} has no {pattern} any more: take it out of REPLACEMENTS"
    if left := re.search(r"\b(async|await|asyncio|Async\w+)\b", source):
        sys.exit(f"{left[0]} would be left in {TARGET.name}: add a pattern for it to REPLACEMENTS")
    for command in (["check", "--quiet", "--select", "I,UP028", "--fix", "--unsafe-fixes"], ["format", "--quiet"]):
        argv = [str(Path(sys.executable).with_name("ruff")), *command, "--stdin-filename", str(TARGET), "-"]
        source = subprocess.run(argv, input=source, text=True, capture_output=True, check=True, cwd=REPO).stdout
    return source


def main() -> int:
    return write_or_check(TARGET, synchronous(SOURCE.read_text(encoding="utf-8")), "what sdk/async_client.py gives")


if __name__ == "__main__":
    sys.exit(main())
