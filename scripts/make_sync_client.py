"""Write the synchronous Python client, `sdk/client.py` and `sdk/sweeps.py`, from the asynchronous one. `--check` fails when a file is not that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from generated import REPO, write_or_check

SDK = REPO / "src" / "rowlock" / "sdk"
DOCSTRING = '"""{}: rowlock from Python. `make docs` writes this file from `{}`: change that one."""'
FILES = {"async_client.py": ("client.py", "`Client`"), "async_sweeps.py": ("sweeps.py", "`SweepHandle`")}
"""What is read → what is written, and what is in it."""
REPLACEMENTS = (
    (r"sdk\.async_(client|sweeps)\b", r"sdk.\1"),
    (r"\nimport asyncio\n", "\n"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"asyncio\.to_thread\(([\w.]+)\)", r"\1()"),
    (r"an `async with` statement, or await `close`; one event loop uses it", "a `with` statement, or call `close`. Threads may share it"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\[(line\.text for line in self\.logs\(\))\]", r"(\1)"),  # logs may be long: no list of them
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bAsync(Caller|Client|JobHandle|SweepHandle|Iterator)\b", r"\1"),
    (r"\.a(close|read|iter_bytes)\(", r".\1("),
)  # fmt: skip
"""What differs between the two clients: patterns and what stands for them, carried out in this order."""


def synchronous(name: str, used: set[str]) -> str:
    """The text of the synchronous file made from this one, formatted. Adds the patterns that it has to `used`."""
    target, content = FILES[name]
    source = re.sub(
        r'\A""".*?"""', DOCSTRING.format(content, name), (SDK / name).read_text(encoding="utf-8"), flags=re.S
    )
    for pattern, replacement in REPLACEMENTS:
        source, count = re.subn(pattern, replacement, source, flags=re.S)
        used |= {pattern} if count else set()
    if left := re.search(r"\b(async|await|asyncio|Async\w+)\b", source):
        sys.exit(f"{left[0]} would be left in {target}: add a pattern for it to REPLACEMENTS")
    for command in (["check", "--quiet", "--select", "I,UP028", "--fix", "--unsafe-fixes"], ["format", "--quiet"]):
        argv = [str(Path(sys.executable).with_name("ruff")), *command, "--stdin-filename", str(SDK / target), "-"]
        source = subprocess.run(argv, input=source, text=True, capture_output=True, check=True, cwd=REPO).stdout
    return source


def main() -> int:
    used: set[str] = set()
    made = {name: synchronous(name, used) for name in FILES}
    for pattern, _ in REPLACEMENTS:
        assert pattern in used, f"no file has {pattern} any more: take it out of REPLACEMENTS"
    codes = [write_or_check(SDK / FILES[name][0], text, f"what sdk/{name} gives") for name, text in made.items()]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
