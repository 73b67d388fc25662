"""A pod's status as a real kubelet writes it, computed from `PodProgress`. Pure. The tables at the top are the rules.

`generate_pod_status` returns what the kubelet owns of it; what others own (`qosClass`, the scheduler's condition) is kept.
Container states: waiting → running → terminated → (waiting CrashLoopBackOff →) running …
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from rowlock.kubelet.pod.facts import Exit, PodFacts
from rowlock.kubelet.pod.progress import ContainerProgress, PodProgress
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import timestamp

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
"""The first case that applies gives the pod's phase."""


def generate_pod_status(pod: PodProgress) -> dict[str, Any]:
    """The part of the pod's status that the kubelet owns."""
    spec, facts, failure = pod.spec, pod.facts, pod.failure
    now_phase = "Failed" if failure else dict(PHASES)[phase_case(pod)]
    if spec.phase in TERMINAL_REASONS:
        now_phase = spec.phase  # final; how its containers end is still reported
        failure = failure or spec.reported.failure
    elif now_phase in TERMINAL_REASONS and not failure and any(c.is_alive for c in (*pod.sidecars, *pod.ephemerals)):
        now_phase = "Running" if pod.is_initialised else "Pending"  # over when they have been stopped
    status: dict[str, Any] = {"phase": now_phase}
    if failure:
        status["reason"], status["message"] = failure
    status |= {"hostIP": facts.host_ip, "hostIPs": [{"ip": facts.host_ip}]}
    if facts.ip:
        status |= {"podIP": facts.ip, "podIPs": [{"ip": facts.ip}]}
    status["startTime"] = spec.reported.start_time or timestamp(facts.start_time)
    if pod.inits:
        status["initContainerStatuses"] = [_container_status(pod, c, init=True) for c in pod.inits]
    status["containerStatuses"] = [_container_status(pod, c) for c in pod.mains]
    if pod.ephemerals:
        status["ephemeralContainerStatuses"] = [_container_status(pod, c) for c in pod.ephemerals]
    if spec.generation:
        status["observedGeneration"] = spec.generation
    return status | {"conditions": _conditions(pod, now_phase)}


def phase_case(pod: PodProgress) -> str:
    """Which case of PHASES applies to the pod."""
    for container in pod.unfinished_inits:
        return "init failed" if not container.spec.is_sidecar and container.is_over else "initialising"
    runs = [c.run for c in pod.mains]
    if any(run is None or (run.started is None and run.exit is None and run.number == 0) for run in runs):
        return "some never ran"
    if not pod.are_mains_over:
        return "some run or will run again"
    return "all succeeded" if all(c.is_done for c in pod.mains) else "all ended"


def _container_status(pod: PodProgress, container: ContainerProgress, *, init: bool = False) -> dict[str, Any]:
    """One entry of containerStatuses, initContainerStatuses or ephemeralContainerStatuses."""
    spec, run = container.spec, container.run
    if init and spec.is_emulated_init:
        state, last_state = _emulated_state(pod.facts), dict[str, Any]()
    else:
        state, last_state = _container_states(pod, container, init=init)
    plain_init = init and not spec.is_sidecar
    terminated_well = state.get("terminated", {}).get("exitCode") == 0
    reported = pod.spec.reported.containers.get(spec.name)
    status: dict[str, Any] = {
        "image": spec.image,
        "imageID": (container.facts.image_id or (reported.image_id if reported else ""))
        if run or terminated_well
        else "",
        "lastState": last_state,
        "name": spec.name,
        "ready": terminated_well if plain_init else container.is_ready,
        "resources": spec.resources,
        "restartCount": run.number if run else 0,
        "started": "running" in state if plain_init else container.has_started,
        "state": state,
    }
    if spec.is_ephemeral:  # readiness and start do not apply to it
        status["ready"] = False
        del status["started"]
    if run:
        status["containerID"] = run.container or _container_id(pod.spec, spec.name, run.number)
    return status


def _container_id(pod: PodSpec, container: str, restart_count: int) -> str:
    """An opaque id like a container runtime's, another one for every start."""
    return "process://" + hashlib.sha256(f"{pod.uid}/{container}/{restart_count}".encode()).hexdigest()


def _emulated_state(facts: PodFacts) -> dict[str, Any]:
    if facts.master_ready is None:
        return {"running": {"startedAt": timestamp(facts.start_time)}}
    times = {"startedAt": timestamp(facts.start_time), "finishedAt": timestamp(facts.master_ready)}
    return {"terminated": {"exitCode": 0, "reason": "Completed", **times}}


