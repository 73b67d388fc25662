"""A pod's status as a real kubelet writes it, from facts: pure. The tables at the top are the rules.

`status(pod, facts, now, base)` is the whole `generate_pod_status` that the kubelet owns; what others own (`qosClass`, the scheduler's
condition) is kept. Container states: waiting → running → terminated → (waiting CrashLoopBackOff →) running …
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from rowlock.kubelet.pod.facts import ContainerFacts, Exit, PodFacts, container_statuses
from rowlock.kubelet.pod.spec import (
    ContainerSpec,
    PodSpec,
    has_alive_container,
    has_started,
    is_initialised,
    is_ready,
    kubelet_failure,
)
from rowlock.kubelet.pod.sync import backoff_delay, backoff_level, should_restart
from rowlock.objects import Object, condition, dig, meta, namespace, timestamp, uid
from rowlock.objects import name as name_of

Conditions = Sequence[tuple[str, str, str, str]]

TERMINAL_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
"""Phase → the reason why such a pod is not ready."""

PHASES: tuple[tuple[str, str], ...] = (
    ("init failed", "Failed"),
    ("initialising", "Pending"),
    ("some never ran", "Pending"),
    ("some run or will run again", "Running"),
    ("all succeeded", "Succeeded"),
    ("all ended", "Failed"),
)
"""The first line that holds is the pod's phase."""


def generate_pod_status(spec: PodSpec, facts: PodFacts, now: float, base: float = 10.0) -> dict[str, Any]:
    """What the kubelet says about the pod."""
    failure = kubelet_failure(spec, facts, now)
    now_phase = "Failed" if failure else dict(PHASES)[phase_case(spec, facts)]
    if spec.phase in TERMINAL_REASONS:
        now_phase = spec.phase  # for ever; how its containers end is still told
        failure = failure or _recorded_failure(spec.object)
    elif now_phase in TERMINAL_REASONS and not failure and has_alive_container(facts, _hangers_on(spec)):
        now_phase = "Running" if is_initialised(spec, facts) else "Pending"  # over when they have been stopped
    mains = [container_status(spec, c, facts, now_base=(now, base)) for c in spec.main_containers]
    inits = [container_status(spec, c, facts, now_base=(now, base), init=True) for c in spec.init_containers]
    ephemerals = [container_status(spec, c, facts, now_base=(now, base)) for c in spec.ephemeral_containers]
    status: dict[str, Any] = {"phase": now_phase, "conditions": _conditions(spec, facts, now_phase, now)}
    if failure:
        status["reason"], status["message"] = failure
    status |= {"hostIP": facts.host_ip, "hostIPs": [{"ip": facts.host_ip}]}
    if facts.ip:
        status |= {"podIP": facts.ip, "podIPs": [{"ip": facts.ip}]}
    status["startTime"] = dig(spec.object, "status.startTime") or timestamp(facts.start_time)
    if inits:
        status["initContainerStatuses"] = inits
    status["containerStatuses"] = mains
    if ephemerals:
        status["ephemeralContainerStatuses"] = ephemerals
    if generation := meta(spec.object).get("generation"):
        status["observedGeneration"] = generation
    return status


def _hangers_on(spec: PodSpec) -> tuple[ContainerSpec, ...]:
    """Those that are stopped when the others are over."""
    return (*spec.sidecars, *spec.ephemeral_containers)


def _recorded_failure(pod: Object) -> tuple[str, str] | None:
    """Reason and message that an ended pod has already."""
    reason = dig(pod, "status.reason")
    return (str(reason), str(dig(pod, "status.message", ""))) if reason else None


def phase_case(spec: PodSpec, facts: PodFacts) -> str:
    """Which line of PHASES describes the pod."""
    for container in _unfinished_inits(spec, facts):
        init_exit = None if container.is_sidecar else _init_exit(container, facts)
        failed = init_exit is not None and not should_restart(spec, container, init_exit, facts)
        return "init failed" if failed else "initialising"
    container_facts = [facts.for_container(c.name) for c in spec.main_containers]
    if any(
        k.run is None or (k.run.started is None and k.run.exit is None and k.run.number == 0) for k in container_facts
    ):
        return "some never ran"
    exits = [k.run.exit for k in container_facts if k.run is not None and k.run.exit is not None]
    will_restart = (
        should_restart(spec, c, k.run.exit, facts)
        for c, k in zip(spec.main_containers, container_facts, strict=True)
        if k.run and k.run.exit
    )
    if len(exits) < len(container_facts) or any(will_restart):
        return "some run or will run again"
    return "all succeeded" if all(end.code == 0 for end in exits) else "all ended"


