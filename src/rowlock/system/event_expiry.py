"""Old Events go. A real API server lets etcd forget them (`--event-ttl`, one hour); here a controller deletes them.

There is a most of them, too, because all are in memory (about 2.4 KiB each): etcd's are on a disk, and its server's
memory grows with them as ours did, by three quarters of all that it grew in ten busy minutes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from rowlock import objects
from rowlock.api import (
    Change,
    Decision,
    Delete,
    View,
    Write,
)
from rowlock.kinds import EVENT, Kind
from rowlock.objects import Key, Object

EVENT_TTL = 3_600.0  # seconds
MAX_EVENTS = 20_000
"""Events in all namespaces together; beyond, the oldest of the namespace that has most go, a tenth at a time."""
_SWEEP_INTERVAL = 60.0  # seconds between two sweeps
_EVENTS_PER_SWEEP = 1_000
"""Events that are looked at in one go: everybody else waits meanwhile."""


class EventExpiry:
    """Events live an hour (`ttl`, in seconds) after they were last seen. One key; at most once a minute it deletes those
    whose time is over."""

    name = "event-expiry"
    kinds: tuple[Kind, ...] = (EVENT,)

    def __init__(self, ttl: float = EVENT_TTL) -> None:
        self._ttl, self._interval = ttl, min(_SWEEP_INTERVAL, ttl / 2)
        self._next_sweep = 0.0
        self._expiries: list[tuple[float, Key]] = []
        """A heap: when an Event is to be looked at again. It may have been seen later, or be gone, by then."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.type != "Added":
            return []
        heapq.heappush(self._expiries, (_last_seen(change.object) + self._ttl, objects.key(change.object)))
        if len(self._expiries) > MAX_EVENTS:
            self._next_sweep = 0.0
        return [Key("", "events")]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        if now < self._next_sweep:
            return Decision(requeue_after=self._next_sweep - now)
        deletes: list[Write] = []
        for _ in range(_EVENTS_PER_SWEEP):
            if not self._expiries or self._expiries[0][0] > now:
                break
            _, event_key = heapq.heappop(self._expiries)
            event = view.get(EVENT, *event_key)
            if event is None:
                continue
            if (expires := _last_seen(event) + self._ttl) > now:
                heapq.heappush(self._expiries, (expires, event_key))
            else:
                deletes.append(Delete(EVENT, *event_key))
                heapq.heappush(self._expiries, (now + self._interval, event_key))  # again, should that fail
        else:
            return Decision(tuple(deletes), requeue_after=0.0)
        if len(self._expiries) > MAX_EVENTS:
            deletes += self._excess_deletes(view)
        soonest = self._expiries[0][0] if self._expiries else now + self._ttl
        self._next_sweep = max(soonest, now + self._interval)
        return Decision(tuple(deletes), requeue_after=self._next_sweep - now)

    def _excess_deletes(self, view: View) -> list[Write]:
        """Room for others, where there are too many: from who has most."""
        self._expiries = [entry for entry in self._expiries if view.get(EVENT, *entry[1]) is not None]
        heapq.heapify(self._expiries)
        excess = len(self._expiries) - MAX_EVENTS
        if excess <= 0:
            return []
        namespaces = Counter(event_key.namespace for _, event_key in self._expiries)
        ((noisiest, count),) = namespaces.most_common(1)
        oldest = heapq.nsmallest(
            min(excess + MAX_EVENTS // 10, count), (entry for entry in self._expiries if entry[1].namespace == noisiest)
        )
        return [Delete(EVENT, *event_key) for _, event_key in oldest]


def _last_seen(event: Object) -> float:
    """Not before it was written: who reports late is heard all the same."""
    reported = event.get("lastTimestamp") or objects.dig(event, "series.lastObservedTime") or event.get("eventTime")
    created = objects.seconds(objects.meta(event)["creationTimestamp"])
    return max(created, objects.seconds(reported)) if reported else created
