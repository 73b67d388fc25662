"""JobSet → PodGroups: which of its pods start together, created before the pods can be scheduled.

Replicated jobs that start at the same time are one gang. One that waits for others (`dependsOn`), and each job of a set that starts in
order, is a separate gang: a common one could never be complete. That is KAI's rule, except that KAI ignores `dependsOn`. Pods name their
group in an annotation that admission adds, as KAI's pod-grouper does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rowlock.api import NOTHING, Change, Create, Decision, View, Write
from rowlock.kinds import JOB_SET, NAMESPACE, POD_GROUP, PRIORITY_CLASS, TRAIN_JOB, Kind
from rowlock.objects import (
    Key,
    Object,
    controller_of,
    dig,
    is_deleting,
    key,
    labels,
    meta,
    name,
    namespace,
    uid,
)
from rowlock.objects import annotations as annotations_of
from rowlock.training.jobset.model import CONTROLLER, PREFIX, REPLICATED_JOB_KEY, Json, pods_at_a_time, replicas
from rowlock.training.jobset.reconcile import has_ended
from rowlock.training.pod_group import (
    MAX_RUNTIME_ANNOTATION,
    PASSED_ANNOTATIONS,
    follow,
    make_group,
    placement_spec,
    top_owner_note,
)

GROUP_ANNOTATION = "pod-group-name"
UID_KEY = f"{PREFIX}jobset-uid"


def gangs_of(jobset: Object) -> dict[str, int]:
    """Name of a PodGroup → how many pods of the gang must start together."""
    found = dict[str, int]()
    for job in dig(jobset, "spec.replicatedJobs", None) or ():
        group = group_name(jobset, job["name"])
        found[group] = found.get(group, 0) + replicas(job) * pods_at_a_time(dig(job, "template.spec", {}))
    return {group: count for group, count in found.items() if count > 0}


def group_name(jobset: Object, replicated_job: str) -> str:
    """The name of the PodGroup for the pods of a replicated job."""
    whole = f"pg-{name(jobset)}-{uid(jobset)}"
    jobs = dig(jobset, "spec.replicatedJobs", None) or ()
    waits = any(job["name"] == replicated_job and job.get("dependsOn") for job in jobs)
    in_order = dig(jobset, "spec.startupPolicy.startupPolicyOrder", "") == "InOrder"
    return f"{whole}-{replicated_job}" if waits or in_order else whole


def with_group(pod: Object, jobset: Object) -> Object:
    """A new pod of a set, annotated with its PodGroup's name; a pod that already names one keeps it."""
    marks, job = annotations_of(pod), labels(pod).get(REPLICATED_JOB_KEY, "")
    if GROUP_ANNOTATION in marks or labels(pod).get(UID_KEY) != uid(jobset):
        return pod
    metadata = {**meta(pod), "annotations": {**marks, GROUP_ANNOTATION: group_name(jobset, job)}}
    return {**pod, "metadata": metadata}


class JobSetGroupController:
    """Creates and updates the PodGroups of sets, by their labels and those of the TrainJobs that own them."""

    name = "jobset-podgrouper"
    kinds: tuple[Kind, ...] = (JOB_SET, TRAIN_JOB, POD_GROUP, NAMESPACE, PRIORITY_CLASS)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The sets concerned."""
        if change.kind is JOB_SET or change.kind is TRAIN_JOB:
            is_same = change.old is not None and _wishes(change.old) == _wishes(change.object)
            return () if is_same else (key(change.object),)
        if change.kind is POD_GROUP:
            owner = controller_of(change.object) or {}
            is_ours = owner.get("kind") == JOB_SET.name and change.type == "Deleted"
            return (Key(namespace(change.object), str(owner["name"])),) if is_ours else ()
        return [key(one) for one in view.all(JOB_SET, name(change.object) if change.kind is NAMESPACE else "")]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Create or update the PodGroups of a set."""
        jobset = view.get(JOB_SET, key.namespace, key.name)
        if jobset is None or is_deleting(jobset) or has_ended(jobset):
            return NOTHING
        if dig(jobset, "spec.suspend", False) or dig(jobset, "spec.managedBy", CONTROLLER) != CONTROLLER:
            return NOTHING
        return Decision(tuple(self._groups(view, jobset)))

    def _groups(self, view: View, jobset: Object) -> Iterator[Write]:
        owner = controller_of(jobset) or {}
        trainjob = view.get(TRAIN_JOB, namespace(jobset), name(jobset)) if owner.get("kind") == TRAIN_JOB.name else None
        sources = [one for one in (trainjob, jobset) if one is not None]
        templates = [dig(job, "template.spec.template", {}) for job in dig(jobset, "spec.replicatedJobs", None) or ()]
        label_sets = [labels(one) for one in (*sources, *templates)]
        classes = [name(one) for one in view.all(PRIORITY_CLASS)]
        marks = {k: v for one in reversed(sources) for k, v in annotations_of(one).items()}
        spec = placement_spec(label_sets, templates, marks, view.get(NAMESPACE, "", namespace(jobset)), classes)
        passed = {note: marks[note] for note in (*PASSED_ANNOTATIONS, MAX_RUNTIME_ANNOTATION) if marks.get(note)}
        passed |= top_owner_note(JOB_SET if trainjob is None else TRAIN_JOB, sources[0])
        for group, count in gangs_of(jobset).items():
            yield from _write(view, jobset, group, {**spec, "minMember": count}, passed)


def _write(view: View, jobset: Object, group: str, spec: Json, passed: dict[str, str]) -> Iterator[Write]:
    known = view.get(POD_GROUP, namespace(jobset), group)
    if known is None:
        yield Create(POD_GROUP, make_group(jobset, group, spec, passed))
        return
    update = follow(known, spec, passed)
    if update:
        yield update


def _wishes(obj: Object) -> tuple[Any, ...]:
    """All parts of an object on which a PodGroup depends."""
    return obj.get("spec"), labels(obj), annotations_of(obj), is_deleting(obj), has_ended(obj)
