"""What happened lately, once, for all watchers.

Every change is appended to one shared stream per kind and to one for everything. A watcher is a cursor into a stream
and, while it waits, a future: a thousand watchers share one list. A watcher that can pass news on without waiting for
anything has an ear besides: it hears them in turn, some at a time, and no task of its own wakes up. A watcher that is
too slow loses its place when the stream is trimmed and must find it again from the journal, or hear Expired; it cannot
hold memory.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from rowlock.cluster.storage.state import Stored
from rowlock.kinds import Kind

log = logging.getLogger(__name__)

TURN = 64
"""Ears that hear news in one turn of the event loop: about a millisecond, in which nobody else is served."""


Ear = Callable[[Sequence[Stored]], bool]
"""Passes news on, all or none of them, without waiting for anything; False: it cannot now."""


class _Stream:
    """Changes in order; `base` is the absolute position of the first that is still here."""

    def __init__(self) -> None:
        self.base = 0
        self.changes: list[Stored] = []
        self.waiting: set[Cursor] = set()

    @property
    def end(self) -> int:
        return self.base + len(self.changes)


class Cursor:
    """One watcher's place. `namespace` "" = all; it is not woken for changes elsewhere."""

    def __init__(self, stream: _Stream, position: int, namespace: str = "") -> None:
        self._stream, self._position, self._namespace = stream, position, namespace
        self._future: asyncio.Future[bool] | None = None
        self._ear: Ear | None = None
        self._called = False
        """Will its ear be called?"""

    def take(self) -> list[Stored] | None:
        """All changes since the last call; None when some of them are no longer here."""
        stream = self._stream
        since = self._position - stream.base
        if since < 0:
            return None
        found = stream.changes[since:]
        self._position += len(found)
        if self._namespace:
            return [change for change in found if change.key.namespace == self._namespace]
        return found

    async def wait(self, timeout: float | None = None, ear: Ear | None = None) -> bool:
        """Until there may be something to take; False when the time was over first. What `ear` takes meanwhile is taken."""
        stream = self._stream
        if self._position != stream.end:
            return True
        loop = asyncio.get_running_loop()
        self._future, self._ear = loop.create_future(), ear
        timer = loop.call_later(timeout, self._wake, False) if timeout is not None else None
        stream.waiting.add(self)
        try:
            return await self._future or self._position != stream.end
        finally:
            stream.waiting.discard(self)
            self._future = self._ear = None
            if timer:
                timer.cancel()

    def _wake(self, news: bool) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(news)

    def told(self, spaces: set[str]) -> bool:
        """There is news in these namespaces: wake up, or move on when none of it is for us. True: `hear` is to be called."""
        if self._called or self._future is None or self._future.done():
            return False  # it will look anyway
        if self._namespace and self._namespace not in spaces:
            self._position = self._stream.end
        elif self._ear:
            self._called = True
        else:
            self._wake(True)
        return self._called

    def hear(self) -> None:
        """It is this one's turn."""
        self._called = False
        if self._ear is None or self._future is None or self._future.done():
            return
        before, found = self._position, self.take()
        try:
            taken = found is not None and (not found or self._ear(found))
        except Exception:
            log.exception("a watcher could not pass news on; its task goes on with them")
            taken = False
        if not taken:
            self._position = before
            self._wake(True)


class History:
    """The newest `window` changes. `floor`: every change after that revision is here."""

    def __init__(self, floor: int, window: int) -> None:
        self.floor = floor
        self._window = window
        self._everything = _Stream()
        self._kinds: dict[Kind, _Stream] = {}
        self._called: deque[Cursor] = deque()
        """Whose ears are still to hear the latest news."""

    def publish(self, changes: Sequence[Stored]) -> None:
        """These are durable now: tell everybody who waits for them."""
        # Trimmed rarely and in bulk, so that the cost per change stays constant; and before the news comes in, so that
        # a watcher that waits has time to read even a batch larger than the window.
        if len(self._everything.changes) > self._window + self._window // 4:
            self.trim(self._everything.changes[-self._window - 1].revision)
        self._extend(self._everything, changes)
        by_kind: dict[Kind, list[Stored]] = {}
        for change in changes:
            by_kind.setdefault(change.place[0], []).append(change)
        for kind, some in by_kind.items():
            self._extend(self._stream(kind), some)

    def trim(self, revision: int) -> None:
        """Forget everything up to `revision`."""
        self.floor = max(self.floor, revision)
        for stream in (self._everything, *self._kinds.values()):
            gone = bisect_right(stream.changes, self.floor, key=_revision)
            del stream.changes[:gone]
            stream.base += gone

    def cursor(self, kind: Kind | None, namespace: str = "", since: int | None = None) -> Cursor:
        """A place in the stream of one kind, or of everything: after `since` (not below `floor`), or at the end."""
        stream = self._stream(kind)
        if since is None:
            return Cursor(stream, stream.end, namespace)
        return Cursor(stream, stream.base + bisect_right(stream.changes, since, key=_revision), namespace)

    def after(self, kind: Kind, since: int) -> list[Stored]:
        """The changes of a kind after a revision that is not below `floor`."""
        changes = self._stream(kind).changes
        return changes[bisect_right(changes, since, key=_revision) :]

    def _stream(self, kind: Kind | None) -> _Stream:
        if kind is None:
            return self._everything
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = _Stream()
        return found

    def _extend(self, stream: _Stream, changes: Sequence[Stored]) -> None:
        stream.changes.extend(changes)
        if not stream.waiting:
            return
        spaces = {change.key.namespace for change in changes}
        before = len(self._called)
        self._called.extend(cursor for cursor in stream.waiting if cursor.told(spaces))
        if self._called and not before:
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Some ears hear; then everybody else has a turn, then more ears."""
        for _ in range(min(TURN, len(self._called))):
            self._called.popleft().hear()
        if self._called:
            asyncio.get_running_loop().call_soon(self._tell)


def _revision(change: Stored) -> int:
    return change.revision
