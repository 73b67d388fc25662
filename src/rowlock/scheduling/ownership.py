"""Which queues a job may name, and which annotations only the scheduler writes. Applied to all users but the cluster's owner. Pure.

Jobs, pods and PodGroups must use the queue in their namespace's label `runai/queue`, or `default` without it. Otherwise a user of one
project could use another project's quota and evict its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Object, dig, labels, namespace
from rowlock.scheduling.model.from_objects import (
    DEFAULT_QUEUE,
    DEVICES_ANNOTATION,
    NAMESPACE_QUEUE_LABEL,
    QUEUE_LABELS,
)

PROJECT_LABEL = "project"
"""On a job it names the queue if no other label does."""
RIGHT = "use"
"""The verb on queues.scheduling.run.ai that allows a user to name that queue."""
KINDS = frozenset({kinds.POD, kinds.POD_GROUP, kinds.NAMESPACE, *kinds.JOBS})


def refusal(
    kind: Kind, old: Object | None, new: Object, namespace_object: Object | None, may_use: Callable[[str], bool]
) -> str:
    """Why this user may not write the object; "" = allowed. Queues already named in `old` are not checked."""
    if kind in (kinds.POD, *kinds.JOBS) and _devices(kind, new) - (_devices(kind, old) if old else set()):
        return f"the annotation {DEVICES_ANNOTATION} says which GPUs the scheduler has chosen: leave it out"
    own = str(labels(namespace_object or {}).get(NAMESPACE_QUEUE_LABEL) or DEFAULT_QUEUE)
    before = set(named_queues(kind, old)) if old else set()
    for queue in named_queues(kind, new):
        if queue in before or (queue == own and kind is not kinds.NAMESPACE) or may_use(queue):
            continue
        if kind is kinds.NAMESPACE:
            return f'the label {NAMESPACE_QUEUE_LABEL} gives it the queue "{queue}": that takes the verb {RIGHT} on this queue'
        return (
            f'it names the queue "{queue}", and jobs of namespace {namespace(new)} use "{own}": leave the queue out; another one takes'
            f" the verb {RIGHT} on queues.scheduling.run.ai {queue}"
        )
    return ""


def named_queues(kind: Kind, obj: Object) -> Iterator[str]:
    """All queues that the object names in any field that a scheduler reads."""
    if kind is kinds.NAMESPACE:
        yield from filter(None, (_text(obj, "labels", NAMESPACE_QUEUE_LABEL),))
        return
    places = [obj, *(template for _, template in _templates(obj))] if kind in kinds.JOBS else [obj]
    labelled = [queue for place in places for label in QUEUE_LABELS if (queue := _text(place, "labels", label))]
    yield from labelled
    if kind in kinds.JOBS:
        found = (
            "" if labelled else _text(obj, "labels", PROJECT_LABEL),
            dig(obj, "spec.runPolicy.schedulingPolicy.queue", ""),
        )
        yield from (str(queue) for queue in found if queue)
    if kind is kinds.POD_GROUP and (queue := dig(obj, "spec.queue")):
        yield str(queue)


def _text(obj: Any, field: str, name: str) -> str:
    """A label or annotation of an unvalidated object; "" if it is absent or not a string (which is refused later)."""
    entries = dig(obj, f"metadata.{field}")
    value = entries.get(name) if isinstance(entries, dict) else None
    return value if isinstance(value, str) else ""


def _templates(job: Object) -> Iterator[tuple[str, Any]]:
    """(path, pod template) of each replica type of a job of any framework. The job is not validated yet."""
    spec = job.get("spec")
    for field, replicas in spec.items() if isinstance(spec, dict) else ():
        if field.endswith("ReplicaSpecs") and isinstance(replicas, dict):
            for role, replica in replicas.items():
                yield f"{field}.{role}", dig(replica, "template")


def _devices(kind: Kind, obj: Object) -> set[tuple[str, str]]:
    places = [("", obj), *(_templates(obj) if kind in kinds.JOBS else ())]
    return {(where, text) for where, place in places if (text := _text(place, "annotations", DEVICES_ANNOTATION))}
