"""Whose queue a job may name, and what the scheduler alone writes: for writers who are not the cluster's owner. Pure.

The namespace of a project has the label `runai/queue`: jobs, pods and PodGroups in it use that queue, elsewhere `default`. Otherwise
a user who may write in one project could use, and evict from, the quota of another.
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
"""On a job it names its queue where no other label does."""
RIGHT = "use"
"""The verb on queues.scheduling.run.ai that lets somebody name a queue of others."""
KINDS = frozenset({kinds.POD, kinds.POD_GROUP, kinds.NAMESPACE, *kinds.JOBS})


def refusal(
    kind: Kind, old: Object | None, new: Object, namespace_object: Object | None, may_use: Callable[[str], bool]
) -> str:
    """Why this user may not write the object; "" = it may be written. What it named before is not looked at again."""
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
    """Each queue that the object names, in any place from which a scheduler reads it."""
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
    """A label or an annotation of an object that has not been validated yet: what is no text there is refused later."""
    entries = dig(obj, f"metadata.{field}")
    value = entries.get(name) if isinstance(entries, dict) else None
    return value if isinstance(value, str) else ""


def _templates(job: Object) -> Iterator[tuple[str, Any]]:
    """The replica types of a job, whatever its framework, and the templates of their pods. Nothing of it has been validated yet."""
    spec = job.get("spec")
    for field, replicas in spec.items() if isinstance(spec, dict) else ():
        if field.endswith("ReplicaSpecs") and isinstance(replicas, dict):
            for role, replica in replicas.items():
                yield f"{field}.{role}", dig(replica, "template")


def _devices(kind: Kind, obj: Object) -> set[tuple[str, str]]:
    places = [("", obj), *(_templates(obj) if kind in kinds.JOBS else ())]
    return {(where, text) for where, place in places if (text := _text(place, "annotations", DEVICES_ANNOTATION))}
