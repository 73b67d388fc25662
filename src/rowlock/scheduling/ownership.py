"""Which queues a job may name, and which annotations only the scheduler writes. Applied to all users but the cluster's owner. Pure.

Pods, PodGroups and all that makes some must use the queue in their namespace's label `runai/queue`, or `default` without it. Otherwise a user of one
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

_Path = tuple[str, ...]
PROJECT_LABEL = "project"
"""It names the queue of a job, or of the jobs that an object makes, if no other label does."""
RIGHT = "use"
"""The verb on queues.scheduling.run.ai that allows a user to name that queue."""
WITH_TEMPLATES = frozenset({*kinds.WORKLOADS, kinds.CRON_JOB, kinds.TRAINING_RUNTIME})
"""Kinds from whose templates controllers make jobs, pods and PodGroups: those writes are the server's own, and nobody asks again."""
KINDS = frozenset({kinds.POD, kinds.POD_GROUP, kinds.NAMESPACE, *WITH_TEMPLATES})
_MAX_DEPTH = 16
"""The deepest template is that of a pod in a patch of a TrainJob, at a path of 11 steps."""
_NO_TEMPLATES = frozenset(
    {"metadata", "containers", "initContainers", "ephemeralContainers", "volumes", "volumeClaimPolicies"}
)
"""Fields below which there is no template of jobs or pods."""


def refusal(
    kind: Kind, old: Object | None, new: Object, namespace_object: Object | None, may_use: Callable[[str], bool]
) -> str:
    """Why this user may not write the object; "" = allowed. Queues already named in `old` are not checked."""
    if kind not in (kinds.POD_GROUP, kinds.NAMESPACE) and _devices(kind, new) - (_devices(kind, old) if old else set()):
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
    places, labelled = list(_places(kind, obj)), set[_Path]()
    for path, place in places:
        for queue in filter(None, (_text(place, "labels", label) for label in QUEUE_LABELS)):
            labelled.update(path[:length] for length in range(len(path) + 1))
            yield queue
    for path, place in places if kind in WITH_TEMPLATES else ():
        if path not in labelled and not _is_of_pods(place) and (queue := _text(place, "labels", PROJECT_LABEL)):
            yield queue
    if kind in kinds.JOBS and (queue := dig(obj, "spec.runPolicy.schedulingPolicy.queue", "")):
        yield str(queue)
    if kind is kinds.POD_GROUP and (queue := dig(obj, "spec.queue")):
        yield str(queue)


def _text(obj: Any, field: str, name: str) -> str:
    """A label or annotation of an unvalidated object; "" if it is absent or not a string (which is refused later)."""
    entries = dig(obj, f"metadata.{field}")
    value = entries.get(name) if isinstance(entries, dict) else None
    return value if isinstance(value, str) else ""


def _places(kind: Kind, obj: Object) -> Iterator[tuple[_Path, Any]]:
    """(path, object or template) of everything with metadata of its own in an object, which is not validated yet."""
    yield (), obj
    unvisited: list[tuple[_Path, Any]] = [((), {"spec": obj.get("spec")})] if kind in WITH_TEMPLATES else []
    while unvisited:
        path, value = unvisited.pop()
        if isinstance(value, dict):
            if path and "metadata" in value:
                yield path, value
            inner = ((str(key), each) for key, each in value.items() if key not in _NO_TEMPLATES)
        else:
            inner = ((str(number), each) for number, each in enumerate(value))
        if len(path) < _MAX_DEPTH:
            unvisited += [((*path, step), each) for step, each in inner if isinstance(each, dict | list)]


def _is_of_pods(place: Any) -> bool:
    """Whether the place is a pod template, where a project label names no queue."""
    spec = dig(place, "spec")
    return isinstance(spec, dict) and "containers" in spec


def _devices(kind: Kind, obj: Object) -> set[tuple[_Path, str]]:
    return {
        (path, text) for path, place in _places(kind, obj) if (text := _text(place, "annotations", DEVICES_ANNOTATION))
    }
