"""Pod → its workload, and back, over the Job and JobSet between them, if there are any.

An owner is looked up by name, and its uid must match the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.objects import Object, controller_of, dig, namespace, uid


def workload_of(view: View, pod: Object) -> Object | None:
    """The pod's workload; a TrainJob gets the `replicatedJobs` of its JobSet. None for other pods, or if an owner is gone."""
    found = owner_of(view, pod)
    if found is None or found[0] not in kinds.WORKLOADS:
        return None
    kind, job = found
    while names_parent(kind, job):
        above = owner_of(view, job)
        if above is None:
            return None
        job = with_replicated_jobs(above[1], job) if above[0] is kinds.TRAIN_JOB else above[1]
        kind = above[0]
    return job


def with_replicated_jobs(trainjob: Object, jobset: Object) -> Object:
    """A TrainJob with the `replicatedJobs` of its JobSet, because a TrainJob itself only names a runtime."""
    replicated = dig(jobset, "spec.replicatedJobs", None) or []
    return {**trainjob, "spec": {**(trainjob.get("spec") or {}), "replicatedJobs": replicated}}


def pods_of_workload(view: View, job: str) -> Iterator[Object]:
    """The pods of the workload with this uid, including those of its Jobs and of its JobSet's Jobs."""
    yield from view.by_owner(kinds.POD, job)
    for jobset in view.by_owner(kinds.JOB_SET, job):
        yield from pods_of_workload(view, uid(jobset))
    for part in view.by_owner(kinds.BATCH_JOB, job):
        yield from view.by_owner(kinds.POD, uid(part))


def is_part(kind: kinds.Kind, obj: Object) -> bool:
    """Whether an object has a controlling owner, and so is not a workload by itself. A Job that a CronJob has made is one."""
    owner = controller_of(obj) if kind in kinds.PARENTS else None
    return owner is not None and _kind_of(owner) is not kinds.CRON_JOB


def names_parent(kind: kinds.Kind, obj: Object) -> bool:
    """Whether the controller of a Job or JobSet is of the kind whose parts they are."""
    owner = controller_of(obj) or {}
    return kind in kinds.PARENTS and _kind_of(owner) is kinds.PARENTS[kind]


def _kind_of(owner: dict[str, Any]) -> kinds.Kind | None:
    return kinds.by_api_version(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))


def owner_of(view: View, obj: Object) -> tuple[kinds.Kind, Object] | None:
    """The kind and object of the controller of `obj`; None if it has none, or it is gone."""
    owner = controller_of(obj) or {}
    kind = _kind_of(owner)
    found = view.get(kind, namespace(obj), str(owner.get("name", ""))) if kind is not None else None
    return (kind, found) if kind is not None and found is not None and uid(found) == owner.get("uid") else None
