"""How results are printed: tables of padded columns, ages in one unit, JSON. Without colours, so that pipes get the same
text."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock.cli.grammar import CommandLine
from rowlock.cli.live_lines import TERMINAL


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], gap: int = 2) -> str:
    """A table with left-aligned columns, `gap` blanks apart. On a narrow terminal, where rows would wrap, each row is a
    block of lines instead."""
    lines = [[_BREAKS.sub(" ", str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(header))]
    if rows and sum(widths) + gap * (len(widths) - 1) > _narrow_columns():
        return "\n".join(_block(lines[0], row, gap) for row in lines[1:])
    return "\n".join(
        "".join(f"{cell:{w + gap}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


_BREAKS = re.compile(r"[\r\n\t\v\f\x85\u2028\u2029]+")
"""Line breaks and tabs in cells are replaced, so that a message from another user cannot imitate a row."""
_NARROW = 60
"""Columns up to which a terminal is narrow, such as a phone's or half a screen's: wrapped rows are unreadable there."""


def _narrow_columns() -> float:
    """The columns of a narrow terminal; infinite for a wider one, and in a pipe, whose reader expects rows."""
    columns = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else math.inf
    return columns if columns <= _NARROW else math.inf


def _block(header: Sequence[str], row: Sequence[str], gap: int) -> str:
    """A row as a block: its first cell as title, then one line for each other cell that is not empty."""
    width = max(map(len, header[1:]), default=0) + gap
    return "\n".join(
        [row[0], *(f"  {name:{width}}{cell}" for name, cell in zip(header[1:], row[1:], strict=True) if cell)]
    )


_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, which a terminal would interpret, including those that change the text direction, which can disguise a command.
Names, annotations and messages from other users may contain them."""


def visible(text: str) -> str:
    """The text with control characters as `^[`, or `\\u009b`: it cannot move the cursor or set a title. kubectl does the
    same."""
    return _CONTROL.sub(lambda found: _caret(ord(found[0])), text)


def _caret(code: int) -> str:
    return f"^{chr(code ^ 0x40)}" if code < 0x80 else f"\\u{code:04x}"


def show_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(visible(json.dumps(value, indent=2, ensure_ascii=False).replace("\x7f", "\\u007f")))


def show(text: str) -> None:
    """Print a text, with a newline at its end."""
    sys.stdout.write(visible(text if text.endswith("\n") else text + "\n"))


def show_result(line: CommandLine, value: Any, *texts: str) -> int:
    """Print the value as JSON where --json was given, else the texts that are not empty. Returns the exit code 0."""
    if line.json:
        show_json(value)
    for text in () if line.json else filter(None, texts):
        show(text)
    return 0


def shorten_names(names: Sequence[str], shown: int) -> str:
    """The first `shown` names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def tell(text: str) -> None:
    """Print a message to stderr, above the progress bars on the terminal."""
    TERMINAL.write(f"{visible(text)}\n", sys.stderr)


def ask(question: str, interrupted: str = "") -> str:
    """Ask a question and return the answer in lower case; "" after Ctrl-D; `interrupted` after Ctrl-C."""
    try:
        return _read_line(question).strip().lower()
    except KeyboardInterrupt:
        tell("")
        return interrupted


def _read_line(question: str) -> str:
    """Read one line from the terminal. Unlike input() it does not miss a Ctrl-C between the question and the read, because the
    signal writes a byte into a pipe that is polled together with the terminal."""
    import os
    import select
    import signal

    sys.stdout.write(question)
    sys.stdout.flush()
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    old_fd = signal.set_wakeup_fd(wakeup_writer)
    try:
        if wakeup_reader in select.select([sys.stdin, wakeup_reader], [], [])[0]:
            raise KeyboardInterrupt
        line = sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(old_fd)
        os.close(wakeup_reader)
        os.close(wakeup_writer)
    if not line:
        tell("")
    return line


def parse_time(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time; None for None or "". Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def format_age(text: str | None, until: str | None = None) -> str:
    """The age of an RFC 3339 time in one unit: 14s, 5m, 3h, 2d, 1y."""
    start = parse_time(text)
    if start is None:
        return ""
    return format_duration(((parse_time(until) or datetime.now(UTC)) - start).total_seconds())


def format_duration(seconds: float) -> str:
    """A duration in whole units of the largest unit that fits: 14s, 5m, 3h, 2d, 1y."""
    remaining = max(0, int(seconds))
    for unit, size in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if remaining >= size:
            return f"{remaining // size}{unit}"
    return f"{remaining}s"


def format_number(value: Any) -> str:
    """A number as `%g`: 1.0 → 1, 0.30000000000000004 → 0.3."""
    return f"{float(value or 0):g}"


def format_memory(memory: str) -> str:
    """A Kubernetes memory quantity in readable form: `24684084Ki` → `23.5Gi`. Other text is unchanged."""
    if not memory.endswith("Ki") or not (memory.isascii() and memory[:-2].isdigit()):
        return memory
    value, unit = int(memory[:-2]) / 1024, "Mi"
    if value >= 1024:
        value, unit = value / 1024, "Gi"
    return f"{value:.1f}{unit}"


def parse_duration(text: str, flag: str) -> float:
    """`90`, `30s`, `2m`, `1h30m`, `1d` as seconds. Raises CommandError."""
    import re

    from rowlock.cli.grammar import CommandError

    sizes = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise CommandError(f'invalid argument "{text}" for {flag}: write a duration such as 30s, 5m or 2h', 2)
    return sum(float(n) * sizes[u] for n, u in parts)


def parse_size(text: str, flag: str, minimum: str = "0") -> int:
    """`1048576`, `50Mi`, `2G` as bytes. Raises CommandError, also for less than `minimum`."""
    import re

    from rowlock.cli.grammar import CommandError

    units = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]|[KMG]i)?", text)
    if not match:
        raise CommandError(f'invalid argument "{text}" for {flag}: write a size such as 50Mi or 1Gi', 2)
    count = int(float(match[1]) * units[match[2] or ""])
    if minimum != "0" and count < parse_size(minimum, flag):
        raise CommandError(f"{flag} must be at least {minimum}, but is {text}", 2)
    return count
