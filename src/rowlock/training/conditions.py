"""A job's conditions: Created → Running ⇄ Restarting → {Succeeded, Failed}, and Suspended beside them.

The table below is the whole lifecycle; `put` only looks things up in it. The list is in order of the last change,
and its last element is what `kubectl get` shows as STATE.

    setting       drops        turns to False
    Running       Restarting
    Restarting    Running
    Succeeded                  Running
    Failed                     Running         and nothing is set any more
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.objects import Object, timestamp

CREATED, RUNNING, RESTARTING = "Created", "Running", "Restarting"
SUCCEEDED, FAILED, SUSPENDED = "Succeeded", "Failed", "Suspended"

DROPS = {RUNNING: RESTARTING, RESTARTING: RUNNING}
ENDS = {SUCCEEDED: RUNNING, FAILED: RUNNING}
LAST = FAILED
"""Once this is True the list is closed."""

Conditions = tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """What is to be said: a condition without its times."""

    type: str
    reason: str
    message: str
    status: str = "True"


def find(conditions: Sequence[Object], type_: str) -> Object | None:
    return next((c for c in conditions if c.get("type") == type_), None)


def holds(conditions: Sequence[Object], type_: str) -> bool:
    found = find(conditions, type_)
    return found is not None and found.get("status") == "True"


def put(conditions: Conditions, new: Condition, now: float) -> Conditions:
    """The list after saying `new`. The same status for the same reason is no news, whatever the message."""
    old = find(conditions, new.type)
    if holds(conditions, LAST):
        return conditions
    if old and (old.get("status"), old.get("reason")) == (new.status, new.reason):
        return conditions
    stamp = timestamp(now)
    since = old.get("lastTransitionTime", stamp) if old and old.get("status") == new.status else stamp
    said = {"type": new.type, "status": new.status, "reason": new.reason, "message": new.message}
    said |= {"lastUpdateTime": stamp, "lastTransitionTime": since}
    kept = [c for c in conditions if c.get("type") not in (new.type, DROPS.get(new.type))]
    ended = ENDS.get(new.type)
    return (*({**c, "status": "False"} if c.get("type") == ended else c for c in kept), said)


def same_story(one: Sequence[Object], other: Sequence[Object]) -> bool:
    """Equal but for their times: nothing that anybody would notice has changed."""
    times = ("lastUpdateTime", "lastTransitionTime")
    return [{k: v for k, v in c.items() if k not in times} for c in one] == [
        {k: v for k, v in c.items() if k not in times} for c in other
    ]
