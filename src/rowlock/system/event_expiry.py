"""Old Events go. A real API server lets etcd forget them (`--event-ttl`, one hour); here a controller deletes them."""

from __future__ import annotations

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
_SWEEP_INTERVAL = 60.0  # seconds between two looks at all Events


class EventExpiry:
    """Events live an hour after they were last seen. One key; looks at all of them at most once a minute."""

    name = "event-expiry"
    kinds: tuple[Kind, ...] = (EVENT,)

    def __init__(self) -> None:
        self._next_sweep = 0.0

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [Key("", "events")] if change.type == "Added" else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        if now < self._next_sweep:
            return Decision(requeue_after=self._next_sweep - now)
        deletes: list[Write] = []
        soonest = now + EVENT_TTL
        for event in view.all(EVENT):
            expires = _last_seen(event) + EVENT_TTL
            if expires <= now:
                deletes.append(Delete(EVENT, objects.namespace(event), objects.name(event)))
            else:
                soonest = min(soonest, expires)
        self._next_sweep = max(soonest, now + _SWEEP_INTERVAL)
        return Decision(tuple(deletes), requeue_after=self._next_sweep - now)


def _last_seen(event: Object) -> float:
    """Not before it was written: who reports late is heard all the same."""
    reported = event.get("lastTimestamp") or objects.dig(event, "series.lastObservedTime") or event.get("eventTime")
    created = objects.seconds(objects.meta(event)["creationTimestamp"])
    return max(created, objects.seconds(reported)) if reported else created
