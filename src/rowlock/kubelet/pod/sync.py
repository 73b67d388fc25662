"""What to do about one pod now: pure. The kubelet does it and asks again when a fact or the pod changes.

The rules are Kubernetes': init containers one after the other, then all others; restarts by policy
with a back-off that doubles and is forgotten after ten good minutes (the first restart is immediate). A sidecar is an
init container that lets the next one begin when it has started, and is restarted until the main containers are over;
then sidecars stop, the last one first. Ephemeral containers start at once, once. A deleted pod gets SIGTERM, its grace, SIGKILL (sidecars after the others), and
its object goes when the last program has gone.
"""

from dataclasses import dataclass

from rowlock.kubelet.pod.facts import ContainerFacts, Exit, PodFacts
from rowlock.kubelet.pod.spec import (
    ContainerSpec,
    PodSpec,
    has_alive_container,
    has_started,
    is_initialised,
    kubelet_failure,
)

BACKOFF_RESET_AFTER = 600.0
MAX_BACKOFF_FACTOR = 30
"""The longest back-off, in units of the first."""
CLOCK_TOLERANCE = 1.0
"""Seconds by which clocks may differ that were never set."""
INIT_PUBLISH_DELAY = 0.05
START_PUBLISH_DELAY = 0.5


@dataclass(frozen=True, slots=True)
class Start:
    container: str
    number: int
    backoff: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the shim: SIGTERM to the tree now, SIGKILL after `grace` seconds."""

    container: str
    grace: float


@dataclass(frozen=True, slots=True)
class Remove:
    """Nothing runs any more and the pod was deleted: the object may go."""


@dataclass(frozen=True, slots=True)
class Publish:
    """The status is worth writing now (whether it differs is the kubelet's to see)."""


PodAction = Start | Stop | Remove | Publish


@dataclass(frozen=True, slots=True)
class PodActions:
    """The chores, in order; `requeue_after` in seconds, None = when something changes."""

    actions: tuple[PodAction, ...] = ()
    requeue_after: float | None = None


def backoff_delay(level: int, base: float) -> float:
    """Seconds to wait before the restart that follows `level` recent ones."""
    return 0.0 if level <= 0 else float(min(base * 2 ** min(level - 1, 20), base * MAX_BACKOFF_FACTOR))


def remaining_wait(since: float, length: float, now: float) -> float:
    """Seconds that are left of a wait of `length` seconds that began at `since`; 0 = none.

    A beginning in the future means that the clock was set back: how long ago it was nobody knows, and it is over."""
    left = since + length - now
    return left if 0 < left <= length + CLOCK_TOLERANCE else 0.0


def should_restart(spec: PodSpec, container: ContainerSpec, run_exit: Exit, facts: PodFacts) -> bool:
    """Shall this container run again?"""
    if container.is_ephemeral:
        return False
    if container.is_main:
        return spec.restart_policy == "Always" or (spec.restart_policy == "OnFailure" and run_exit.code != 0)
    if container.is_sidecar:
        return not are_mains_over(spec, facts)
    return run_exit.code != 0 and spec.restart_policy != "Never"


def are_mains_over(spec: PodSpec, facts: PodFacts) -> bool:
    """Every main container has ended and none will run again."""
    runs = [(c, facts.for_container(c.name).run) for c in spec.main_containers]
    return all(
        run is not None and run.exit is not None and not should_restart(spec, c, run.exit, facts) for c, run in runs
    )


def backoff_level(facts: ContainerFacts) -> int:
    """How many restarts are still remembered when the newest run has ended."""
    run = facts.run
    if run is None or run.exit is None or run.exit.finished - run.exit.started >= BACKOFF_RESET_AFTER:
        return 0
    return run.backoff


def compute_pod_actions(spec: PodSpec, facts: PodFacts, now: float, base: float = 10.0) -> PodActions:
    """The chores for a pod that is bound to one of our nodes."""
    if spec.deletion_time is not None:
        return _delete_actions(spec, facts, spec.deletion_time, now)
    if spec.phase in ("Succeeded", "Failed"):
        grace = 0.0 if facts.evicted else spec.grace_period
        return PodActions((*_stop_actions(spec, facts, grace, now), Publish()))
    if failed := _failure_actions(spec, facts, now):
        return failed
    if are_mains_over(spec, facts) or _has_failed_init(spec, facts):
        return PodActions((*_stop_actions(spec, facts, spec.grace_period, now), Publish()))
    ready, actions = _init_actions(spec, facts, now, base)
    if ready:
        actions = _start_actions([*spec.sidecars, *spec.main_containers], spec, facts, (now, base))
    if spec.ephemeral_containers:  # they wait for nobody
        actions = _join_actions(actions, _start_actions(list(spec.ephemeral_containers), spec, facts, (now, base)))
    deadline = _seconds_to_deadline(spec, facts, now)
    requeue_after = min((x for x in (actions.requeue_after, deadline) if x is not None), default=None)
    return PodActions(actions.actions, requeue_after)


def _join_actions(first: PodActions, second: PodActions) -> PodActions:
    """Both; the status is published when neither waits for something that will be told in a moment."""
    starts = [action for action in (*first.actions, *second.actions) if not isinstance(action, Publish)]
    is_settled = Publish() in first.actions and Publish() in second.actions
    waits = [wait for wait in (first.requeue_after, second.requeue_after) if wait is not None]
    return PodActions((*starts, Publish()) if is_settled else tuple(starts), min(waits, default=None))


def _delete_actions(spec: PodSpec, facts: PodFacts, deletion_time: float, now: float) -> PodActions:
    if not has_alive_container(facts, spec.all_containers):
        return PodActions((Remove(),))
    grace = max(0.0, deletion_time - now)
    stops = _stop_actions(spec, facts, min(grace, spec.deletion_grace_period), now)
    return PodActions(stops, grace + 1)


def _has_failed_init(spec: PodSpec, facts: PodFacts) -> bool:
    """An init container has failed for good: what runs beside it has nothing to wait for."""
    for container in spec.init_containers:
        run = facts.for_container(container.name).run
        if not container.is_sidecar and run is not None and run.exit is not None and run.exit.code != 0:
            return not is_initialised(spec, facts) and not should_restart(spec, container, run.exit, facts)
    return False


def _stop_actions(spec: PodSpec, facts: PodFacts, grace: float, now: float) -> tuple[PodAction, ...]:
    """Everything that runs; sidecars only when nothing else does, one after the other, the last one first."""
    to_stop = [c for c in spec.all_containers if not c.is_sidecar]
    if not has_alive_container(facts, to_stop):
        to_stop = [c for c in spec.sidecars if facts.for_container(c.name).is_alive][-1:]
    if grace <= 0:
        to_stop = list(spec.all_containers)
    stops = []
    for container in to_stop:
        container_facts = facts.for_container(container.name)
        if container_facts.is_alive and (
            container_facts.stop_by is None or now + grace < container_facts.stop_by - 0.5
        ):
            stops.append(Stop(container.name, grace))
    return tuple(stops)


def _seconds_to_deadline(spec: PodSpec, facts: PodFacts, now: float) -> float | None:
    limit = spec.active_deadline
    return None if limit is None else max(0.01, facts.start_time + limit - now)


def _failure_actions(spec: PodSpec, facts: PodFacts, now: float) -> PodActions | None:
    if kubelet_failure(spec, facts, now) is None:
        return None
    grace = 0.0 if facts.evicted else spec.grace_period
    requeue_after = 1.0 if has_alive_container(facts, spec.all_containers) else None
    return PodActions((*_stop_actions(spec, facts, grace, now), Publish()), requeue_after)


def _init_actions(spec: PodSpec, facts: PodFacts, now: float, base: float) -> tuple[bool, PodActions]:
    """(True, …) when every init container is done; else what the first unfinished one needs."""
    if is_initialised(spec, facts):
        return True, PodActions()
    started_sidecars = []
    for container in spec.init_containers:
        if container.is_emulated_init:
            if facts.master_ready is None:
                remaining = remaining_wait(facts.start_time, INIT_PUBLISH_DELAY, now)
                return False, PodActions((), remaining) if remaining > 0 else PodActions((Publish(),))
            continue
        container_facts = facts.for_container(container.name)
        if container.is_sidecar:
            started_sidecars.append(container)
            if not has_started(container, container_facts):
                return False, _start_actions(started_sidecars, spec, facts, (now, base))
        elif container_facts.run is None or container_facts.run.exit is None or container_facts.run.exit.code != 0:
            return False, _start_actions([*started_sidecars, container], spec, facts, (now, base))
    return True, PodActions()


def _start_actions(
    containers: list[ContainerSpec], spec: PodSpec, facts: PodFacts, clock: tuple[float, float]
) -> PodActions:
    actions: list[PodAction] = []
    waits: list[float] = []
    starting = False
    for container in containers:
        container_facts = facts.for_container(container.name)
        if container_facts.asked is not None:
            starting = True
            continue
        start, wait = _next_start(spec, container, facts, clock)
        actions += [start] if start else []
        waits += [] if wait is None else [wait]
        starting |= start is not None
    if starting:
        return PodActions(tuple(actions), START_PUBLISH_DELAY)
    return PodActions((*actions, Publish()), min(waits, default=None))


def _next_start(
    spec: PodSpec, container: ContainerSpec, facts: PodFacts, clock: tuple[float, float]
) -> tuple[Start | None, float | None]:
    """The start that is due, or how long until it is."""
    container_facts, (now, base) = facts.for_container(container.name), clock
    if container_facts.pull.under_way:
        return None, None  # its end is the next turn
    if container_facts.problem is not None:
        wait = remaining_wait(container_facts.problem_since, base / 2, now)
        if wait > 0:
            return None, wait
    if container_facts.run is None:
        return Start(container.name, 0, 0), None
    if container_facts.run.exit is None or not should_restart(spec, container, container_facts.run.exit, facts):
        return None, None
    level = backoff_level(container_facts)
    wait = remaining_wait(container_facts.run.exit.finished, backoff_delay(level, base), now)
    if wait > 0:
        return None, wait
    return Start(container.name, container_facts.run.number + 1, level + 1), None
