"""XGBoostJob (LightGBM too): one Master with the tracker, and Workers. The Master decides; a failed rank ends the job
under every restart policy but ExitCode, although the pod was removed to be made again (Q22)."""

from __future__ import annotations

from rowlock.kinds import XGBOOSTJOB
from rowlock.training.framework import Env, Framework, Port, Rank, variables
from rowlock.training.turn import Turn
from rowlock.training.verdict import MASTER, WORKER, failing, finished_by, restarting, running


def _environment(rank: Rank) -> Env:
    job = rank.job
    env = variables(
        ("MASTER_PORT", job.port(MASTER)),
        ("MASTER_ADDR", job.pod_name(MASTER, 0)),
        ("WORLD_SIZE", job.total),
        ("RANK", rank.index if rank.type == MASTER else rank.index + 1),
        ("PYTHONUNBUFFERED", 1),
    )
    if job.total <= 1:
        return env
    workers = job.replicas[WORKER].count if WORKER in job.replicas else 0
    names = job.shared("workers", lambda: ",".join(job.pod_name(WORKER, i) for i in range(workers)))
    return env + variables(("WORKER_PORT", job.port(WORKER)), ("WORKER_ADDRS", names))


def _judge(turn: Turn) -> None:
    turn.started()
    for replica in turn.job.replicas.values():
        failed = turn.count(replica.type, "failed")
        done = replica.type == MASTER and turn.count(MASTER, "succeeded") == replica.count
        if done or failed:
            running(turn, turn.job.name)  # recorded: every verdict says Running first, even where nothing ran
        if replica.type == MASTER and finished_by(turn, replica):
            return
        if failed and replica.restart_policy == "ExitCode":
            restarting(turn, replica.type, failed)
        elif failed:
            failing(turn, replica.type, failed)


FRAMEWORK = Framework(
    kind=XGBOOSTJOB,
    replicas="xgbReplicaSpecs",
    container="xgboost",
    port=Port("xgboostjob-port", 9999),
    restart_policy="Never",
    roles=(MASTER, WORKER),
    judge=_judge,
    environment=_environment,
    is_master=lambda rank: rank.type == MASTER,
    ttl_reason="SuccessfulDeleteJob",
)
