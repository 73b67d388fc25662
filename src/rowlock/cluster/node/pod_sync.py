"""What to do about one pod now: pure. The kubelet does it and asks again when a fact or the pod changes.

The rules are Kubernetes' (operator.md §4.15): init containers one after the other, then all others; restarts by policy
with a back-off that doubles and is forgotten after ten good minutes (the first restart is immediate). A sidecar is an
init container that lets the next one begin when it has started, and is restarted until the main containers are over;
then sidecars stop, the last one first. A deleted pod gets SIGTERM, its grace, SIGKILL (sidecars after the others), and
its object goes when the last program has gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.cluster.node.pod_facts import (
    ContainerFacts,
    Exit,
    PodFacts,
    all_containers,
    any_alive,
    cut_short,
    emulated,
    has_started,
    init_containers,
    initialised,
    main_containers,
    policy,
    sidecar,
    sidecars,
)
from rowlock.objects import Object, deleting, dig, meta, phase, seconds

DEFAULT_GRACE = 30.0
HEALTHY = 600.0
CAP = 30
"""The longest back-off, in units of the first."""
INIT_HOLD = 0.05
START_HOLD = 0.5


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


Chore = Start | Stop | Remove | Publish


@dataclass(frozen=True, slots=True)
class Turn:
    """The chores, in order; `again` in seconds, None = when something changes."""

    chores: tuple[Chore, ...] = ()
    again: float | None = None


def delay(level: int, base: float) -> float:
    """Seconds to wait before the restart that follows `level` recent ones."""
    return 0.0 if level <= 0 else float(min(base * 2 ** min(level - 1, 20), base * CAP))


def restarts(pod: Object, container: Mapping[str, Any], ended: Exit, facts: PodFacts) -> bool:
    """Shall this container run again?"""
    if container in main_containers(pod):
        return policy(pod) == "Always" or (policy(pod) == "OnFailure" and ended.code != 0)
    if sidecar(container):
        return not mains_over(pod, facts)
    return ended.code != 0 and policy(pod) != "Never"


def mains_over(pod: Object, facts: PodFacts) -> bool:
    """Every main container has ended and none will run again."""
    runs = [(c, facts.of(c).run) for c in main_containers(pod)]
    return all(run is not None and run.exit is not None and not restarts(pod, c, run.exit, facts) for c, run in runs)


def level_after(facts: ContainerFacts) -> int:
    """How many restarts are still remembered when the newest run has ended."""
    run = facts.run
    if run is None or run.exit is None or run.exit.finished - run.exit.started >= HEALTHY:
        return 0
    return run.backoff


def sync(pod: Object, facts: PodFacts, now: float, base: float = 10.0) -> Turn:
    """The chores for a pod that is bound to one of our nodes."""
    if deleting(pod):
        return _delete(pod, facts, now)
    if phase(pod) in ("Succeeded", "Failed"):
        grace = 0.0 if facts.evicted else _grace(pod)
        return Turn((*_stop_all(pod, facts, grace, now), Publish()))
    if over := _cut_short(pod, facts, now):
        return over
    if mains_over(pod, facts) or _init_failed(pod, facts):
        return Turn((*_stop_all(pod, facts, _grace(pod), now), Publish()))
    ready, turn = _initialise(pod, facts, now, base)
    if ready:
        turn = _run([*sidecars(pod), *main_containers(pod)], pod, facts, (now, base))
    deadline = _until_deadline(pod, facts, now)
    again = min((x for x in (turn.again, deadline) if x is not None), default=None)
    return Turn(turn.chores, again)


def _delete(pod: Object, facts: PodFacts, now: float) -> Turn:
    if not any_alive(facts, all_containers(pod)):
        return Turn((Remove(),))
    grace = max(0.0, seconds(meta(pod)["deletionTimestamp"]) - now)
    stops = _stop_all(pod, facts, min(grace, float(meta(pod).get("deletionGracePeriodSeconds", DEFAULT_GRACE))), now)
    return Turn(stops, grace + 1)


def _init_failed(pod: Object, facts: PodFacts) -> bool:
    """An init container has failed for good: what runs beside it has nothing to wait for."""
    for container in init_containers(pod):
        run = facts.of(container).run
        if not sidecar(container) and run is not None and run.exit is not None and run.exit.code != 0:
            return not initialised(pod, facts) and not restarts(pod, container, run.exit, facts)
    return False


def _stop_all(pod: Object, facts: PodFacts, grace: float, now: float) -> tuple[Chore, ...]:
    """Everything that runs; sidecars only when nothing else does, one after the other, the last one first."""
    wave = [c for c in all_containers(pod) if c not in sidecars(pod)]
    if not any_alive(facts, wave):
        wave = [c for c in sidecars(pod) if facts.of(c).alive][-1:]
    if grace <= 0:
        wave = all_containers(pod)
    stops = []
    for container in wave:
        known = facts.of(container)
        if known.alive and (known.stop_by is None or now + grace < known.stop_by - 0.5):
            stops.append(Stop(container["name"], grace))
    return tuple(stops)


def _grace(pod: Object) -> float:
    return float(dig(pod, "spec.terminationGracePeriodSeconds", DEFAULT_GRACE))


def _until_deadline(pod: Object, facts: PodFacts, now: float) -> float | None:
    limit = dig(pod, "spec.activeDeadlineSeconds")
    return None if limit is None else max(0.01, facts.begun + float(limit) - now)


def _cut_short(pod: Object, facts: PodFacts, now: float) -> Turn | None:
    if cut_short(pod, facts, now) is None:
        return None
    grace = 0.0 if facts.evicted else _grace(pod)
    again = 1.0 if any_alive(facts, all_containers(pod)) else None
    return Turn((*_stop_all(pod, facts, grace, now), Publish()), again)


def _initialise(pod: Object, facts: PodFacts, now: float, base: float) -> tuple[bool, Turn]:
    """(True, …) when every init container is done; else what the first unfinished one needs."""
    if initialised(pod, facts):
        return True, Turn()
    beside = []
    for container in init_containers(pod):
        if emulated(container):
            if facts.master_ready is None:
                held = INIT_HOLD - (now - facts.begun)
                return False, Turn((), held) if held > 0 else Turn((Publish(),))
            continue
        known = facts.of(container)
        if sidecar(container):
            beside.append(container)
            if not has_started(container, known):
                return False, _run(beside, pod, facts, (now, base))
        elif known.run is None or known.run.exit is None or known.run.exit.code != 0:
            return False, _run([*beside, container], pod, facts, (now, base))
    return True, Turn()


def _run(containers: list[dict[str, Any]], pod: Object, facts: PodFacts, clock: tuple[float, float]) -> Turn:
    chores: list[Chore] = []
    waits: list[float] = []
    starting = False
    for container in containers:
        known = facts.of(container)
        if known.asked is not None:
            starting = True
            continue
        begin, wait = _next(pod, container, facts, clock)
        chores += [begin] if begin else []
        waits += [] if wait is None else [wait]
        starting |= begin is not None
    if starting:
        return Turn(tuple(chores), START_HOLD)
    return Turn((*chores, Publish()), min(waits, default=None))


def _next(
    pod: Object, container: Mapping[str, Any], facts: PodFacts, clock: tuple[float, float]
) -> tuple[Start | None, float | None]:
    """The start that is due, or how long until it is."""
    known, (now, base) = facts.of(container), clock
    if known.pull.under_way:
        return None, None  # its end is the next turn
    if known.problem is not None:
        wait = known.problem_since + base / 2 - now
        if wait > 0:
            return None, wait
    if known.run is None:
        return Start(container["name"], 0, 0), None
    if known.run.exit is None or not restarts(pod, container, known.run.exit, facts):
        return None, None
    level = level_after(known)
    wait = known.run.exit.finished + delay(level, base) - now
    if wait > 0:
        return None, wait
    return Start(container["name"], known.run.number + 1, level + 1), None
