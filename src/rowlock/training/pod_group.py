"""Job → PodGroup: the gang is declared before its pods can be placed, as KAI's pod-grouper would declare it.

Queue, priority and gang size are read from the job, its pod templates and its namespace, by KAI's rules. A PodGroup's sub-groups are named
by the pods' label `training.kubeflow.org/replica-type`. It is created when the job may have pods, kept while the job is suspended, and
deleted with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rowlock.api import NOTHING, Change, Create, Decision, Record, Update, View
from rowlock.kinds import JOBS, NAMESPACE, POD_GROUP, PRIORITY_CLASS, Kind
from rowlock.kinds import by_api_version as kind_of
from rowlock.objects import (
    Key,
    Object,
    controller_of,
    dig,
    is_condition_true,
    is_deleting,
    key,
    labels,
    meta,
    name,
    owner_reference,
    uid,
)
from rowlock.objects import annotations as annotations_of
from rowlock.objects import namespace as namespace_of
from rowlock.quantity import parse_duration
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.model import Job

MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
QUEUE_LABELS = ("kai.scheduler/queue", "runai/queue")
PROJECT_LABEL = "project"
NAMESPACE_QUEUE_LABEL = "runai/queue"
DEFAULT_QUEUE = "default"
PRIORITY_LABEL = "priorityClassName"
DEFAULT_PRIORITY = "train"
PRIORITIES = ("train", "build-preemptible", "interactive-preemptible", "build", "inference")
"""Classes that exist without a PriorityClass object."""
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
PREEMPTIBILITIES = ("preemptible", "non-preemptible")
OWNER_ANNOTATION = "kai.scheduler/top-owner-metadata"
MAX_RUNTIME_ANNOTATION = "rowlock.dev/max-runtime"
PASSED_ANNOTATIONS = ("kai.scheduler/preemption-delay", "kai.scheduler/staleness-grace-period")
"""Annotations of a job that the scheduler reads; they are copied to its PodGroup."""
_OUR_FIELDS = ("minMember", "queue", "priorityClassName", "preemptibility", "subGroups", "topologyConstraint")
"""Fields of a PodGroup's spec that are kept equal to the job's."""
FINISHED_ANNOTATION = "rowlock.dev/finished"
"""Set on the PodGroup of a job that has ended: its pending pods must not start any more."""
TOPOLOGY_ANNOTATIONS = {
    "kai.scheduler/topology": "topology",
    "kai.scheduler/topology-required-placement": "requiredTopologyLevel",
    "kai.scheduler/topology-preferred-placement": "preferredTopologyLevel",
}
"""Annotation of a job → field of its PodGroup's topologyConstraint. A level is a node label."""


def group_name(job: Job) -> str:
    """The name that KAI's pod-grouper gives the PodGroup of a job."""
    return f"pg-{job.name}-{job.uid}"


def queue_of(job: Job, namespace: Object | None) -> str:
    """The name of the queue that a job requests."""
    return _queue_among(list(_label_sets(job)), namespace)


def _queue_among(label_sets: Sequence[dict[str, str]], namespace: Object | None) -> str:
    """The queue by labels of the job (`label_sets[0]`) or its pods, else by its project label, else the namespace's, else `default`."""
    for label_set in label_sets:
        for label in QUEUE_LABELS:
            if label_set.get(label):
                return label_set[label]
    namespace_queue = labels(namespace).get(NAMESPACE_QUEUE_LABEL) if namespace else None
    return label_sets[0].get(PROJECT_LABEL) or namespace_queue or DEFAULT_QUEUE


def _priority_among(
    label_sets: Iterable[dict[str, str]], templates: Iterable[Object], class_names: Iterable[str]
) -> str:
    """The priority class by labels or pod templates; one that does not exist counts as `train`, as in KAI."""
    candidates = [marked.get(PRIORITY_LABEL) for marked in label_sets]
    candidates += [(template.get("spec") or {}).get("priorityClassName") for template in templates]
    priority = next((a for a in candidates if a), DEFAULT_PRIORITY)
    return priority if priority in PRIORITIES or priority in set(class_names) else DEFAULT_PRIORITY


def _label_sets(job: Job) -> Iterator[dict[str, str]]:
    yield labels(job.object)
    for replica in job.replicas.values():
        yield labels(replica.template)


def group_spec(job: Job, namespace: Object | None, classes: Iterable[str]) -> Object:
    """The PodGroup's spec: gang size, queue, priority class, preemptibility, topology and sub-groups, by KAI's rules.

    `namespace`: the job's Namespace object; `classes`: names of the existing PriorityClasses."""
    gang, templates = job.framework.gang(job), [replica.template for replica in job.replicas.values()]
    placement = placement_spec(list(_label_sets(job)), templates, annotations_of(job.object), namespace, classes)
    spec: Object = {"minMember": gang.min_members, **placement}
    if gang.sub_groups:
        spec["subGroups"] = [{"name": group, "minMember": least} for group, least in gang.sub_groups]
    return spec


