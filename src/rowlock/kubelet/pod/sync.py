"""Decides what to do about one pod now. Pure: the kubelet does it, and asks again when a fact or the pod changes.

The rules are Kubernetes': init containers run one after the other, then all others start. Restarts follow the policy, with a
back-off that doubles and is reset after ten good minutes (the first restart is immediate). A sidecar is an init container that
lets the next one begin when it has started, and is restarted until the main containers are over; then sidecars stop, the last
one first. Ephemeral containers start at once, once. A deleted pod gets SIGTERM, its grace, SIGKILL (sidecars after the others),
and its object is deleted when the last program has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.kubelet.pod.progress import FIRST_BACKOFF, ContainerProgress, PodProgress
from rowlock.objects import FINAL_PHASES

CLOCK_TOLERANCE = 1.0
"""Seconds by which clocks may differ without having been set."""
MINIMUM_GRACE = 2.0
"""Seconds of grace that each program has, whatever its pod, a probe or a deletion says, as in a kubelet."""
INIT_PUBLISH_DELAY = 0.05
START_PUBLISH_DELAY = 0.5


@dataclass(frozen=True, slots=True)
class Start:
    container: str
    number: int
    backoff: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the shim: SIGTERM to the first process now, SIGKILL to all after `grace` seconds."""

    container: str
    grace: float


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the object: the pod is being deleted and no program of it runs any more."""


@dataclass(frozen=True, slots=True)
class Publish:
    """The status may be written now; the kubelet does so only if it has changed."""


PodAction = Start | Stop | Remove | Publish


@dataclass(frozen=True, slots=True)
class PodActions:
    """The actions, in order; `requeue_after` in seconds, None = only after a change."""

    actions: tuple[PodAction, ...] = ()
    requeue_after: float | None = None


def remaining_wait(since: float, length: float, now: float) -> float:
    """Seconds that are left of a wait of `length` seconds that began at `since`; 0 = none.

    A beginning in the future means that the clock was set back; the wait then counts as over."""
    left = since + length - now
    return left if 0 < left <= length + CLOCK_TOLERANCE else 0.0


def compute_pod_actions(pod: PodProgress, base: float = FIRST_BACKOFF) -> PodActions:
    """The actions for a pod that is bound to one of our nodes; `base` in seconds, before a second restart."""
    spec, now = pod.spec, pod.now
    if spec.deletion_time is not None:
        return _delete_actions(pod, spec.deletion_time)
    grace = MINIMUM_GRACE if pod.facts.evicted else spec.grace_period
    if spec.phase in FINAL_PHASES:
        return PodActions((*_stop_actions(pod, grace), Publish()))
    if pod.failure is not None:
        return PodActions((*_stop_actions(pod, grace), Publish()), 1.0 if pod.is_alive else None)
    if pod.are_mains_over or pod.has_failed_init:
        return PodActions((*_stop_actions(pod, spec.grace_period), Publish()))
    actions = (
        _delayed_actions(pod) or _init_actions(pod, base) or _start_actions((*pod.sidecars, *pod.mains), now, base)
    )
    if pod.ephemerals:  # they wait for no other container
        actions = _join_actions(actions, _start_actions(pod.ephemerals, now, base))
    limit = spec.active_deadline
    deadline = None if limit is None else max(0.01, pod.facts.start_time + limit - now)
    requeue_after = min((x for x in (actions.requeue_after, deadline) if x is not None), default=None)
    return PodActions(actions.actions, requeue_after)


def _delayed_actions(pod: PodProgress) -> PodActions | None:
    """The actions of a pod that still has to wait because its predecessors failed; None for all others."""
    if any(c.run is not None or c.facts.asked is not None for c in pod.all):
        return None
    wait = remaining_wait(pod.facts.start_time, pod.facts.start_delay, pod.now)
    return PodActions((Publish(),), wait) if wait > 0 else None


def _join_actions(first: PodActions, second: PodActions) -> PodActions:
    """Joins both; the status is published only if neither of them expects a change in a moment."""
    starts = [action for action in (*first.actions, *second.actions) if not isinstance(action, Publish)]
    is_settled = Publish() in first.actions and Publish() in second.actions
    waits = [wait for wait in (first.requeue_after, second.requeue_after) if wait is not None]
    return PodActions((*starts, Publish()) if is_settled else tuple(starts), min(waits, default=None))


def _delete_actions(pod: PodProgress, deletion_time: float) -> PodActions:
    if not pod.is_alive:
        return PodActions((Remove(),))
    grace = max(0.0, deletion_time - pod.now)
    return PodActions(_stop_actions(pod, min(grace, pod.spec.deletion_grace_period)), grace + 1)


def _stop_actions(pod: PodProgress, grace: float) -> tuple[PodAction, ...]:
    """Stops everything that runs; sidecars only when nothing else runs, one after the other, the last one first."""
    to_stop: Sequence[ContainerProgress] = [c for c in pod.all if not c.spec.is_sidecar]
    if not any(c.is_alive for c in to_stop):
        to_stop = [c for c in pod.sidecars if c.is_alive][-1:]
    if grace <= 0:
        to_stop = pod.all
    grace = max(grace, MINIMUM_GRACE)
    return tuple(
        Stop(c.name, grace)
        for c in to_stop
        if c.is_alive and (c.facts.stop_by is None or pod.now + grace < c.facts.stop_by - 0.5)
    )


def _init_actions(pod: PodProgress, base: float) -> PodActions | None:
    """What the first unfinished init container needs; None when all are done."""
    if pod.is_initialised:
        return None
    started_sidecars: list[ContainerProgress] = []
    for container in pod.inits:
        if container.spec.is_emulated_init:
            if container.ended is None:
                remaining = remaining_wait(pod.facts.start_time, INIT_PUBLISH_DELAY, pod.now)
                return PodActions((), remaining) if remaining > 0 else PodActions((Publish(),))
            continue
        if container.spec.is_sidecar:
            started_sidecars.append(container)
            if not container.has_started:
                return _start_actions(started_sidecars, pod.now, base)
        elif not container.is_done:
            return _start_actions([*started_sidecars, container], pod.now, base)
    return None


def _start_actions(containers: Sequence[ContainerProgress], now: float, base: float) -> PodActions:
    actions: list[PodAction] = []
    waits: list[float] = []
    starting = False
    for container in containers:
        if container.facts.asked is not None:
            starting = True
            continue
        start, wait = _next_start(container, now, base)
        actions += [start] if start else []
        waits += [] if wait is None else [wait]
        starting |= start is not None
    if starting:
        return PodActions(tuple(actions), START_PUBLISH_DELAY)
    return PodActions((*actions, Publish()), min(waits, default=None))


def _next_start(container: ContainerProgress, now: float, base: float) -> tuple[Start | None, float | None]:
    """The start that is due, or the seconds until one is; both None = none is."""
    facts, name = container.facts, container.name
    if facts.pull.under_way:
        return None, None  # its end causes the next turn
    if facts.problem is not None:
        wait = remaining_wait(facts.problem_since, base / 2, now)
        if wait > 0:
            return None, wait
    if facts.run is None:
        return Start(name, 0, 0), None
    if facts.run.exit is None or not container.will_restart:
        return None, None
    wait = remaining_wait(facts.run.exit.finished, container.restart_delay, now)
    if wait > 0:
        return None, wait
    return Start(name, facts.run.number + 1, facts.recent_restarts + 1), None
