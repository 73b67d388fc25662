"""Finds Python tracebacks in a log: the last exception of a chain is the error, the one before it its cause.

Handles torch's `[rank3]:` prefixes, several ranks in one log, multi-line messages, exception groups, and the tracebacks
that libraries put into messages (a DataLoader's worker, a pool, Ray).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise

from rowlock.diagnosis.log_lines import (
    CHAIN,
    RANK_PREFIX,
    TRACEBACK_HEADER,
    LogLine,
    is_launcher_line,
    is_program_line,
    library_level,
    shorten,
)

_FRAME = re.compile(r'(?:\s+|> )File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_RANK = re.compile(r"\[rank(\d+)\]: ?")
_PREFIX = re.compile(RANK_PREFIX)
_EXCEPTION_LINE = re.compile(r"(?P<kind>[A-Za-z_][\w.]*(?:\([\w.]+\))?)(?:: (?P<text>.*)|:\s*)?$")
_SYNTAX_ERROR = re.compile(r"(?:SyntaxError|IndentationError|TabError): .")
_GROUP_HEADER = re.compile(r"(?P<prefix>.*?)\s*\+ Exception Group Traceback \(most recent call last\):$")
_GROUP_MARGIN = re.compile(r"\s*\|(?: |$)")
_GROUP_MARGINS = ("| ", "+ ")
_GROUP_SEPARATOR = re.compile(r"\s*\+(?:-\+)?-{4,}")
_LIBRARY_PATHS = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>/")
_CYTHON = (".pyx", ".pxi")
_MESSAGE_LINES = 60
_MESSAGE_TIME = 1.0
"""Seconds within which the lines of one message are written."""
SECONDARY_ERROR = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection (was )?(closed|refused|reset|aborted)|socket closed|"
    r"remote process exited|communicator was aborted|ncclRemoteError|NCCL .*abort|failed to recv, got 0 bytes|"
    r"recvValue failed|client socket has failed|Timed out waiting \d+ms for|"
    r"Application timeout caused pair closure|peer .*(gone|left)|Watchdog caught collective operation timeout|"
    r"DistNetworkError|UnavailableError|Collective ops is aborted|SignalException|got signal: 15|"
    r"/src/collective/|other end is (likely )?closed|Connection(Reset|Aborted|Refused)Error|BrokenPipeError|"
    r"another task died|remote task has failed|stopped sending heartbeats|coordination service.*(shut ?down|unavailable|error)|distributed service detected fatal errors|"
    r"Gloo (all\w+|context|[a-z]+) .*failed|heartbeat timeout|ActorDiedError|ActorUnavailableError|NodeDiedError",
    re.I,
)
"""Errors of a rank that has lost another rank."""
_LAST_ERROR = "Last error:"
"""A line of NCCL's messages; the line below it says what happened."""
_NAMES_WHO_IS_LATE = re.compile(r"Ranks? \d[\d, ]* failed to pass monitoredBarrier")
"""The message of a waiting rank about the ranks that did not arrive: the timeout below it is a consequence."""
_NO_TRACKER = re.compile(r"(?:\[[^\]]*\]: )?(Failed to connect to the tracker)")
"""XGBoost's message about a tracker that is not there: no peer is lost. The line after it names the address."""
_OTHER_OUTPUT = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|"
    r"\W{0,3}(?i:(?:(?:global|train|training) )?(?:step|epoch|iter|iteration|batch|round))\b\W{0,3}\d"
)
"""Lines that are no part of an exception's message: of logging, and of a training that goes on."""
_MAX_NOTES = 4
_OWN_ERRORS = frozenset(
    {"ValueError", "KeyError", "TypeError", "IndexError", "AttributeError", "AssertionError", "NameError", "ImportError",
     "ModuleNotFoundError", "FileNotFoundError", "PermissionError", "NotImplementedError", "ZeroDivisionError", "SyntaxError",
     "MemoryError", "RecursionError", "UnicodeDecodeError", "UnboundLocalError", "OverflowError", "OutOfMemoryError"}
)  # fmt: skip
"""Errors that a lost connection does not raise, even if their text quotes one."""
_AGENT_ERRORS = ("ChildFailedError", "RendezvousClosedError")
CHILD_ERRORS = ("CalledProcessError", "BrokenProcessPool")
"""Errors of a program whose child process has ended: what the child printed before its end says why."""
_CHILD_LINES, _CHILD_TIME = 10, 10.0
"""Lines that others may write, and seconds, between a child's traceback and that of its parent: some libraries end slowly."""
_RETURNED = re.compile(r"On WorkerInfo\(id=\d+, name=")
"""What torch's RPC prints, two lines above a traceback, for an error that it returns to the caller on another rank."""