def _unfinished_inits(spec: PodSpec, facts: PodFacts) -> list[ContainerSpec]:
    """The init containers that the main ones still wait for."""
    if is_initialised(spec, facts):
        return []
    return [c for c in spec.init_containers if not _is_init_done(c, facts)]


def _is_init_done(container: ContainerSpec, facts: PodFacts) -> bool:
    if container.is_sidecar:
        return has_started(container, facts.for_container(container.name))
    init_exit = _init_exit(container, facts)
    return init_exit is not None and init_exit.code == 0


def _init_exit(container: ContainerSpec, facts: PodFacts) -> Exit | None:
    """How an init container ended; the emulated one ends well when the master is ready."""
    if container.is_emulated_init:
        return None if facts.master_ready is None else Exit(0, facts.start_time, facts.master_ready)
    run = facts.for_container(container.name).run
    return None if run is None else run.exit


def container_status(
    spec: PodSpec,
    container: ContainerSpec,
    facts: PodFacts,
    *,
    now_base: tuple[float, float] = (0.0, 10.0),
    init: bool = False,
) -> dict[str, Any]:
    """One entry of containerStatuses, initContainerStatuses or ephemeralContainerStatuses."""
    container_facts = facts.for_container(container.name)
    if init and container.is_emulated_init:
        container_facts = ContainerFacts(image_id="rowlock://waits-for-the-master")
        state, last_state = _emulated_state(facts), dict[str, Any]()
    else:
        state, last_state = _container_states(spec, container, facts, now_base, init=init)
    plain_init = init and not container.is_sidecar
    restart_count = container_facts.run.number if container_facts.run else 0
    terminated_well = state.get("terminated", {}).get("exitCode") == 0
    status: dict[str, Any] = {
        "image": container.image,
        "imageID": (container_facts.image_id or _image_id(spec.object, container))
        if container_facts.run or terminated_well
        else "",
        "lastState": last_state,
        "name": container.name,
        "ready": terminated_well if plain_init else is_ready(container, container_facts),
        "resources": container.resources,
        "restartCount": restart_count,
        "started": "running" in state if plain_init else has_started(container, container_facts),
        "state": state,
    }
    if container.is_ephemeral:  # nobody asks whether it is ready, or has started
        status["ready"] = False
        del status["started"]
    if container_facts.run:
        status["containerID"] = container_facts.run.container or container_id(
            spec.object, container.name, restart_count
        )
    return status


def _image_id(pod: Object, container: ContainerSpec) -> str:
    """What the pod's status says already: after a restart of the server nothing else knows."""
    return next((str(c.get("imageID") or "") for c in container_statuses(pod) if c.get("name") == container.name), "")


def container_id(pod: Object, container: str, restart_count: int) -> str:
    """As a container runtime has it: opaque, and another one for every start."""
    return "process://" + hashlib.sha256(f"{uid(pod)}/{container}/{restart_count}".encode()).hexdigest()


def _emulated_state(facts: PodFacts) -> dict[str, Any]:
    if facts.master_ready is None:
        return {"running": {"startedAt": timestamp(facts.start_time)}}
    times = {"startedAt": timestamp(facts.start_time), "finishedAt": timestamp(facts.master_ready)}
    return {"terminated": {"exitCode": 0, "reason": "Completed", **times}}


