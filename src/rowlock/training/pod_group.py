"""Job → PodGroup: the gang is declared before its pods can be placed, as KAI's pod-grouper would declare it.

Which queue, which priority and how many pods must start together is read from the job, its pod templates and its
namespace, by the rules of KAI. A PodGroup's sub-groups are named as the pods' label
`training.kubeflow.org/replica-type`. It is made when the job may have pods, kept while it is suspended, and goes with
the job.
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
"""Annotations of a job that speak to the scheduler: its PodGroup has them, too."""
_OUR_FIELDS = ("minMember", "queue", "priorityClassName", "preemptibility", "subGroups", "topologyConstraint")
"""Fields of a PodGroup's spec that follow the job."""
FINISHED_ANNOTATION = "rowlock.dev/finished"
"""On the PodGroup of a job that has ended: its pods that still wait for a node must not start any more."""
TOPOLOGY_ANNOTATIONS = {
    "kai.scheduler/topology": "topology",
    "kai.scheduler/topology-required-placement": "requiredTopologyLevel",
    "kai.scheduler/topology-preferred-placement": "preferredTopologyLevel",
}
"""Annotations of a job → fields of its PodGroup's topologyConstraint. A level is a label of nodes."""


def group_name(job: Job) -> str:
    """The name that KAI's pod-grouper gives the PodGroup of a job."""
    return f"pg-{job.name}-{job.uid}"


def queue_of(job: Job, namespace: Object | None) -> str:
    """The queue a job asks for."""
    return _queue_among(list(_label_sets(job)), namespace)


def _queue_among(label_sets: Sequence[dict[str, str]], namespace: Object | None) -> str:
    """The queue that labels ask for: of the job itself, which are the first, or its pods; its project; its namespace's; else
    `default`."""
    for label_set in label_sets:
        for label in QUEUE_LABELS:
            if label_set.get(label):
                return label_set[label]
    namespace_queue = labels(namespace).get(NAMESPACE_QUEUE_LABEL) if namespace else None
    return label_sets[0].get(PROJECT_LABEL) or namespace_queue or DEFAULT_QUEUE


def _priority_among(
    label_sets: Iterable[dict[str, str]], templates: Iterable[Object], class_names: Iterable[str]
) -> str:
    """The priority class that labels or pod templates ask for; one that does not exist counts as `train`, as in KAI."""
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

    `namespace` is the job's Namespace object, `classes` the names of the PriorityClasses that exist."""
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
    """What of a PodGroup's spec says where its pods are placed, and before whom: queue, priority class, preemptibility and topology.

    `label_sets` are the labels of the job, which are the first, and of its pods; `annotations` those of the job."""
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


def _group_annotations(job: Job, owner: str) -> dict[str, str]:
    """The owner; what the job says to the scheduler; and how long it runs at most, as it declares it or as its deadline says."""
    return {OWNER_ANNOTATION: owner, **wishes_of(job)}


def wishes_of(job: Job) -> dict[str, str]:
    """What a job's annotations, and its deadline, ask of the scheduler. The deadline stands where the annotation says no time."""
    job_annotations = annotations_of(job.object)
    max_runtime = job_annotations.get(MAX_RUNTIME_ANNOTATION) or ""
    if job.policy.deadline and not parse_duration(max_runtime):
        max_runtime = f"{job.policy.deadline}s"
    passed = {note: job_annotations[note] for note in PASSED_ANNOTATIONS if job_annotations.get(note)}
    return {**passed, **({MAX_RUNTIME_ANNOTATION: max_runtime} if max_runtime else {})}


def group_of(job: Job, spec: Object) -> Object:
    """The PodGroup of a job, as KAI's pod-grouper makes it, but owned as controller so that its pods are found."""
    kind = job.framework.kind
    owner = f"name: {job.name}\nuid: {job.uid}\ngroup: {kind.group}\nversion: {kind.version}\nkind: {kind.name}\n"
    metadata: dict[str, Any] = {
        "name": group_name(job),
        "namespace": job.namespace,
        "labels": dict(labels(job.object)),
        "annotations": _group_annotations(job, owner),
        "ownerReferences": [owner_reference(job.object)],
    }
    return {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.name, "metadata": metadata, "spec": spec}