@dataclass(frozen=True, slots=True)
class LoggedError:
    """One error in a log. `at`: seconds since the epoch, 0 = unknown; `rank`: if the line itself names it; `cause`: the exception that
    it was chained to."""

    kind: str
    text: str
    at: float = 0.0
    place: str = ""
    rank: int | None = None
    secondary: bool = False
    cause: str = ""

    def __str__(self) -> str:
        text = f"{self.kind}: {self.text}" if self.text else self.kind
        details = "; ".join([*filter(None, [self.place]), *([f"caused by {self.cause}"] if self.cause else [])])
        return f"{text} ({details})" if details else text


@dataclass(frozen=True, slots=True)
class Traceback:
    """A traceback in a log. `prefix`: the text before each of its lines; `begin`, `end`: the indexes of its header and of the first line
    after it."""

    prefix: str
    begin: int
    end: int
    error: LoggedError
    chained: bool
    """It is chained to the traceback before it of the same rank."""


def find_uncaught(lines: Sequence[LogLine]) -> Iterator[Traceback]:
    """The last error of each rank, with its cause (a program that continues after an error has handled it). Launchers' errors are skipped."""
    last: dict[str, Traceback] = {}
    for found in find_tracebacks(lines):
        if found.error.kind.endswith(_AGENT_ERRORS):
            continue
        if found.error.kind.endswith(CHILD_ERRORS) and (child := _error_of_child(lines, found, last)) is not None:
            last[child.prefix] = replace(child, end=found.end)
            continue
        before = last.get(found.prefix)
        last[found.prefix] = _join(before, found) if before is not None and found.chained else found
    yield from last.values()


def _error_of_child(lines: Sequence[LogLine], found: Traceback, last: dict[str, Traceback]) -> Traceback | None:
    """The child's traceback that explains the parent's, which was `found`: torch has prefixed it, or it came just before."""
    if found.chained:
        return None
    for child in reversed(last.values()):
        if child.error.rank is not None or is_just_before(lines, child, found):
            return child
    return None


def is_just_before(lines: Sequence[LogLine], first: Traceback, second: Traceback) -> bool:
    """Whether hardly anything was written between two tracebacks, and not much time has passed."""
    between = sum(is_program_line(text) for _, text in lines[first.end : second.begin])
    late = second.error.at - first.error.at if first.error.at and second.error.at else 0.0
    return between <= _CHILD_LINES and late <= _CHILD_TIME


def _join(before: Traceback, found: Traceback) -> Traceback:
    """Merge two chained errors. The last one counts, unless it is a lost connection after an error of the rank's own: then the first
    counts. An error after a lost peer is secondary."""
    first, last = before.error, found.error
    if last.secondary and not first.secondary:
        return replace(before, end=found.end)
    if (first.kind, first.text) == (last.kind, last.text):
        return replace(found, error=replace(last, place=first.place or last.place, cause=first.cause))
    cause = f"{first.kind}: {first.text}" if first.text else first.kind
    error = replace(last, cause=shorten(cause), secondary=first.secondary or last.secondary)
    return replace(found, error=error)


