"""The latest changes, kept once for all watchers.

Every change is appended to one shared stream per kind and to one for everything. A watcher is a cursor into a stream
and, while it waits, a future: a thousand watchers share one list. A watcher that can pass changes on without awaiting
has a listener as well: listeners are called some at a time, and the watcher's task does not wake up. A watcher that is
too slow loses its place when the stream is trimmed and continues from the journal, or gets Expired: it cannot
make memory grow.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from rowlock.controllers.turn_budget import OnePerTurn, SharedTurn
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import Kind

log = logging.getLogger(__name__)

WINDOW_BYTES = 32 << 20
"""Bytes of JSON that the latest changes have together, about; in memory, decoded, they take some six times as much. A window of changes
alone would be gigabytes where somebody writes large objects again and again."""
LISTENERS_PER_TURN = 64
"""Listeners that are called in one turn of the event loop: they block it for about a millisecond."""


Listener = Callable[[Sequence[StoredChange]], bool]
"""Passes changes on without awaiting, all or none of them; False when it cannot now."""


class _Stream:
    """Changes in order; `base` is the absolute position of the first that has not been trimmed."""

    def __init__(self) -> None:
        self.base = 0
        self.changes: list[StoredChange] = []
        self.waiters: set[Cursor] = set()

    @property
    def end(self) -> int:
        return self.base + len(self.changes)


class Cursor:
    """One watcher's place. `namespace` "" = all; it is not woken for changes elsewhere."""

    def __init__(self, stream: _Stream, position: int, namespace: str = "") -> None:
        self._stream, self._position, self._namespace = stream, position, namespace
        self._future: asyncio.Future[bool] | None = None
        self._listener: Listener | None = None
        self._delivery_pending = False
        """Whether `deliver` has been scheduled and not called yet."""

    def take(self) -> list[StoredChange] | None:
        """All changes since the last call; None when some of them have been trimmed."""
        stream = self._stream
        since = self._position - stream.base
        if since < 0:
            return None
        changes = stream.changes[since:]
        self._position += len(changes)
        if self._namespace:
            return [change for change in changes if change.key.namespace == self._namespace]
        return changes

    async def wait(self, timeout: float | None = None, listener: Listener | None = None) -> bool:
        """Wait until `take` may return changes; False on timeout (seconds). Changes that `listener` accepts meanwhile are consumed."""
        stream = self._stream
        if self._position != stream.end:
            return True
        loop = asyncio.get_running_loop()
        self._future, self._listener = loop.create_future(), listener
        timer = loop.call_later(timeout, self._wake, False) if timeout is not None else None
        stream.waiters.add(self)
        try:
            return await self._future or self._position != stream.end
        finally:
            stream.waiters.discard(self)
            self._future = self._listener = None
            if timer:
                timer.cancel()

    def _wake(self, has_changes: bool) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(has_changes)

    def notify(self, namespaces: set[str]) -> bool:
        """New changes in `namespaces`: wake the watcher, or skip them if none is its own. True when the caller must call `deliver`."""
        if self._delivery_pending or self._future is None or self._future.done():
            return False  # the watcher will read the stream anyway
        if self._namespace and self._namespace not in namespaces:
            self._position = self._stream.end
        elif self._listener:
            self._delivery_pending = True
        else:
            self._wake(True)
        return self._delivery_pending

    def deliver(self) -> None:
        """Call the listener with the changes since its last call; wake the watcher when it does not accept them."""
        self._delivery_pending = False
        if self._listener is None or self._future is None or self._future.done():
            return
        start, changes = self._position, self.take()
        try:
            accepted = changes is not None and (not changes or self._listener(changes))
        except Exception:
            log.exception("a watcher could not pass changes on; its task goes on with them")
            accepted = False
        if not accepted:
            self._position = start
            self._wake(True)


