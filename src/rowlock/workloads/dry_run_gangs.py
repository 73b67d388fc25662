"""Derives the gangs that the scheduler would see from objects that are not submitted. Nothing is created.

The operator is run on a job as if it had just been created: its pods and PodGroup are what the operator and the pod-grouper
would create. Bare pods and PodGroups with their pods are used unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rowlock import kinds
from rowlock.api import Create
from rowlock.errors import BadRequest
from rowlock.objects import Object, dig, name, namespace, timestamp, uid
from rowlock.scheduling.model import from_objects
from rowlock.scheduling.model.scheduler_identity import EMBEDDED
from rowlock.scheduling.model.snapshot import Gang
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.job import reconcile
from rowlock.training.pod_group import group_of, group_spec
from rowlock.training.reconcile_context import Observed

MOST_PODS = 10_000
"""Most pods of one request; planning more takes too long for an interactive answer."""
SUPPORTED_KINDS = (*FRAMEWORKS, kinds.POD, kinds.POD_GROUP)


def dry_run_gangs(
    objects: Sequence[Object], namespaces: Mapping[str, Object], classes: Mapping[str, int], now: float
) -> list[Gang]:
    """The gangs of these objects, in their order. `namespaces`: name → Namespace; `classes`: PriorityClass → value.

    Raises BadRequest for a job that the operator refuses, for a PodGroup without pods, and for too many pods."""
    result: list[Gang] = []
    pods = [o for o in objects if kinds.by_object(o) == kinds.POD]
    grouped_pods: set[str] = set()
    for obj in objects:
        if (count := sum(len(gang.tasks) for gang in result)) > MOST_PODS:
            raise BadRequest(
                f"these are {count} pods or more; the limit of one question is {MOST_PODS}: ask about fewer jobs"
            )
        kind, namespace_object = kinds.by_object(obj), namespaces.get(namespace(obj))
        if kind in FRAMEWORKS:
            result.append(_job_gang(obj, namespace_object, classes, now))
        elif kind == kinds.POD_GROUP:
            members = [p for p in pods if _group_key(p) == (namespace(obj), name(obj))]
            if not members:
                raise BadRequest(
                    f"no Pod of the file names the PodGroup {name(obj)} (annotation {from_objects.POD_GROUP_ANNOTATION})"
                )
            grouped_pods |= {name(p) for p in members}
            result.append(_pod_group_gang(_with_creation_fields(obj, now), members, namespace_object, classes, now))
    for pod in pods:
        if name(pod) not in grouped_pods:
            namespace_object = namespaces.get(namespace(pod))
            result.append(
                from_objects.bare_pod_gang(
                    _with_creation_fields(pod, now),
                    from_objects.queue_of(pod, None, namespace_object),
                    classes,
                    EMBEDDED,
                )
            )
    return result


def _group_key(pod: Object) -> tuple[str, str]:
    return namespace(pod), from_objects.pod_group_name(pod)


def _with_creation_fields(obj: Object, now: float) -> Object:
    """The object with the uid and time that its creation would set."""
    meta = {"uid": uid(obj) or f"what-if-{name(obj)}", **obj["metadata"], "creationTimestamp": timestamp(now)}
    return {**obj, "metadata": meta}


def _job_gang(obj: Object, namespace_object: Object | None, classes: Mapping[str, int], now: float) -> Gang:
    framework = FRAMEWORKS[kinds.by_object(obj)]
    if dig(obj, "spec.runPolicy.suspend"):
        spec = {**obj["spec"], "runPolicy": {**obj["spec"]["runPolicy"], "suspend": False}}
        obj = {**obj, "spec": spec}  # the trial is about the running job
    if validation_error := framework.validate(obj.get("spec") or {}):
        raise BadRequest(f"{framework.kind.name} {name(obj)} would fail immediately: {validation_error}")
    obj = _with_creation_fields(obj, now)
    job = parse_job(framework, obj)
    writes = reconcile(framework, Observed(obj), now).writes
    pods = [w.object for w in writes if isinstance(w, Create) and w.kind == kinds.POD]
    if not pods:
        raise BadRequest(
            f"the operator would create no pods for {framework.kind.name} {name(obj)}: look at its replicas"
        )
    group = group_of(job, group_spec(job, namespace_object, classes))
    return _pod_group_gang(_with_creation_fields(group, now), pods, namespace_object, classes, now)


def _pod_group_gang(
    group: Object, pods: Iterable[Object], namespace_object: Object | None, classes: Mapping[str, int], now: float
) -> Gang:
    queue = from_objects.queue_of(group, group, namespace_object)
    return from_objects.pod_group_gang(group, [_with_creation_fields(p, now) for p in pods], queue, classes, EMBEDDED)
