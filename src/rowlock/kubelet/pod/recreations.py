"""Delays the start of pods that were recreated because their predecessor failed.

Kubeflow's operator recreates a failed pod of `restartPolicy: ExitCode` at once and without limit. On a cluster each start takes a node a
second or two, which alone keeps such a job from spinning. Here a start takes milliseconds, so the node waits: not before the first
recreation, as the cause may have passed, then 1, 2, 4, … at most 30 s, and not after a run that was long enough. It is the kubelet's
rule for containers with a tenth of its times.
"""

from collections import OrderedDict
from dataclasses import dataclass

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.progress import FIRST_BACKOFF, MAX_BACKOFF_FACTOR, backoff_delay

_PART = 10
_GOOD_RUN = 2 * MAX_BACKOFF_FACTOR
"""A run of this many first delays resets the count of failures, as in a kubelet."""
_MAX_KEPT = 4_096
_PodIdentity = tuple[str, str, str]
"""Namespace, name and owner's uid: what a pod and its successor have in common."""


@dataclass(frozen=True, slots=True)
class _Failures:
    uid: str
    count: int
    at: float


@dataclass(frozen=True, slots=True)
class StartDelay:
    """How long a new pod waits, in seconds."""

    seconds: float = 0.0
    """Counted from the failure of its predecessor."""
    remaining: float = 0.0
    """Counted from when it was bound to the node."""


NO_DELAY = StartDelay()


class Recreations:
    """Recently failed pods. They are not persisted: a restarted server knows none."""

    def __init__(self, backoff: float = FIRST_BACKOFF) -> None:
        """`backoff` in seconds, as a kubelet has it before a second restart of a container."""
        self._base = backoff / _PART
        self._failed: OrderedDict[_PodIdentity, _Failures] = OrderedDict()

    def note_failure(self, card: PodCard, now: float) -> None:
        """Counts a failure of the pod's own; further calls for the same pod are ignored."""
        if not card.owner:
            return  # without an owner, a new pod of this name is meant to start
        before = self._failed.get(_identity(card))
        if before is not None and before.uid == card.uid:
            return
        is_forgotten = before is None or now - card.begun >= _GOOD_RUN * self._base
        count = 1 if is_forgotten or before is None else before.count + 1
        self._failed[_identity(card)] = _Failures(card.uid, count, now)
        self._failed.move_to_end(_identity(card))
        if len(self._failed) > _MAX_KEPT:
            self._failed.popitem(last=False)

    def start_delay(self, card: PodCard) -> StartDelay:
        """How long this pod waits, counted from when it was bound to the node."""
        before = self._failed.get(_identity(card))
        if before is None:
            return NO_DELAY
        delay = backoff_delay(before.count - 1, self._base)
        remaining = before.at + delay - card.begun
        return StartDelay(delay, remaining) if 0 < remaining <= delay else NO_DELAY  # a clock may have been set back


def _identity(card: PodCard) -> _PodIdentity:
    return card.namespace, card.name, card.owner
