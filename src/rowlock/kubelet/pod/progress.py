"""How far a pod is: compares what its object asks for with the facts of its containers. Pure.

It is assessed once for `compute_pod_actions` and `generate_pod_status`, so that actions and status follow from the same
rules.
"""

from dataclasses import dataclass

from rowlock.kubelet.pod.facts import ContainerFacts, Exit, PodFacts, Run
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.objects import FINAL_PHASES, is_digits
from rowlock.workloads.run_options.retries import HOLD_ANNOTATION

MAX_BACKOFF_FACTOR = 30
"""The longest back-off, in units of the first."""
FIRST_BACKOFF = 10.0
"""Seconds before a second restart, unless the kubelet is configured otherwise."""
_EMULATED_FACTS = ContainerFacts(image_id="rowlock://waits-for-the-master")
"""Facts of the emulated init container, which has no program."""


@dataclass(frozen=True, slots=True)
class ContainerProgress:
    """The progress of one container."""

    spec: ContainerSpec
    facts: ContainerFacts
    has_started: bool
    """It runs, and its startup probe and postStart hook, if any, have succeeded."""
    is_ready: bool
    ended: Exit | None
    """How its newest run ended; None = it has not. The emulated init container ends with 0 when the master is ready."""
    will_restart: bool
    """Its newest run has ended, and another one will follow."""
    restart_delay: float
    """Seconds between the end of its newest run and the next one."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def run(self) -> Run | None:
        return self.facts.run

    @property
    def is_alive(self) -> bool:
        """A program may be running."""
        return self.facts.is_alive

    @property
    def is_over(self) -> bool:
        return self.ended is not None and not self.will_restart

    @property
    def is_done(self) -> bool:
        """It has exited with 0; a sidecar: it has started, which is all that later containers wait for."""
        return self.has_started if self.spec.is_sidecar else self.ended is not None and self.ended.code == 0


@dataclass(frozen=True, slots=True)
class PodProgress:
    """The progress of a pod at one moment."""

    spec: PodSpec
    facts: PodFacts
    now: float
    """The moment, in seconds since the epoch."""
    failure: tuple[str, str] | None
    """Reason and message if the pod fails regardless of its programs: rejected, evicted, or active for too long."""
    is_initialised: bool
    """Some main container has begun: from then on no container waits for init containers."""
    inits: tuple[ContainerProgress, ...]
    mains: tuple[ContainerProgress, ...]
    ephemerals: tuple[ContainerProgress, ...]

    @property
    def all(self) -> tuple[ContainerProgress, ...]:
        return (*self.inits, *self.mains, *self.ephemerals)

    @property
    def sidecars(self) -> tuple[ContainerProgress, ...]:
        return tuple(c for c in self.inits if c.spec.is_sidecar)

    @property
    def is_alive(self) -> bool:
        """A program of it may be running."""
        return any(c.is_alive for c in self.all)

    @property
    def is_without_records(self) -> bool:
        """It has ended, as its status says, and nothing is known here about how: a backup was restored, or the directory of pods was lost."""
        reported = self.spec.reported.containers.values()
        has_ended = self.spec.phase in FINAL_PHASES and any(each.is_terminated for each in reported)
        return has_ended and all(c.run is None for c in self.all)

    @property
    def are_mains_over(self) -> bool:
        """Whether every main container has ended and none will run again."""
        return all(c.is_over for c in self.mains)

    @property
    def unfinished_inits(self) -> tuple[ContainerProgress, ...]:
        """The init containers that the main ones still wait for."""
        return () if self.is_initialised else tuple(c for c in self.inits if not c.is_done)

    @property
    def has_failed_init(self) -> bool:
        """An init container has failed for good: the main containers will never start."""
        failed = (c for c in self.inits if not c.spec.is_sidecar and c.ended is not None and c.ended.code != 0)
        first = next(failed, None)
        return first is not None and not self.is_initialised and not first.will_restart


def backoff_delay(level: int, base: float) -> float:
    """Seconds to wait before the restart that follows `level` recent ones."""
    return 0.0 if level <= 0 else float(min(base * 2 ** min(level - 1, 20), base * MAX_BACKOFF_FACTOR))


def assess_progress(spec: PodSpec, facts: PodFacts, now: float, base: float = FIRST_BACKOFF) -> PodProgress:
    """Computes the pod's progress at `now`; `base` in seconds, before a second restart."""
    mains = tuple(_assess_container(spec, c, facts, base, are_mains_over=False) for c in spec.main_containers)
    are_mains_over = all(c.is_over for c in mains)
    return PodProgress(
        spec,
        facts,
        now,
        failure=kubelet_failure(spec, facts, now),
        is_initialised=any(c.run is not None for c in mains),
        inits=tuple(
            _assess_container(spec, c, facts, base, are_mains_over=are_mains_over) for c in spec.init_containers
        ),
        mains=mains,
        ephemerals=tuple(
            _assess_container(spec, c, facts, base, are_mains_over=are_mains_over) for c in spec.ephemeral_containers
        ),
    )


def _assess_container(
    spec: PodSpec, container: ContainerSpec, pod_facts: PodFacts, base: float, *, are_mains_over: bool
) -> ContainerProgress:
    facts = _EMULATED_FACTS if container.is_emulated_init else pod_facts.for_container(container.name)
    has_started = facts.run is not None and facts.run.is_running and (facts.started or not container.has_start_checks)
    ended = facts.run.exit if facts.run is not None else None
    if container.is_emulated_init and pod_facts.master_ready is not None:
        ended = Exit(0, pod_facts.start_time, pod_facts.master_ready)
    hold = (
        spec.annotations.get(HOLD_ANNOTATION) or ""
    )  # of a submitted job: the cause of an end is judged before its next start
    hold_s = float(hold) if is_digits(hold) and len(hold) < 3 else 0.0
    return ContainerProgress(
        container,
        facts,
        has_started,
        is_ready=has_started and (facts.ready or container.readiness_probe is None),
        ended=ended,
        will_restart=ended is not None and _should_restart(spec, container, ended, are_mains_over=are_mains_over),
        restart_delay=max(backoff_delay(facts.recent_restarts, base), hold_s),
    )


def _should_restart(spec: PodSpec, container: ContainerSpec, ended: Exit, *, are_mains_over: bool) -> bool:
    """Whether this container is to run again."""
    if container.is_ephemeral:
        return False
    if container.is_main:
        return spec.restart_policy == "Always" or (spec.restart_policy == "OnFailure" and ended.code != 0)
    if container.is_sidecar:
        return not are_mains_over
    return ended.code != 0 and spec.restart_policy != "Never"


def kubelet_failure(spec: PodSpec, facts: PodFacts, now: float) -> tuple[str, str] | None:
    """Reason and message, as in its status, of a pod that its kubelet ends regardless of its programs; None = it does not."""
    if facts.rejected is not None:
        return facts.rejected
    if facts.evicted:
        return "Evicted", facts.evicted
    if spec.active_deadline is not None and now >= facts.start_time + spec.active_deadline:
        return "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
    return None
