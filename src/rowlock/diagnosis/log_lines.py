"""The lines of a rank's log: when each was written, and whether the program itself or a library's logger wrote it.

Libraries log in forms of their own: glog and absl (`E0000 00:00:1795914918.68 14379 cuda_platform.cc:52] …`), torch
(`[W1121 20:00:03.1 ProcessGroupNCCL.cpp:1250] …`), TensorFlow (`2026-11-29 05:41:16.12: W external/…`), NCCL
(`host:12:34 [0] NCCL WARN …`). Such a line explains a failure only where the program said nothing after it.
Tracebacks in rich's boxes, and in lines of JSON (structlog, python-json-logger), become those that Python prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from rowlock.objects import seconds

LogLine = tuple[float, str]
"""When it was written (seconds since the epoch, 0 = unknown), and its text."""
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{1,9}Z")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What Python 3.13 and IPython put into tracebacks where FORCE_COLOR is set, or in a terminal."""
_MAX_LINE = 2000
"""Characters of a line that are searched: some patterns cost the square of its length."""
_MAX_OBJECT = 64 * 1024
"""Characters of a line that may be a JSON object."""
RANK_PREFIX = r"(?:\[(?:default|rank)?\d+\]:? ?)?(?:\[rank\d+\]: ?)?(?:\[\d+,\d+\]<std(?:err|out)>: ?)?"
"""What torchrun (`[default0]:`), torch (`[rank0]: `) and mpirun (`[1,0]<stderr>:`) put in front of a line."""
_LIBRARY_LINE = re.compile(
    rf"{RANK_PREFIX}(?:\[?(?P<glog>[IWEF])\d{{4}} [^\]]{{1,200}}\]|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: (?P<tensorflow>[IWEF]) |"
    r"\S+:\d+:\d+ \[\d+\] (?:\S+ )?NCCL (?P<nccl>WARN|INFO))"
)
_NOISE = re.compile(
    r"wandb: |WARNING: All log messages before absl::|\S+:\d+: \w*Warning: |\s+warnings?\.warn|"
    r"Set the environment variable HYDRA_FULL_ERROR|To enable the following instructions|\[Gloo\] |"
    r"\S*env: use -\[v\]S to pass options"
)
"""Output of libraries and tools other than errors: it neither explains an end nor shows that the program went on."""
_IGNORED = re.compile(rf"{RANK_PREFIX}(?:Exception ignored (?:in|while|on)\b|--- Logging error ---$)")
_IGNORED_BODY = re.compile(
    rf"{RANK_PREFIX}(?:\s|$|Traceback \(most recent call last\):$|Call stack:$|Message: |Arguments: )"
)
"""Errors that Python prints without raising them (in `__del__`, at exit, at a thread's end, in a logging handler): the first line, and
the lines after it except the exception's own."""
_WORD = re.compile(r"\w")
TRACEBACK_HEADER = "Traceback (most recent call last):"
CHAIN = re.compile(r"(.*?)(?:During handling of the above exception|The above exception was the direct cause)")
"""The line between two tracebacks of a chain, with what is in front of it."""
_LAUNCHER_LINE = re.compile(
    r"torch/?\.?distributed[./]elastic|ChildFailedError|Root Cause \(first observed failure\)|closing signal|"
    r"elastic/multiprocessing|prterun|prun noticed|mpirun|mpiexec|MPI_ABORT was invoked on rank|^\0?\[\S+:\d+\] \*\*\* "
)


_BOX_TOP = re.compile(rf"({RANK_PREFIX})[╭+][─-]+ (?:Original )?Traceback \(most recent call last\) [─-]+[╮+]\s*$")
_BOX_LINE = re.compile(rf"{RANK_PREFIX}[│|] (.*) [│|]\s*$")
_BOX_FRAME = re.compile(r"(?P<path>[^\s❱].*):(?P<line>\d+)(?: in ?(?P<function>\S.*))")
_SOURCE_LINE = re.compile(r"(?:❱|\\u2771| |\d)")
"""Lines of the tracebacks that rich prints in boxes: the first one, the others, a call (perhaps on two lines), and its source."""


def split_lines(log: str) -> list[LogLine]:
    """The lines of a log with their time stamps parsed, without errors that Python only prints: no program ends because of them."""
    plain = _COLOURS.sub("", log) if "\x1b" in log else log
    lines = _open_boxes([each for line in plain.splitlines() for each in _open_object(*_split_timestamp(line))])
    kept, number = list[LogLine](), 0
    while number < len(lines):
        if _IGNORED.match(lines[number][1]):
            number = _end_of_ignored(lines, number + 1)
        else:
            kept.append(lines[number])
            number += 1
    return kept