def follow(group: Object, spec: Object, wishes: Mapping[str, str]) -> Update | None:
    """Bring a PodGroup up to date with what its job says now; None where it is, or is about to go.

    Of the spec our fields become those of `spec`, also where it has none any more; fields of others stay, and so do
    annotations beside `wishes`. A time to run that the job no longer has goes."""
    others = {field: value for field, value in (group.get("spec") or {}).items() if field not in _OUR_FIELDS}
    known = annotations_of(group)
    marks = {note: value for note, value in known.items() if note != MAX_RUNTIME_ANNOTATION} | dict(wishes)
    full_spec = {**others, **spec}
    if is_deleting(group) or (full_spec == group.get("spec") and marks == known):
        return None
    return Update(POD_GROUP, {**group, "metadata": {**meta(group), "annotations": marks}, "spec": full_spec})


def wants_group(job: Job) -> bool:
    """Whether a job without a PodGroup needs one now: it is ours, alive, and may have pods."""
    is_ours = job.policy.is_managed_by_us or not job.framework.respects_managed_by
    return is_ours and bool(job.replicas) and not (is_deleting(job.object) or job.policy.suspend or is_over(job.object))


def is_over(job: Object) -> bool:
    """Whether the job has succeeded or failed."""
    return any(is_condition_true(job, end) for end in ("Succeeded", "Failed"))


def mixed_schedulers_message(job: Job, scheduler_names: Collection[str]) -> str:
    """Why no gang can be declared for a job whose pods ask for several schedulers, ours among them; else ""."""
    ours = [role for role, name in _schedulers(job) if name in scheduler_names]
    others = [f"{role} {name or 'no schedulerName'}" for role, name in _schedulers(job) if name not in scheduler_names]
    if not ours or not others:
        return ""
    return (
        f"{', '.join(ours)}: these pods wait for {sorted(scheduler_names)[0]}, which starts all pods of a job together, but the"
        f" others have another scheduler ({', '.join(others)}): give all replicas the same spec.schedulerName"
    )


def _schedulers(job: Job) -> list[tuple[str, str]]:
    """Each replica type and the schedulerName of its pods, "" where they have none."""
    return [(role, str((r.template.get("spec") or {}).get("schedulerName") or "")) for role, r in job.replicas.items()]


def _may_start_with_a_part(job: Object) -> bool:
    """Whether pods may still wait for a node when the job ends. Of all others the PodGroup needs no mark, which costs a write for each
    job."""
    return bool(dig(job, "spec.elasticPolicy", None)) or dig(job, MIN_AVAILABLE, None) is not None


def _is_status_change(change: Change) -> bool:
    """Nothing that a PodGroup is made of has changed: it is all in the metadata and the spec."""
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
    """Declares the gang of every job; with `scheduler_names`, of jobs all of whose pods ask for one of these schedulers."""

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
        return [_key(kind, job) for kind in JOBS for job in view.all(kind, job_namespace)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Make the PodGroup, or bring its spec up to date."""
        plural, _, job_name = key.name.partition("/")
        kind = next(k for k in JOBS if k.plural == plural)
        obj = view.get(kind, key.namespace, job_name)
        if obj is None:
            return NOTHING
        job = parse_job(FRAMEWORKS[kind], obj)
        if self._scheduler_names is not None and any(s not in self._scheduler_names for _, s in _schedulers(job)):
            return self._refuse_mixed(job, self._scheduler_names) if wants_group(job) else NOTHING
        classes = [name(c) for c in view.all(PRIORITY_CLASS)]
        spec = group_spec(job, view.get(NAMESPACE, "", key.namespace), classes)
        group = view.get(POD_GROUP, key.namespace, group_name(job))
        if group is None:
            return Decision((Create(POD_GROUP, group_of(job, spec)),)) if wants_group(job) else NOTHING
        if (
            is_over(obj)
            and _may_start_with_a_part(obj)
            and not is_deleting(group)
            and FINISHED_ANNOTATION not in annotations_of(group)
        ):
            return Decision((_annotate(group, {FINISHED_ANNOTATION: "true"}),))
        update = follow(group, spec, wishes_of(job)) if wants_group(job) else None
        return Decision((update,)) if update else NOTHING

    def _refuse_mixed(self, job: Job, scheduler_names: Collection[str]) -> Decision:
        """Nothing for a job that is not ours; a word for one that is ours in part, since nobody can place it."""
        message = mixed_schedulers_message(job, scheduler_names)
        record = Record(job.object, "Warning", "MixedSchedulers", message, self._event_source)
        return Decision((record,)) if message else NOTHING


def _annotate(group: Object, annotations: dict[str, str]) -> Update:
    """The PodGroup with these annotations beside its own."""
    metadata = {**meta(group), "annotations": {**annotations_of(group), **annotations}}
    return Update(POD_GROUP, {**group, "metadata": metadata})


def _key(kind: Kind, obj: Object) -> Key:
    job_namespace, job_name = key(obj)
    return Key(job_namespace, f"{kind.plural}/{job_name}")
