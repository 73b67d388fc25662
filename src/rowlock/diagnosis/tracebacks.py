"""Finds in a rank's log the first error that is a cause and not the consequence of another rank's failure.

When one rank fails, its peers soon report broken connections. Those are *secondary*: true, but not why. What is looked
for: Python tracebacks (also with torch's `[rank3]:` in front, also several ranks in one log), torchrun's summary of its
children, and the few lines that a program leaves when it dies below Python. Lines begin with the log's time stamp.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rowlock.objects import seconds

_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{1,9}Z")
_MAX_LINE = 2000
"""Characters of a line that are searched: some patterns cost the square of its length."""
_TRACEBACK_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
_RANK = re.compile(r"\[rank(\d+)\]: ?")
_PREFIX = re.compile(r"(?:\[(?:default|rank)?\d+\]:? ?)?(?:\[rank\d+\]: ?)?")
"""What torchrun (`[default0]:`) and torch (`[rank0]: `) put in front of a line."""
_CHAIN = re.compile(r"(.*?)(?:During handling of the above exception|The above exception was the direct cause)")
_EXCEPTION_LINE = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_LIBRARY_PATHS = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>/")
SECONDARY_ERROR = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection (was )?(closed|refused|reset|aborted)|socket closed|"
    r"remote process exited|communicator was aborted|ncclRemoteError|NCCL .*abort|failed to recv, got 0 bytes|"
    r"recvValue failed|client socket has failed|Timed out waiting \d+ms for|"
    r"Application timeout caused pair closure|peer .*(gone|left)|Watchdog caught collective operation timeout|"
    r"DistNetworkError|UnavailableError|Collective ops is aborted|SignalException|got signal: 15",
    re.I,
)
"""What a rank says when another one has gone."""
SEEN_BY_TORCHRUN = "as torchrun saw it"
"""The text of a trouble that its launcher tells of a rank that said nothing itself."""
_AGENT_ERRORS = ("ChildFailedError", "RendezvousClosedError", "CalledProcessError")
_CHILD_RANK = re.compile(r"\s*rank\s*: (\d+) \(local_rank: \d+\)")
_CHILD_EXIT_CODE = re.compile(r"\s*exitcode\s*: (-?\d+)")
_NATIVE_ERROR = re.compile(
    r"(Fatal Python error: .*|terminate called after throwing an instance of .*|.*[Ss]egmentation fault.*|Bus error.*|"
    r".*free\(\): invalid.*|.*double free.*|.*CUDA error: .*|.*Out of memory: .*)$"
)


@dataclass(frozen=True, slots=True)
class LoggedError:
    """One error in a log. `at` in seconds since the epoch, 0 = unknown; `rank` where the line itself names it."""

    kind: str
    text: str
    at: float = 0.0
    place: str = ""
    rank: int | None = None
    secondary: bool = False

    def __str__(self) -> str:
        text = f"{self.kind}: {self.text}" if self.text else self.kind
        return f"{text} ({self.place})" if self.place else text


def find_error(log: str) -> LoggedError | None:
    """The error that explains this log best: the first cause, else the first secondary error; None when it has no error."""
    lines = [_split_timestamp(line) for line in log.splitlines()]
    errors = [*_last_of_each_rank(_find_tracebacks(lines)), *_find_native_errors(lines)]
    own_errors = [t for t in errors if not t.kind.endswith(_AGENT_ERRORS)]
    child_error = _find_child_error(lines)
    if not own_errors:
        return child_error
    best = min(own_errors, key=lambda t: (t.secondary, t.at))
    return child_error if best.secondary and child_error is not None and child_error.rank is not None else best


def last_line(log: str) -> str:
    """What a program said last, blank lines aside."""
    return shorten(
        next((text.strip() for _, text in map(_split_timestamp, reversed(log.splitlines())) if text.strip()), "")
    )


def _split_timestamp(line: str) -> tuple[float, str]:
    line = line[:_MAX_LINE]
    stamp, _, text = line.partition(" ")
    if _STAMP.fullmatch(stamp):
        try:
            return seconds(stamp[:19] + "Z") + float("0" + stamp[19:-1]), text
        except ValueError:  # the program's own words: a 13th month
            return 0.0, line
    return 0.0, line


def _last_of_each_rank(tracebacks: Iterator[tuple[str, bool, LoggedError]]) -> Iterator[LoggedError]:
    """A program that goes on after an error has handled it: only a rank's last words count, with what caused them."""
    last: dict[str, LoggedError] = {}
    for prefix, chained, error in tracebacks:
        if not (chained and prefix in last and not last[prefix].secondary):
            last[prefix] = error
    yield from last.values()


