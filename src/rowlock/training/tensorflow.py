"""TFJob: Chief, Workers, parameter servers, Evaluator; the cluster in TF_CONFIG.

A Chief (or Master, its old name) decides; else worker 0 does, unless successPolicy asks for all Workers. A failed
replica of any type fails the job, unless it is being restarted; with dynamic Workers theirs are forgiven.
"""

from __future__ import annotations

import json

from rowlock.kinds import TFJOB
from rowlock.objects import Object, phase
from rowlock.training.conditions import FAILED, RESTARTING, find
from rowlock.training.framework import INDEX_LABEL, Env, Framework, Job, Port, Rank, Replica, variables
from rowlock.training.replicas import exit_code
from rowlock.training.turn import Turn
from rowlock.training.verdict import full_name, running, succeeded

CHIEF, EVALUATOR, MASTER, PS, WORKER = ROLES = ("Chief", "Evaluator", "Master", "PS", "Worker")
CHIEFS = (CHIEF, MASTER)


def _environment(rank: Rank) -> Env:
    """TF_CONFIG; none for a job of one replica."""
    job = rank.job
    if sum(job.replicas[role].count for role in ROLES if role in job.replicas) == 1:
        return []
    task = {"type": rank.replica.label, "index": rank.index}
    if job.spec.get("enableDynamicWorker"):
        return variables(("TF_CONFIG", _json({"cluster": _sparse(rank), "task": task})))
    cluster = job.shared("cluster", lambda: _json(_cluster(job)))
    return variables(("TF_CONFIG", f'{{"cluster":{cluster},"task":{_json(task)},"environment":"cloud"}}'))


def _json(value: Object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _cluster(job: Job) -> Object:
    return dict(sorted((r.label, _addresses(job, r)) for r in job.replicas.values()))


def _address(job: Job, replica: Replica, index: int) -> str:
    return f"{job.pod_name(replica.type, index)}.{job.namespace}.svc:{job.port(replica.type)}"


def _addresses(job: Job, replica: Replica) -> list[str]:
    tail = f".{job.namespace}.svc:{job.port(replica.type)}"
    return [job.pod_name(replica.type, i) + tail for i in range(replica.count)]


def _sparse(rank: Rank) -> Object:
    """What a rank must know when workers come and go: a worker itself and the servers, a server only itself."""
    job, own = rank.job, _address(rank.job, rank.replica, rank.index)
    if rank.type == WORKER:
        servers = job.shared("servers", lambda: _addresses(job, job.replicas[PS]) if PS in job.replicas else None)
        return {"worker": {str(rank.index): own}, "ps": servers}
    return {"worker": {}, "ps": [own] if rank.type == PS else []}


def _is_master(rank: Rank) -> bool:
    if any(role in rank.job.replicas for role in CHIEFS):
        return rank.type in CHIEFS
    return rank.type == WORKER and rank.index == 0


def _judge(turn: Turn) -> None:
    turn.started()
    restarting = find(turn.conditions, RESTARTING)
    has_chief = any(role in turn.job.replicas for role in CHIEFS)
    for role in (r for r in ROLES if r in turn.job.replicas):
        replica = turn.job.replicas[role]
        done = turn.count(role, "succeeded") == replica.count
        if role in CHIEFS:
            _progress(turn, role, done, turn.count(role, "active") > 0, running_first=True)
        elif role == WORKER and not has_chief:
            all_needed = turn.job.spec.get("successPolicy") == "AllWorkers"
            done = done or (not all_needed and _first_worker_completed(turn))
            _progress(turn, role, done, turn.count(role, "active") > 0, running_first=False)
        if turn.count(role, "failed"):
            _failure(turn, role, restarting)


def _progress(turn: Turn, role: str, done: bool, active: bool, *, running_first: bool) -> None:
    if active and (running_first or not done):
        running(turn, full_name(turn))
    if done:
        succeeded(turn, f"TFJob {full_name(turn)} successfully completed.")


def _first_worker_completed(turn: Turn) -> bool:
    first = [p for p in turn.pods.get("worker", []) if p["metadata"]["labels"].get(INDEX_LABEL) == "0"]
    return len(first) == 1 and phase(first[0]) == "Succeeded" and exit_code(first[0], "tensorflow") == 0


def _failure(turn: Turn, role: str, restarting: Object | None) -> None:
    if restarting:
        turn.put(RESTARTING, "Restarting", str(restarting.get("message") or ""))
        return
    if turn.job.spec.get("enableDynamicWorker") and role == WORKER:
        return
    message = f"TFJob {full_name(turn)} has failed because {turn.count(role, 'failed')} {role} replica(s) failed."
    turn.tell("Normal", "Failed", message)
    turn.completed()
    turn.put(FAILED, "Failed", message)


FRAMEWORK = Framework(
    kind=TFJOB,
    replicas="tfReplicaSpecs",
    container="tensorflow",
    port=Port("tfjob-port", 2222),
    restart_policy="Never",
    roles=ROLES,
    judge=_judge,
    environment=_environment,
    is_master=_is_master,
    env_in_all=False,
    adopts_services=True,
    ttl_reason="SuccessfulDeleteJob",
)
