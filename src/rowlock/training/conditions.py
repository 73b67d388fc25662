"""A job's conditions: Created → Running ⇄ Restarting → {Succeeded, Failed}, and Suspended beside them.

The table below is the whole lifecycle; `set_condition` only applies it. The list is in order of the last change, and its last element is
what `kubectl get` shows as STATE.

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

REPLACED_TYPE = {RUNNING: RESTARTING, RESTARTING: RUNNING}
FALSE_AFTER = {SUCCEEDED: RUNNING, FAILED: RUNNING}
FINAL_TYPE = FAILED
"""Once this condition is True the list does not change any more."""

Conditions = tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to set, without its times."""

    type: str
    reason: str
    message: str
    status: str = "True"


def find_condition(conditions: Sequence[Object], type_: str) -> Object | None:
    """The condition of that type, None when there is none."""
    return next((c for c in conditions if c.get("type") == type_), None)


def is_condition_true(conditions: Sequence[Object], type_: str) -> bool:
    """Whether the condition of that type exists and has the status True."""
    condition = find_condition(conditions, type_)
    return condition is not None and condition.get("status") == "True"


def set_condition(conditions: Conditions, new: Condition, now: float) -> Conditions:
    """The list after setting `new`. A condition with the same status and reason is not updated, whatever its message."""
    old = find_condition(conditions, new.type)
    if is_condition_true(conditions, FINAL_TYPE):
        return conditions
    if old and (old.get("status"), old.get("reason")) == (new.status, new.reason):
        return conditions
    now_text = timestamp(now)
    since = old.get("lastTransitionTime", now_text) if old and old.get("status") == new.status else now_text
    updated = {"type": new.type, "status": new.status, "reason": new.reason, "message": new.message}
    updated |= {"lastUpdateTime": now_text, "lastTransitionTime": since}
    others = [c for c in conditions if c.get("type") not in (new.type, REPLACED_TYPE.get(new.type))]
    false_type = FALSE_AFTER.get(new.type)
    return (*({**c, "status": "False"} if c.get("type") == false_type else c for c in others), updated)


def equal_except_times(one: Sequence[Object], other: Sequence[Object]) -> bool:
    """Whether two lists of conditions are equal except for their times."""
    times = ("lastUpdateTime", "lastTransitionTime")
    return [{k: v for k, v in c.items() if k not in times} for c in one] == [
        {k: v for k, v in c.items() if k not in times} for c in other
    ]