def _find_tracebacks(lines: Sequence[tuple[float, str]]) -> Iterator[tuple[str, bool, LoggedError]]:
    """Every traceback: what stands before its lines (which rank), whether it follows from the one before, what it says."""
    chained: dict[str, bool] = {}
    for number, (_, line) in enumerate(lines):
        if chain := _CHAIN.match(line):
            chained[chain[1]] = True
            continue
        prefix, _, rest = line.partition(_TRACEBACK_HEADER)
        if rest or not line.endswith(_TRACEBACK_HEADER) or (prefix and not _PREFIX.fullmatch(prefix)):
            continue
        frames: list[re.Match[str]] = []
        for at, text in lines[number + 1 :]:
            if prefix and not text.startswith(prefix.rstrip()):
                continue
            body = text[len(prefix) :] if text.startswith(prefix) else text[len(prefix.rstrip()) :]
            if frame := _FRAME.match(body):
                frames.append(frame)
            elif body and not body[0].isspace():
                if exception := _EXCEPTION_LINE.match(body):
                    yield prefix, chained.pop(prefix, False), _parse_exception(exception, frames, at, prefix)
                break


def _parse_exception(exception: re.Match[str], frames: Sequence[re.Match[str]], at: float, prefix: str) -> LoggedError:
    rank = _RANK.search(prefix)
    kind, text = exception["kind"].rpartition(".")[2], (exception["text"] or "").strip()
    return LoggedError(
        kind,
        shorten(text),
        at,
        user_place(frames),
        int(rank[1]) if rank else None,
        bool(SECONDARY_ERROR.search(f"{kind}: {text}")),
    )


def user_place(frames: Sequence[re.Match[str]]) -> str:
    """The innermost frame of the user's own code, else the innermost: `train.py:12 in step`."""
    own_frames = [f for f in frames if not any(part in f["path"] for part in _LIBRARY_PATHS)]
    for frame in (own_frames or list(frames))[-1:]:
        name = frame["path"].rpartition("/")[2]
        location = f" in {frame['function']}" if frame["function"] != "<module>" else ""
        return f"{name}:{frame['line']}{location}"
    return ""


def _find_native_errors(lines: Sequence[tuple[float, str]]) -> Iterator[LoggedError]:
    for number, (at, line) in enumerate(lines):
        if error := _NATIVE_ERROR.match(line):
            next_line = lines[number + 1][1].strip() if number + 1 < len(lines) else ""
            text = f"{error[1].strip()} {next_line}" if next_line.startswith("what():") else error[1].strip()
            kind, _, rest = text.partition(": ")
            if line.lstrip().startswith(("File ", "raise ")) or (_EXCEPTION_LINE.match(line) and "Error" in kind):
                continue  # part of a traceback
            yield LoggedError(kind, shorten(rest), at, secondary=bool(SECONDARY_ERROR.search(text)))


def _find_child_error(lines: Sequence[tuple[float, str]]) -> LoggedError | None:
    """torchrun's word on which of its children failed first, when the child itself left none."""
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


def _exit_text(code: int) -> str:
    """An exit code as `multiprocessing` has it: below 0 is a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    signal_numbers = {s.value for s in signals.Signals}
    return f"was killed with {signals.Signals(-code).name if -code in signal_numbers else f'signal {-code}'}"


def shorten(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
