"""Streams the rows of all workloads, and every change of them, to open pages as server-sent events.

    event: reset     discard all rows                     then the whole list, in several `rows`
    event: rows      data: [row, …]                       new and changed workloads
    event: gone      data: ["id", …]                      workloads that were deleted
    event: ready     data: {"time": …}                    the list is complete (again)
    : …                                                   a heartbeat, every `HEARTBEAT_S`

An event's id is the feed's name and a number; a reader that reconnects with the last id it saw (Last-Event-ID) gets the changes since.
A reader has no queue, only its position; the rows that changed since are looked up when it can take more. So a slow reader costs only
its socket, gets the newest state of each row once, and is cut off if it stops reading.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import msgspec

from rowlock import kinds, objects
from rowlock.api import Api
from rowlock.browser.rows import workload_row
from rowlock.errors import TooManyRequests
from rowlock.rest.event_index import EventIndex, failure_messages
from rowlock.rest.informers import InformerCache
from rowlock.rest.rights import Rights
from rowlock.workloads import runai_json
from rowlock.workloads.figures.times import count_idle_gpus
from rowlock.workloads.history import create_failure_message
from rowlock.workloads.projects import Project

HEARTBEAT_S = 15.0
COALESCE_S = 0.1
"""Seconds for which changes are collected before they are sent."""
REVIEW_S = 2.0
"""Seconds between checks of texts that change with time alone, such as a diagnosis that says how long a rank has been stuck."""
STREAM_S = 600.0
"""Seconds after which a stream ends, so that its reader reconnects and is authenticated again."""
MAX_READERS, MAX_READERS_OF_USER = 256, 64
"""Most concurrent streams; the tabs of one browser share one."""
_ROWS_PER_PIECE = 200
_ROWS_PER_TURN = 16
"""Rows made before yielding to the event loop."""
_MAX_GONE = 20_000
"""Most deleted workloads kept for readers that reconnect."""
_LAST_WORDS_S = 60.0
"""Seconds after a failure within which its diagnosis may still change."""


@dataclass(slots=True)
class _Entry:
    """A workload's last known state. `number` is that of its last change; `row` is made at the first request for it."""

    number: int
    changed_at: float
    id: str
    scope: tuple[str, str]
    row: bytes = b""
    diagnosis: str = ""
    create_failure: str = ""
    figures: tuple[int | None, float] = (None, 0.0)
    """Values in the row that change without its objects: idle GPUs, and seconds for which its GPUs are guaranteed."""


