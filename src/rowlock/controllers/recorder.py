"""Turns records into Events: repeated ones are counted, floods are capped, and a background task writes them.

The rules are client-go's: an equal record (same object, field path, type, reason, message, source) patches `count` and
`lastTimestamp` of the existing Event; one object may have 25 Events of one type from one source at once and
then one per five minutes. A restarted process counts from zero. Events are best-effort: one that cannot be written is
logged and dropped, and no caller waits for it. Records that wait are served round-robin by object, and their number is limited: one
that finds no room is dropped and counted, as in client-go's broadcaster.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Api, Record, WriteOptions
from rowlock.errors import AlreadyExists, ApiError, NotFound
from rowlock.objects import Object

SERIES_SOURCES = frozenset({"default-scheduler"})
"""Sources whose Events have the form of `events.k8s.io`: with an `eventTime`, and a series when they repeat."""
WRITES_PER_SLICE = 64  # Events that are written concurrently: more would delay other writers
_SETTLED = WriteOptions(is_settled=True)
CACHE_SIZE = 4_096  # Events whose counts are kept, least recently used out first

log = logging.getLogger("rowlock.events")


@dataclass(frozen=True, slots=True)
class Allowance:
    """A token bucket per object, source and type. `burst=0` switches the cap off."""

    burst: int = 25
    seconds_each: float = 300.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class _LastEvent:
    """Name and count of the newest Event for a record key."""

    name: str
    count: int


ACTION_BY_REASON = {"Scheduled": "Binding", "Preempted": "Preempting"}
"""The `action` field of an Event by its reason."""


class Recorder:
    """Takes records at any time; `run` writes them."""

    def __init__(self, api: Api, clock: Callable[[], float], allowance: Allowance = Allowance()) -> None:
        self._api, self._clock, self._allowance = api, clock, allowance
        self._queue, self._told_dropped = RecordQueue(), 0
        self._last_events: OrderedDict[RecordKey, _LastEvent] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str, str], _Bucket] = OrderedDict()
        self._last_suffix = 0

    def record(self, record: Record) -> None:
        """Queue a record for writing, if the allowance and the queue have room. Does not wait."""
        if self._take_token(record):
            self._queue.put(record)

    async def run(self) -> None:
        """Write queued records until cancelled. Different Events are written concurrently, equal ones one after the other."""
        while True:
            some = await self._queue.get(WRITES_PER_SLICE)
            await asyncio.gather(*(self._write(record, count) for record, count in some))
            if not self._queue and self._queue.dropped > self._told_dropped:
                log.warning("%d events were dropped: too many were waiting", self._queue.dropped - self._told_dropped)
                self._told_dropped = self._queue.dropped

    async def flush(self) -> None:
        """Write all queued records once, at the end of a run."""
        for record, count in self._queue.take(len(self._queue)):
            await self._write(record, count)

    async def _write(self, record: Record, repeats: int) -> None:
        now, key = self._clock(), record_key(record)
        try:
            if key not in self._last_events or not await self._patch_count(record, key, repeats, now):
                await self._create(record, key, repeats, now)
        except ApiError as error:
            log.info("an event was dropped (%s %s): %s", record.reason, objects.key(record.regarding), error)

    async def _patch_count(self, record: Record, key: RecordKey, repeats: int, now: float) -> bool:
        """Patch the count of the Event for an equal record; False when it has been deleted."""
        last = self._last_events[key]
        count = last.count + repeats
        patch: dict[str, Any] = {"count": count, "lastTimestamp": objects.timestamp(now)}
        if record.source in SERIES_SOURCES:
            patch = {"series": {"count": count, "lastObservedTime": objects.micro_timestamp(now)}}
        patch["message"] = record.message
        try:
            await self._api.patch(kinds.EVENT, _event_namespace(record.regarding), last.name, patch)
        except NotFound:
            return False
        self._remember(key, _LastEvent(last.name, count))
        return True

    async def _create(self, record: Record, key: RecordKey, repeats: int, now: float) -> None:
        for _ in range(3):
            self._last_suffix = max(self._last_suffix + 1, int(now * 1e9))
            body = make_event(record, f"{objects.name(record.regarding)}.{self._last_suffix:016x}", now, repeats)
            try:
                await self._api.create(kinds.EVENT, body, options=_SETTLED)
            except AlreadyExists:
                continue
            self._remember(key, _LastEvent(objects.name(body), repeats))
            return

    def _remember(self, key: RecordKey, last: _LastEvent) -> None:
        self._last_events[key] = last
        self._last_events.move_to_end(key)
        if len(self._last_events) > CACHE_SIZE:
            self._last_events.popitem(last=False)

    def _take_token(self, record: Record) -> bool:
        if not self._allowance.burst:
            return True
        now, key = self._clock(), (objects.uid(record.regarding), record.source, record.type)
        bucket = self._buckets.setdefault(key, _Bucket(self._allowance.burst, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > CACHE_SIZE:
            self._buckets.popitem(last=False)
        tokens = bucket.tokens + (now - bucket.updated_at) / self._allowance.seconds_each
        bucket.tokens, bucket.updated_at = min(float(self._allowance.burst), tokens), now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _event_namespace(regarding: Object) -> str:
    return objects.namespace(regarding) or "default"


def make_event(record: Record, name: str, now: float, count: int = 1) -> Object:
    """The Event for a record, with the fields that client-go fills in, in the order in which an API server stores them: unset times
    come last."""
    about, when = record.regarding, objects.timestamp(now)
    involved = {
        "kind": about.get("kind"),
        "namespace": objects.namespace(about),
        "name": objects.name(about),
        "uid": objects.uid(about),
        "apiVersion": about.get("apiVersion"),
        "resourceVersion": objects.meta(about).get("resourceVersion"),
        "fieldPath": record.field_path,
    }
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": _event_namespace(about)},
        "involvedObject": {field: value for field, value in involved.items() if value},
        "reason": record.reason,
        "message": record.message[:MAX_MESSAGE_LENGTH],
        "type": record.type,
        "reportingComponent": record.source,
    }
    if record.source in SERIES_SOURCES:
        moment = objects.micro_timestamp(now)
        series = {"series": {"count": count, "lastObservedTime": moment}} if count > 1 else {}
        return {
            **body,
            "eventTime": moment,
            "source": {},
            **series,
            "action": ACTION_BY_REASON.get(record.reason, "Scheduling"),
            "reportingInstance": record.source,
            "firstTimestamp": None,
            "lastTimestamp": None,
        }
    return {
        **body,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": count,
        "source": {"component": record.source},
        "reportingInstance": "",
        "eventTime": None,
    }


MAX_WAITING = 8_192
"""The most different records that wait: more than 5,000 pods produce when they start at once."""
MAX_WAITING_PER_OBJECT = 64
MAX_MESSAGE_LENGTH = 1024
"""Characters of a message that are kept: the API's limit."""

