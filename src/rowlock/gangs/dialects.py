"""The table of schedulers that rowlock can submit to, what a job must say to each, and what each cannot do.

A dialect adapts a job object before it is created: it sets the pods' schedulerName, a restartPolicy under which an evicted job starts
again, and the labels or annotations of its queue and gang. A job that its scheduler would leave pending for ever is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rowlock.errors import Cause
from rowlock.gangs.evictions import can_be_evicted, eviction_notice, restart_if_evicted, resumes
from rowlock.gangs.gpu_replicas import (
    asks_for_share,
    is_replica,
    replica_notice,
    replica_problem,
    take_replica,
    whole_problem,
)
from rowlock.kinds import Kind, by_api_version, by_object
from rowlock.objects import Object, dig, labels, name, namespace, owner_reference
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.admission import share_refusal
from rowlock.scheduling.model.scheduler_identity import CLUSTER_SCHEDULER_NAME
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.workloads.phase import STARTED_BY_ANNOTATION
from rowlock.workloads.submission import Submission

NO_CLASSES: Mapping[str, int] = {}
PRIORITY_LABEL = "priorityClassName"
QUEUE_LABEL = "kai.scheduler/queue"
LOCAL_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
EARLIER_LOCAL_QUEUE = replace(LOCAL_QUEUE, version="v1beta1")
"""The version that Kueue served before v1beta2, and still serves beside it in some later releases."""
VOLCANO_QUEUE = Kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues", (), False)
VOLCANO_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
BIND_REQUEST = Kind("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests")
"""Only KAI's binder has this kind, so it proves that KAI is installed. Queue and PodGroup may be rowlock's own."""
COSCHEDULING_GROUP = Kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")


@dataclass(frozen=True, slots=True)
class NeededQueue:
    """The queue object that a job's scheduler requires. No controller creates it, so a job without it would stay pending for ever."""

    kind: Kind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """One scheduler. `scheduler_name` is the pods' spec.schedulerName; "" leaves them to the cluster's default scheduler."""

    name: str
    scheduler_name: str
    title: str
    evicts: bool
    """It reclaims resources from preemptible jobs by deleting their pods."""
    shares_gpus: bool
    proof: Kind | None = None
    """A kind that the API server serves only where this scheduler is installed."""
    earlier_queue: Kind | None = None
    """The version of `queue_kind` (which is also the `proof`) that earlier releases serve."""
    group_kind: Kind | None = None
    """Kind of the object that declares a gang. It is created beside the job, and the job's pods name it."""
    group_label: str = ""
    group_annotation: str = ""
    queue_kind: Kind | None = None
    job_queue_label: str = ""
    """Label of the job that names its queue. A scheduler with such a label starts a job by setting spec.suspend to false."""
    spares_evicted: bool = False
    """The operator never counts an evicted pod as failed: true of rowlock's own operators beside its scheduler."""
    lost: str = ""
    """What this scheduler does not do, for the warning at submit; "" = no warning."""

    def dress(self, job: Object, submission: Submission, classes: Mapping[str, int] = NO_CLASSES) -> Object:
        """Return the job object adapted to this scheduler. The pods' restartPolicy is changed only where the submitter set none and an
        eviction would end the job. `classes`: the known values of the cluster's PriorityClasses, by name."""
        if self.job_queue_label:
            return self._dress_for_queue(job)
        if not self.scheduler_name:
            return job
        field = submission.framework.replicas
        given = job["spec"][field]
        asked = {True: submission.master.restart, False: submission.worker.restart}
        changes = self._changes_policy(job, submission, classes)
        replicas = {
            role: self._dress_replica(
                replica, job_name=name(job), can_restart=changes and not asked[role == submission.framework.lead_role]
            )
            for role, replica in given.items()
        }
        dressed = {**job, "spec": {**job["spec"], field: replicas}}
        is_changed = any(replicas[role].get("restartPolicy") != given[role].get("restartPolicy") for role in given)
        return restart_if_evicted(dressed) if is_changed and not submission.options.backoff_limit else dressed

    def _changes_policy(self, job: Object, submission: Submission, classes: Mapping[str, int]) -> bool:
        """Whether `Never` must become `OnFailure` so that an eviction does not end the job. A job submitted with backoffLimit 0 is changed
        only if its kind can resume and its running pods may be stopped once it has failed."""
        if not self._ends_evicted(job, classes):
            return False
        run = submission.options
        return run.backoff_limit > 0 or (resumes(submission.framework.kind) and run.clean_pods != "None")

    def _ends_evicted(self, job: Object, classes: Mapping[str, int]) -> bool:
        return self.evicts and not self.spares_evicted and can_be_evicted(job, classes)

    def notice(self, job: Object, classes: Mapping[str, int] = NO_CLASSES) -> str:
        """The warning at submit for a dressed job that an eviction would end; "" for other jobs."""
        if not self._ends_evicted(job, classes):
            return ""
        default = FRAMEWORKS[by_object(job)].restart_policy
        policies = {str(replica.get("restartPolicy") or default) for replica in _replicas(job).values()}
        return eviction_notice(job, policies, self.title)

    def is_named_in(self, job: Object) -> bool:
        """Whether the job already names its scheduler (this one or another) or its queue. Such a job is submitted as it is written."""
        pods = _replicas(job).values()
        return self.job_queue_label in labels(job) or any(dig(one, "template.spec.schedulerName") for one in pods)

    def dress_manifest(self, job: Object) -> Object:
        """As `dress`, for a job that was submitted as a manifest and names no scheduler."""
        if self.job_queue_label:
            return self._dress_for_queue(job)
        if not self.scheduler_name:
            return job
        field = _replica_field(job)
        replicas = {role: self._dress_written(replica, name(job)) for role, replica in _replicas(job).items()}
        return {**job, "spec": {**job["spec"], field: {**(dig(job, f"spec.{field}") or {}), **replicas}}}

    def _dress_written(self, replica: dict[str, Any], job_name: str) -> dict[str, Any]:
        """Dress a replica type of a manifest. Without a restartPolicy it gets `OnFailure`, so that an evicted job goes on."""
        can_end = self.evicts and not self.spares_evicted
        default = {"restartPolicy": "OnFailure"} if can_end and not replica.get("restartPolicy") else {}
        return self._dress_replica({**replica, **default}, job_name=job_name, can_restart=False)

    def _dress_for_queue(self, job: Object) -> Object:
        """The job with its queue label and spec.runPolicy.suspend set, as the scheduler's webhook would create it."""
        marked = {**labels(job), self.job_queue_label: labels(job)[QUEUE_LABEL]}
        policy = {**(job["spec"].get("runPolicy") or {}), "suspend": True}
        notes = {**annotations_of(job), STARTED_BY_ANNOTATION: self.title}
        metadata = {**job["metadata"], "labels": marked, "annotations": notes}
        return {**job, "metadata": metadata, "spec": {**job["spec"], "runPolicy": policy}}

    def releases(self) -> Iterator[Dialect]:
        """This dialect for each supported release of its scheduler, newest first."""
        yield self
        if self.earlier_queue is not None:
            yield replace(self, proof=self.earlier_queue, queue_kind=self.earlier_queue)

    def needed_queue(self, job: Object) -> NeededQueue | None:
        """The queue that must exist before the job is created; None if the scheduler needs none."""
        if self.queue_kind is None:
            return None
        return NeededQueue(
            self.queue_kind, namespace(job) if self.queue_kind.namespaced else "", labels(job)[QUEUE_LABEL]
        )

    def gang_object(self, job: Object) -> Object | None:
        """The gang object to create right after its job, which owns it; None if this scheduler needs none."""
        kind = self.group_kind
        if kind is None:
            return None
        job_kind = by_api_version(str(job["apiVersion"]), str(job["kind"]))
        assert job_kind is not None
        parsed = parse_job(FRAMEWORKS[job_kind], job)
        spec: dict[str, Any] = {"minMember": parsed.framework.gang(parsed).min_members}
        if self.queue_kind is not None:
            spec["queue"] = labels(job)[QUEUE_LABEL]
            if wanted := priority_class_of(job):
                spec["priorityClassName"] = wanted
        metadata = {
            "name": name(job),
            "namespace": namespace(job),
            "ownerReferences": [{**owner_reference(job), "controller": False}],
        }
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}

    def _dress_replica(self, replica: dict[str, Any], *, job_name: str, can_restart: bool) -> dict[str, Any]:
        """Dress one replica type. The training operator counts a deleted pod as failed: with `Never` an evicted job stays Failed."""
        template = replica["template"]
        spec = {**template["spec"], "schedulerName": self.scheduler_name}
        metadata = dict(template.get("metadata") or {})
        for field, key in (("labels", self.group_label), ("annotations", self.group_annotation)):
            if key:
                metadata[field] = {**(metadata.get(field) or {}), key: job_name}
        dressed = {**replica, "template": {**template, **({"metadata": metadata} if metadata else {}), "spec": spec}}
        if can_restart and replica.get("restartPolicy") == "Never":
            dressed["restartPolicy"] = "OnFailure"
        return dressed

    def refusals(self, job: Object, nodes: Collection[Object]) -> Iterator[Cause]:
        """A cause for each replica type that this scheduler could never place on these nodes; its pods would stay pending."""
        for role, replica in _replicas(job).items():
            template = replica["template"]
            if is_replica(template):
                continue
            shares = (template.get("metadata") or {}).get("annotations") or {}
            if message := share_refusal(shares, template.get("spec") or {}):
                refused = f"{role}: KAI Scheduler refuses the pods" if self.shares_gpus else role
                yield Cause("unsupported", f"{refused}: {message}", "compute")
            elif asks_for_share(template) and not self.shares_gpus and (why := replica_problem(template, nodes)):
                message = (
                    f"{role} asks for a share of a GPU, but {self.title} gives whole GPUs of real nodes, and {why}; or ask for"
                    " whole GPUs, or let KAI Scheduler place the job (`rowlock up --scheduler kai`)"
                )
                yield Cause("unsupported", message, "compute")
            elif self.scheduler_name == CLUSTER_SCHEDULER_NAME and (why := whole_problem(template, nodes)):
                yield Cause("unsupported", f"{role} asks for whole GPUs, but {why}", "compute")

    def share_gpus(self, job: Object, nodes: Collection[Object]) -> tuple[Object, list[str]]:
        """Turn shares of GPUs into replicas of the device plugin, unless this scheduler supports shares. Returns the job and notices for
        the submitter."""
        replicas = _replicas(job)
        sharing = {role for role, r in replicas.items() if not self.shares_gpus and asks_for_share(r["template"])}
        if not sharing:
            return job, []
        notices = dict.fromkeys(replica_notice(replicas[role]["template"], nodes) for role in sharing)
        field = _replica_field(job)
        changed = {
            role: {**replicas[role], "template": take_replica(replicas[role]["template"], nodes)} for role in sharing
        }
        spec = {**job["spec"], field: {**(dig(job, f"spec.{field}") or {}), **changed}}
        return {**job, "spec": spec}, [notice for notice in notices if notice]


