"""The back-off of a Job after failed pods: 10 s, doubled with each consecutive failure, 10 minutes at most.

Failed pods since the last success are remembered by uid, so that a pod that is seen twice counts once. They are kept only in memory: after
a restart the first failure waits 10 s again, as with Kubernetes' controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rowlock.objects import Object, uid
from rowlock.training.batch_job.pods import finished_at

FIRST_DELAY, MAX_DELAY = 10.0, 600.0  # seconds


def remaining_delay(failures: int, last_failure: float, now: float) -> float:
    """Seconds left to wait at `now` after `failures` consecutive failures, the last of them at `last_failure`."""
    if failures == 0:
        return 0.0
    delay = FIRST_DELAY * 2.0 ** min(failures - 1, 10)
    return max(0.0, min(delay, MAX_DELAY) - (now - last_failure))


@dataclass(slots=True)
class FailureMemory:
    """The failures of one Job since its last success: pod uid → when it ended."""

    failures: dict[str, float] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def note(self, succeeded: Iterable[Object], failed: Iterable[Object], present: Collection[str]) -> None:
        """Note ended pods that are not counted yet. `present`: the uids of all existing pods of the Job."""
        self._seen &= set(present)
        successes = {uid(p): finished_at(p) for p in succeeded if uid(p) not in self._seen}
        new_failures = {uid(p): finished_at(p) for p in failed if uid(p) not in self._seen}
        self._seen |= successes.keys() | new_failures.keys()
        if successes:
            last_success = max(successes.values())
            self.failures = {}
            new_failures = {pod: end for pod, end in new_failures.items() if end > last_success}
        self.failures |= new_failures

    def remaining_delay(self, now: float) -> float:
        """Seconds until the next pod may be created."""
        return remaining_delay(len(self.failures), max(self.failures.values(), default=0.0), now)
