"""Whose queue a job may name, and what the scheduler alone writes: for writers who are not the cluster's owner. Pure.

The namespace of a project has the label `runai/queue`: jobs, pods and PodGroups in it use that queue, elsewhere `default`. Otherwise
who may write in one project would use, and evict from, the quota of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rowlock import kinds, objects
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
        yield from filter(None, (labels(obj).get(NAMESPACE_QUEUE_LABEL),))
        return
    places = [obj, *(template for _, template in _templates(obj))] if kind in kinds.JOBS else [obj]
    labelled = [queue for place in places for label in QUEUE_LABELS if (queue := labels(place).get(label))]
    yield from labelled
    if kind in kinds.JOBS:
        found = (
            "" if labelled else labels(obj).get(PROJECT_LABEL),
            dig(obj, "spec.runPolicy.schedulingPolicy.queue", ""),
        )
        yield from (str(queue) for queue in found if queue)
    if kind is kinds.POD_GROUP and (queue := dig(obj, "spec.queue")):
        yield str(queue)


def _templates(job: Object) -> Iterator[tuple[str, Object]]:
    """The replica types of a job, whatever its framework, and the templates of their pods."""
    for field, replicas in (job.get("spec") or {}).items():
        if field.endswith("ReplicaSpecs") and isinstance(replicas, dict):
            for role, replica in replicas.items():
                yield f"{field}.{role}", (replica or {}).get("template") or {}


def _devices(kind: Kind, obj: Object) -> set[tuple[str, str]]:
    places = [("", obj), *(_templates(obj) if kind in kinds.JOBS else ())]
    return {(where, text) for where, place in places if (text := objects.annotations(place).get(DEVICES_ANNOTATION))}