OWN = Dialect("own", CLUSTER_SCHEDULER_NAME, "rowlock's scheduler", evicts=True, shares_gpus=False)
KAI = Dialect(
    "kai", "kai-scheduler", "KAI Scheduler", evicts=True, shares_gpus=True,
    proof=BIND_REQUEST,
)  # fmt: skip
VOLCANO = Dialect(
    "volcano", "volcano", "Volcano", evicts=True, shares_gpus=False, proof=VOLCANO_GROUP, group_kind=VOLCANO_GROUP,
    group_annotation="scheduling.k8s.io/group-name", queue_kind=VOLCANO_QUEUE,
    lost="quotas are those of Volcano's queues, not of rowlock's projects",
)  # fmt: skip
KUEUE = Dialect(
    "kueue", "", "Kueue", evicts=False, shares_gpus=False, proof=LOCAL_QUEUE, queue_kind=LOCAL_QUEUE, earlier_queue=EARLIER_LOCAL_QUEUE,
    job_queue_label="kueue.x-k8s.io/queue-name",
    lost="quotas are those of Kueue's queues, not of rowlock's projects; what Kueue has admitted is placed pod by pod",
)  # fmt: skip
COSCHEDULING = Dialect(
    "coscheduling", "scheduler-plugins-scheduler", "the coscheduling plugin", evicts=False, shares_gpus=False,
    proof=COSCHEDULING_GROUP, group_kind=COSCHEDULING_GROUP, group_label="scheduling.x-k8s.io/pod-group",
    lost="gangs start together, and no quota is enforced",
)  # fmt: skip
CLUSTER = Dialect("cluster", "", "the cluster's default scheduler", evicts=False, shares_gpus=False)
KUBE = replace(CLUSTER, name="kube")
"""An alias of `CLUSTER`."""
DIALECTS = {dialect.name: dialect for dialect in (OWN, KAI, VOLCANO, KUEUE, COSCHEDULING, CLUSTER, KUBE)}
INSTALLED = (KAI, VOLCANO, KUEUE, COSCHEDULING)
"""Schedulers that `auto` looks for, the most preferred first."""


def _replica_field(job: Object) -> str:
    kind = by_api_version(str(job["apiVersion"]), str(job["kind"]))
    assert kind is not None
    return FRAMEWORKS[kind].replicas


def _replicas(job: Object) -> dict[str, Any]:
    """The job's replica types whose pod template has a spec. Admission reports the malformed ones."""
    found = dig(job, f"spec.{_replica_field(job)}")
    replicas = found if isinstance(found, Mapping) else {}
    return {role: one for role, one in replicas.items() if isinstance(dig(one, "template.spec"), Mapping)}


def priority_class_of(job: Object) -> str:
    """The PriorityClass that the job asks for by label; "" when it asks for none."""
    return str(labels(job).get(PRIORITY_LABEL) or "")
