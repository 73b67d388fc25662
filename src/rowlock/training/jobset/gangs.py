"""JobSet → PodGroups: which of its pods start together, created before the pods can be scheduled.

Replicated jobs that start at the same time are one gang. One that waits for others (`dependsOn`), and each job of a set that starts in
order, is a separate gang: a common one could never be complete. That is KAI's rule, except that KAI ignores `dependsOn`. Pods name their
group in an annotation that admission adds, as KAI's pod-grouper does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from rowlock.api import NOTHING, Change, Create, Decision, Patch, Update, View, Write
from rowlock.kinds import BATCH_JOB, JOB_SET, NAMESPACE, POD, POD_GROUP, PRIORITY_CLASS, TRAIN_JOB, Kind
from rowlock.objects import (
    Key,
    Object,
    controller_of,
    dig,
    is_condition_true,
    is_controlled_by,
    is_deleting,
    is_digits,
    key,
    labels,
    meta,
    name,
    namespace,
    phase,
    uid,
)
from rowlock.objects import annotations as annotations_of
from rowlock.training.batch_job.gang import gang_name, members, runs_together
from rowlock.training.batch_job.model import parse_batch_job
from rowlock.training.job_changes import owner_keys
from rowlock.training.jobset.dependencies import is_in_order
from rowlock.training.jobset.jobs import job_name
from rowlock.training.jobset.model import (
    CONTROLLER,
    FAILED,
    NAME_KEY,
    PREFIX,
    REPLICATED_JOB_KEY,
    Json,
    attempt,
    pods_at_a_time,
    replicas,
)
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


def gangs_of(view: View, jobset: Object) -> dict[str, int]:
    """Name of a PodGroup → how many pods of the gang must start together."""
    present = dict[str, list[Object]]()
    for job in view.by_owner(BATCH_JOB, uid(jobset)):
        if is_controlled_by(job, uid(jobset)):
            present.setdefault(labels(job).get(REPLICATED_JOB_KEY, ""), []).append(job)
    found, alone = dict[str, int](), starts_alone(jobset)
    for one in dig(jobset, "spec.replicatedJobs", None) or ():
        group, prefix = _group_name(jobset, one["name"], alone), f"{job_name(jobset, one, 0)[:-1]}"
        jobs = [job for job in present.get(one["name"], ()) if _is_numbered(name(job), prefix, replicas(one))]
        absent = replicas(one) - len(jobs)  # a number: a set may ask for any
        count = absent * pods_at_a_time(dig(one, "template.spec", {})) if absent else 0
        found[group] = found.get(group, 0) + count + sum(_members(view, jobset, one, job) for job in jobs)
    return {group: count for group, count in found.items() if count > 0}


def _is_numbered(job: str, prefix: str, count: int) -> bool:
    """Whether a Job's name is the prefix and one of the numbers below `count`."""
    number = job.removeprefix(prefix)
    return job.startswith(prefix) and is_digits(number) and int(number) < count and str(int(number)) == number


def _members(view: View, jobset: Object, replicated_job: Json, job: Object) -> int:
    """How many pods the gang must have of one Job. One that is on its way out, of an earlier restart or failed is made again."""
    pods = [pod for pod in view.by_owner(POD, uid(job)) if is_controlled_by(pod, uid(job))]
    if is_deleting(job) or is_condition_true(job, FAILED) or attempt(job) < int(dig(jobset, "status.restarts", 0)):
        again = pods_at_a_time(dig(replicated_job, "template.spec", {}))
        return again + sum(phase(pod) == "Succeeded" for pod in pods)
    return members(parse_batch_job(job), pods)


def group_name(jobset: Object, replicated_job: str) -> str:
    """The name of the PodGroup for the pods of a replicated job."""
    return _group_name(jobset, replicated_job, starts_alone(jobset))


def _group_name(jobset: Object, replicated_job: str, alone: Collection[str]) -> str:
    whole = f"pg-{name(jobset)}-{uid(jobset)}"
    return f"{whole}-{replicated_job}" if replicated_job in alone else whole


def starts_alone(jobset: Object) -> frozenset[str]:
    """The names of the replicated jobs that start apart from others: all where they start in order, else those that wait for others."""
    jobs = dig(jobset, "spec.replicatedJobs", None) or ()
    in_order = is_in_order(jobset)
    return frozenset(job["name"] for job in jobs if in_order or job.get("dependsOn"))


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
    kinds: tuple[Kind, ...] = (JOB_SET, TRAIN_JOB, BATCH_JOB, POD, POD_GROUP, NAMESPACE, PRIORITY_CLASS)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The sets concerned, `job/NAME` of Jobs without their set, and `pod/NAME` of pods without their Job."""
        if change.kind is JOB_SET or change.kind is TRAIN_JOB:
            is_same = change.old is not None and _wishes(change.old) == _wishes(change.object)
            return () if is_same else (key(change.object),)
        if change.kind is BATCH_JOB:
            return tuple(_concerned_by_job(change))
        if change.kind is POD:
            return tuple(_concerned_by_pod(view, change))
        if change.kind is POD_GROUP:
            owner = controller_of(change.object) or {}
            if owner.get("kind") == BATCH_JOB.name and change.type == "Added" and UID_KEY in labels(change.object):
                return (_orphan_key(namespace(change.object), str(owner["name"])),)
            is_ours = owner.get("kind") == JOB_SET.name and change.type == "Deleted"
            return (Key(namespace(change.object), str(owner["name"])),) if is_ours else ()
        return [key(one) for one in view.all(JOB_SET, name(change.object) if change.kind is NAMESPACE else "")]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Create or update the PodGroups of a set; or take pods out of them that have lost their Job, or whose Job has lost its set."""
        if key.name.startswith(_ORPHANED_POD):
            pod = view.get(POD, key.namespace, key.name.removeprefix(_ORPHANED_POD))
            return Decision((_leave_group(pod),)) if pod is not None and _is_orphaned_pod(pod) else NOTHING
        if key.name.startswith(_ORPHAN):
            job = view.get(BATCH_JOB, key.namespace, key.name.removeprefix(_ORPHAN))
            return NOTHING if job is None or not _is_orphan(job) else Decision(tuple(_take_pods_out(view, job)))
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
        for group, count in gangs_of(view, jobset).items():
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
    restarts = dig(obj, "status.restarts", 0)
    return obj.get("spec"), labels(obj), annotations_of(obj), is_deleting(obj), has_ended(obj), restarts