def placement_spec(
    label_sets: Sequence[dict[str, str]],
    templates: Iterable[Object],
    annotations: Mapping[str, str],
    namespace: Object | None,
    classes: Iterable[str],
) -> Object:
    """The scheduling fields of a PodGroup's spec: queue, priority class, preemptibility and topology.

    `label_sets`: labels of the job, then of its pods; `annotations`: those of the job."""
    spec: Object = {
        "queue": _queue_among(label_sets, namespace),
        "priorityClassName": _priority_among(label_sets, templates, classes),
    }
    preemptibility = next(
        (marked[PREEMPTIBILITY_LABEL] for marked in label_sets if marked.get(PREEMPTIBILITY_LABEL)), ""
    )
    if preemptibility in PREEMPTIBILITIES:
        spec["preemptibility"] = preemptibility
    if topology := {field: annotations[note] for note, field in TOPOLOGY_ANNOTATIONS.items() if annotations.get(note)}:
        spec["topologyConstraint"] = topology
    return spec


def wishes_of(job: Job) -> dict[str, str]:
    """A job's annotations for the scheduler. Without a valid max-runtime annotation its deadline is used."""
    job_annotations = annotations_of(job.object)
    max_runtime = job_annotations.get(MAX_RUNTIME_ANNOTATION) or ""
    if job.policy.deadline and not parse_duration(max_runtime):
        max_runtime = f"{job.policy.deadline}s"
    passed = {note: job_annotations[note] for note in PASSED_ANNOTATIONS if job_annotations.get(note)}
    return {**passed, **({MAX_RUNTIME_ANNOTATION: max_runtime} if max_runtime else {})}


def group_of(job: Job, spec: Object) -> Object:
    """The PodGroup of a job, as KAI's pod-grouper creates it, but with the job as controller, by which pods find it."""
    return make_group(
        job.object, group_name(job), spec, {**top_owner_note(job.framework.kind, job.object), **wishes_of(job)}
    )


def top_owner_note(kind: Kind, job: Object) -> dict[str, str]:
    """The annotation of a PodGroup that names the workload which its pods belong to, as KAI's pod-grouper writes it."""
    lines = {"name": name(job), "uid": uid(job), "group": kind.group, "version": kind.version, "kind": kind.name}
    return {OWNER_ANNOTATION: "".join(f"{key}: {value}\n" for key, value in lines.items())}


def make_group(owner: Object, group: str, spec: Object, annotations: Mapping[str, str]) -> Object:
    """A new PodGroup of this name, with its owner's labels."""
    metadata: dict[str, Any] = {
        "name": group,
        "namespace": namespace_of(owner),
        "labels": dict(labels(owner)),
        "annotations": dict(annotations),
        "ownerReferences": [owner_reference(owner)],
    }
    return {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.name, "metadata": metadata, "spec": spec}


def follow(group: Object, spec: Object, wishes: Mapping[str, str]) -> Update | None:
    """An update of a PodGroup to its job's current values; None if it is up to date or being deleted.

    Our fields are replaced by those of `spec`, and removed if absent there; other fields stay, and so do annotations other than `wishes`. A
    max-runtime annotation that `wishes` lacks is removed."""
    others = {field: value for field, value in (group.get("spec") or {}).items() if field not in _OUR_FIELDS}
    known = annotations_of(group)
    marks = {note: value for note, value in known.items() if note != MAX_RUNTIME_ANNOTATION} | dict(wishes)
    full_spec = {**others, **spec}
    if is_deleting(group) or (full_spec == group.get("spec") and marks == known):
        return None
    return Update(POD_GROUP, {**group, "metadata": {**meta(group), "annotations": marks}, "spec": full_spec})


def wants_group(job: Job) -> bool:
    """Whether a job without a PodGroup needs one now: it is managed by us, has not ended, and may have pods."""
    is_ours = job.policy.is_managed_by_us or not job.framework.respects_managed_by
    return is_ours and bool(job.replicas) and not (is_deleting(job.object) or job.policy.suspend or is_over(job.object))


def is_over(job: Object) -> bool:
    """Whether the job has succeeded or failed."""
    return any(is_condition_true(job, end) for end in ("Succeeded", "Failed"))


def mixed_schedulers_message(job: Job, scheduler_names: Collection[str]) -> str:
    """Why there is no PodGroup for a job whose pods name several schedulers, including ours; "" for other jobs."""
    ours = [role for role, name in _schedulers(job) if name in scheduler_names]
    others = [f"{role} {name or 'no schedulerName'}" for role, name in _schedulers(job) if name not in scheduler_names]
    if not ours or not others:
        return ""
    return (
        f"{', '.join(ours)}: these pods wait for {sorted(scheduler_names)[0]}, which starts all pods of a job together, but the"
        f" others have another scheduler ({', '.join(others)}): give all replicas the same spec.schedulerName"
    )