def _open_object(at: float, text: str) -> list[LogLine]:
    """A line as its parts: of a JSON object with a traceback in one of its values, the lines of that value; else the line."""
    if text.startswith("{") and TRACEBACK_HEADER in text:
        try:
            values = json.loads(text).values()
        except (ValueError, AttributeError, RecursionError):
            values = ()
        found = next((value for value in values if isinstance(value, str) and TRACEBACK_HEADER in value), None)
        if found is not None:
            return [(at, line[:_MAX_LINE]) for line in found.splitlines()]
    return [(at, text[:_MAX_LINE])]


def _open_boxes(lines: list[LogLine]) -> list[LogLine]:
    """The lines with rich's tracebacks as Python prints them, without source and variables."""
    if not any(_BOX_TOP.match(text) for _, text in lines):
        return lines
    opened, prefix, call, is_open = list[LogLine](), "", "", False
    for at, text in lines:
        if top := _BOX_TOP.match(text):
            prefix, call, is_open = top[1], "", True
            opened.append((at, f"{prefix}{TRACEBACK_HEADER}"))
        elif not is_open:
            opened.append((at, text))
        elif (inside := _BOX_LINE.match(text)) is None:
            is_open = False  # the last line of the box
        elif _SOURCE_LINE.match(inside[1]) and not _BOX_FRAME.fullmatch(call + inside[1].rstrip()):
            call = ""
        else:  # a long path may be broken anywhere, even within the line's number
            call += inside[1].rstrip() + (" " if inside[1].endswith(" ") else "")
            if frame := _BOX_FRAME.fullmatch(call.rstrip()):
                opened.append((at, f'{prefix}  File "{frame["path"]}", line {frame["line"]}, in {frame["function"]}'))
                call = ""
    return opened


def _end_of_ignored(lines: Sequence[LogLine], number: int) -> int:
    """The index of the first line after an ignored error (one exception or a chain) whose first line is just before `number`."""
    has_exception = False
    while number < len(lines):
        text = lines[number][1]
        if CHAIN.match(text):
            has_exception = False
        elif has_exception and (text.endswith(TRACEBACK_HEADER) or not _WORD.search(text)):
            if not any(CHAIN.match(each) for _, each in lines[number : number + 2]):
                break
        elif not _IGNORED_BODY.match(text):
            if has_exception:
                break
            has_exception = True
        number += 1
    return number


def library_level(text: str) -> str:
    """The level (`I`, `W`, `E` or `F`) of a line that a library logged; "" for any other line."""
    found = _LIBRARY_LINE.match(text)
    if found is None:
        return ""
    return found["glog"] or found["tensorflow"] or {"WARN": "E"}.get(found["nccl"], "I")


def is_program_line(text: str) -> bool:
    """Whether the program wrote this line: it is not blank, and not a library's or launcher's."""
    return _WORD.search(text) is not None and not (
        library_level(text) or _NOISE.match(text) or _LAUNCHER_LINE.search(text)
    )


def is_launcher_line(text: str) -> bool:
    """Whether a launcher (torchrun, mpirun) wrote this line about the ranks that it started."""
    return _LAUNCHER_LINE.search(text) is not None


def has_launcher(lines: Sequence[LogLine]) -> bool:
    """Whether a launcher wrote into this log: it may hold several ranks, and some go on when one has failed."""
    return any(is_launcher_line(text) for _, text in lines)


def last_line(log: str) -> str:
    """The last line of the program or a library's error; if there is neither, the last line that is not blank."""
    texts = [text.strip() for _, text in split_lines(log) if text.strip()]
    words = (text for text in reversed(texts) if library_level(text) in ("E", "F") or is_program_line(text))
    return shorten(next(words, texts[-1] if texts else ""))


def _split_timestamp(line: str) -> LogLine:
    line = line[:_MAX_OBJECT]
    stamp, _, text = line.partition(" ")
    if _STAMP.fullmatch(stamp):
        try:
            return seconds(stamp[:19] + "Z") + float("0" + stamp[19:-1]), text
        except ValueError:  # not a time stamp, e.g. month 13
            return 0.0, line
    return 0.0, line


def shorten(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
