"""One watch: its initial list, then its changes, in batches.

One method and no generator, because each change goes to a thousand watchers: every layer between a change and the socket
costs a thousand times. A caller that can pass changes on at once gives `next` a callback, and its task is not woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from rowlock.api import Change
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import Kind
from rowlock.storage.read_verbs import Selection
from rowlock.storage.watch_cache import Cursor, Listener, WatchCache

TryDeliver = Callable[[Sequence[Change]], bool]
"""Passes changes on without awaiting, all or none of them; False when it cannot now."""

LIST_CHUNK, LIST_BYTES = 256, 1 << 20
"""Objects of the initial list in one batch, and bytes of their JSON after which it ends."""


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
        initial_changes: Iterable[Change] = (),
        bookmark_interval: float | None = None,
    ) -> None:
        self._source, self._selection, self._bookmark_interval = source, selection, bookmark_interval
        self._kind: Kind | None = selection.kind if selection else None
        self._namespace = selection.namespace if selection else ""
        self._since = source.revision if since is None else since
        self._cursor: Cursor | None = None
        self._initial_batches: Iterator[Sequence[Change]] = iter(())
        self._has_begun = False
        """Whether `next` has returned the first batch of the initial list."""
        if since is None:
            self._cursor = source.watch_cache.cursor(self._kind, self._namespace)
            self._initial_batches = chain(_list_chunks(initial_changes), [(Change("Bookmark", self._since),)])

    async def next(self, try_deliver: TryDeliver | None = None) -> Sequence[Change]:
        """Wait for changes and return them, or one bookmark: after the initial list, and after `bookmark_interval` seconds
        without changes. Raises Expired when changes since the last call have been compacted.

        While this waits, changes go to `try_deliver`; those that it does not accept are returned."""
        for batch in self._initial_batches:
            if self._has_begun:
                await self._source.watch_cache.list_turns.wait()
            self._has_begun = True
            return batch
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


def _list_chunks(changes: Iterable[Change]) -> Iterator[Sequence[Change]]:
    chunk, size = list[Change](), 0
    for change in changes:
        chunk.append(change)
        size += len(change.encoded) if isinstance(change, StoredChange) else 0
        if len(chunk) >= LIST_CHUNK or size >= LIST_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
