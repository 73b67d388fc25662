"""XGBoostJob (also for LightGBM): one Master with the tracker, and Workers. The Master decides the result; as in the operator, a failed
rank fails the job under every restart policy but ExitCode, although its pod was deleted for a restart."""

from __future__ import annotations

from rowlock.kinds import XGBOOSTJOB
from rowlock.training.framework import Framework
from rowlock.training.model import MASTER, WORKER, Env, Port, Rank, env_vars
from rowlock.training.reconcile_context import ReconcileContext
from rowlock.training.replica_verdict import judge_leader, set_failed, set_restarting, set_running


def _environment(rank: Rank) -> Env:
    job = rank.job
    env = env_vars(
        ("MASTER_PORT", job.port(MASTER)),
        ("MASTER_ADDR", job.pod_name(MASTER, 0)),
        ("WORLD_SIZE", job.total_replicas),
        ("RANK", rank.index if rank.type == MASTER else rank.index + 1),
        ("PYTHONUNBUFFERED", 1),
    )
    if job.total_replicas <= 1:
        return env
    workers = job.replicas[WORKER].count if WORKER in job.replicas else 0
    worker_names = job.compute_once("workers", lambda: ",".join(job.pod_name(WORKER, i) for i in range(workers)))
    return env + env_vars(("WORKER_PORT", job.port(WORKER)), ("WORKER_ADDRS", worker_names))


def _update_job_status(context: ReconcileContext) -> None:
    context.set_start_time()
    for replica in context.job.replicas.values():
        failed = context.replica_count(replica.type, "failed")
        done = replica.type == MASTER and context.replica_count(MASTER, "succeeded") == replica.count
        if done or failed:
            set_running(context, context.job.name)  # as recorded from the operator: every verdict sets Running first
        if replica.type == MASTER and judge_leader(context, replica):
            return
        if failed and replica.restart_policy == "ExitCode":
            set_restarting(context, replica.type, failed)
        elif failed:
            set_failed(context, replica.type, failed)


FRAMEWORK = Framework(
    kind=XGBOOSTJOB,
    replicas="xgbReplicaSpecs",
    container="xgboost",
    port=Port("xgboostjob-port", 9999),
    restart_policy="Never",
    roles=(MASTER, WORKER),
    lead_roles=(MASTER,),
    needs_lead=True,
    update_job_status=_update_job_status,
    environment=_environment,
    is_master=lambda rank: rank.type == MASTER,
    ttl_reason="SuccessfulDeleteJob",
)
