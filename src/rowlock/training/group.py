"""Job → PodGroup: the gang is declared before its pods can be placed, as KAI's pod-grouper would declare it.

Which queue, which priority and how many pods must start together is read from the job, its pod templates and its
namespace, by the rules of KAI. A PodGroup's sub-groups are named as the pods' label
`training.kubeflow.org/replica-type`. It is made when the job may have pods, kept while it is suspended, and goes with
the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rowlock.api import NOTHING, Change, Create, Decision, Update, View
from rowlock.kinds import JOBS, NAMESPACE, POD_GROUP, PRIORITY_CLASS, Kind
from rowlock.kinds import by_api_version as kind_of
from rowlock.objects import (
    Key,
    Object,
    controller_of,
    deleting,
    is_true,
    key,
    labels,
    name,
    owner_reference,
)
from rowlock.objects import annotations as annotations_of
from rowlock.objects import namespace as namespace_of
from rowlock.training.defaults import read
from rowlock.training.framework import Job
from rowlock.training.registry import FRAMEWORKS

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
LASTS = "rowlock.dev/max-runtime"
CLOSENESS = {
    "kai.scheduler/topology": "topology",
    "kai.scheduler/topology-required-placement": "requiredTopologyLevel",
    "kai.scheduler/topology-preferred-placement": "preferredTopologyLevel",
}
"""Annotations of a job → fields of its PodGroup's topologyConstraint. A level is a label of nodes."""


def group_name(job: Job) -> str:
    return f"pg-{job.name}-{job.uid}"


def queue_of(job: Job, namespace: Object | None) -> str:
    """The queue a job asks for: its own label, its pods', its project, its namespace's; else `default`."""
    for marked in _marked(job):
        for label in QUEUE_LABELS:
            if marked.get(label):
                return marked[label]
    at_home = labels(namespace).get(NAMESPACE_QUEUE_LABEL) if namespace else None
    return labels(job.object).get(PROJECT_LABEL) or at_home or DEFAULT_QUEUE


def priority_of(job: Job, known: Iterable[str]) -> str:
    """The priority class a job asks for; one that does not exist counts as `train`, as in KAI."""
    asked = [marked.get(PRIORITY_LABEL) for marked in _marked(job)]
    asked += [(r.template.get("spec") or {}).get("priorityClassName") for r in job.replicas.values()]
    wanted = next((a for a in asked if a), DEFAULT_PRIORITY)
    return wanted if wanted in PRIORITIES or wanted in set(known) else DEFAULT_PRIORITY


def _marked(job: Job) -> Iterator[dict[str, str]]:
    yield labels(job.object)
    for replica in job.replicas.values():
        yield labels(replica.template)


def group_spec(job: Job, namespace: Object | None, classes: Iterable[str]) -> Object:
    gang = job.framework.gang(job)
    spec: Object = {
        "minMember": gang.members,
        "queue": queue_of(job, namespace),
        "priorityClassName": priority_of(job, classes),
    }
    wish = next((m[PREEMPTIBILITY_LABEL] for m in _marked(job) if m.get(PREEMPTIBILITY_LABEL)), "")
    if wish in PREEMPTIBILITIES:
        spec["preemptibility"] = wish
    if closeness := _closeness(job):
        spec["topologyConstraint"] = closeness
    if gang.groups:
        spec["subGroups"] = [{"name": group, "minMember": least} for group, least in gang.groups]
    return spec


def _closeness(job: Job) -> Object:
    """How close together the job wants its pods, by the annotations of KAI."""
    notes = annotations_of(job.object)
    return {field: notes[note] for note, field in CLOSENESS.items() if notes.get(note)}


def _notes(job: Job, who: str) -> dict[str, str]:
    """The owner; and how long the job runs at most, as it declares it or as its deadline says."""
    lasts = annotations_of(job.object).get(LASTS) or (f"{job.policy.deadline}s" if job.policy.deadline else "")
    return {OWNER_ANNOTATION: who, **({LASTS: lasts} if lasts else {})}


def group_of(job: Job, spec: Object) -> Object:
    """The PodGroup of a job, as KAI's pod-grouper makes it, but owned as controller so that its pods are found."""
    kind = job.framework.kind
    who = f"name: {job.name}\nuid: {job.uid}\ngroup: {kind.group}\nversion: {kind.version}\nkind: {kind.name}\n"
    metadata: dict[str, Any] = {
        "name": group_name(job),
        "namespace": job.namespace,
        "labels": dict(labels(job.object)),
        "annotations": _notes(job, who),
        "ownerReferences": [owner_reference(job.object)],
    }
    return {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.name, "metadata": metadata, "spec": spec}


def wants_group(job: Job) -> bool:
    """Whether a job without a PodGroup needs one now: it is ours, alive, and may have pods."""
    over = any(is_true(job.object, end) for end in ("Succeeded", "Failed"))
    ours = job.policy.ours or not job.framework.honours_manager
    return ours and bool(job.replicas) and not (deleting(job.object) or job.policy.suspend or over)


class GroupController:
    """Declares the gang of every job."""

    name = "podgrouper"
    kinds: tuple[Kind, ...] = (*JOBS, POD_GROUP, NAMESPACE, PRIORITY_CLASS)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """`kind/name` of the jobs concerned, since names are unique per kind only."""
        if change.kind in JOBS:
            return (_key(change.kind, change.object),)
        if change.kind is POD_GROUP:
            owner = controller_of(change.object) or {}
            kind = kind_of(str(owner.get("apiVersion") or ""), str(owner.get("kind") or ""))
            if kind not in FRAMEWORKS:
                return ()
            return (Key(namespace_of(change.object), f"{kind.plural}/{owner['name']}"),)
        where = name(change.object) if change.kind is NAMESPACE else ""
        return [_key(kind, job) for kind in JOBS for job in view.all(kind, where)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Make the PodGroup, or bring its spec up to date."""
        plural, _, called = key.name.partition("/")
        kind = next(k for k in JOBS if k.plural == plural)
        obj = view.get(kind, key.namespace, called)
        if obj is None:
            return NOTHING
        job = read(FRAMEWORKS[kind], obj)
        classes = [name(c) for c in view.all(PRIORITY_CLASS)]
        spec = group_spec(job, view.get(NAMESPACE, "", key.namespace), classes)
        found = view.get(POD_GROUP, key.namespace, group_name(job))
        if found is None:
            return Decision((Create(POD_GROUP, group_of(job, spec)),)) if wants_group(job) else NOTHING
        ours = ("minMember", "queue", "priorityClassName", "preemptibility", "subGroups", "topologyConstraint")
        kept = {k: v for k, v in (found.get("spec") or {}).items() if k not in ours}
        if deleting(found) or not wants_group(job) or {**kept, **spec} == found.get("spec"):
            return NOTHING
        return Decision((Update(POD_GROUP, {**found, "spec": {**kept, **spec}}),))


def _key(kind: Kind, obj: Object) -> Key:
    where, called = key(obj)
    return Key(where, f"{kind.plural}/{called}")
