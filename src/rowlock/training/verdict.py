"""Counts → conditions, for the frameworks in which a Master decides, or else all Workers (PyTorch, Paddle, JAX).

Types are judged in the order of their names, Master first, so that the same counts always give the same conditions;
the operator goes through a map in random order (Q4).
"""

from __future__ import annotations

from rowlock.training.conditions import FAILED, RESTARTING, RUNNING, SUCCEEDED
from rowlock.training.framework import Replica
from rowlock.training.turn import Turn

MASTER, WORKER = "Master", "Worker"


def running(turn: Turn, who: str) -> None:
    turn.put(RUNNING, "Running", f"{turn.job.framework.kind.name} {who} is running.")


def succeeded(turn: Turn, message: str) -> None:
    turn.tell("Normal", "Succeeded", message)
    turn.completed()
    turn.put(SUCCEEDED, "Succeeded", message)


def full_name(turn: Turn) -> str:
    return f"{turn.job.namespace}/{turn.job.name}"


def finished_by(turn: Turn, leader: Replica) -> bool:
    """The verdict of the type that decides alone: sets Running or Succeeded; True when the job is done."""
    if turn.count(leader.type, "active"):
        running(turn, turn.job.name)
    if turn.count(leader.type, "succeeded") != leader.count:
        return False
    succeeded(turn, f"{turn.job.framework.kind.name} {turn.job.name} is successfully completed.")
    return True


def by_master_or_workers(turn: Turn, *, any_worker: bool = False) -> None:
    """The rule. `any_worker`: without a Master, the first worker to succeed ends the job (elastic PyTorchJob)."""
    turn.started()
    for replica in turn.job.replicas.values():
        if replica.type == MASTER:
            if finished_by(turn, replica):
                return
        elif replica.type == WORKER and MASTER not in turn.job.replicas:
            _by_workers(turn, replica, any_worker)
        _failures(turn, replica)


def _by_workers(turn: Turn, worker: Replica, any_worker: bool) -> None:
    done = turn.count(WORKER, "succeeded")
    if done == worker.count or (any_worker and done):
        succeeded(turn, f"{turn.job.framework.kind.name} {full_name(turn)} successfully completed.")
    elif turn.count(WORKER, "active"):
        running(turn, full_name(turn))


def _failures(turn: Turn, replica: Replica) -> None:
    failed = turn.count(replica.type, "failed")
    rest = turn.count(replica.type, "succeeded") + turn.count(replica.type, "active")
    if not failed or replica.count <= rest:
        return
    if replica.restart_policy != "Never":
        restarting(turn, replica.type, failed)
        if turn.parity.completion_time and turn.holds(FAILED):
            turn.completed()
    else:
        failing(turn, replica.type, failed)


def restarting(turn: Turn, type_: str, count: int) -> None:
    job = turn.job
    message = f"{job.framework.kind.name} {job.name} is restarting because {count} {type_} replica(s) failed."
    turn.tell("Warning", "Restarting", message)
    turn.put(RESTARTING, "Restarting", message)


def failing(turn: Turn, type_: str, count: int, *, word: str = "Failed") -> None:
    """`word` is what stands after the kind's name in the condition's reason."""
    job = turn.job
    message = f"{job.framework.kind.name} {job.name} is failed because {count} {type_} replica(s) failed."
    turn.tell("Normal", "Failed", message)
    turn.completed()
    turn.put(FAILED, word, message)
