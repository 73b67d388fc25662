"""The PodGroup of a Job whose pods need each other, created before its first pod. Pure.

An Indexed Job that runs all its indexes at once is one distributed program (JAX, torchrun and MPI start so): all pods start or none. Pods
of other Jobs are independent and placed one by one.
"""

from __future__ import annotations

from rowlock.api import Create, View, Write
from rowlock.kinds import BATCH_JOB, NAMESPACE, POD_GROUP, PRIORITY_CLASS
from rowlock.objects import Object, controller_of, dig, name
from rowlock.training.batch_job.model import BatchJob
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


def sync_gang(view: View, job: BatchJob) -> list[Write]:
    """Create or update the PodGroup; [] for a Job that is no gang, is suspended or is being deleted."""
    if not runs_together(job) or job.is_suspended or job.is_deleting:
        return []
    training_job = _as_training_job(job)
    classes = [name(c) for c in view.all(PRIORITY_CLASS)]
    spec = group_spec(training_job, view.get(NAMESPACE, "", job.namespace), classes)
    group = view.get(POD_GROUP, job.namespace, group_name(training_job))
    if group is None:
        return [Create(POD_GROUP, group_of(training_job, spec))]
    update = follow(group, spec, wishes_of(training_job))
    return [update] if update else []


def _as_training_job(job: BatchJob) -> Job:
    """The Job as the `Job` type that `pod_group.py` expects. An index that has failed for good (`backoffLimitPerIndex`) has no pod again,
    so a gang that waited for it would never start."""
    count = max(1, job.parallelism - len(job.indexes_of("failedIndexes")))
    replica = Replica("Worker", count, "Never", job.template)
    policy = RunPolicy(deadline=job.deadline, ttl=job.ttl, suspend=job.is_suspended)
    spec: Object = dict(dig(job.object, "spec", {}))
    return Job(_KIND, job.object, job.name, job.namespace, job.uid, spec, {"Worker": replica}, policy)
