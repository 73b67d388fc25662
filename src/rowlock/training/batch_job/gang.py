"""The PodGroup of a Job whose pods need each other, created before its first pod. Pure.

An Indexed Job that runs all its indexes at once is one distributed program (JAX, torchrun and MPI start so): all pods start or none. Pods
of other Jobs are independent and placed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.api import Create, View, Write
from rowlock.kinds import BATCH_JOB, NAMESPACE, POD_GROUP, PRIORITY_CLASS
from rowlock.objects import FINAL_PHASES, Object, controller_of, dig, is_condition_true, name, phase
from rowlock.training.batch_job.model import COMPLETE, SUCCESS_CRITERIA_MET, BatchJob
from rowlock.training.model import Job, JobKind, Port, Replica, RunPolicy
from rowlock.training.pod_group import follow, group_name, group_of, group_spec, wishes_of

_KIND = JobKind(
    kind=BATCH_JOB,
    replicas="template",
    container="",
    port=Port("", 0),
    restart_policy="Never",
    roles=("Worker",),
    environment=lambda _: [],
    is_master=lambda _: False,
)


def runs_together(job: BatchJob) -> bool:
    """Whether the Job is a gang. A Job with a controller is part of a larger object, which declares its own gang."""
    return (
        job.is_indexed and job.parallelism > 1 and job.completions == job.parallelism and not controller_of(job.object)
    )


def sync_gang(view: View, job: BatchJob, pods: Sequence[Object]) -> list[Write]:
    """Create or update the PodGroup; [] for a Job that is no gang, is suspended, is being deleted or ends."""
    if not runs_together(job) or job.is_suspended or job.is_deleting or job.ending_so_far() is not None:
        return []
    training_job = _as_training_job(job, members(job, pods))
    classes = [name(c) for c in view.all(PRIORITY_CLASS)]
    spec = group_spec(training_job, view.get(NAMESPACE, "", job.namespace), classes)
    group = view.get(POD_GROUP, job.namespace, group_name(training_job))
    if group is None:
        return [Create(POD_GROUP, group_of(training_job, spec))]
    update = follow(group, spec, wishes_of(training_job))
    return [update] if update else []


def members(job: BatchJob, pods: Sequence[Object]) -> int:
    """How many pods of a Job its gang must have: those that may still come and the succeeded ones in `pods`, which are all that it has.

    The scheduler takes a succeeded pod for a started one, but not one that is gone, e.g. because a user has deleted it. Never more than run
    at once."""
    at_once = job.parallelism if job.completions is None else min(job.parallelism, job.completions)
    return min(at_once, _to_come(job, pods) + sum(phase(pod) == "Succeeded" for pod in pods))


def _to_come(job: BatchJob, pods: Sequence[Object]) -> int:
    """How many pods have yet to succeed. An index that has failed for good (`backoffLimitPerIndex`) has no pod again, and a work queue has
    no new pods after the first success."""
    if is_condition_true(job.object, COMPLETE) or is_condition_true(job.object, SUCCESS_CRITERIA_MET):
        return 0
    succeeded = int(job.status.get("succeeded") or 0)
    if job.completions is None:
        return sum(phase(pod) not in FINAL_PHASES for pod in pods) if succeeded else job.parallelism
    if job.is_indexed:
        return job.completions - len(job.indexes_of("completedIndexes") | job.indexes_of("failedIndexes"))
    return max(0, job.completions - succeeded)


def gang_name(job: BatchJob) -> str:
    """The name of the Job's own PodGroup, if it has one."""
    return group_name(_as_training_job(job, 1))


def _as_training_job(job: BatchJob, count: int) -> Job:
    """The Job with `count` pods as the `Job` type that `pod_group.py` expects."""
    replica = Replica("Worker", max(1, count), "Never", job.template)
    policy = RunPolicy(deadline=job.deadline, ttl=job.ttl, suspend=job.is_suspended)
    spec: Object = dict(dig(job.object, "spec", {}))
    return Job(_KIND, job.object, job.name, job.namespace, job.uid, spec, {"Worker": replica}, policy)