def find_tracebacks(lines: Sequence[LogLine]) -> Iterator[Traceback]:
    """Every traceback, in the order of their headers."""
    chained: dict[str, bool] = {}
    for number, (_, line) in enumerate(lines):
        following = lines[number + 1][1] if number + 1 < len(lines) else ""
        if chain := CHAIN.match(line):
            chained[chain[1]] = True
            continue
        if group := _GROUP_HEADER.fullmatch(line):
            if (found := _read_group(lines, number, group["prefix"])) is not None:
                yield found
            continue
        prefix = _header_prefix(line, following)
        if prefix is None and not (_SYNTAX_ERROR.match(line) and number >= 2 and lines[number - 1][1][:1].isspace()):
            continue
        if prefix is None:  # Python prints no header for a script that cannot be parsed
            frames = [frame for _, text in lines[max(0, number - 4) : number] if (frame := _FRAME.match(text))]
            if frames and not any(_header_prefix(text) == "" for _, text in lines[max(0, number - 100) : number]):
                yield _read_error(lines, number, "", frames)
        elif _RETURNED.match(lines[max(0, number - 2)][1]):
            continue
        elif (end := _exception_line(lines, number + 1, prefix)) is not None:
            yield replace(_read_error(lines, *end), begin=number, chained=chained.pop(prefix, False))


def _header_prefix(line: str, following: str = "") -> str | None:
    """The prefix of a traceback's lines, by its header and the line after it; None for a line that is no header.

    What stands before a header on its line is a prefix of torch or mpirun, or another one that the next line has, too (Ray's
    `(train pid=7) `), or the end of a line that the program had begun (a prompt, a progress bar)."""
    if not line.endswith(TRACEBACK_HEADER):
        return None
    before = line.removesuffix(TRACEBACK_HEADER).removesuffix("Original ")  # torch's DataLoader: of its worker
    if before.isspace() or before.endswith(_GROUP_MARGINS):
        return None
    if before and following.startswith(before):
        return before
    prefix = _PREFIX.match(before)
    return prefix[0] if prefix else ""


def _body(text: str, prefix: str) -> str | None:
    """A line without the prefix; None for a line of another rank."""
    if not text.startswith(prefix.rstrip()):
        return None
    return text[len(prefix) :] if text.startswith(prefix) else text[len(prefix.rstrip()) :]


def _exception_line(
    lines: Sequence[LogLine], start: int, prefix: str
) -> tuple[int, str, Sequence[re.Match[str]]] | None:
    """The line number of the exception of a traceback whose frames begin at `start`, the prefix, and the frames; None if it is cut off."""
    frames: list[re.Match[str]] = []
    for number in range(start, len(lines)):
        body = _body(lines[number][1], prefix)
        if body is None:
            continue
        if frame := _FRAME.match(body):
            frames.append(frame)
        elif body and not body[0].isspace():
            return (number, prefix, frames) if _EXCEPTION_LINE.match(body) else None
    return None


def _read_error(lines: Sequence[LogLine], number: int, prefix: str, frames: Sequence[re.Match[str]]) -> Traceback:
    """The traceback whose exception is in line `number`, including all lines of its message."""
    at, line = lines[number]
    exception, rank = _EXCEPTION_LINE.match(_body(line, prefix) or ""), _RANK.search(prefix)
    assert exception is not None
    more, end = _message_lines(lines, number + 1, prefix, at)
    kind, text, cause = exception["kind"].rpartition(".")[2], (exception["text"] or "").strip(), ""
    is_secondary = bool(SECONDARY_ERROR.search(f"{kind}: {text}"))
    if kind not in _OWN_ERRORS:
        telling, cause = next((body for body in more if SECONDARY_ERROR.search(body)), ""), _quoted_error(more)
        is_secondary = not _NAMES_WHO_IS_LATE.search(text) and (is_secondary or bool(telling))
        if tracker := _absent_tracker(more):
            text, telling, is_secondary = tracker, "", False
    else:
        telling, is_secondary = "", is_secondary and "Error" in text
        if (
            rank is not None
        ):  # torch has prefixed the exception's own lines: its message, and notes that were added to it
            text = "; ".join([text, *more[:_MAX_NOTES]]) if text else text
        else:  # the next lines may be the program's own output
            rest = _until_closed(text, more)
            text, end = " ".join([text, *rest]), number + 1 + len(rest)
    if not text or text.endswith(":"):  # the message begins on a later line
        text = f"{text} {telling or next(filter(None, more), '')}".strip()
    if last := next((after for line, after in pairwise(more) if line == _LAST_ERROR), ""):
        text = f"{last} ({text})"
    place, number_of_rank = user_place(frames), int(rank[1]) if rank else None
    error = LoggedError(kind, shorten(text), at, place, number_of_rank, is_secondary, shorten(cause))
    return Traceback(prefix, number, end, error, chained=False)


