"""The HorizontalPodAutoscaler of an elastic PyTorchJob with metrics: kept equal to the policy, deleted while suspended."""

from __future__ import annotations

from rowlock.api import Delete
from rowlock.kinds import AUTOSCALER
from rowlock.objects import Object, is_deleting, owner_reference, with_field
from rowlock.training.model import Job
from rowlock.training.reconcile_context import ReconcileContext


def sync_autoscaler(context: ReconcileContext) -> None:
    """Create, update or delete the autoscaler. A policy without metrics leaves an existing one alone."""
    job = context.job
    if not (job.spec.get("elasticPolicy") or {}).get("metrics"):
        return
    autoscaler = context.observed.other_objects.get(AUTOSCALER, {}).get(job.name)
    if job.policy.suspend:
        if autoscaler and not is_deleting(autoscaler):
            context.writes.append(Delete(AUTOSCALER, job.namespace, job.name))
    elif autoscaler is None:
        failed_event = context.job_event("Warning", f"FailedCreate{AUTOSCALER.name}", "Error creating: {error}")
        context.create(AUTOSCALER, autoscaler_of(job), None, failed_event)
    elif not is_deleting(autoscaler):
        desired_spec = _spec(job)
        if any(autoscaler["spec"].get(key) != value for key, value in desired_spec.items()):
            context.update(AUTOSCALER, with_field(autoscaler, "spec", {**autoscaler["spec"], **desired_spec}))


def autoscaler_of(job: Job) -> Object:
    """The HorizontalPodAutoscaler of an elastic job: it scales the job's Workers between minReplicas and maxReplicas."""
    return {
        "apiVersion": AUTOSCALER.api_version,
        "kind": AUTOSCALER.name,
        "metadata": {"name": job.name, "namespace": job.namespace, "ownerReferences": [owner_reference(job.object)]},
        "spec": _spec(job),
    }


def _spec(job: Job) -> Object:
    policy, kind = job.spec["elasticPolicy"], job.framework.kind
    return {
        "scaleTargetRef": {"kind": kind.name, "name": job.name, "apiVersion": kind.api_version},
        "minReplicas": policy["minReplicas"],
        "maxReplicas": policy["maxReplicas"],
        "metrics": policy["metrics"],
    }