def _container_states(
    pod: PodProgress, container: ContainerProgress, *, init: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(state, lastState)."""
    run, last, name = container.run, container.facts.last, container.name
    last_state: dict[str, Any] = {}
    if last is not None and run is not None:
        last_state = {"terminated": _terminated_state(pod.spec, name, last, run.number - 1)}
    if run is None or (run.started is None and run.exit is None):
        return {"waiting": _waiting_state(pod, container, init=init)}, last_state
    if run.exit is None:
        return {"running": {"startedAt": timestamp(run.started or 0.0)}}, last_state
    terminated = {"terminated": _terminated_state(pod.spec, name, run.exit, run.number)}
    if container.facts.problem is not None:
        return {"waiting": _waiting_state(pod, container, init=init)}, terminated
    is_terminal = pod.failure is not None or pod.spec.phase in TERMINAL_REASONS  # nothing of it will run again
    if container.will_restart and container.restart_delay > 0 and not is_terminal:
        text = f"back-off {format_duration(container.restart_delay)} restarting failed"
        message = f"{text} container={name} pod={pod.spec.location}"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}, terminated
    return terminated, last_state


def format_duration(span: float) -> str:
    """A duration as Go writes it: 10s, 2m40s, 5m0s, 100ms."""
    if span < 1:
        return f"{round(span * 1000)}ms"
    minutes, rest = divmod(round(span), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _waiting_state(pod: PodProgress, container: ContainerProgress, *, init: bool) -> dict[str, str]:
    problem, message = container.facts.problem, dict[str, str]()
    if problem is not None:
        message = {"message": problem.message}
        if problem.reason != "FailedMount":
            return {"reason": problem.reason, **message}
    initialising = init or bool(pod.inits)
    return {"reason": "PodInitializing" if initialising else "ContainerCreating", **message}


def _terminated_state(pod: PodSpec, container: str, run_exit: Exit, restart_count: int) -> dict[str, Any]:
    identifier = run_exit.container or _container_id(pod, container, restart_count)
    state: dict[str, Any] = {"containerID": identifier, "exitCode": run_exit.code}
    state |= {
        "finishedAt": timestamp(run_exit.finished),
        "reason": run_exit.status_reason,
        "startedAt": timestamp(run_exit.started),
    }
    if run_exit.message:
        state["message"] = run_exit.message
    return state


def _conditions(pod: PodProgress, now_phase: str) -> list[dict[str, Any]]:
    """The pod's conditions. Those of other owners (disruption by the scheduler, readiness gates) stay, before the kubelet's, whose
    transition times change only with their status."""
    rows = [*_own_conditions(pod, now_phase), ("PodScheduled", "True", "", "")]
    reported = {c.get("type"): c for c in reversed(pod.spec.reported.conditions)}
    own_types = {kind for kind, *_ in rows}
    conditions = [dict(c) for c in pod.spec.reported.conditions if c.get("type") not in own_types]
    for kind, value, reason, message in rows:
        old = reported.get(kind) or {}
        since = old.get("lastTransitionTime") if old.get("status") == value else None
        condition: dict[str, Any] = {"type": kind, "status": value, "lastProbeTime": None}
        condition["lastTransitionTime"] = since or timestamp(pod.now)
        condition |= {k: v for k, v in (("reason", reason), ("message", message)) if v}
        if pod.spec.generation:
            condition["observedGeneration"] = pod.spec.generation
        conditions.append(condition)
    return conditions


def _own_conditions(pod: PodProgress, now_phase: str) -> Conditions:
    unready = [c.name for c in (*pod.sidecars, *pod.mains) if not c.is_ready]
    unfinished_inits = [c.name for c in pod.unfinished_inits]
    initialized = ("Initialized", "True", "PodCompleted" if now_phase == "Succeeded" else "", "")
    if unfinished_inits:
        text = f"containers with incomplete status: [{' '.join(unfinished_inits)}]"
        initialized = ("Initialized", "False", "ContainersNotInitialized", text)
    ready, reason, text = "True", "", ""
    if now_phase in TERMINAL_REASONS:
        ready, reason = "False", TERMINAL_REASONS[now_phase]
    elif unready:
        ready, reason, text = "False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    sandbox = "False" if now_phase in TERMINAL_REASONS or not pod.facts.ip else "True"
    return (
        ("PodReadyToStartContainers", sandbox, "", ""),
        initialized,
        ("Ready", ready, reason, text),
        ("ContainersReady", ready, reason, text),
    )
