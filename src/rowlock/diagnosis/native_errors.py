"""Errors in logs of programs that die below Python or are not Python: C and C++, Go, Rust, Java, JavaScript, R, Julia.

A line counts only when the program wrote nothing after it but its stack: otherwise the program went on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rowlock.diagnosis.log_lines import LogLine, has_launcher, is_launcher_line, is_program_line, library_level, shorten
from rowlock.diagnosis.tracebacks import SECONDARY_ERROR, LoggedError, user_place

_NATIVE_ERROR = re.compile(
    r"Fatal Python error: |terminate called|.*[Ss]egmentation fault|Bus error|.*free\(\): invalid|.*double free|malloc\(\): |"
    r"corrupted (?:size|double-linked)|munmap_chunk\(\)|\*\*\* stack smashing detected|.*: Assertion .* failed\.$|"
    r"panic: |fatal error: |thread '.*' panicked at |Exception in thread \"|Error in .+ ?:|Error: |ERROR: LoadError: |"
    r"\w*(?:Error|Exception): "
)
_NEEDS_STACK = re.compile(r"\w*(?:Error|Exception): |panic: |fatal error: |Error in |Error: ")
"""Messages that programs also print for errors that they handle: they count only if a stack or a final message of the language follows."""
_LAST_WORD = re.compile(
    r"terminate called|Fatal Python error: |\*\*\* stack smashing detected|free\(\): |malloc\(\): |munmap_chunk\(\)|.*: Assertion .* failed\.$"
)
"""Messages after which the process only dies, whatever it prints about the place."""
_STACK_LINE = re.compile(r"\s+at \S|goroutine \d+ \[|Execution halted|Calls: ")
_TRAILER = re.compile(
    r"\s|goroutine \d|[\w./*()\[\]{}-]+\(.*\)$|created by |exit status \d|\[signal |Caused by: |Node\.js v|Current thread |Thread 0x|"
    r"Extension modules: |.*Aborted|.*core dumped|.*Segmentation fault|Execution halted|Calls: |In addition: |note: |stack backtrace:|\*\*\* |"
    r"Fatal Python error: |Stacktrace:|<no Python frame>|terminate "
)
"""Lines that belong to the error above them."""
_MAX_CALLS = 100
_JAVA_ERROR = re.compile(r"Exception in thread \"[^\"]*\" ([\w.$]+)(?:: (.*))?$")
_JAVA_CAUSE = re.compile(r"Caused by: ([\w.$]+)(?:: (.*))?$")
_PLACES = (
    (re.compile(r"\s+at (?:[\w.$]+\.)?([\w$<>]+)\(([\w$]+\.\w+:\d+)\)"), 2, 1),
    (re.compile(r"\s+at (?:(?:async )?([\w.<>]+) )?\(?(?:\S*/)?([^/\s]+\.[cm]?[jt]s:\d+):\d+\)?"), 2, 1),
    (re.compile(r"\s+(?:\S*/)?([^/\s]+\.go:\d+)"), 1, None),
    (re.compile(r"thread '.*' panicked at (?:\S*/)?([^/\s]+:\d+)"), 1, None),
)
"""Patterns of stack lines, each with the group numbers of `file:line` and of the function."""
_FAULT_FRAME = re.compile(r'\s+File "(?P<path>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')
"""A call in the output of Python's faulthandler, innermost first."""


def find_native_error(lines: Sequence[LogLine], died: bool = False) -> LoggedError | None:
    """The last native error after which the program did not continue, else None. Programs never continue after a library's fatal line,
    nor after a `_LAST_WORD` message if they `died` of a signal that they caused themselves."""
    fatal = next(((at, line) for at, line in reversed(lines) if library_level(line) == "F"), None)
    if fatal is not None:
        return _read_library_line(*fatal)
    if died and (found := [n for n, (_, line) in enumerate(lines) if _LAST_WORD.match(line)]):
        at, line = lines[found[-1]]
        return _read_error(at, line, [text for _, text in lines[found[-1] + 1 :]])
    for number in range(len(lines) - 1, -1, -1):
        at, line = lines[number]
        if is_launcher_line(line):
            continue
        if _NATIVE_ERROR.match(line):
            following = [text for _, text in lines[number + 1 :]]
            if not _NEEDS_STACK.match(line) or any(map(_STACK_LINE.match, following)):
                return _read_error(at, line, following)
        if (
            is_program_line(line)
            and not _TRAILER.match(line)
            and not has_launcher(lines)
            and not _is_message(lines, number)
        ):
            return None
    return None


def last_library_error(lines: Sequence[LogLine]) -> LoggedError | None:
    """A library's error about a lost peer, if the program wrote nothing after it."""
    for at, line in reversed(lines):
        if library_level(line) == "E" and (error := _read_library_line(at, line)).secondary:
            return error
        if is_program_line(line):
            return None
    return None


def _is_message(lines: Sequence[LogLine], number: int) -> bool:
    """Whether the line is the message that Rust prints below the place of a panic."""
    above = lines[number - 1][1] if number else ""
    return "panicked at" in above


def _read_library_line(at: float, line: str) -> LoggedError:
    text = line.partition("] ")[2].strip() or line.strip()
    kind, _, rest = text.partition(": ")
    return LoggedError(shorten(kind), shorten(rest), at, secondary=bool(SECONDARY_ERROR.search(text)))


def _read_error(at: float, line: str, following: Sequence[str]) -> LoggedError:
    text, cause = line.strip(), ""
    if java := _JAVA_ERROR.match(line):
        text = _java_text(java)
        causes = [found for each in following if (found := _JAVA_CAUSE.match(each))]
        cause = _java_text(causes[-1]) if causes else ""
    elif following and (following[0].lstrip().startswith("what():") or "panicked at" in line):
        text = f"{text} {following[0].strip()}"
    kind, _, rest = text.partition(": ")
    secondary = bool(SECONDARY_ERROR.search(text) or SECONDARY_ERROR.search(cause))
    return LoggedError(shorten(kind), shorten(rest), at, _place(following), secondary=secondary, cause=shorten(cause))


def _java_text(found: re.Match[str]) -> str:
    kind = found[1].rpartition(".")[2]
    return f"{kind}: {found[2]}" if found[2] else kind


def _place(stack: Sequence[str]) -> str:
    """The innermost place in a stack; for a fatal Python error, the innermost of the user's code in the thread that died."""
    current = next((n for n, line in enumerate(stack) if line.startswith("Current thread ")), len(stack))
    calls = list(map(_FAULT_FRAME.match, stack[current + 1 : current + 1 + _MAX_CALLS]))
    if frames := [call for call in calls[: calls.index(None) if None in calls else None] if call]:
        return user_place(frames[::-1])
    for line in stack[:40]:
        for pattern, file, function in _PLACES:
            if (found := pattern.match(line)) and "/usr/" not in line and "node:" not in line:
                name = found[function] if function else None
                return f"{found[file]} in {name}" if name else found[file]
    return ""
