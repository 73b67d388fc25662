"""TFJob: Chief, Workers, parameter servers, Evaluator; the cluster in TF_CONFIG.

A Chief (or Master, its old name) decides the result; else worker 0 does, unless successPolicy requires all Workers. A failed replica of any
type fails the job, unless it is being restarted; with enableDynamicWorker failed Workers are ignored.
"""

from __future__ import annotations

import json

from rowlock.kinds import TFJOB
from rowlock.objects import Object, phase
from rowlock.training.conditions import FAILED, RESTARTING, find_condition
from rowlock.training.dependents.replicas import exit_code
from rowlock.training.framework import Framework
from rowlock.training.model import (
    CHIEF,
    EVALUATOR,
    INDEX_LABEL,
    MASTER,
    PS,
    WORKER,
    Env,
    Job,
    Port,
    Rank,
    Replica,
    env_vars,
)
from rowlock.training.reconcile_context import ReconcileContext
from rowlock.training.replica_verdict import job_full_name, set_running, set_succeeded

ROLES = (CHIEF, EVALUATOR, MASTER, PS, WORKER)
CHIEFS = (CHIEF, MASTER)


def _environment(rank: Rank) -> Env:
    """TF_CONFIG, except for a job of one replica."""
    job = rank.job
    if sum(job.replicas[role].count for role in ROLES if role in job.replicas) == 1:
        return []
    task = {"type": rank.replica.label, "index": rank.index}
    if job.spec.get("enableDynamicWorker"):
        return env_vars(("TF_CONFIG", _compact_json({"cluster": _sparse_cluster(rank), "task": task})))
    cluster = job.compute_once("cluster", lambda: _compact_json(_cluster(job)))
    return env_vars(("TF_CONFIG", f'{{"cluster":{cluster},"task":{_compact_json(task)},"environment":"cloud"}}'))


def _compact_json(value: Object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _cluster(job: Job) -> Object:
    return dict(sorted((r.label, _addresses(job, r)) for r in job.replicas.values()))


def _address(job: Job, replica: Replica, index: int) -> str:
    return f"{job.pod_name(replica.type, index)}.{job.namespace}.svc:{job.port(replica.type)}"


def _addresses(job: Job, replica: Replica) -> list[str]:
    tail = f".{job.namespace}.svc:{job.port(replica.type)}"
    return [job.pod_name(replica.type, i) + tail for i in range(replica.count)]


def _sparse_cluster(rank: Rank) -> Object:
    """The cluster for dynamic workers: a worker gets its own address and the servers', a server only its own."""
    job, own_address = rank.job, _address(rank.job, rank.replica, rank.index)
    if rank.type == WORKER:
        servers = job.compute_once("servers", lambda: _addresses(job, job.replicas[PS]) if PS in job.replicas else None)
        return {"worker": {str(rank.index): own_address}, "ps": servers}
    return {"worker": {}, "ps": [own_address] if rank.type == PS else []}


def _is_master(rank: Rank) -> bool:
    if any(role in rank.job.replicas for role in CHIEFS):
        return rank.type in CHIEFS
    return rank.type == WORKER and rank.index == 0


def _update_job_status(context: ReconcileContext) -> None:
    context.set_start_time()
    restarting = find_condition(context.conditions, RESTARTING)
    has_chief = any(role in context.job.replicas for role in CHIEFS)
    for role in (r for r in ROLES if r in context.job.replicas):
        replica = context.job.replicas[role]
        done = context.replica_count(role, "succeeded") == replica.count
        if role in CHIEFS:
            _judge_progress(context, role, done, context.replica_count(role, "active") > 0, running_first=True)
        elif role == WORKER and not has_chief:
            all_needed = context.job.spec.get("successPolicy") == "AllWorkers"
            done = done or (not all_needed and _first_worker_completed(context))
            _judge_progress(context, role, done, context.replica_count(role, "active") > 0, running_first=False)
        if context.replica_count(role, "failed"):
            _judge_failure(context, role, restarting)


def _judge_progress(context: ReconcileContext, role: str, done: bool, active: bool, *, running_first: bool) -> None:
    if active and (running_first or not done):
        set_running(context, job_full_name(context))
    if done:
        set_succeeded(context, f"TFJob {job_full_name(context)} successfully completed.")


def _first_worker_completed(context: ReconcileContext) -> bool:
    first = [p for p in context.pods.get("worker", []) if p["metadata"]["labels"].get(INDEX_LABEL) == "0"]
    return len(first) == 1 and phase(first[0]) == "Succeeded" and exit_code(first[0], "tensorflow") == 0


def _judge_failure(context: ReconcileContext, role: str, restarting: Object | None) -> None:
    if restarting:
        context.set_condition(RESTARTING, "Restarting", str(restarting.get("message") or ""))
        return
    if context.job.spec.get("enableDynamicWorker") and role == WORKER:
        return
    message = f"TFJob {job_full_name(context)} has failed because {context.replica_count(role, 'failed')} {role} replica(s) failed."
    context.record_kind_event("Normal", "Failed", message)
    context.set_completion_time()
    context.set_condition(FAILED, "Failed", message)


FRAMEWORK = Framework(
    kind=TFJOB,
    replicas="tfReplicaSpecs",
    container="tensorflow",
    port=Port("tfjob-port", 2222),
    restart_policy="Never",
    roles=ROLES,
    lead_roles=CHIEFS,
    pods_are_ranks=False,
    update_job_status=_update_job_status,
    environment=_environment,
    is_master=_is_master,
    env_in_all=False,
    adopts_services=True,
    ttl_reason="SuccessfulDeleteJob",
)
