"""The store of the embedded cluster: an `Api` over objects in memory and a journal on disk.

Reads, lists, watches and the `view` show durable state only; a write returns when it is durable. The semantics of writes
are in `write_verbs.py` and `lifecycle.py`, the path to disk in `group_commit.py` and `journal.py`, the changes that watchers
share in `watch_cache.py`. With `path=None` the store is in memory only: tests and the simulation use that.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from rowlock import kinds, objects
from rowlock.api import (
    DELETE,
    LARGE_WRITE,
    LOG,
    WRITE,
    Change,
    DeleteOptions,
    LogOptions,
    Page,
    PatchType,
    View,
    WriteOptions,
    WriteSequence,
    is_large,
)
from rowlock.controllers.turn_budget import OnePerTurn, TurnBudget
from rowlock.controllers.view.state import FIRST_KEY, State, StoredChange
from rowlock.errors import ApiError, Expired, NotTried, Unavailable, Unsupported, not_found
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.selectors import EVERYTHING, FieldSelector, Selector
from rowlock.storage import read_verbs
from rowlock.storage.group_commit import GroupCommit
from rowlock.storage.journal import Journal
from rowlock.storage.log_format import Row
from rowlock.storage.read_verbs import Selection
from rowlock.storage.rehearsal import LargeWrites, Verb
from rowlock.storage.watch_cache import WatchCache
from rowlock.storage.watcher import Watcher
from rowlock.storage.write_verbs import Admission, AlwaysAdmit, Core, Dependencies, Patches

WATCH_WINDOW = 2_048
"""Changes kept in memory for watchers; older ones are read from the journal."""
BOOKMARK_INTERVAL = 60.0
"""Seconds between the bookmarks of a quiet watch."""
CHANGES_PER_TURN = 64
"""Objects of the initial state given to controllers in one turn of the event loop: every controller examines each."""
_MATCHES_PER_LOOK = 64
"""Objects that are compared with a selector between two looks at the clock."""
_JOURNAL_CHUNK = 500
LogSource = Callable[[str, str, LogOptions], AsyncIterator[bytes]]
"""Answers `log` with (namespace, pod, options): a kubelet. Raises ApiError."""


def no_logs(namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
    """The log source of a server without a kubelet. Raises Unsupported."""
    raise Unsupported("no kubelet runs in this server (--without kubelet): there are no logs to read")


class Store:
    """Made by `Store.open`; one per data directory."""

    keeps_order = True

    def __init__(
        self,
        core: Core,
        *,
        journal: Journal | None = None,
        window: int = WATCH_WINDOW,
        log_source: LogSource = no_logs,
    ) -> None:
        self.core, self._log_source = core, log_source
        self._journal = journal
        self.watch_cache = WatchCache(core.revision, window)
        self._large_writes, self._large_deletes = LargeWrites(core), OnePerTurn()
        self._group_commit = GroupCommit(core, journal, self.watch_cache.publish) if journal else None

    @classmethod
    def open(
        cls,
        path: Path | None = None,
        *,
        admission: Callable[[View], Admission] = lambda view: AlwaysAdmit(),
        patches: Patches | None = None,
        clock: Callable[[], float] = time.time,
        new_uid: Callable[[], str] | None = None,
        window: int = WATCH_WINDOW,
        log_source: LogSource = no_logs,
        accepts_loss: bool = False,
    ) -> Store:
        """Open the store in the file `path`, or one in memory. `admission` makes the Admission that checks writes, given a view that
        includes staged changes. `accepts_loss`: also open a file that lacks its latest changes. Raises Unavailable, with a remedy in
        its message."""
        core = Core(Dependencies(admission, patches or AlwaysAdmit(), clock, new_uid or partial(next, _uuids())))
        if path is None:
            return cls(core, window=window, log_source=log_source)
        journal = Journal(path, accepts_loss=accepts_loss)
        try:
            return _recover(partial(cls, core, journal=journal, window=window, log_source=log_source), core, journal)
        except ApiError:
            journal.close()
            raise

    async def close(self) -> None:
        """Commit the staged changes and close the journal; later writes are refused with Unavailable."""
        if self._group_commit and self._journal:
            await self._group_commit.close()
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
    def notice(self) -> str:
        """What was lost or recreated when the store was opened, in a sentence; "" = nothing."""
        return self._journal.notice if self._journal else ""

    @property
    def commits(self) -> int:
        """How many commits there were; each was one fsync."""
        return self._group_commit.count if self._group_commit else 0

    def takes_writes(self) -> bool:
        """Whether the last commit succeeded; always true in memory."""
        return self._group_commit is None or self._group_commit.takes_writes

    @property
    def compacted_revision(self) -> int:
        """Changes up to this revision are no longer available to watches."""
        return self._group_commit.compacted_revision if self._group_commit else self.watch_cache.floor

    def get_encoded(self, kind: Kind, namespace: str, name: str) -> bytes | None:
        """The object's JSON as it was stored."""
        return self.core.state.get_encoded(kind, namespace, name)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        obj = self.view.get(kind, namespace if kind.namespaced else "", name)
        if obj is None:
            raise not_found(kind.plural, name, kind.group)
        return obj

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
        selection = Selection(kind, namespace if kind.namespaced else "", labels, fields)
        if not limit and not token:
            items, revision = self.view.all(kind, selection.namespace), self.revision
            return Page(await _select(items, selection) if selection.is_selective else items, revision)
        return self._list_page(selection, limit, token)

    def _list_page(self, selection: Selection, limit: int, token: str) -> Page:
        revision, after = read_verbs.decode_token(token) if token else (self.revision, FIRST_KEY)
        if revision < self.watch_cache.floor or revision > self.revision:
            raise Expired(read_verbs.EXPIRED_TOKEN_MESSAGE)
        if self._was_removed_lately(selection.namespace, revision):
            raise Expired(read_verbs.EXPIRED_TOKEN_MESSAGE)
        since = self.watch_cache.changes_after(selection.kind, revision)
        page = read_verbs.take_page(
            selection, read_verbs.objects_at_revision(self.view, selection, since, after), limit
        )
        remaining = self._count_remaining(selection, since, page[-1][0]) if limit and len(page) == limit else 0
        if not remaining:
            return Page([o for _, o in page], revision)
        token = read_verbs.encode_token(
            revision, page[-1][0]
        )  # a full page gets a token without a check whether any later object matches
        return Page([o for _, o in page], revision, token, None if selection.is_selective else remaining)

    def _count_remaining(self, selection: Selection, since: Sequence[StoredChange], last: Key) -> int:
        """The number of objects after a key; with a selector, whose pages report no number, it only tells whether there are any."""
        if since:
            beyond = read_verbs.objects_at_revision(self.view, selection, since, last)
            return int(any(True for _ in beyond)) if selection.is_selective else sum(1 for _ in beyond)
        return self.view.count(selection.kind, selection.namespace, last)

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
        selection = Selection(kind, namespace if kind.namespaced else "", labels, fields)
        watcher = self.follow(selection, since=since, bookmarks=bookmarks)
        while True:
            for change in await watcher.next():
                yield change

    def follow(self, selection: Selection, *, since: int | None = None, bookmarks: bool = False) -> Watcher:
        """`watch` for the HTTP server: a Watcher whose `next` returns all available changes at once."""
        items = self.view.freeze(selection.kind, selection.namespace) if since is None else iter(())
        return Watcher(
            self,
            selection,
            since=since,
            initial_changes=_as_added(selection.kind, items),
            bookmark_interval=BOOKMARK_INTERVAL if bookmarks else None,
        )

    async def changes(
        self, initial: Collection[Kind] = kinds.KINDS, only_metadata: Collection[Kind] = ()
    ) -> AsyncIterator[Change]:
        """All kinds at once, for controllers: the state of the kinds `initial` as Added changes, a bookmark, then everything that happens.
        Objects of that state of the kinds `only_metadata` may have nothing but what `View.metadata` returns.

        The state is a snapshot at the first step; it yields to the event loop between chunks. Pods come last: the objects that they
        refer to are known by then. What happens meanwhile is kept, because memory and journal may have lost it at the end of a long state."""
        frozen = [
            (kind, self.view.freeze(kind, only_metadata=kind in only_metadata))
            for kind in sorted(kinds.KINDS, key=lambda k: k is kinds.POD)
            if kind in initial
        ]
        revision, missed = self.revision, deque[Change]()
        watcher = Watcher(self, since=revision)
        state = (change for kind, items in frozen for change in _as_added(kind, items))
        for number, change in enumerate(chain(state, (Change("Bookmark", revision),), _taken_from(missed))):
            yield change
            if number % CHANGES_PER_TURN == CHANGES_PER_TURN - 1:
                await asyncio.sleep(0)
                missed.extend(watcher.take() or ())
        del frozen, state
        while True:
            for change in await watcher.next():
                yield change

    async def check_is_same_namespace(self, namespace: str, since: int) -> None:
        """Raises Expired where a namespace of this name was removed after `since`: what it held is not for the owners of the next one."""
        removed = self._was_removed_lately(namespace, since)
        if not removed and self._journal and self.compacted_revision <= since < self.watch_cache.floor:
            removed = await asyncio.to_thread(self._journal.has_deleted, kinds.NAMESPACE.resource, namespace, since)
        if removed:
            raise Expired(
                f"too old resource version: {since}: the namespace {namespace} was deleted after it; list again"
            )

    def _was_removed_lately(self, namespace: str, since: int) -> bool:
        """Whether the changes in memory tell of it."""
        later = self.watch_cache.changes_after(kinds.NAMESPACE, since) if namespace else ()
        return any(change.type == "Deleted" and change.key.name == namespace for change in later)

    async def wait_for_revision(self, since: int) -> None:
        """Wait until a revision that has been handed out is durable. Raises Expired for one that never was: it is another cluster's."""
        if since > self.core.revision:
            raise Expired(f"too large resource version: {since}, current: {self.revision}: list again")
        if self._group_commit:
            await self._group_commit.wait_durable()

    async def read_missed(self, kind: Kind | None, since: int) -> tuple[Sequence[StoredChange], int]:
        """Changes that are no longer in memory, from the journal; and up to which revision they go. Raises Expired."""
        oldest = self.compacted_revision
        rows = (
            await asyncio.to_thread(self._journal.read, since, _JOURNAL_CHUNK)
            if self._journal and since >= oldest
            else []
        )
        if not rows:
            raise Expired(f"too old resource version: {since} ({oldest})")
        changes = [_to_change(row, old) for row, old in rows if kind is None or row.kind == kind.resource]
        return changes, rows[-1][0].revision

    # ------------------------------------------------------------ writes

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE, from_post: bool = True) -> Object:
        def write(core: Core, options: WriteOptions) -> Object:
            return core.create(kind, obj, options, from_post=from_post)

        return await self._write(write, objects.namespace(obj), options, not options.is_settled and is_large(obj))

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE) -> Object:
        def write(core: Core, options: WriteOptions) -> Object:
            return core.update(kind, obj, subresource, options)

        return await self._write(write, objects.namespace(obj), options, is_large(obj))

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

        def write(core: Core, options: WriteOptions) -> Object:
            return core.patch(kind, key, patch, type=type, subresource=subresource, options=options)

        is_of_large = len(self.get_encoded(kind, *key) or b"") > LARGE_WRITE
        return await self._write(write, key.namespace, options, is_of_large or is_large(patch))

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        scope = namespace if kind.namespaced else ""
        if len(self.get_encoded(kind, scope, name) or b"") > LARGE_WRITE:
            await self._large_deletes.wait()  # the whole object is encoded once more: hundreds of them are many turns
        return await self._write_durably(lambda: self.core.delete(kind, scope, name, options))

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None:
        await self._write_durably(lambda: self.core.bind(namespace, pod, node, annotations, uid))

    def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        return self._log_source(namespace, pod, options)

    async def _write(self, write: Verb, namespace: str, options: WriteOptions, large: bool) -> Object:
        rehearsal = await self._large_writes.rehearse(write, namespace, options) if large else None
        act = rehearsal.carry_out if rehearsal else lambda: write(self.core, options)
        return await self._write_durably(act, options.sequence)

    async def _write_durably(self, write: Callable[[], Object], sequence: WriteSequence | None = None) -> Object:
        """Run `write`, then wait until it and every write that it was checked against is durable; refusals wait, too."""
        if sequence:
            failed = self._group_commit.failed_count if self._group_commit else 0
            if sequence.refused or sequence.failed_commits not in (None, failed):
                raise NotTried("a write before this one was refused")
            sequence.failed_commits = failed
        try:
            result = write()
        except Exception as error:
            if sequence:
                sequence.refused = True
            if self._group_commit and isinstance(error, ApiError):
                await self._group_commit.wait_durable()
            raise
        if self._group_commit:
            await self._group_commit.wait_durable()
        else:
            self.commit()
        return result

    def commit(self) -> None:
        """Commit the staged changes in memory. (The simulation writes to `core`, then calls this.)"""
        batch = self.core.take_staged()
        if batch:
            self.core.apply_committed(batch)
            self.watch_cache.publish(batch)


