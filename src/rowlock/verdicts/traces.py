"""Reads a rank's log the way a person would at 3 a.m.: the first error that is a cause, not an echo.

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

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
_RANK = re.compile(r"\[rank(\d+)\]: ?")
_PREFIX = re.compile(r"(?:\[(?:default|rank)?\d+\]:? ?)?(?:\[rank\d+\]: ?)?")
"""What torchrun (`[default0]:`) and torch (`[rank0]: `) put in front of a line."""
_CHAIN = re.compile(r"(.*?)(?:During handling of the above exception|The above exception was the direct cause)")
_RAISED = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_ELSEWHERE = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>/")
SECONDARY = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection (was )?(closed|refused|reset|aborted)|socket closed|"
    r"remote process exited|communicator was aborted|ncclRemoteError|NCCL .*abort|failed to recv, got 0 bytes|"
    r"recvValue failed|client socket has failed|Timed out waiting \d+ms for|"
    r"Application timeout caused pair closure|peer .*(gone|left)|Watchdog caught collective operation timeout|"
    r"DistNetworkError|UnavailableError|Collective ops is aborted|SignalException|got signal: 15",
    re.I,
)
"""What a rank says when another one has gone."""
AS_SEEN = "as torchrun saw it"
"""The text of a trouble that its launcher tells of a rank that said nothing itself."""
_AGENT = ("ChildFailedError", "RendezvousClosedError", "CalledProcessError")
_CHILD = re.compile(r"\s*rank\s*: (\d+) \(local_rank: \d+\)")
_CODE = re.compile(r"\s*exitcode\s*: (-?\d+)")
_NATIVE = re.compile(
    r"(Fatal Python error: .*|terminate called after throwing an instance of .*|.*[Ss]egmentation fault.*|Bus error.*|"
    r".*free\(\): invalid.*|.*double free.*|.*CUDA error: .*|.*Out of memory: .*)$"
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One error in a log. `at` in seconds since the epoch, 0 = unknown; `rank` where the line itself names it."""

    kind: str
    text: str
    at: float = 0.0
    place: str = ""
    rank: int | None = None
    secondary: bool = False

    def __str__(self) -> str:
        said = f"{self.kind}: {self.text}" if self.text else self.kind
        return f"{said} ({self.place})" if self.place else said


def trouble(log: str) -> Trouble | None:
    """The error that explains this log best: the first cause, else the first echo; None when nothing is wrong in it."""
    lines = [_stamped(line) for line in log.splitlines()]
    found = [*_last_of_each_rank(_tracebacks(lines)), *_native(lines)]
    ours = [t for t in found if not t.kind.endswith(_AGENT)]
    child = _child(lines)
    if not ours:
        return child
    best = min(ours, key=lambda t: (t.secondary, t.at))
    return child if best.secondary and child is not None and child.rank is not None else best


def last_line(log: str) -> str:
    """What a program said last, blank lines aside."""
    return _short(next((text.strip() for _, text in map(_stamped, reversed(log.splitlines())) if text.strip()), ""))


def _stamped(line: str) -> tuple[float, str]:
    stamp, _, text = line.partition(" ")
    if len(stamp) > 20 and stamp[4] == "-" and stamp.endswith("Z"):
        return seconds(stamp[:19] + "Z") + float("0" + stamp[19:-1]), text
    return 0.0, line


def _last_of_each_rank(found: Iterator[tuple[str, bool, Trouble]]) -> Iterator[Trouble]:
    """A program that goes on after an error has handled it: only a rank's last words count, with what caused them."""
    last: dict[str, Trouble] = {}
    for mark, chained, each in found:
        if not (chained and mark in last and not last[mark].secondary):
            last[mark] = each
    yield from last.values()


def _tracebacks(lines: Sequence[tuple[float, str]]) -> Iterator[tuple[str, bool, Trouble]]:
    """Every traceback: what stands before its lines (which rank), whether it follows from the one before, what it says."""
    chained: dict[str, bool] = {}
    for number, (_, line) in enumerate(lines):
        if found := _CHAIN.match(line):
            chained[found[1]] = True
            continue
        mark, _, rest = line.partition(_BEGIN)
        if rest or not line.endswith(_BEGIN) or (mark and not _PREFIX.fullmatch(mark)):
            continue
        frames: list[re.Match[str]] = []
        for at, text in lines[number + 1 :]:
            if mark and not text.startswith(mark.rstrip()):
                continue
            body = text[len(mark) :] if text.startswith(mark) else text[len(mark.rstrip()) :]
            if frame := _FRAME.match(body):
                frames.append(frame)
            elif body and not body[0].isspace():
                if raised := _RAISED.match(body):
                    yield mark, chained.pop(mark, False), _raised(raised, frames, at, mark)
                break


def _raised(raised: re.Match[str], frames: Sequence[re.Match[str]], at: float, mark: str) -> Trouble:
    rank = _RANK.search(mark)
    kind, text = raised["kind"].rpartition(".")[2], (raised["text"] or "").strip()
    return Trouble(
        kind, _short(text), at, place(frames), int(rank[1]) if rank else None, bool(SECONDARY.search(f"{kind}: {text}"))
    )


def place(frames: Sequence[re.Match[str]]) -> str:
    """The innermost frame of the user's own code, else the innermost: `train.py:12 in step`."""
    ours = [f for f in frames if not any(part in f["path"] for part in _ELSEWHERE)]
    for frame in (ours or list(frames))[-1:]:
        name = frame["path"].rpartition("/")[2]
        where = f" in {frame['function']}" if frame["function"] != "<module>" else ""
        return f"{name}:{frame['line']}{where}"
    return ""


def _native(lines: Sequence[tuple[float, str]]) -> Iterator[Trouble]:
    for number, (at, line) in enumerate(lines):
        if found := _NATIVE.match(line):
            more = lines[number + 1][1].strip() if number + 1 < len(lines) else ""
            text = f"{found[1].strip()} {more}" if more.startswith("what():") else found[1].strip()
            kind, _, rest = text.partition(": ")
            if line.lstrip().startswith(("File ", "raise ")) or (_RAISED.match(line) and "Error" in kind):
                continue  # part of a traceback
            yield Trouble(kind, _short(rest), at, secondary=bool(SECONDARY.search(text)))


def _child(lines: Sequence[tuple[float, str]]) -> Trouble | None:
    """torchrun's word on which of its children failed first, when the child itself left none."""
    begin = next((n for n, (_, text) in enumerate(lines) if "Root Cause (first observed failure)" in text), None)
    if begin is None:
        return None
    rank = code = None
    for _, text in lines[begin : begin + 8]:
        rank = rank or _CHILD.search(text)
        code = code or _CODE.search(text)
    if rank is None or code is None:
        return None
    return Trouble(_how(int(code[1])), AS_SEEN, lines[begin][0], rank=int(rank[1]))


def _how(code: int) -> str:
    """An exit code as `multiprocessing` has it: below 0 is a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = {s.value for s in signals.Signals}
    return f"was killed with {signals.Signals(-code).name if -code in known else f'signal {-code}'}"


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