def _container_states(
    spec: PodSpec, container: ContainerSpec, facts: PodFacts, now_base: tuple[float, float], *, init: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(state, lastState)."""
    container_facts, name = facts.for_container(container.name), container.name
    run = container_facts.run
    last_state = (
        {}
        if container_facts.last is None or run is None
        else {"terminated": _terminated_state(spec.object, name, container_facts.last, run.number - 1)}
    )
    if run is None or (run.started is None and run.exit is None):
        return {"waiting": _waiting_state(spec, container_facts, facts, init=init)}, last_state
    if run.exit is None:
        return {"running": {"startedAt": timestamp(run.started or 0.0)}}, last_state
    terminated = {"terminated": _terminated_state(spec.object, name, run.exit, run.number)}
    if container_facts.problem is not None:
        return {"waiting": _waiting_state(spec, container_facts, facts, init=init)}, terminated
    wait = backoff_delay(backoff_level(container_facts), now_base[1])
    if should_restart(spec, container, run.exit, facts) and wait > 0 and not _is_terminal(spec, facts, now_base[0]):
        return {
            "waiting": {"reason": "CrashLoopBackOff", "message": _back_off_message(spec.object, name, wait)}
        }, terminated
    return terminated, last_state


def _is_terminal(spec: PodSpec, facts: PodFacts, now: float) -> bool:
    """Nothing of the pod will run again, whatever its policy."""
    return spec.phase in TERMINAL_REASONS or kubelet_failure(spec, facts, now) is not None


def _back_off_message(pod: Object, container: str, wait: float) -> str:
    pod_name = f"{name_of(pod)}_{namespace(pod)}({uid(pod)})"
    return f"back-off {format_duration(wait)} restarting failed container={container} pod={pod_name}"


def format_duration(span: float) -> str:
    """Go's way: 10s, 2m40s, 5m0s, 100ms."""
    if span < 1:
        return f"{round(span * 1000)}ms"
    minutes, rest = divmod(round(span), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _waiting_state(spec: PodSpec, container_facts: ContainerFacts, facts: PodFacts, *, init: bool) -> dict[str, str]:
    message = {}
    if container_facts.problem is not None:
        message = {"message": container_facts.problem.message}
        if container_facts.problem.reason != "FailedMount":
            return {"reason": container_facts.problem.reason, **message}
    initialising = init or phase_case(spec, facts) in ("initialising", "init failed")
    return {"reason": "PodInitializing" if initialising or spec.init_containers else "ContainerCreating", **message}


def _terminated_state(pod: Object, container: str, run_exit: Exit, restart_count: int) -> dict[str, Any]:
    identifier = run_exit.container or container_id(pod, container, restart_count)
    state: dict[str, Any] = {"containerID": identifier, "exitCode": run_exit.code}
    state |= {
        "finishedAt": timestamp(run_exit.finished),
        "reason": run_exit.status_reason,
        "startedAt": timestamp(run_exit.started),
    }
    if run_exit.message:
        state["message"] = run_exit.message
    return state


def _conditions(spec: PodSpec, facts: PodFacts, now_phase: str, now: float) -> list[dict[str, Any]]:
    """Those of others stay, before ours: why the scheduler takes the pod back, readiness gates."""
    rows = [*_own_conditions(spec, facts, now_phase), ("PodScheduled", "True", "", "")]
    own_types = {kind for kind, *_ in rows}
    others = [c for c in dig(spec.object, "status.conditions", ()) if c.get("type") not in own_types]
    return [*others, *(_condition(spec.object, row, now) for row in rows)]


def _own_conditions(spec: PodSpec, facts: PodFacts, now_phase: str) -> Conditions:
    unready = [c.name for c in (*spec.sidecars, *spec.main_containers) if not is_ready(c, facts.for_container(c.name))]
    unfinished_inits = [c.name for c in _unfinished_inits(spec, facts)]
    initialized = ("Initialized", "True", "PodCompleted" if now_phase == "Succeeded" else "", "")
    if unfinished_inits:
        text = f"containers with incomplete status: [{' '.join(unfinished_inits)}]"
        initialized = ("Initialized", "False", "ContainersNotInitialized", text)
    ready, reason, text = "True", "", ""
    if now_phase in TERMINAL_REASONS:
        ready, reason = "False", TERMINAL_REASONS[now_phase]
    elif unready:
        ready, reason, text = "False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    sandbox = "False" if now_phase in TERMINAL_REASONS or not facts.ip else "True"
    return (
        ("PodReadyToStartContainers", sandbox, "", ""),
        initialized,
        ("Ready", ready, reason, text),
        ("ContainersReady", ready, reason, text),
    )


def _condition(pod: Object, row: tuple[str, str, str, str], now: float) -> dict[str, Any]:
    """The new condition; its time moves only when its status does."""
    kind, value, reason, message = row
    old = condition(pod, kind) or {}
    since = old.get("lastTransitionTime") if old.get("status") == value else None
    new_condition: dict[str, Any] = {"type": kind, "status": value, "lastProbeTime": None}
    new_condition["lastTransitionTime"] = since or timestamp(now)
    new_condition |= {k: v for k, v in (("reason", reason), ("message", message)) if v}
    if generation := meta(pod).get("generation"):
        new_condition["observedGeneration"] = generation
    return new_condition
