"""The store of the embedded cluster: an `Api` over objects in memory and a journal on disk.

Reads, lists, watches and the `view` show durable state only; a write returns when it is durable. What a write means
is in `core.py` and `lifecycle.py`, how it gets to disk in `commits.py` and `journal.py`, how watchers share what
happened in `history.py`. With `path=None` nothing is kept: tests and the simulation run on that.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rowlock import kinds, objects
from rowlock.api import (
    DELETE,
    LOG,
    WRITE,
    Change,
    DeleteOptions,
    LogOptions,
    Page,
    PatchType,
    Run,
    WriteOptions,
)
from rowlock.cluster.storage import reading
from rowlock.cluster.storage.commits import Commits
from rowlock.cluster.storage.core import Admission, Core, Open, Patches, Rules
from rowlock.cluster.storage.following import Following
from rowlock.cluster.storage.history import History
from rowlock.cluster.storage.journal import Journal, Row
from rowlock.cluster.storage.reading import Wanted
from rowlock.cluster.storage.state import FIRST, State, Stored
from rowlock.errors import ApiError, Expired, NotTried, Unavailable, Unsupported, not_found
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

WINDOW = 2_048
"""Changes kept in memory for watchers; older ones are read from the journal."""
BOOKMARKS = 60.0
"""Seconds between the bookmarks of a quiet watch."""
_CHUNK = 500

LogSource = Callable[[str, str, LogOptions], AsyncIterator[bytes]]


class Store:
    """Made by `Store.open`; one per data directory."""

    def __init__(self, core: Core, *, journal: Journal | None = None, window: int = WINDOW) -> None:
        self.core = core
        self.logs: LogSource | None = None
        """Who answers `log`: the kubelet."""
        self._journal = journal
        self.history = History(core.revision, window)
        self._commits = Commits(core, journal, self.history.publish) if journal else None

    @classmethod
    def open(
        cls,
        path: Path | None = None,
        *,
        admission: Admission | None = None,
        patches: Patches | None = None,
        clock: Callable[[], float] = time.time,
        ids: Callable[[], str] | None = None,
        window: int = WINDOW,
    ) -> Store:
        """The store in the file `path`, or one in memory. Raises Unavailable with what to do about it."""
        core = Core(Rules(admission or Open(), patches or Open(), clock, ids or partial(next, _uuids())))
        if path is None:
            return cls(core, window=window)
        journal = Journal(path)
        try:
            return _recovered(cls, core, journal, window)
        except ApiError:
            journal.close()
            raise

    async def close(self) -> None:
        """Finish what was begun; everything later is refused."""
        if self._commits and self._journal:
            await self._commits.close()
            self._journal.close()

    # ------------------------------------------------------------ reads

    @property
    def view(self) -> State:
        """The committed objects: a `View`."""
        return self.core.state

    @property
    def revision(self) -> int:
        return self.core.state.revision

    @property
    def commits(self) -> int:
        """How many commits there were; each was one fsync."""
        return self._commits.count if self._commits else 0

    def encoded(self, kind: Kind, namespace: str, name: str) -> bytes | None:
        """The object's JSON as it was stored."""
        return self.core.state.encoded(kind, namespace, name)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        found = self.view.get(kind, namespace if kind.namespaced else "", name)
        if found is None:
            raise not_found(kind.plural, name, kind.group)
        return found

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        limit: int = 0,
        token: str = "",
    ) -> Page:
        wanted = Wanted(kind, namespace if kind.namespaced else "", labels, fields)
        if not limit and not token:
            found = self.view.all(kind, wanted.namespace)
            return Page([o for o in found if wanted.matches(o)] if wanted.selective else list(found), self.revision)
        return self._page(wanted, limit, token)

    def _page(self, wanted: Wanted, limit: int, token: str) -> Page:
        revision, after = reading.place(token) if token else (self.revision, FIRST)
        if revision < self.history.floor or revision > self.revision:
            raise Expired(reading.EXPIRED_TOKEN)
        since = self.history.after(wanted.kind, revision)
        page = reading.page(wanted, reading.at(self.view, wanted, since, after), limit)
        left = self._left(wanted, since, page[-1][0]) if limit and len(page) == limit else 0
        if not left:
            return Page([o for _, o in page], revision)
        token = reading.token(revision, page[-1][0])  # it ends where it is full: nobody looks what else matches
        return Page([o for _, o in page], revision, token, None if wanted.selective else left)

    def _left(self, wanted: Wanted, since: Sequence[Stored], last: Key) -> int:
        """How many objects a list has beyond a key; with a selector, whose pages do not say so, whether it has any."""
        if since:
            beyond = reading.at(self.view, wanted, since, last)
            return int(any(True for _ in beyond)) if wanted.selective else sum(1 for _ in beyond)
        return self.view.count(wanted.kind, wanted.namespace, last)

    # ------------------------------------------------------------ watches

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        since: int | None = None,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        bookmarks: bool = False,
    ) -> AsyncIterator[Change]:
        wanted = Wanted(kind, namespace if kind.namespaced else "", labels, fields)
        following = self.follow(wanted, since=since, bookmarks=bookmarks)
        while True:
            for change in await following.next():
                yield change

    def follow(self, wanted: Wanted, *, since: int | None = None, bookmarks: bool = False) -> Following:
        """A watch by the batch."""
        listed = self._added(wanted) if since is None else ()
        return Following(self, wanted, since=since, listed=listed, quiet=BOOKMARKS if bookmarks else None)

    async def changes(self) -> AsyncIterator[Change]:
        """All kinds at once, for controllers: the state as Added changes, a bookmark, then everything that happens."""
        listed = [change for kind in kinds.KINDS for change in self._added(Wanted(kind))]
        following = Following(self, listed=listed)
        while True:
            for change in await following.next():
                yield change

    def _added(self, wanted: Wanted) -> Sequence[Stored]:
        kind, encoded = wanted.kind, self.encoded
        return [
            Stored("Added", objects.revision(obj), kind, obj, None, encoded(kind, *key) or b"", key=key)
            for key, obj in self.view.items(kind, wanted.namespace)
            if wanted.matches(obj)
        ]

    async def reach(self, since: int) -> None:
        """A watch from the future: a revision handed out but not durable yet; or one of another cluster."""
        if since > self.core.revision:
            raise Expired(f"too large resource version: {since}, current: {self.revision}: list again")
        if self._commits:
            await self._commits.settled()

    async def missed(self, kind: Kind | None, since: int) -> tuple[Sequence[Stored], int]:
        """Changes that memory no longer has, from the journal; and up to which revision they go."""
        oldest = self._commits.compacted if self._commits else self.history.floor
        rows = await asyncio.to_thread(self._journal.read, since, _CHUNK) if self._journal and since >= oldest else []
        if not rows:
            raise Expired(f"too old resource version: {since} ({oldest})")
        found = [_change(row, old) for row, old in rows if kind is None or row.kind == kind.resource]
        return found, rows[-1][0].revision

    # ------------------------------------------------------------ writes

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE, posted: bool = True) -> Object:
        return await self._durably(lambda: self.core.create(kind, obj, options, posted=posted), options.run)

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE) -> Object:
        return await self._durably(lambda: self.core.update(kind, obj, subresource, options))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = "merge",
        subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object:
        key = Key(namespace if kind.namespaced else "", name)
        return await self._durably(
            lambda: self.core.patch(kind, key, patch, type=type, subresource=subresource, options=options)
        )

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        space = namespace if kind.namespaced else ""
        return await self._durably(lambda: self.core.delete(kind, space, name, options))

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None:
        await self._durably(lambda: self.core.bind(namespace, pod, node, annotations, uid))

    def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        if self.logs is None:
            raise Unsupported("no kubelet runs in this server (--without kubelet): there are no logs to read")
        return self.logs(namespace, pod, options)

    async def _durably(self, write: Callable[[], Object], run: Run | None = None) -> Object:
        """Do it, and answer when it and all that it was checked against is on disk; that holds for refusals too."""
        if run and run.refused:
            raise NotTried("a write before this one was refused")
        try:
            result = write()
        except ApiError:
            if run:
                run.refused = True
            if self._commits:
                await self._commits.settled()
            raise
        if self._commits:
            await self._commits.settled()
        else:
            self.commit()
        return result

    def commit(self) -> None:
        """In memory: what is staged is committed. (The simulation's way to write: `core`, then this.)"""
        batch = self.core.take()
        if batch:
            self.core.settle(batch)
            self.history.publish(batch)

    def compact(self, revision: int) -> None:
        """In memory: forget history up to `revision`."""
        self.history.trim(revision)


