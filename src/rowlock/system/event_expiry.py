"""Old Events go. A real API server lets etcd forget them (`--event-ttl`, one hour); here a controller deletes them."""

from __future__ import annotations

import heapq
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
_SWEEP_INTERVAL = 60.0  # seconds between two sweeps
_EVENTS_PER_SWEEP = 1_000
"""Events that are looked at in one go: everybody else waits meanwhile."""


class EventExpiry:
    """Events live an hour after they were last seen. One key; at most once a minute it deletes those whose hour is over."""

    name = "event-expiry"
    kinds: tuple[Kind, ...] = (EVENT,)

    def __init__(self) -> None:
        self._next_sweep = 0.0
        self._expiries: list[tuple[float, Key]] = []
        """A heap: when an Event is to be looked at again. It may have been seen later, or be gone, by then."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.type != "Added":
            return []
        heapq.heappush(self._expiries, (_last_seen(change.object) + EVENT_TTL, objects.key(change.object)))
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
            if (expires := _last_seen(event) + EVENT_TTL) > now:
                heapq.heappush(self._expiries, (expires, event_key))
            else:
                deletes.append(Delete(EVENT, *event_key))
                heapq.heappush(self._expiries, (now + _SWEEP_INTERVAL, event_key))  # again, should that fail
        else:
            return Decision(tuple(deletes), requeue_after=0.0)
        soonest = self._expiries[0][0] if self._expiries else now + EVENT_TTL
        self._next_sweep = max(soonest, now + _SWEEP_INTERVAL)
        return Decision(tuple(deletes), requeue_after=self._next_sweep - now)


def _last_seen(event: Object) -> float:
    """Not before it was written: who reports late is heard all the same."""
    reported = event.get("lastTimestamp") or objects.dig(event, "series.lastObservedTime") or event.get("eventTime")
    created = objects.seconds(objects.meta(event)["creationTimestamp"])
    return max(created, objects.seconds(reported)) if reported else created
