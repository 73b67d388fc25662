"""One watch: its initial list, then its changes, in batches.

One method and no generator, because each change goes to a thousand watchers: every layer between a change and the socket
costs a thousand times. A caller that can pass changes on at once gives `next` a callback, and its task is not woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from rowlock.api import Change
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import Kind
from rowlock.storage.read_verbs import Selection
from rowlock.storage.watch_cache import Cursor, Listener, WatchCache

TryDeliver = Callable[[Sequence[Change]], bool]
"""Passes changes on without awaiting, all or none of them; False when it cannot now."""

LIST_CHUNK, LIST_BYTES, LIST_LOOKS = 256, 1 << 18, 1024
"""Objects of the initial list in one batch, bytes of their JSON after which it ends, and objects that are looked at for it. A client
that reads nothing keeps one batch in the server's memory."""
_SMALL, _SMALL_BYTES = 32, 1 << 15
"""A first batch of at most so much goes out at once; a larger one waits for a turn of its own."""


class ChangeSource(Protocol):
    """What a Watcher needs of the store."""

    watch_cache: WatchCache

    @property
    def revision(self) -> int: ...

    async def wait_for_revision(self, since: int) -> None:
        """Waits for a revision that is not durable yet. Raises Expired for one that never was."""
        ...

    async def read_missed(self, kind: Kind | None, since: int) -> tuple[Sequence[StoredChange], int]:
        """Changes that are no longer in memory, and up to which revision they go. Raises Expired."""
        ...


class Watcher:
    """Follows one kind (`selection`) or everything (None), after revision `since`. Without `since` it begins with
    `initial_changes`, the current state, and a bookmark."""

    def __init__(
        self,
        source: ChangeSource,
        selection: Selection | None = None,
        *,
        since: int | None = None,
        initial_changes: Iterable[StoredChange] = (),
        bookmark_interval: float | None = None,
    ) -> None:
        self._source, self._selection, self._bookmark_interval = source, selection, bookmark_interval
        self._kind: Kind | None = selection.kind if selection else None
        self._namespace = selection.namespace if selection else ""
        self._since = source.revision if since is None else since
        self._cursor: Cursor | None = None
        self._initial_batches: Iterator[Sequence[StoredChange]] = iter(())
        self._has_begun, self._is_listed = False, True
        """Whether `next` has returned the first batch of the initial list, and all of it."""
        if since is None:
            self._cursor = source.watch_cache.cursor(self._kind, self._namespace)
            self._initial_batches = _list_chunks(initial_changes, selection)
            self._is_listed = False

    async def next(self, try_deliver: TryDeliver | None = None) -> Sequence[Change]:
        """Wait for changes and return them, or one bookmark: after the initial list, and after `bookmark_interval` seconds
        without changes. Raises Expired when changes since the last call have been compacted.

        While this waits, changes go to `try_deliver`; those that it does not accept are returned."""
        if not self._is_listed:
            return await self._next_of_list()
        source = self._source
        if self._since > source.revision:
            await source.wait_for_revision(self._since)
        listener = self._make_listener(try_deliver) if try_deliver else None
        while True:
            changes = self.take()
            if changes is None:  # trimmed from memory: read the journal
                changes, self._since = await source.read_missed(self._kind, self._since)
            if visible := self._visible_changes(changes):
                return visible
            if self._cursor and not await self._cursor.wait(self._bookmark_interval, listener):
                return (Change("Bookmark", source.revision),)

    async def _next_of_list(self) -> Sequence[Change]:
        """The next batch of the initial list, or the bookmark at its end. Many watches begin together: what they look through in a turn of
        the loop has a limit in all, and one of them at a time goes on with a large batch."""
        turns = self._source.watch_cache
        while not self._is_listed:
            async with turns.list_looks:
                batch = next(self._initial_batches, None)
            if batch is None:
                self._is_listed = True
            elif batch:
                if self._has_begun or len(batch) > _SMALL or _size(batch) > _SMALL_BYTES:
                    await turns.list_turns.wait()  # after the look: those that waited for it go on in the same turn
                self._has_begun = True
                return batch
        return (Change("Bookmark", self._since),)

    def take(self) -> Sequence[StoredChange] | None:
        """The changes since the last call, of all objects of the kind, without waiting; None when some are no longer in memory."""
        source = self._source
        if self._cursor is None and self._since >= source.watch_cache.floor:
            self._cursor = source.watch_cache.cursor(self._kind, self._namespace, self._since)
        changes = self._cursor.take() if self._cursor else None
        if changes is None:
            self._cursor = None
        else:
            self._since = source.revision
        return changes

    def _make_listener(self, try_deliver: TryDeliver) -> Listener:
        """The listener that filters changes and passes them to `try_deliver` while the watcher's task waits."""
        unfiltered = self._selection is None or not self._selection.is_selective

        def listen(changes: Sequence[StoredChange]) -> bool:
            visible = changes if unfiltered else self._visible_changes(changes)
            if visible and not try_deliver(visible):
                return False
            self._since = changes[-1].revision
            return True

        return listen

    def _visible_changes(self, changes: Sequence[StoredChange]) -> Sequence[Change]:
        selection = self._selection
        if selection is None:
            return changes
        return [visible for change in changes if (visible := selection.visible_change(change)) is not None]


def _list_chunks(changes: Iterable[StoredChange], selection: Selection | None) -> Iterator[Sequence[StoredChange]]:
    """What the watch selects, in batches; an empty one where many objects were looked at for nothing."""
    chunk, size, looks = list[StoredChange](), 0, 0
    for change in changes:
        looks += 1
        if selection is None or selection.matches(change.object):
            chunk.append(change)
            size += len(change.encoded)
        if len(chunk) >= LIST_CHUNK or size >= LIST_BYTES or looks >= LIST_LOOKS:
            yield chunk
            chunk, size, looks = [], 0, 0
    if chunk:
        yield chunk


def _size(batch: Sequence[StoredChange]) -> int:
    return sum(len(change.encoded) for change in batch)