def _uuids() -> Iterator[str]:
    """Random ones (version 4), from 256 times as few questions to the kernel as `uuid.uuid4` asks."""
    while True:
        drawn = os.urandom(16 * 256).hex()
        for at in range(0, len(drawn), 32):
            h = drawn[at : at + 32]
            yield f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"


def _recovered(cls: type[Store], core: Core, journal: Journal, window: int) -> Store:
    gc.disable()  # a hundred thousand objects are made here and none of them is garbage
    try:
        found = journal.recover()
        for row in found.live:
            obj = msgspec.json.decode(row.value)
            core.state.load(_kind(row), Key(row.namespace, row.name), obj, row.value)
        gc.freeze()  # nor shall every full collection look at them again
    finally:
        gc.enable()
    core.revision = found.revision
    core.state.skip(found.revision)
    store = cls(core, journal=journal, window=window)
    assert store._commits is not None
    store._commits.load(found.garbage, found.compacted)
    return store


def _change(row: Row, old: bytes | None) -> Stored:
    before = msgspec.json.decode(old) if old else None
    obj, key = msgspec.json.decode(row.value), Key(row.namespace, row.name)
    return Stored(row.verb, row.revision, _kind(row), obj, before, row.value, row.previous, key)


def _kind(row: Row) -> Kind:
    try:
        return kinds.by_resource(row.kind)
    except KeyError:
        raise Unavailable(
            f"the data directory holds {row.kind}, which this version of rowlock does not know: start a newer one"
        ) from None
