"""The table of schedulers that rowlock can submit to, what a job must say to each, and what each cannot do.

A dialect dresses a job object before it is created: the schedulerName of its pods, and a restartPolicy under which an
evicted job starts again. What its scheduler would leave waiting for ever is refused before the submit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rowlock.errors import Cause
from rowlock.objects import Object, dig, labels
from rowlock.scheduling.admission import share_refusal
from rowlock.scheduling.model.pod_requests import FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION
from rowlock.scheduling.model.scheduler_identity import CLUSTER_SCHEDULER_NAME
from rowlock.workloads.submission import Submission

PRIORITY_LABEL = "priorityClassName"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One scheduler. `scheduler_name` is what pods say; "" = nothing, so the cluster's default scheduler takes them."""

    name: str
    scheduler_name: str
    title: str
    evicts: bool
    """It takes room back from preemptible jobs by deleting their pods."""
    shares_gpus: bool

    def dress(self, job: Object, submission: Submission) -> Object:
        """The job object as this scheduler wants it. The pods' restartPolicy is changed only where nobody asked for one."""
        if not self.scheduler_name:
            return job
        field = submission.framework.replicas
        asked = {True: submission.master.restart, False: submission.worker.restart}
        replicas = {
            role: self._dress_replica(replica, can_restart=not asked[role == submission.framework.lead_role])
            for role, replica in job["spec"][field].items()
        }
        return {**job, "spec": {**job["spec"], field: replicas}}

    def _dress_replica(self, replica: dict[str, Any], *, can_restart: bool) -> dict[str, Any]:
        """The training operator takes a deleted pod for a failed one: with `Never` an evicted job is Failed for ever."""
        template = replica["template"]
        spec = {**template["spec"], "schedulerName": self.scheduler_name}
        dressed = {**replica, "template": {**template, "spec": spec}}
        if self.evicts and can_restart and replica.get("restartPolicy") == "Never":
            dressed["restartPolicy"] = "OnFailure"
        return dressed

    def refusals(self, job: Object, submission: Submission) -> Iterator[Cause]:
        """What this scheduler would never place, one cause per replica type; nothing else would tell the submitter."""
        for role, replica in (dig(job, f"spec.{submission.framework.replicas}") or {}).items():
            template = replica["template"]
            shares = (template.get("metadata") or {}).get("annotations") or {}
            asks_for_share = any(note in shares for note in (FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION))
            if asks_for_share and not self.shares_gpus:
                message = (
                    f"{role} asks for a share of a GPU, but {self.title} gives whole GPUs of real nodes only: ask for"
                    " whole GPUs, or let KAI Scheduler place the job (`rowlock up --scheduler kai`)"
                )
                yield Cause("unsupported", message, "compute")
            elif message := share_refusal(shares, template.get("spec") or {}):
                yield Cause("unsupported", f"{role}: KAI Scheduler refuses the pods: {message}", "compute")


OWN = Dialect("own", CLUSTER_SCHEDULER_NAME, "rowlock's scheduler", evicts=True, shares_gpus=False)
KAI = Dialect("kai", "kai-scheduler", "KAI Scheduler", evicts=True, shares_gpus=True)
CLUSTER = Dialect("cluster", "", "the cluster's default scheduler", evicts=False, shares_gpus=False)
DIALECTS = {dialect.name: dialect for dialect in (OWN, KAI, CLUSTER)}


def priority_class_of(job: Object) -> str:
    """The PriorityClass that the job asks for by label; "" when it asks for none."""
    return str(labels(job).get(PRIORITY_LABEL) or "")
