"""The file of a log that is being followed: chunks of the stream are appended, and a new stream continues after the last line.

An API server resumes a log only at a whole second, so lines that arrive twice are dropped by their time stamps. The file of a server that
was killed is continued in the same way.

Logs that the cluster refuses to show, because a right was revoked or the server's credentials are no longer valid. Both may come back,
and the logs are not lost while the pods exist. So followers retry, a few at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rowlock import objects
from rowlock.kube.followed_logs.stamps import sort_key, stamp_of

MAX_BYTES = 50 << 20
"""Maximum size of the log of one run of a container. Beyond it the first half is dropped, as kubelets do."""
_TAIL = 1 << 16


class FollowedLog:
    """A file of lines `time text`. Call `begin` before each stream, then `append` with each chunk. Both block on the disk."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self._max_bytes = path, max_bytes
        self._last, self._known = b"", 0
        """The time stamp of the last line when the stream began, and how many lines with this stamp have yet to be skipped."""
        self._rest = b""
        """The beginning of an incomplete line while known lines are skipped."""

    def begin(self) -> float | None:
        """Prepare for a stream. Returns its start time (seconds since the epoch); None = from the start of the log. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rest, self._last, self._known = b"", b"", 0
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "r+b") as file:
            size = os.fstat(fd).st_size
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            file.truncate(size - len(tail) + whole)
        lines = tail[:whole].splitlines()
        stamp = stamp_of(lines[-1]) if lines else b""
        if not stamp:
            os.truncate(self.path, 0)  # no time stamp to resume from: the stream starts over
            return None
        self._last, self._known = stamp, sum(stamp_of(line) == stamp for line in lines)
        return float(int(objects.seconds(stamp.decode())))

    def append(self, chunk: bytes) -> None:
        """Append a chunk of the stream, without lines that are already in the file. Raises OSError."""
        if self._last:
            chunk = self._leave_out_known(chunk)
        if not chunk:
            return
        with open(self.path, "ab", opener=_open_private) as file:
            file.write(chunk)
            size = file.tell()
        if size > self._max_bytes:
            self._give_up_first_half(size)

    def _leave_out_known(self, chunk: bytes) -> bytes:
        """The part of the stream that comes after the last line of the file."""
        text = self._rest + chunk
        position = 0
        while (end := text.find(b"\n", position)) >= 0:
            stamp = stamp_of(text[position : position + 64])
            if (stamp and sort_key(stamp) > sort_key(self._last)) or (stamp == self._last and self._known <= 0):
                self._rest, self._last = b"", b""
                return text[position:]
            if stamp == self._last:
                self._known -= 1
            position = end + 1
        self._rest = text[position:]
        return b""

    def _give_up_first_half(self, size: int) -> None:
        shorter = self.path.with_name(self.path.name + ".new")
        with self.path.open("rb") as source, open(shorter, "wb", opener=_open_private) as target:
            source.seek(size - self._max_bytes // 2)
            source.readline(_TAIL)
            while block := source.read(1 << 20):
                target.write(block)
        shorter.replace(self.path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


ASK_AGAIN_S, LONGEST_S = 5.0, 60.0
"""Seconds between two retries in one namespace; and the longest wait of one follower, however many there are."""
PER_SECOND = 1.0
"""Maximum rate of retries in all namespaces together. `LONGEST_S` takes precedence when very many followers wait."""


@dataclass(slots=True)
class _Refused:
    """One namespace whose logs are refused."""

    next_question: float
    shown: asyncio.Event = field(default_factory=asyncio.Event)


class LogRefusals:
    """Call `wait` before a refused log is requested again, and `note_shown` after any other answer."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: returns seconds; by default the event loop's time."""
        self._clock = clock
        self._refused: dict[str, _Refused] = {}

    def __bool__(self) -> bool:
        """Whether logs of any namespace are refused now."""
        return bool(self._refused)

    def note_shown(self, namespace: str) -> None:
        """The cluster shows logs of this namespace: wake the tasks that wait, so that they ask now."""
        if refused := self._refused.pop(namespace, None):
            refused.shown.set()

    def next_turn(self, namespace: str) -> float:
        """Schedule the retry of one more refused follower. Returns its time on the clock, in seconds."""
        now = self._clock() if self._clock else asyncio.get_running_loop().time()
        refused = self._refused.setdefault(namespace, _Refused(now))
        pause = max(ASK_AGAIN_S, len(self._refused) / PER_SECOND)
        refused.next_question = min(max(refused.next_question, now) + pause, now + LONGEST_S)
        return refused.next_question

    async def wait(self, namespace: str) -> None:
        """Wait for this follower's turn, or until logs of the namespace are shown again."""
        turn = self.next_turn(namespace)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(turn):
                await self._refused[namespace].shown.wait()
