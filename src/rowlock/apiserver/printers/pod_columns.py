"""The computed columns of pods, such as STATUS: one word for the state of its containers, as in kubectl. Pure."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.quantity import human_duration


def pod_cells(pod: Object, now: float) -> dict[str, Any]:
    """The computed cells of a pod's row, by column name."""
    ready, restarts, last = _container_counts(pod)
    spec = pod.get("spec") or {}
    gates = spec.get("readinessGates") or ()
    ready_gates = sum(objects.is_condition_true(pod, g.get("conditionType", "")) for g in gates)
    return {
        "Ready": f"{ready}/{len(spec.get('containers') or ()) + len(_sidecars(spec))}",
        "Status": _status_reason(pod),
        "Restarts": f"{restarts} ({human_duration(now - last)} ago)" if restarts and last else str(restarts),
        "Readiness Gates": f"{ready_gates}/{len(gates)}" if gates else "<none>",
    }


def _sidecars(spec: dict[str, Any]) -> set[str]:
    return {c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}


def _container_counts(pod: Object) -> tuple[int, int, float]:
    """The number of ready containers, the number of restarts, and when the last restarted run ended (0 = unknown)."""
    status = pod.get("status") or {}
    sidecars = _sidecars(pod.get("spec") or {})
    init_statuses = status.get("initContainerStatuses") or []
    app_statuses = status.get("containerStatuses") or []
    starting = _init_reason(pod) is not None
    counted = init_statuses if starting else [*app_statuses, *(c for c in init_statuses if c.get("name") in sidecars)]
    ready = sum(bool(c.get("ready")) and "running" in (c.get("state") or {}) for c in app_statuses)
    ready += sum(bool(c.get("started")) and bool(c.get("ready")) for c in init_statuses if c.get("name") in sidecars)
    restarts = sum(int(c.get("restartCount") or 0) for c in counted)
    ends = (objects.dig(c, "lastState.terminated.finishedAt") for c in counted)
    return ready, restarts, max((objects.seconds(t) for t in ends if t), default=0.0)


def _status_reason(pod: Object) -> str:
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    scheduled = objects.condition(pod, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    initial = _init_reason(pod)
    if initial is not None:
        reason = initial
    else:
        reason = _main_reason(pod, reason)
    if objects.is_deleting(pod):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in objects.FINAL_PHASES:
            return "Terminating"
    return str(reason)


def _init_reason(pod: Object) -> str | None:
    """`Init:0/1`, `Init:Error`, …: the state of the first unfinished init container; None when all have finished."""
    if objects.is_condition_true(pod, "Initialized"):
        return None
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    sidecars = _sidecars(spec)
    total = len(spec.get("initContainers") or ())
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_terminated_reason(terminated)}"
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return None


def _terminated_reason(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _main_reason(pod: Object, reason: str) -> str:
    running = False
    for container in reversed((pod.get("status") or {}).get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = _terminated_reason(terminated)
        elif container.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        return "Running" if objects.is_condition_true(pod, "Ready") else "NotReady"
    return reason