def _uuids() -> Iterator[str]:
    """Random UUIDs (version 4), with one system call for 256 of them instead of one each."""
    while True:
        random_hex = os.urandom(16 * 256).hex()
        for start in range(0, len(random_hex), 32):
            h = random_hex[start : start + 32]
            yield f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"


def _recover(make_store: Callable[[], Store], core: Core, journal: Journal) -> Store:
    gc.disable()  # a hundred thousand objects are made here and none of them is garbage
    try:
        recovery = journal.recover()
        for row in recovery.live:
            core.state.load(_kind_of(row), Key(row.namespace, row.name), row.value)
        gc.freeze()  # so that no full collection traverses them again
    finally:
        gc.enable()
    core.revision = recovery.revision
    core.state.advance_revision(recovery.revision)
    store = make_store()
    assert store._group_commit is not None
    store._group_commit.load(recovery.garbage, recovery.compacted)
    return store


async def _select(items: Sequence[Object], selection: Selection) -> list[Object]:
    found, budget = [], TurnBudget()
    for number, obj in enumerate(items, 1):
        if number % _MATCHES_PER_LOOK == 0:
            await budget.pause_if_due()
        if selection.matches(obj):
            found.append(obj)
    return found


def _as_added(kind: Kind, items: Iterable[tuple[Key, Object, bytes]]) -> Iterator[StoredChange]:
    """The initial Added changes of a watch without a `since`."""
    for key, obj, encoded in items:
        yield StoredChange("Added", objects.revision(obj), kind, obj, None, encoded, key=key)


def _taken_from(changes: deque[Change]) -> Iterator[Change]:
    """The changes of a queue that grows meanwhile, until it is empty."""
    while changes:
        yield changes.popleft()


def _to_change(row: Row, old: bytes | None) -> StoredChange:
    before = msgspec.json.decode(old) if old else None
    obj, key = msgspec.json.decode(row.value), Key(row.namespace, row.name)
    return StoredChange(row.verb, row.revision, _kind_of(row), obj, before, row.value, row.previous, key)


def _kind_of(row: Row) -> Kind:
    try:
        return kinds.by_resource(row.kind)
    except KeyError:
        raise Unavailable(
            f"the data directory holds {row.kind}, which this version of rowlock does not know: start a newer one"
        ) from None