def _schedulers(job: Job) -> list[tuple[str, str]]:
    """(replica type, its pods' schedulerName or "")."""
    return [(role, str((r.template.get("spec") or {}).get("schedulerName") or "")) for role, r in job.replicas.items()]


def _may_start_with_a_part(job: Object) -> bool:
    """Whether pods may still be pending when the job ends, because its gang is a part of it. Only then its PodGroup needs the finished
    annotation, which costs a write."""
    return bool(dig(job, "spec.elasticPolicy", None)) or dig(job, MIN_AVAILABLE, None) is not None


def _is_status_change(change: Change) -> bool:
    """Whether only parts changed on which the PodGroup does not depend; it depends on metadata, spec and, for some, the job's end."""
    if change.old is None or change.type != "Modified":
        return False
    if _may_start_with_a_part(change.object) and is_over(change.old) != is_over(change.object):
        return False
    old_meta, new_meta = (
        {k: v for k, v in meta(obj).items() if k not in ("resourceVersion", "managedFields")}
        for obj in (change.old, change.object)
    )
    return change.old.get("spec") == change.object.get("spec") and old_meta == new_meta


class PodGroupController:
    """Creates and updates the PodGroup of every job; with `scheduler_names` only of jobs whose pods all name one of these schedulers."""

    name = "podgrouper"
    kinds: tuple[Kind, ...] = (*JOBS, POD_GROUP, NAMESPACE, PRIORITY_CLASS)

    def __init__(self, scheduler_names: Collection[str] | None = None, event_source: str = "podgrouper") -> None:
        self._scheduler_names, self._event_source = scheduler_names, event_source

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """`kind/name` of the jobs concerned, since names are unique per kind only."""
        if change.kind in JOBS:
            return () if _is_status_change(change) else (_key(change.kind, change.object),)
        if change.kind is POD_GROUP:
            if _is_status_change(change):
                return ()
            owner = controller_of(change.object) or {}
            kind = kind_of(str(owner.get("apiVersion") or ""), str(owner.get("kind") or ""))
            if kind not in FRAMEWORKS:
                return ()
            return (Key(namespace_of(change.object), f"{kind.plural}/{owner['name']}"),)
        job_namespace = name(change.object) if change.kind is NAMESPACE else ""
        return [
            Key(key.namespace, f"{kind.plural}/{key.name}") for kind in JOBS for key in view.keys(kind, job_namespace)
        ]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Create or update the PodGroup."""
        plural, _, job_name = key.name.partition("/")
        kind = next(k for k in JOBS if k.plural == plural)
        obj = view.get(kind, key.namespace, job_name)
        if obj is None or (is_over(obj) and not _may_start_with_a_part(obj)):
            return NOTHING
        job = parse_job(FRAMEWORKS[kind], obj)
        if self._scheduler_names is not None and any(s not in self._scheduler_names for _, s in _schedulers(job)):
            return self._refuse_mixed(job, self._scheduler_names) if wants_group(job) else NOTHING
        classes = [name(c) for c in view.all(PRIORITY_CLASS)]
        spec = group_spec(job, view.get(NAMESPACE, "", key.namespace), classes)
        group = view.get(POD_GROUP, key.namespace, group_name(job))
        if group is None:
            return Decision((Create(POD_GROUP, group_of(job, spec)),)) if wants_group(job) else NOTHING
        if is_over(obj) and not is_deleting(group) and FINISHED_ANNOTATION not in annotations_of(group):
            return Decision((_annotate(group, {FINISHED_ANNOTATION: "true"}),))
        update = follow(group, spec, wishes_of(job)) if wants_group(job) else None
        return Decision((update,)) if update else NOTHING

    def _refuse_mixed(self, job: Job, scheduler_names: Collection[str]) -> Decision:
        """An event for a job with pods of several schedulers, including ours, since it cannot be gang-scheduled; nothing for others."""
        message = mixed_schedulers_message(job, scheduler_names)
        record = Record(job.object, "Warning", "MixedSchedulers", message, self._event_source)
        return Decision((record,)) if message else NOTHING


def _annotate(group: Object, annotations: dict[str, str]) -> Update:
    """Add annotations to the PodGroup."""
    metadata = {**meta(group), "annotations": {**annotations_of(group), **annotations}}
    return Update(POD_GROUP, {**group, "metadata": metadata})


def _key(kind: Kind, obj: Object) -> Key:
    job_namespace, job_name = key(obj)
    return Key(job_namespace, f"{kind.plural}/{job_name}")
