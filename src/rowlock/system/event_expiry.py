"""Deletes old Events. A real API server lets etcd expire them (`--event-ttl`, one hour); here a controller does it.

Their number is limited, too, because all are in memory (about 2.4 KiB each): without a limit Events made up three quarters of the memory
that the server gained in ten busy minutes.
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
"""Maximum of Events in all namespaces. Beyond it the oldest Events of the namespace with the most are deleted."""
_SWEEP = Key("", "events")
_SWEEP_INTERVAL = 60.0  # seconds between two sweeps
_EVENTS_PER_SWEEP = 1_000
"""Maximum of Events examined in one turn, because the event loop is blocked meanwhile."""


class EventExpiry:
    """Deletes Events `ttl` seconds (default: an hour) after they were last seen. One key for all; it sweeps at most once a minute."""

    name = "event-expiry"
    kinds: tuple[Kind, ...] = (EVENT,)

    def __init__(self, ttl: float = EVENT_TTL) -> None:
        self._ttl, self._interval = ttl, min(_SWEEP_INTERVAL, ttl / 2)
        self._next_sweep = 0.0
        self._expiries: dict[str, list[tuple[float, Key]]] = {}
        """Per namespace, a heap of (when to examine an Event again, its key). By then it may have been seen again or be deleted."""
        self._live = Counter[str]()
        """Number of Events by namespace."""
        self._total = 0

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        key = objects.key(change.object)
        if change.type == "Deleted":
            self._live[key.namespace] -= 1
            self._total -= 1
        if change.type != "Added":
            return []
        self._live[key.namespace] += 1
        self._total += 1
        heap = self._expiries.setdefault(key.namespace, [])
        heapq.heappush(heap, (_last_seen(change.object) + self._ttl, key))
        if self._total > MAX_EVENTS:
            self._next_sweep = 0.0
        return [] if self._next_sweep else [_SWEEP]  # a turn is due by itself: an Event expires after those before it

    def decide(self, view: View, key: Key, now: float) -> Decision:
        if now < self._next_sweep:
            return Decision(requeue_after=self._next_sweep - now)
        deletes: list[Write] = []
        looks = _EVENTS_PER_SWEEP
        for namespace, heap in list(self._expiries.items()):
            if self._live[namespace] <= 0:
                del self._expiries[namespace], self._live[namespace]
                continue
            while looks and heap and heap[0][0] <= now:
                looks -= 1
                deletes += self._look_at_first(heap, view, now)
        excess = self._total - len(deletes) - MAX_EVENTS
        if looks and excess > 0:
            deletes += self._make_room(view, now, excess)
        if not looks or excess > 0:
            return Decision(tuple(deletes), requeue_after=0.0)
        soonest = min((heap[0][0] for heap in self._expiries.values() if heap), default=now + self._ttl)
        self._next_sweep = max(soonest, now + self._interval)
        return Decision(tuple(deletes), requeue_after=self._next_sweep - now)

    def _look_at_first(self, heap: list[tuple[float, Key]], view: View, now: float) -> list[Write]:
        """Pop the first Event of the heap: delete it if it has expired, push it back if it was seen again."""
        _, event_key = heapq.heappop(heap)
        event = view.get(EVENT, *event_key)
        if event is None:
            return []
        if (expires := _last_seen(event) + self._ttl) > now:
            heapq.heappush(heap, (expires, event_key))
            return []
        return [self._delete(heap, event_key, now)]

    def _delete(self, heap: list[tuple[float, Key]], event_key: Key, now: float) -> Write:
        heapq.heappush(heap, (now + self._interval, event_key))  # examined again in case the delete fails
        return Delete(EVENT, *event_key)

    def _make_room(self, view: View, now: float, excess: int) -> list[Write]:
        """Delete the oldest Events of the namespace that has the most. `excess`: how many there are too many."""
        ((noisiest, count),) = self._live.most_common(1)
        heap, wanted = self._expiries[noisiest], min(excess + MAX_EVENTS // 20, count, _EVENTS_PER_SWEEP)
        oldest: list[Key] = []
        for _ in range(2 * _EVENTS_PER_SWEEP):
            if not heap or len(oldest) == wanted:
                break
            _, event_key = heapq.heappop(heap)
            if view.get(EVENT, *event_key) is not None:
                oldest.append(event_key)
        return [self._delete(heap, event_key, now) for event_key in oldest]


def _last_seen(event: Object) -> float:
    """When the Event was last seen (seconds since the epoch), but not before its creation: a late report also lives for `ttl`."""
    reported = event.get("lastTimestamp") or objects.dig(event, "series.lastObservedTime") or event.get("eventTime")
    created = objects.seconds(objects.meta(event)["creationTimestamp"])
    return max(created, objects.seconds(reported)) if reported else created
