"""Records that wait to be written: equal ones are counted, objects take turns, and there is room for so many.

An object with many records delays its own only, not those of others, and takes no more memory. A record that finds no room is
dropped and counted, as client-go's broadcaster drops it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace

from rowlock import objects
from rowlock.api import Record
from rowlock.objects import Object

MAX_WAITING = 8_192
"""Records that wait, equal ones counted once: what 5,000 pods say when they start at once, and more."""
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
        """Keeps what is written of it; False when there is no room."""
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
        """Waits for records, and takes at most `limit` different ones: each the last of its equals, and how many there
        were. Of each object the oldest, then of each the next."""
        await self._has_records.wait()
        return self.take(limit)

    def take(self, limit: int) -> list[tuple[Record, int]]:
        """Those that wait now."""
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
    """Of an object only who it is: a queue must not keep old states of it alive. Of a message what the API takes."""
    about, meta = record.regarding, objects.meta(record.regarding)
    identity: Object = {field: about.get(field) for field in ("apiVersion", "kind")}
    identity["metadata"] = {
        field: meta[field] for field in ("name", "namespace", "uid", "resourceVersion") if field in meta
    }
    return replace(record, regarding=identity, message=record.message[:MAX_MESSAGE_LENGTH])
