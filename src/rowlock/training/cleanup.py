"""After the end: which pods go (cleanPodPolicy), and when the job goes (ttlSecondsAfterFinished)."""

from __future__ import annotations

from rowlock.objects import Object, phase, seconds
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


def time_to_live(turn: Turn) -> float | None:
    """Seconds until the finished job is removed; None = never. Without a completionTime it stays for ever (Q3)."""
    ttl = turn.job.policy.ttl
    if ttl is None or turn.completion is None:
        return None
    return seconds(turn.completion) + ttl - turn.now
