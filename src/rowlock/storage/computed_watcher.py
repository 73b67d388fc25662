"""A watch of objects that are computed from stored ones, such as EndpointSlices from Services and pods.

It compares what is computed now with what it told last, so it needs no history of its own: a watch from an earlier revision computes the
objects of that revision first. While a job of a thousand pods starts, each change would compute a thousand endpoints again. So
watchers of the same objects share one computation, which is done a few times a second, or less often when it takes long.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import msgspec

from rowlock.api import Change
from rowlock.controllers.turn_budget import take_slices
from rowlock.errors import Expired
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.read_verbs import Selection
from rowlock.storage.watcher import ChangeSource, TryDeliver

PAUSE = 0.25
"""The least seconds between two computations."""
COST_FACTOR, LONGEST_PAUSE = 9, 10.0
"""A pause is at least so many times as long as the computation before it, but no longer than so many seconds."""
BATCH = 100
"""Changes that are returned at once: each is decoded."""

Entries = Mapping[Key, bytes]
"""The JSON of objects, without a revision, by key."""
Compute = Callable[[int | None], Awaitable[Entries]]
"""Computes the objects as they are now (None), or as they were at a revision. It reads the store before it first awaits."""


class ComputedObjects:
    """The newest computed objects of one kind in one namespace ("" = all), shared by their watchers."""

    def __init__(self, source: ChangeSource, causes: Collection[Kind], compute: Compute) -> None:
        """`causes`: the kinds that the objects are computed from."""
        self.source, self.causes, self.compute = source, causes, compute
        self._computing = asyncio.Lock()
        self._entries: Entries = {}
        self._revision = -1
        self._due = 0.0

    async def newest(self, revision: int) -> tuple[int, Entries]:
        """The objects as they were at `revision` or later, and at which revision."""
        async with self._computing:
            if self._revision < revision:
                await asyncio.sleep(max(0.0, self._due - time.monotonic()))
                began, computed = time.monotonic(), self.source.revision
                self._entries = await self.compute(None)
                self._revision, ended = computed, time.monotonic()
                self._due = ended + min(LONGEST_PAUSE, max(PAUSE, COST_FACTOR * (ended - began)))
            return self._revision, self._entries


class ComputedWatcher:
    """As `Watcher`: follows `objects`, after revision `since`. Without `since` it begins with the current state and a bookmark."""

    def __init__(
        self,
        objects: ComputedObjects,
        selection: Selection,
        *,
        since: int | None = None,
        bookmark_interval: float | None = None,
    ) -> None:
        self._objects, self._selection, self._since = objects, selection, since
        self._interval = bookmark_interval
        self._cursor = objects.source.watch_cache.cursor(None, selection.namespace)
        self._known: Entries | None = None
        self._revision = 0
        """All changes up to it were returned, or are in `_pending`."""
        self._pending: deque[Change] = deque()
        self._next_bookmark = time.monotonic() + (bookmark_interval or 0.0)

    async def next(self, try_deliver: TryDeliver | None = None) -> Sequence[Change]:
        """Wait for changes and return them, or one bookmark. Raises Expired when the objects at `since` are not known any more."""
        if self._known is None:
            await self._begin()
        while not self._pending:
            if not await self._wait():
                self._next_bookmark = time.monotonic() + (self._interval or 0.0)
                return (Change("Bookmark", self._revision),)
            await self._compare()
        await asyncio.sleep(0)  # others get a turn between the batches of a long list
        batch = [self._pending.popleft()]
        while batch[0].type != "Bookmark" and len(batch) < BATCH and self._pending and self._pending[0].kind:
            batch.append(self._pending.popleft())
        return batch

    async def _begin(self) -> None:
        source, since = self._objects.source, self._since
        if since is None:
            self._known = {}
            await self._compare()
            self._pending.append(Change("Bookmark", self._revision))
            return
        if since > source.revision:
            await source.wait_for_revision(since)
        if since < source.watch_cache.floor:
            raise Expired(f"too old resource version: {since} ({source.watch_cache.floor})")
        self._known = await self._objects.compute(since)
        await self._compare()

    async def _wait(self) -> bool:
        """Wait for a change of what the objects are computed from; False when a bookmark is due."""
        source, causes = self._objects.source, self._objects.causes
        while True:
            rest = None if self._interval is None else max(0.0, self._next_bookmark - time.monotonic())
            if not await self._cursor.wait(rest):
                return False
            changes = self._cursor.take()
            if changes is None:  # this watcher was too slow, but the newest state tells everything
                self._cursor = source.watch_cache.cursor(None, self._selection.namespace)
                return True
            if any(change.kind in causes and change.revision > self._revision for change in changes):
                return True
            self._revision = max(self._revision, source.revision)
            if rest == 0.0:  # changes of other kinds come all the time
                return False

    async def _compare(self) -> None:
        """Append what has changed since the last comparison."""
        revision, entries = await self._objects.newest(self._objects.source.revision)
        known = self._known or {}
        if entries is not known:
            for key in known.keys() - entries.keys():
                self._append("Deleted", known[key], revision)
            differing = [key for key, encoded in entries.items() if known.get(key) != encoded]
            async for some in take_slices(differing, BATCH):
                for key in some:
                    self._append("Modified" if key in known else "Added", entries[key], revision, known.get(key))
        self._known, self._revision = entries, revision

    def _append(self, change_type: str, encoded: bytes, revision: int, before: bytes | None = None) -> None:
        """Append a change as this watcher's selection sees it."""
        selection = self._selection
        now = with_revision(selection.kind, encoded, revision)
        if selection.is_selective:
            matches = selection.matches(now)
            matched = before is not None and selection.matches(msgspec.json.decode(before))
            if change_type == "Modified" and matches != matched:
                change_type = "Added" if matches else "Deleted"
            elif not matches:
                return
        self._pending.append(Change(change_type, revision, selection.kind, now))  # type: ignore[arg-type]


def with_revision(kind: Kind, encoded: bytes, revision: int) -> Object:
    """A computed object as it is answered: with its kind, and the revision at which it was computed."""
    body: Object = msgspec.json.decode(encoded)
    metadata = {**body["metadata"], "resourceVersion": str(revision)}
    return {"kind": kind.name, "apiVersion": kind.api_version, **body, "metadata": metadata}
