"""The HorizontalPodAutoscaler of an elastic PyTorchJob with metrics: kept equal to the policy, gone while suspended."""

from __future__ import annotations

from rowlock.api import Delete
from rowlock.kinds import AUTOSCALER
from rowlock.objects import Object, changed, deleting, owner_reference
from rowlock.training.framework import Job
from rowlock.training.turn import Turn


def sync_autoscaler(turn: Turn) -> None:
    """Make, correct or remove it. A policy without metrics leaves an old one alone."""
    job = turn.job
    if not (job.spec.get("elasticPolicy") or {}).get("metrics"):
        return
    found = turn.seen.others.get(AUTOSCALER, {}).get(job.name)
    if job.policy.suspend:
        if found and not deleting(found):
            turn.acts.append(Delete(AUTOSCALER, job.namespace, job.name))
    elif found is None:
        failed = turn.record("Warning", f"FailedCreate{AUTOSCALER.name}", "Error creating: {error}")
        turn.create(AUTOSCALER, autoscaler_of(job), None, failed)
    elif not deleting(found):
        want = _spec(job)
        if any(found["spec"].get(key) != value for key, value in want.items()):
            turn.update(AUTOSCALER, changed(found, "spec", {**found["spec"], **want}))


def autoscaler_of(job: Job) -> Object:
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