def _quoted_error(message: Sequence[str]) -> str:
    """The first exception of a traceback inside of a message, as torch's checkpoints quote those of all ranks and papermill that of a cell;
    "" without one."""
    quoted = next((n for n, line in enumerate(message) if TRACEBACK_HEADER[:-1] in line), len(message))
    found = (_EXCEPTION_LINE.match(line) for line in message[quoted + 1 :])
    return next((each[0] for each in found if each and each["kind"].endswith(("Error", "Exception"))), "")


def _until_closed(text: str, following: Sequence[str]) -> list[str]:
    """The lines after the first of a message up to the one that closes its last bracket; [] if all are closed, or none does."""
    taken, depth = list[str](), _depth(text)
    for line in following[:_MAX_NOTES] if depth > 0 else ():
        taken.append(line)
        depth += _depth(line)
        if depth <= 0:
            return taken
    return []


def _depth(text: str) -> int:
    return sum(text.count(bracket) for bracket in "([{") - sum(text.count(bracket) for bracket in ")]}")


def _absent_tracker(lines: Sequence[str]) -> str:
    """What XGBoost says of a tracker that cannot be reached, with its address; "" without such a line."""
    for line, after in pairwise([*lines, ""]):
        if found := _NO_TRACKER.match(line):
            return f"{found[1]}: {after.rpartition(']: ')[2]}".removesuffix(": ")
    return ""


def _message_lines(lines: Sequence[LogLine], start: int, prefix: str, at: float) -> tuple[list[str], int]:
    """The lines of a message after its first, without blank lines and native stacks; and the index of the line after it."""
    found: list[str] = []
    end = start
    for number in range(start, min(len(lines), start + _MESSAGE_LINES)):
        body = _body(lines[number][1], prefix)
        if body is None:
            continue
        if (
            _header_prefix(lines[number][1]) is not None
            or CHAIN.match(body)
            or library_level(body)
            or is_launcher_line(body)
            or _OTHER_OUTPUT.match(body)
            or (at and lines[number][0] > at + _MESSAGE_TIME)
        ):
            break
        if body.strip() and not body.startswith(("  [bt]", "Stack trace:")):
            found.append(body.strip().lstrip("- "))
        end = number + 1 if body.strip() else end
    return found, end


def _read_group(lines: Sequence[LogLine], number: int, prefix: str) -> Traceback | None:
    """Read an exception group: its own line is the error, its members are the cause. It is secondary if all members are."""
    block: list[LogLine] = [(lines[number][0], TRACEBACK_HEADER)]
    end = number + 1
    while end < len(lines):
        at, text = lines[end]
        body = text[len(prefix) :]
        if _GROUP_SEPARATOR.match(body):
            block.append((at, TRACEBACK_HEADER))
        elif _GROUP_MARGIN.match(body):
            text = _GROUP_MARGIN.sub("", body, count=1)
            block.append((at, text.replace("Exception Group Traceback", "Traceback").removeprefix("+ ")))
        else:
            break
        end += 1
    errors = [found.error for found in find_tracebacks(block)]
    if not errors:
        return None
    group, *members = errors
    leaves = [error for error in members if not error.kind.endswith("ExceptionGroup")]
    secondary = bool(leaves) and all(error.secondary for error in leaves)
    cause = "; ".join(map(str, leaves[:3])) + (f" and {len(leaves) - 3} more" if len(leaves) > 3 else "")
    return Traceback(prefix, number, end, replace(group, secondary=secondary, cause=shorten(cause)), chained=False)


def user_place(frames: Sequence[re.Match[str]]) -> str:
    """The innermost frame of the user's own code, else the innermost: `train.py:12 in step`."""
    paths = (f["path"] for f in frames)
    is_own = [not path.endswith(_CYTHON) and not any(part in path for part in _LIBRARY_PATHS) for path in paths]
    own_frames = list(compress(frames, is_own))
    for frame in (own_frames or list(frames))[-1:]:
        name = frame["path"].rpartition("/")[2]
        location = f" in {frame['function']}" if frame["function"] not in ("<module>", None) else ""
        return f"{name}:{frame['line']}{location}"
    return ""
