"""The controllers of JobSets and TrainJobs for a cluster without webhooks: they fill in and check what the webhooks would have.

For an object that a webhook would refuse they write an Event with its words, and do nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowlock.api import NOTHING, Api, Change, Controller, Decision, Record, View, WriteOptions
from rowlock.apiserver.schema import crd_schema, types
from rowlock.controllers.key_maker import KeyMaker
from rowlock.errors import AlreadyExists, ApiError, NotFound
from rowlock.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    JOB_SET,
    OTHER_POD_GROUPS,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    Kind,
)
from rowlock.kube_operator.presence import PROBE_LABEL
from rowlock.objects import Key, Object, dig, is_controlled_by, key, labels, name, namespace, uid, with_field
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.model.scheduler_identity import REAL_CLUSTER
from rowlock.training.admission.jobset import default_jobset
from rowlock.training.jobset.controller import JobSetController
from rowlock.training.jobset.gangs import GROUP_ANNOTATION, JobSetGroupController, group_name
from rowlock.training.jobset.pod_webhook import EXCLUSIVE_KEY
from rowlock.training.trainjob.admission import runtime_of
from rowlock.training.trainjob.controller import TrainJobController
from rowlock.training.trainjob.runtimes import shipped_runtimes
from rowlock.training.trainjob.snapshot import snapshot_name
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

EVENT_SOURCE = "rowlock-operator"
_WEBHOOKS = TrainerWebhooks()
_RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
_EXCLUSIVE = (
    f"the annotation {EXCLUSIVE_KEY} needs the pod webhook of JobSet, which rowlock does not run on a cluster:"
    " install JobSet, or place the pods with nodeSelector or affinity"
)


class CheckedJobSetController(JobSetController):
    """A `JobSetController` for sets that no webhook has seen. `declares_gangs`: pods name their PodGroups, because a gang scheduler is present."""

    def __init__(self, *, declares_gangs: bool = False) -> None:
        self._declares_gangs = declares_gangs

    def decide(self, view: View, key: Key, now: float) -> Decision:
        stored = view.get(JOB_SET, key.namespace, key.name)
        if stored is None or PROBE_LABEL in labels(stored):
            return NOTHING
        if why := _refusal(JOB_SET, stored, view):
            return _refuse(stored, "InvalidJobSet", f"the set cannot run: {why}")
        jobset = default_jobset(stored)
        return self.decide_about(
            view, _with_groups(jobset) if self._declares_gangs and is_ours(jobset) else jobset, now
        )


class ClusterGangController(JobSetGroupController):
    """A `JobSetGroupController` for the sets whose pods rowlock's scheduler places."""

    def decide(self, view: View, key: Key, now: float) -> Decision:
        jobset = view.get(JOB_SET, key.namespace, key.name)
        if jobset is not None and (_refusal(JOB_SET, jobset, view) or not is_ours(jobset)):
            return NOTHING
        return super().decide(view, key, now)


def is_ours(jobset: Object) -> bool:
    """Whether rowlock's scheduler places all pods of a set."""
    jobs = dig(jobset, "spec.replicatedJobs", None) or ()
    templates = (dig(job, "template.spec.template", {}) for job in jobs)
    return bool(jobs) and not any(REAL_CLUSTER.is_foreign(template) for template in templates)


def _with_groups(jobset: Object) -> Object:
    """The set with the names of PodGroups in its pod templates, where a webhook would write them into the pods."""
    jobs = []
    for job in dig(jobset, "spec.replicatedJobs", []):
        marks = dig(job, "template.spec.template.metadata.annotations", None) or {}
        named = {GROUP_ANNOTATION: group_name(jobset, job["name"]), **marks}
        jobs.append(with_field(job, "template.spec.template.metadata.annotations", named))
    return with_field(jobset, "spec.replicatedJobs", jobs)


