"""Sets conditions by counts, for frameworks in which the Master decides, or without one all Workers (PyTorch, Paddle, JAX).

Types are judged in the order of their names, Master first, so that the same counts always give the same conditions;
the operator ranges over a Go map, in random order.
"""

from __future__ import annotations

from rowlock.training.conditions import FAILED, RESTARTING, RUNNING, SUCCEEDED
from rowlock.training.model import MASTER, WORKER, Replica
from rowlock.training.reconcile_context import ReconcileContext


def set_running(context: ReconcileContext, subject: str) -> None:
    """Set the condition Running; `subject`: the job's name in the operator's message."""
    context.set_condition(RUNNING, "Running", f"{context.job.framework.kind.name} {subject} is running.")


def set_succeeded(context: ReconcileContext, message: str) -> None:
    """Sets Succeeded with an event and the completionTime."""
    context.record_kind_event("Normal", "Succeeded", message)
    context.set_completion_time()
    context.set_condition(SUCCEEDED, "Succeeded", message)


def job_full_name(context: ReconcileContext) -> str:
    """`namespace/name`, as in most of the operator's messages."""
    return f"{context.job.namespace}/{context.job.name}"


def judge_leader(context: ReconcileContext, leader: Replica) -> bool:
    """Set Running or Succeeded by the replica type that decides alone. True if the job has succeeded."""
    if context.replica_count(leader.type, "active"):
        set_running(context, context.job.name)
    if context.replica_count(leader.type, "succeeded") != leader.count:
        return False
    set_succeeded(context, f"{context.job.framework.kind.name} {context.job.name} is successfully completed.")
    return True


def judge_master_or_workers(context: ReconcileContext, *, any_worker: bool = False) -> None:
    """Set the job's conditions. `any_worker`: without a Master, one succeeded worker ends the job (elastic PyTorchJob)."""
    context.set_start_time()
    for replica in context.job.replicas.values():
        if replica.type == MASTER:
            if judge_leader(context, replica):
                return
        elif replica.type == WORKER and MASTER not in context.job.replicas:
            _judge_workers(context, replica, any_worker)
        _judge_failures(context, replica)


def _judge_workers(context: ReconcileContext, worker: Replica, any_worker: bool) -> None:
    succeeded_count = context.replica_count(WORKER, "succeeded")
    if succeeded_count == worker.count or (any_worker and succeeded_count):
        set_succeeded(context, f"{context.job.framework.kind.name} {job_full_name(context)} successfully completed.")
    elif context.replica_count(WORKER, "active"):
        set_running(context, job_full_name(context))


def _judge_failures(context: ReconcileContext, replica: Replica) -> None:
    failed = context.replica_count(replica.type, "failed")
    surviving = context.replica_count(replica.type, "succeeded") + context.replica_count(replica.type, "active")
    if not failed or replica.count <= surviving:
        return
    if replica.restart_policy != "Never":
        set_restarting(context, replica.type, failed)
        if context.parity.completion_time and context.has_condition(FAILED):
            context.set_completion_time()
    else:
        set_failed(context, replica.type, failed)


def set_restarting(context: ReconcileContext, type_: str, count: int) -> None:
    """Set Restarting with a warning event: `count` replicas of the type failed and are recreated."""
    job = context.job
    message = f"{job.framework.kind.name} {job.name} is restarting because {count} {type_} replica(s) failed."
    context.record_kind_event("Warning", "Restarting", message)
    context.set_condition(RESTARTING, "Restarting", message)


def set_failed(context: ReconcileContext, type_: str, count: int, *, suffix: str = "Failed") -> None:
    """Set Failed with an event and the completionTime. `suffix`: the part after the kind's name in the condition's reason."""
    job = context.job
    message = f"{job.framework.kind.name} {job.name} is failed because {count} {type_} replica(s) failed."
    context.record_kind_event("Normal", "Failed", message)
    context.set_completion_time()
    context.set_condition(FAILED, suffix, message)
