"""What a pod's object asks of its kubelet, read once per resourceVersion; and where its containers stand by that.

Only what deciding (`sync.py`) and reporting (`status.py`) read. It is small, for there may be a thousand pods: texts and
the object itself are those of the store.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.kubelet.pod.facts import (
    ContainerFacts,
    PodFacts,
    awaited_master,
    init_containers,
    is_emulated_init,
    is_sidecar,
    main_containers,
    restart_policy,
)
from rowlock.objects import Object, dig, meta, phase, seconds

DEFAULT_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a pod."""

    name: str
    image: str
    resources: Mapping[str, Any]
    is_main: bool
    is_sidecar: bool
    """An init container that keeps running beside the others."""
    is_emulated_init: bool
    """The operator's own init container, for which the kubelet waits itself."""
    has_start_checks: bool
    """Has it a startup probe or a postStart hook?"""
    has_readiness_probe: bool


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod, as it was at one resourceVersion."""

    object: Object
    """As the store has it."""
    main_containers: tuple[ContainerSpec, ...]
    init_containers: tuple[ContainerSpec, ...]
    sidecars: tuple[ContainerSpec, ...]
    """Those of the init containers."""
    restart_policy: str
    grace_period: float
    """Seconds between SIGTERM and SIGKILL."""
    active_deadline: float | None
    """Seconds that it may be active."""
    deletion_time: float | None
    """When it shall be gone, in seconds since the epoch; None = it is not deleted."""
    deletion_grace_period: float
    phase: str
    awaited_master: str
    """The name that the emulated init container looks up; "" when the pod has none."""

    @property
    def containers(self) -> tuple[ContainerSpec, ...]:
        """Init containers, then the main ones."""
        return (*self.init_containers, *self.main_containers)


def parse_pod_spec(pod: Object) -> PodSpec:
    """Reads a pod that the API server has admitted."""
    inits = tuple(_parse_container(c, is_main=False) for c in init_containers(pod))
    metadata = meta(pod)
    deadline, deletion = dig(pod, "spec.activeDeadlineSeconds"), metadata.get("deletionTimestamp")
    return PodSpec(
        object=pod,
        main_containers=tuple(_parse_container(c, is_main=True) for c in main_containers(pod)),
        init_containers=inits,
        sidecars=tuple(c for c in inits if c.is_sidecar),
        restart_policy=restart_policy(pod),
        grace_period=float(dig(pod, "spec.terminationGracePeriodSeconds", DEFAULT_GRACE)),
        active_deadline=None if deadline is None else float(deadline),
        deletion_time=seconds(deletion) if deletion else None,
        deletion_grace_period=float(metadata.get("deletionGracePeriodSeconds", DEFAULT_GRACE)),
        phase=phase(pod),
        awaited_master=awaited_master(pod),
    )


def _parse_container(container: Mapping[str, Any], *, is_main: bool) -> ContainerSpec:
    return ContainerSpec(
        name=str(container["name"]),
        image=container.get("image", ""),
        resources=container.get("resources") or {},
        is_main=is_main,
        is_sidecar=not is_main and is_sidecar(container),
        is_emulated_init=not is_main and is_emulated_init(container),
        has_start_checks=bool(container.get("startupProbe"))
        or bool((container.get("lifecycle") or {}).get("postStart")),
        has_readiness_probe=bool(container.get("readinessProbe")),
    )


# ---------------------------------------------------------------- where containers stand


def has_started(container: ContainerSpec, facts: ContainerFacts) -> bool:
    """It runs, and whatever shall be over before it counts as started is over."""
    return facts.run is not None and facts.run.is_running and (facts.started or not container.has_start_checks)


def is_ready(container: ContainerSpec, facts: ContainerFacts) -> bool:
    return has_started(container, facts) and (facts.ready or not container.has_readiness_probe)


def is_initialised(spec: PodSpec, facts: PodFacts) -> bool:
    """Some main container has begun: what init containers do from then on does not matter to the others."""
    return any(facts.for_container(c.name).run is not None for c in spec.main_containers)


def has_alive_container(facts: PodFacts, containers: Iterable[ContainerSpec]) -> bool:
    return any(facts.for_container(c.name).is_alive for c in containers)


def kubelet_failure(spec: PodSpec, facts: PodFacts, now: float) -> tuple[str, str] | None:
    """Reason and message when the pod has failed whatever its programs do: evicted, or active for too long."""
    if facts.evicted:
        return "Evicted", facts.evicted
    if spec.active_deadline is not None and now >= facts.start_time + spec.active_deadline:
        return "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
    return None