class CheckedTrainJobController(TrainJobController):
    """A `TrainJobController` for jobs that no webhook has seen. A job waits, with an Event, until its runtime exists."""

    def __init__(self, pod_groups: Sequence[Kind] = ()) -> None:
        super().__init__(KeyMaker(), pod_groups)
        self.kinds = (*self.kinds, *_RUNTIMES)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """As for the webhook-checked ones; a runtime concerns the jobs that refer to it and have not begun."""
        if change.kind not in _RUNTIMES:
            return super().keys(view, change)
        wanted, space = str(dig(change.object, "metadata.name")), namespace(change.object)
        waiting = (one for one in view.all(TRAIN_JOB, space) if not _has_begun(view, one))
        return [key(one) for one in waiting if dig(one, "spec.runtimeRef.name", "") == wanted]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        trainjob = view.get(TRAIN_JOB, key.namespace, key.name)
        if trainjob is None or PROBE_LABEL in labels(trainjob):
            return NOTHING
        if not _has_begun(view, trainjob) and (
            why := _bad_runtime(trainjob, view) or _refusal(TRAIN_JOB, trainjob, view)
        ):
            return _refuse(trainjob, "InvalidTrainJob", f"the job cannot run: {why}")
        return super().decide(view, key, now)


def jobset_controllers(served: Sequence[Kind]) -> list[Controller]:
    """The controllers of sets, where the cluster serves them."""
    return [CheckedJobSetController()] if JOB_SET in served else []


def jobset_gang_controllers(served: Sequence[Kind]) -> list[Controller]:
    """The same beside rowlock's scheduler."""
    return [CheckedJobSetController(declares_gangs=True), ClusterGangController()] if JOB_SET in served else []


def trainer_controllers(served: Sequence[Kind]) -> list[CheckedTrainJobController]:
    """The controllers of TrainJobs, where the cluster serves them. PodGroups are made of the kinds that the cluster has."""
    groups = tuple(kind for kind in OTHER_POD_GROUPS if kind in served)
    return [CheckedTrainJobController(pod_groups=groups)] if TRAIN_JOB in served else []


async def create_runtimes(api: Api) -> None:
    """Create the runtimes that Kubeflow Trainer ships, unless objects of their names exist. Raises ApiError."""
    for runtime in shipped_runtimes():
        try:
            await api.create(CLUSTER_TRAINING_RUNTIME, runtime)
        except AlreadyExists:
            pass  # users may have edited it
        except NotFound:
            return  # the cluster has TrainJobs and none of their runtimes


def _has_begun(view: View, trainjob: Object) -> bool:
    """Whether the job has its JobSet or a snapshot of its runtime: from then on the runtime may go."""
    jobset = view.get(JOB_SET, *key(trainjob))
    snapshot = view.get(CONFIG_MAP, namespace(trainjob), snapshot_name(trainjob))
    return snapshot is not None or (jobset is not None and is_controlled_by(jobset, uid(trainjob)))


def _refusal(kind: Kind, obj: Object, view: View) -> str:
    """Why the webhooks of the kind, or the schema of its pod templates, would refuse a new object, in their words; "" when it is valid."""
    try:
        admitted = _WEBHOOKS.fill_defaults(kind, None, obj, 0.0)
        causes, lists, _ = crd_schema.validate({"spec": admitted.get("spec")}, types.schema_of(kind))
        if causes or lists:
            return "; ".join(f"{cause.field}: {cause.message}" for cause in (causes + lists)[:3])
        _WEBHOOKS.review(kind, None, admitted, WriteOptions(warnings=[]), view)
    except ApiError as error:
        return error.message.partition("denied the request: ")[2] or error.message
    return _missing_feature(obj) if kind is JOB_SET else ""


def _bad_runtime(trainjob: Object, view: View) -> str:
    """What is wrong with the runtime of a job; "" when nothing is, or there is none. The webhook of jobs reads it: this comes first."""
    kinds = {kind.name: kind for kind in _RUNTIMES}
    runtime = runtime_of(trainjob, lambda kind, space, wanted: view.get(kinds[kind], space, wanted))
    if runtime is None:
        return ""
    kind = kinds[str(dig(trainjob, "spec.runtimeRef.kind"))]
    why = _refusal(kind, runtime, view)
    return f"its {kind.name} {name(runtime)} is not valid: {why}" if why else ""


def _missing_feature(jobset: Object) -> str:
    jobs = dig(jobset, "spec.replicatedJobs", None) or ()
    marks = [annotations_of(jobset), *(dig(job, "template.metadata.annotations", None) or {} for job in jobs)]
    return _EXCLUSIVE if any(EXCLUSIVE_KEY in each for each in marks) else ""


def _refuse(obj: Object, reason: str, message: str) -> Decision:
    return Decision((Record(obj, "Warning", reason, message, EVENT_SOURCE),))
