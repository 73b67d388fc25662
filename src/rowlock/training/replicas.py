"""Pods wanted against pods seen, for one replica type: make what is missing, remove what is too much, count.

A slot is a number within the type. One failure touches one pod: peers are never restarted. What is counted is what
was seen when the look began, so a pod that is removed for a restart now still counts as failed.
"""

from __future__ import annotations

from rowlock.kinds import POD
from rowlock.objects import Object, deleting, labels, name, namespace, phase
from rowlock.training.conditions import FAILED, RESTARTING
from rowlock.training.framework import INDEX_LABEL, NO_EXIT_CODE, RETRYABLE, Rank, Replica
from rowlock.training.pods import pod_of
from rowlock.training.turn import Turn

Slots = dict[int, list[Object]]


def slots(items: list[Object]) -> Slots:
    """Objects by their number; those without a usable one are nobody's."""
    found: Slots = {}
    for item in items:
        text = labels(item).get(INDEX_LABEL, "")
        if text.isdecimal():
            found.setdefault(int(text), []).append(item)
    return found


def size(taken: Slots, replica: Replica, no_phantoms: bool) -> int:
    """How many slots are looked at. The operator never looks at fewer than one (Q10)."""
    return max(max(taken, default=-1) + 1, replica.count, 0 if no_phantoms else 1)


def sync_pods(turn: Turn, replica: Replica, mine: list[Object]) -> None:
    """Reconcile the pods of one type; `mine` are those with its label."""
    turn.reset(replica)
    taken = slots(mine)
    for index in range(size(taken, replica, turn.parity.no_phantoms)):
        here = taken.get(index, [])
        if not here:
            if index < replica.count or not turn.parity.no_phantoms:
                _create(turn, Rank(turn.job, replica, index))
        elif len(here) == 1:
            if index >= replica.count:
                turn.delete(POD, here[0])
            _look_at(turn, replica, here[0])


def _create(turn: Turn, rank: Rank) -> None:
    overwrite_warning(turn, rank.replica, "SetPodTemplateRestartPolicy")
    turn.create_owned(POD, pod_of(rank))


def overwrite_warning(turn: Turn, replica: Replica, reason: str) -> None:
    """Say that a restart policy of the template itself counts for nothing. (MPIJob's reason is spelled otherwise.)"""
    if (replica.template.get("spec") or {}).get("restartPolicy"):
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        turn.say("Warning", reason, text)


def exit_code(pod: Object, container: str) -> int | None:
    """The exit code of the container of that name; None while it has none."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if status.get("name") == container and terminated is not None:
            return int(terminated.get("exitCode") or 0)
    return None


def _look_at(turn: Turn, replica: Replica, pod: Object) -> None:
    code = exit_code(pod, turn.job.framework.container)
    if code is not None:
        turn.say("Normal", "ExitedWithCode", f"Pod: {namespace(pod)}.{name(pod)} exited with code {code}")
    if phase(pod) == "Failed":
        _failed(turn, replica, pod, NO_EXIT_CODE if code is None else code)
    tally(turn.counts[replica.type], pod)


def tally(counts: dict[str, int], pod: Object) -> None:
    """Count one pod. A running pod that is being deleted counts as failed already (Q6)."""
    now = phase(pod)
    if now == "Running":
        counts["failed" if deleting(pod) else "active"] += 1
    elif now in ("Succeeded", "Failed"):
        counts[now.lower()] += 1


def _failed(turn: Turn, replica: Replica, pod: Object, code: int) -> None:
    by_code = replica.restart_policy == "ExitCode"
    job = turn.job
    if replica.restart_policy in ("OnFailure", "Always") or (by_code and code >= RETRYABLE):
        message = f"job {job.name} is restarting because {replica.type} replica(s) failed."
        turn.delete(POD, pod)
        turn.tell("Warning", "Restarting", message)
        turn.put(RESTARTING, "Restarting", message)
    elif by_code:
        message = f'job "{job.name}" is failing because "{replica.type}" replica(s) failed.'
        turn.tell("Warning", "Failed", message)
        turn.put(FAILED, "Failed", message)