RecordKey = tuple[str, str, str, str, str, str, str]
"""What equal records have in common."""


class RecordQueue:
    """One per recorder."""

    def __init__(self) -> None:
        self._by_object: OrderedDict[tuple[str, str, str], OrderedDict[RecordKey, tuple[Record, int]]] = OrderedDict()
        self._has_records = asyncio.Event()
        self._count = 0
        self.dropped = 0
        """Records that found no room, since the queue was made."""

    def __len__(self) -> int:
        return self._count

    def put(self, record: Record) -> bool:
        """Queue a record, reduced to the parts that are written; False when the queue is full."""
        about, record = record.regarding, _without_ballast(record)
        key = record_key(record)
        identity = key[0], objects.namespace(about), key[1]
        waiting = self._by_object.setdefault(identity, OrderedDict())
        if key in waiting:
            waiting[key] = record, waiting[key][1] + 1
            return True
        if self._count >= MAX_WAITING or len(waiting) >= MAX_WAITING_PER_OBJECT:
            self.dropped += 1
            if not waiting:
                del self._by_object[identity]
            return False
        waiting[key] = record, 1
        self._count += 1
        self._has_records.set()
        return True

    async def get(self, limit: int) -> list[tuple[Record, int]]:
        """Wait for records and take at most `limit` different ones, each with the number of equal ones. First the oldest of
        each object, then the next of each."""
        await self._has_records.wait()
        return self.take(limit)

    def take(self, limit: int) -> list[tuple[Record, int]]:
        """`get` without waiting: at most `limit` of the records that are queued now."""
        taken: list[tuple[Record, int]] = []
        while self._by_object and len(taken) < limit:
            identity, waiting = self._by_object.popitem(last=False)
            taken.append(waiting.popitem(last=False)[1])
            if waiting:
                self._by_object[identity] = waiting
        self._count -= len(taken)
        if not self._by_object:
            self._has_records.clear()
        return taken


def record_key(record: Record) -> RecordKey:
    about = record.regarding
    content = (record.type, record.reason, record.message, record.source)
    return objects.uid(about), objects.name(about), record.field_path, *content


def _without_ballast(record: Record) -> Record:
    """The record with only the object's identity, so that the queue keeps no old state alive, and a message cut to the API's limit."""
    about, meta = record.regarding, objects.meta(record.regarding)
    identity: Object = {field: about.get(field) for field in ("apiVersion", "kind")}
    identity["metadata"] = {
        field: meta[field] for field in ("name", "namespace", "uid", "resourceVersion") if field in meta
    }
    message = record.message[:MAX_MESSAGE_LENGTH]
    return Record(identity, record.type, record.reason, message, record.source, record.field_path)
