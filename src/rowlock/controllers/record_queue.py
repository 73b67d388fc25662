"""Records that wait to be written: equal ones are merged and counted, objects are served round-robin, and the size is limited.

An object with many records delays only its own, and its memory is limited. A record that finds no room is dropped and counted,
as in client-go's broadcaster.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace

from rowlock import objects
from rowlock.api import Record
from rowlock.objects import Object

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
        record = _without_ballast(record)
        about, key = record.regarding, record_key(record)
        identity = objects.uid(about), objects.namespace(about), objects.name(about)
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
    return replace(record, regarding=identity, message=record.message[:MAX_MESSAGE_LENGTH])