class WorkloadFeed:
    """All workloads of one cluster, ordered by the number of their last change. It follows the cache from the first reader on,
    also while there are no readers, because they may reconnect."""

    def __init__(
        self, cache: InformerCache, api: Api, clock: Callable[[], float], events: EventIndex | None = None
    ) -> None:
        self._cache, self._api, self._clock, self._events = cache, api, clock, events
        self._name = secrets.token_hex(4)
        self._number = 0
        self._entries: dict[str, _Entry] = {}
        """Job uid → entry, in the order of their last changes."""
        self._gone: dict[str, _Entry] = {}
        self._forgotten = 0
        """The number of the newest deletion dropped from `_gone`."""
        self._readers: dict[asyncio.Event, str] = {}
        """The event that wakes each reader → the reader's user."""
        self._is_following = False
        self._projects: dict[str, Project] = {}

    # ------------------------------------------------------------ changes

    def _follow(self) -> None:
        if self._is_following:
            return
        self._is_following = True
        self._projects = dict(self._cache.projects())
        self._cache.subscribe(self._note_change)
        for uid in self._cache.job_uids():
            self._note_change(uid)

    def _note_change(self, uid: str) -> None:
        """The job of this uid has changed or was deleted; it need not ever have existed."""
        job, previous = self._cache.job(uid), self._entries.pop(uid, None)
        if job is None and previous is None:
            return
        self._number += 1
        if job is not None:
            scope = objects.namespace(job), kinds.by_object(job).name
            entry = _Entry(self._number, self._clock(), runai_json.workload_id(job), scope)
            if previous is not None:
                entry.create_failure = previous.create_failure
            self._entries[uid] = entry
        elif previous is not None:
            previous.number, previous.row = self._number, b""
            self._gone[uid] = previous
            while len(self._gone) > _MAX_GONE:
                self._forgotten = self._gone.pop(next(iter(self._gone))).number
        for event in self._readers:
            event.set()

    async def review(self) -> None:
        """Check regularly for changes that do not come with the workload's objects: diagnoses, pods that cannot be created, projects.
        Runs as a task of the server; does nothing while there are no readers."""
        while True:
            await asyncio.sleep(REVIEW_S)
            if self._readers:
                self._review_projects()
                await self._review_sentences()

    def _review_projects(self) -> None:
        projects = self._cache.projects()
        changed = {name for name in {*projects, *self._projects} if projects.get(name) != self._projects.get(name)}
        self._projects = dict(projects)
        for uid, entry in list(self._entries.items()) if changed else ():
            if entry.scope[0] in changed:
                self._note_change(uid)

    async def _review_sentences(self) -> None:
        diagnose, silent = self._cache.diagnosis_message, list[tuple[str, str]]()
        for number, (uid, entry) in enumerate(list(self._entries.items()), 1):
            if number % (_ROWS_PER_TURN * 16) == 0:
                await asyncio.sleep(0)
            if not entry.row or self._entries.get(uid) is not entry:
                continue
            phase = self._cache.phase(uid)
            if phase in ("Pending", "Creating") and not self._cache.status(uid).message:
                silent.append((uid, entry.scope[0]))
            is_timed = phase in ("Running", "Degraded")
            is_fresh = phase == "Failed" and self._clock() - entry.changed_at < _LAST_WORDS_S
            is_told = diagnose is not None and (is_timed or is_fresh) and diagnose(uid, phase) != entry.diagnosis
            if is_told or (is_timed and self._figures(uid, entry) != entry.figures):
                self._note_change(uid)
        for namespace in {namespace for _, namespace in silent}:
            messages = await failure_messages(self._api, self._events, namespace)
            for uid, own in silent:
                current = self._entries.get(uid)
                if own != namespace or not current:
                    continue
                told = create_failure_message(messages, uid, self._cache.part_uids(uid))
                if current.create_failure != told:
                    current.create_failure = told
                    self._note_change(uid)

    def _figures(self, uid: str, entry: _Entry) -> tuple[int | None, float]:
        usage, project = self._cache.pod_usage, self._projects.get(entry.scope[0])
        pods = self._cache.own_pods(uid) if usage is not None else []
        idle = count_idle_gpus(pods, usage.latest, self._clock()) if usage is not None else None
        return idle, self._cache.guaranteed_seconds(project.queue) if project else 0.0

    # ------------------------------------------------------------ streams

    def open(self, cache: InformerCache, rights: Rights | None, last_event: str) -> AsyncIterator[bytes]:
        """The stream of one reader after `last_event`: the workloads in `cache` of which `rights` (None: all) allow to list the
        kind. Raises TooManyRequests."""
        user = rights.user_name if rights else ""
        own = sum(1 for reader in self._readers.values() if reader == user)
        if len(self._readers) >= MAX_READERS or own >= MAX_READERS_OF_USER:
            raise TooManyRequests(
                f"{max(own, 1)} of your pages follow the workloads already: close some", retry_after=30
            )
        event = asyncio.Event()
        self._readers[event] = user
        return self._stream(event, cache, rights, last_event)

    async def _stream(
        self, event: asyncio.Event, cache: InformerCache, rights: Rights | None, last_event: str
    ) -> AsyncIterator[bytes]:
        try:
            self._follow()
            scopes, seen = _visible_scopes(cache, rights), self._seen_number(last_event)
            ends = self._clock() + STREAM_S
            while self._clock() < ends:
                event.clear()
                if (now_visible := _visible_scopes(cache, rights)) != scopes or seen < self._forgotten:
                    scopes, seen = now_visible, -1
                top = self._number
                async for piece in self._listing(cache) if seen < 0 else self._changes(cache, scopes, seen):
                    yield piece
                seen = top
                yield _event("ready", msgspec.json.encode({"time": self._clock()}), f"{self._name}-{seen}")
                while not await _is_set(event, HEARTBEAT_S):
                    yield b": alive\n\n"
                    if _visible_scopes(cache, rights) != scopes or self._clock() >= ends:
                        break
                await asyncio.sleep(COALESCE_S)
        finally:
            self._readers.pop(event, None)

    def _seen_number(self, last_event: str) -> int:
        """The number after which a reader resumes; -1 if it needs the whole list."""
        name, _, number = last_event.partition("-")
        if name != self._name or not objects.is_digits(number) or len(number) > 15:
            return -1
        return int(number) if self._forgotten <= int(number) <= self._number else -1

    async def _listing(self, cache: InformerCache) -> AsyncIterator[bytes]:
        yield _event("reset", b"{}")
        async for piece in self._pieces(cache, [row.uid for row in cache.rows()]):
            yield piece

    async def _changes(
        self, cache: InformerCache, scopes: frozenset[tuple[str, str]], seen: int
    ) -> AsyncIterator[bytes]:
        gone = [entry.id for entry in _newer(self._gone, seen) if entry.scope in scopes]
        for start in range(0, len(gone), _ROWS_PER_PIECE):
            yield _event("gone", msgspec.json.encode(gone[start : start + _ROWS_PER_PIECE]))
        uids = [uid for uid, entry in _newer_items(self._entries, seen) if entry.scope in scopes]
        async for piece in self._pieces(cache, uids):
            yield piece

    async def _pieces(self, cache: InformerCache, uids: list[str]) -> AsyncIterator[bytes]:
        rows: list[bytes] = []
        for number, uid in enumerate(uids, 1):
            if row := self._row(cache, uid):
                rows.append(row)
            if number % _ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
            if len(rows) >= _ROWS_PER_PIECE:
                yield _event("rows", b"[" + b",".join(rows) + b"]")
                rows = []
        if rows:
            yield _event("rows", b"[" + b",".join(rows) + b"]")

    def _row(self, cache: InformerCache, uid: str) -> bytes:
        """The row as JSON, made once for all readers; b"" if it is not in this reader's cache."""
        entry, workload = self._entries.get(uid), cache.workload(uid)
        if entry is None or workload is None:
            return b""
        if not entry.row:
            phase = self._cache.phase(uid)
            entry.diagnosis = self._cache.diagnosis_message(uid, phase) if self._cache.diagnosis_message else ""
            entry.figures = self._figures(uid, entry)
            entry.row = msgspec.json.encode(workload_row(workload, entry.create_failure))
        return entry.row


def _newer_items(entries: dict[str, _Entry], seen: int) -> list[tuple[str, _Entry]]:
    """The entries with a higher number than `seen`, oldest first."""
    newer = []
    for uid in reversed(entries):
        if entries[uid].number <= seen:
            break
        newer.append((uid, entries[uid]))
    return newer[::-1]


def _newer(entries: dict[str, _Entry], seen: int) -> Iterable[_Entry]:
    return (entry for _, entry in _newer_items(entries, seen))


def _visible_scopes(cache: InformerCache, rights: Rights | None) -> frozenset[tuple[str, str]]:
    """The (namespace, kind) pairs of visible projects whose jobs the reader may list."""
    return frozenset(
        (namespace, kind.name)
        for namespace in cache.projects()
        for kind in kinds.WORKLOADS
        if rights is None or rights.allows("list", kind, namespace)
    )


def _event(name: str, data: bytes, identity: str = "") -> bytes:
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


async def _is_set(event: asyncio.Event, timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True