# ---------------------------------------------------------------- the Jobs of a set


def _concerned_by_job(change: Change) -> Iterator[Key]:
    """The set of a Job that changed in what its gang depends on; the Job itself if it has lost its set."""
    if change.type != "Deleted" and _is_orphan(change.object):
        yield _orphan_key(namespace(change.object), name(change.object))
    old = change.old or {**change.object, "status": {}}
    if change.type == "Deleted" or _progress(old) != _progress(change.object):
        yield from dict.fromkeys(owner_keys(JOB_SET, change))


def _concerned_by_pod(view: View, change: Change) -> Iterator[Key]:
    """The set of a succeeded pod that is gone; the Job of a new pod in the group of a set that it has lost meanwhile; a pod without a Job."""
    pod = change.object
    if change.type != "Deleted" and _is_orphaned_pod(pod):
        yield Key(namespace(pod), f"{_ORPHANED_POD}{name(pod)}")
    if change.type == "Deleted" and phase(pod) == "Succeeded" and NAME_KEY in labels(pod):
        yield Key(namespace(pod), labels(pod)[NAME_KEY])
    if change.type == "Added" and GROUP_ANNOTATION in annotations_of(pod):
        for job_key in owner_keys(BATCH_JOB, change):
            job = view.get(BATCH_JOB, *job_key)
            if job is not None and _is_orphan(job):
                yield _orphan_key(*job_key)


def _progress(job: Object) -> tuple[Any, ...]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    ends = [(one["type"], one["status"]) for one in status.get("conditions") or () if one["type"] != "Suspended"]
    counts = (status.get("succeeded"), status.get("completedIndexes"), status.get("failedIndexes"))
    return spec.get("parallelism"), spec.get("completions"), counts, ends, is_deleting(job)


_ORPHAN, _ORPHANED_POD = "job/", "pod/"


def _orphan_key(space: str, job: str) -> Key:
    return Key(space, f"{_ORPHAN}{job}")


def _is_orphan(job: Object) -> bool:
    """Whether the Job was made by a set and has outlived it (`kubectl delete --cascade=orphan`)."""
    return UID_KEY in labels(job) and controller_of(job) is None


def _take_pods_out(view: View, job: Object) -> Iterator[Write]:
    """Take pods that the set's gang has out of it: it would wait for pods of the other Jobs, which may never come. They join the Job's own
    gang, as soon as it exists. Where the pod template names the set's group (on a cluster without our admission) the group stays, and its
    pods no longer wait for each other."""
    parsed, named = parse_batch_job(job), annotations_of(dig(job, "spec.template", {})).get(GROUP_ANNOTATION, "")
    if named:
        is_the_sets = named.startswith(_group_of_set(job))
        group = view.get(POD_GROUP, namespace(job), named) if is_the_sets else None
        if group is not None and controller_of(group) is None and dig(group, "spec.minMember", 1) > 1:
            yield Update(POD_GROUP, {**group, "spec": {**group["spec"], "minMember": 1}})
        return
    if runs_together(parsed) and view.get(POD_GROUP, namespace(job), gang_name(parsed)) is None:
        return
    for pod in view.by_owner(POD, uid(job)):
        if annotations_of(pod).get(GROUP_ANNOTATION, "").startswith(_group_of_set(job)):
            yield _leave_group(pod)


def _group_of_set(part: Object) -> str:
    """How the names of the PodGroups begin of the set that a Job or pod is or was a part of."""
    return f"pg-{labels(part).get(NAME_KEY, '')}-{labels(part).get(UID_KEY, '')}"


def _is_orphaned_pod(pod: Object) -> bool:
    """Whether the pod is in the gang of a set and has lost its Job, which may have another pod in its place."""
    if controller_of(pod) is not None or UID_KEY not in labels(pod):
        return False
    return annotations_of(pod).get(GROUP_ANNOTATION, "").startswith(_group_of_set(pod))


def _leave_group(pod: Object) -> Write:
    change = {"metadata": {"uid": uid(pod), "annotations": {GROUP_ANNOTATION: None}}}
    return Patch(POD, namespace(pod), name(pod), change)