class WatchCache:
    """The newest `window` changes, as far as they have `WINDOW_BYTES`. `floor`: every change after that revision is in memory."""

    def __init__(self, floor: int, window: int) -> None:
        self.floor = floor
        self.list_turns, self.list_looks = OnePerTurn(), SharedTurn()
        """Turns of watchers to return a further batch of their initial lists: a thousand that begin together would share one turn of the
        loop."""
        self._window, self._bytes = window, 0
        self._all_changes = _Stream()
        self._kinds: dict[Kind, _Stream] = {}
        self._pending_deliveries: deque[Cursor] = deque()
        """Cursors whose listeners are still to be called with the latest changes."""

    def publish(self, changes: Sequence[StoredChange]) -> None:
        """Append durable changes and notify the waiting watchers."""
        # Trimmed rarely and in bulk, so that the cost per change stays constant; and before the changes come in, so that
        # a watcher that waits has time to read even a batch larger than the window.
        kept = self._all_changes.changes
        if len(kept) > self._window + self._window // 4:
            self.trim(kept[-self._window - 1].revision)
        if self._bytes > WINDOW_BYTES + WINDOW_BYTES // 4:
            self.trim(self._last_beyond(WINDOW_BYTES))
        self._extend(self._all_changes, changes)
        self._bytes += sum(len(change.encoded) for change in changes)
        by_kind: dict[Kind, list[StoredChange]] = {}
        for change in changes:
            by_kind.setdefault(change.kind_and_key[0], []).append(change)
        for kind, kind_changes in by_kind.items():
            self._extend(self._stream(kind), kind_changes)

    def trim(self, revision: int) -> None:
        """Forget everything up to `revision`."""
        self.floor = max(self.floor, revision)
        gone = bisect_right(self._all_changes.changes, self.floor, key=_revision_of)
        self._bytes -= sum(len(change.encoded) for change in self._all_changes.changes[:gone])
        for stream in (self._all_changes, *self._kinds.values()):
            trimmed = bisect_right(stream.changes, self.floor, key=_revision_of)
            del stream.changes[:trimmed]
            stream.base += trimmed

    def _last_beyond(self, most: int) -> int:
        """The revision of the newest change with which the newest ones have more bytes than `most`."""
        size = 0
        for change in reversed(self._all_changes.changes):
            size += len(change.encoded)
            if size > most:
                return change.revision
        return self.floor

    def cursor(self, kind: Kind | None, namespace: str = "", since: int | None = None) -> Cursor:
        """A place in the stream of one kind, or of everything: after `since` (not below `floor`), or at the end."""
        stream = self._stream(kind)
        if since is None:
            return Cursor(stream, stream.end, namespace)
        return Cursor(stream, stream.base + bisect_right(stream.changes, since, key=_revision_of), namespace)

    def changes_after(self, kind: Kind, since: int) -> list[StoredChange]:
        """The changes of a kind after a revision that is not below `floor`."""
        changes = self._stream(kind).changes
        return changes[bisect_right(changes, since, key=_revision_of) :]

    def _stream(self, kind: Kind | None) -> _Stream:
        if kind is None:
            return self._all_changes
        stream = self._kinds.get(kind)
        if stream is None:
            stream = self._kinds[kind] = _Stream()
        return stream

    def _extend(self, stream: _Stream, changes: Sequence[StoredChange]) -> None:
        stream.changes.extend(changes)
        if not stream.waiters:
            return
        namespaces = {change.key.namespace for change in changes}
        was_scheduled = len(self._pending_deliveries)
        self._pending_deliveries.extend(cursor for cursor in stream.waiters if cursor.notify(namespaces))
        if self._pending_deliveries and not was_scheduled:
            asyncio.get_running_loop().call_soon(self._deliver_some)

    def _deliver_some(self) -> None:
        """Call up to `LISTENERS_PER_TURN` listeners, yield to the event loop, repeat."""
        for _ in range(min(LISTENERS_PER_TURN, len(self._pending_deliveries))):
            self._pending_deliveries.popleft().deliver()
        if self._pending_deliveries:
            asyncio.get_running_loop().call_soon(self._deliver_some)


def _revision_of(change: StoredChange) -> int:
    return change.revision
