"""Finds in a rank's log the first error that is a cause and not the consequence of another rank's failure.

When one rank fails, its peers soon report broken connections. Those are *secondary*: true, but not the cause. The search
order is: the program's own uncaught error, the message of a program that dies below Python, the launcher's
summary of its children, and the last error of a library. Lines begin with the log's time stamp.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import replace

from rowlock.diagnosis.log_lines import (
    LogLine,
    has_launcher,
    is_launcher_line,
    is_program_line,
    last_line,
    shorten,
    split_lines,
)
from rowlock.diagnosis.mpi_errors import find_mpi_error, first_mpi_rank
from rowlock.diagnosis.native_errors import find_native_error, last_library_error
from rowlock.diagnosis.tracebacks import (
    CHILD_ERRORS,
    SECONDARY_ERROR,
    LoggedError,
    Traceback,
    find_uncaught,
    is_just_before,
)

SEEN_BY_TORCHRUN = "as torchrun saw it"
"""The text of an error that torchrun reports about a rank that logged none itself."""
_OWN_SIGNALS = (signals.SIGABRT, signals.SIGSEGV, signals.SIGBUS, signals.SIGFPE, signals.SIGILL)
"""Signals that a program's own fault raises."""
_CHILD_RANK = re.compile(r"\s*rank\s*: (\d+) \(local_rank: \d+\)")
_CHILD_EXIT_CODE = re.compile(r"\s*exitcode\s*: (-?\d+)")
_EXIT_CODE = "ended with exit code "
_NO_WORDS = re.compile(r"\s|\[rank\d+\]:|Traceback \(")
"""Lines of tracebacks."""
_FAILED_TEST = re.compile(r"(?:FAILED|ERROR) (\S+::\S.*?)(?: - (.*))?$")
_TESTS_END = re.compile(r"(?:=+ )?(?:\d+ \w+, )*\d+ (?:failed|errors?)\b.* in [\d.]+s\b")
"""Lines of pytest: one test in the summary, and the last line."""
_ERROR_WORDS = re.compile(r"\b(?:error|fatal|failed|cannot|unable|not found|no such|denied|aborted)\b", re.IGNORECASE)
_NUMBERS, _LOOP = re.compile(r"\d+(?:\.\d+)?"), 5
"""Numbers in a line, and how many lines that differ in them alone show that a loop goes on."""
_LAST_WORDS = 10
"""Lines that a program may still write between a fatal error that it printed itself and its end (`training failed`)."""
_LAST_WORDS_TIME = 2.0
"""Seconds within which it writes them; a later line shows that the program went on."""


def find_error(log: str, signal: int = 0, code: int = 0) -> LoggedError | None:
    """The error that explains this log best: the first cause, else the first secondary error; None when it has no error.

    `signal`: the one that killed the program, 0 = none. A killed program did not end because of what it had logged before: of a SIGKILL
    only an error of its own counts, after which it said no more; of a SIGTERM one after which it said nothing. `code`: its exit code. Python
    leaves with 1 after an error, and more may be written below it at exit: so a lost peer explains that, whatever was written later.
    """
    lines = split_lines(log)
    launched, candidates = has_launcher(lines), list(find_uncaught(lines))
    uncaught = [found for found in candidates if launched or not _went_on(lines, found, signal)]
    errors = [
        _with_words_of_child(lines, found) for found in (uncaught if launched else _without_printed(lines, uncaught))
    ]
    if signal == signals.SIGKILL:
        errors = [error for error in errors if not error.secondary]
    else:
        errors += filter(None, [find_native_error(_without_tracebacks(lines), died=signal in _OWN_SIGNALS)])
    child_error = _with_last_words(lines, _find_child_error(lines) or find_mpi_error(lines))
    if not errors:
        return (
            child_error
            or _find_failed_test(lines)
            or next((found.error for found in candidates[-1:] if code == 1 and found.error.secondary), None)
            or (None if signal == signals.SIGKILL else last_library_error(lines))
        )
    best = min(errors, key=lambda t: (t.secondary, t.at))
    if best.secondary and child_error is not None and child_error.rank is not None:
        return child_error
    return best if best.rank is not None else replace(best, rank=first_mpi_rank(lines))


def last_words(log: str, code: int) -> str:
    """The last line of a log in which `find_error` finds none. Python leaves with 1 after an error, and a tracker of experiments may print its
    summary below it; but a program may also handle an error and leave with 1 later. So what it had logged is told, not blamed; and not told
    where the program's loop went on afterwards."""
    lines, words = split_lines(log), last_line(log)
    found = find_uncaught(lines) if code == 1 and words else []
    handled = [each.error for each in found if not _looped_on(lines, each)]
    return f"{words}; the last error in its log, which it may have handled: {handled[-1]}" if handled else words


