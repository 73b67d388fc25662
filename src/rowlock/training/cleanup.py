"""After the end: which pods go (cleanPodPolicy), and when the job goes (ttlSecondsAfterFinished)."""

from __future__ import annotations

from rowlock.objects import Object, deleting, phase, seconds
from rowlock.training.conditions import SUCCEEDED
from rowlock.training.turn import Turn

UNFINISHED = ("Running", "Pending")


def clean_pods(turn: Turn, policy: str) -> None:
    """Remove pods and their services. A policy that nobody knows acts like All."""
    for pod in turn.seen.pods:
        if goes(policy, pod):
            turn.delete_with_service(pod)


def goes(policy: str, pod: Object) -> bool:
    if policy == "None":
        return False
    return policy != "Running" or (phase(pod) or "Pending") in UNFINISHED


def lingering(turn: Turn) -> float | None:
    """Seconds for which pods of a job that has just succeeded may still end by themselves; None = clean up now."""
    left = turn.parity.linger - turn.seen.finished_for
    policy = turn.job.policy.clean
    ending = any(phase(p) == "Running" and not deleting(p) and goes(policy, p) for p in turn.seen.pods)
    return left if left > 0.001 and ending and turn.holds(SUCCEEDED) else None


def time_to_live(turn: Turn) -> float | None:
    """Seconds until the finished job is removed; None = never. Without a completionTime it stays for ever (Q3)."""
    ttl = turn.job.policy.ttl
    if ttl is None or turn.completion is None:
        return None
    return seconds(turn.completion) + ttl - turn.now