def _looped_on(lines: Sequence[LogLine], found: Traceback) -> bool:
    """Whether the program wrote several lines over some seconds after this error that differ in numbers alone, so that a loop went on. What
    is written at exit has no such lines, or writes them at once."""
    times: dict[str, list[float]] = {}
    for at, text in lines[found.end :]:
        if is_program_line(text) and _NUMBERS.search(text):
            times.setdefault(_NUMBERS.sub("#", text), []).append(at)
    return any(len(each) >= _LOOP and each[-1] - each[0] > _LAST_WORDS_TIME for each in times.values())


def _without_printed(lines: Sequence[LogLine], uncaught: Sequence[Traceback]) -> list[Traceback]:
    """Tracebacks of one rank without those that it printed itself before it failed: torch marks the one that ends it. A printed one just
    before is its cause, unless it has one. What ended a thread was not printed by the program."""
    marked = next((each for each in uncaught if each.error.rank is not None and not each.error.secondary), None)
    if marked is None:
        return list(uncaught)
    printed = [
        each
        for each in uncaught
        if each.begin < marked.begin and not lines[max(0, each.begin - 1)][1].startswith("Exception in thread")
    ]
    near = next((each for each in reversed(printed) if is_just_before(lines, each, marked)), None)
    if near is not None and not marked.error.cause:
        cause = shorten(f"{near.error.kind}: {near.error.text}".removesuffix(": "))
        marked_with_cause = replace(marked, error=replace(marked.error, cause=cause))
        uncaught = [marked_with_cause if each is marked else each for each in uncaught]
    return [each for each in uncaught if each not in printed]


def _with_words_of_child(lines: Sequence[LogLine], found: Traceback) -> LoggedError:
    """An error about a child process, with what the child said before its end as the cause, if that is about an error."""
    if not found.error.kind.endswith(CHILD_ERRORS) or found.error.cause:
        return found.error
    before = lines[max(0, found.begin - _LAST_WORDS) : found.begin]
    if native := find_native_error(before, died=True):
        return replace(found.error, cause=f"{native.kind}: {native.text}".removesuffix(": "))
    words = next((text.strip() for _, text in reversed(before) if is_program_line(text)), "")
    return replace(found.error, cause=shorten(words)) if _ERROR_WORDS.search(words) else found.error


def _went_on(lines: Sequence[LogLine], found: Traceback, signal: int) -> bool:
    """Whether the program handled this error: it wrote more than last words after it. torch prefixes only unhandled errors. For a program
    that got SIGTERM, any later line shows that the error did not end it."""
    if found.prefix:
        return False
    later = [at for at, text in lines[found.end :] if is_program_line(text) and not text.startswith("[rank")]
    most = 0 if signal == signals.SIGTERM else _LAST_WORDS
    return len(later) > most or any(at > found.error.at + _LAST_WORDS_TIME for at in later if found.error.at)


def _without_tracebacks(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """The lines after the last traceback: the program went on after everything before it."""
    return lines[max((found.end for found in find_uncaught(lines)), default=0) :]


def _find_child_error(lines: Sequence[tuple[float, str]]) -> LoggedError | None:
    """The child that failed first according to torchrun's summary; None when the log has no summary."""
    first = next((n for n, (_, text) in enumerate(lines) if "Root Cause (first observed failure)" in text), None)
    if first is None:
        return None
    rank = code = None
    for _, text in lines[first : first + 8]:
        rank = rank or _CHILD_RANK.search(text)
        code = code or _CHILD_EXIT_CODE.search(text)
    if rank is None or code is None:
        return None
    return LoggedError(_exit_text(int(code[1])), SEEN_BY_TORCHRUN, lines[first][0], rank=int(rank[1]))


def _with_last_words(lines: Sequence[LogLine], error: LoggedError | None) -> LoggedError | None:
    """What a launcher reports of a rank that left with an exit code, with the last line before the report that a rank wrote and that is not
    about a lost peer: what `sys.exit("…")` prints."""
    if error is None or not error.kind.startswith(_EXIT_CODE):
        return error
    report = next((n for n, (_, text) in enumerate(lines) if is_launcher_line(text)), 0)
    said = (text.strip() for _, text in reversed(lines[:report]) if is_program_line(text) and not _NO_WORDS.match(text))
    words = next((text for text in said if not SECONDARY_ERROR.search(text)), "")
    return replace(error, text=f"{error.text}; the last line before that: {shorten(words)}") if words else error


def _find_failed_test(lines: Sequence[LogLine]) -> LoggedError | None:
    """The first failed test of pytest's summary, if the program wrote nothing after that; else None."""
    failed = [(at, found) for at, text in lines if (found := _FAILED_TEST.match(text))]
    if not failed or not _TESTS_END.match(next((text for _, text in reversed(lines) if text.strip()), "")):
        return None
    at, first = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return LoggedError(shorten(f"{first[1]} failed"), shorten(f"{first[2] or ''}{more}".strip()), at)


def _exit_text(code: int) -> str:
    """An exit code in words; negative codes are signals, as in `multiprocessing`."""
    if code >= 0:
        return f"{_EXIT_CODE}{code}"
    signal_numbers = {s.value for s in signals.Signals}
    return f"was killed with {signals.Signals(-code).name if -code in signal_numbers else f'signal {-code}'}"
