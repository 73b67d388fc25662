"""Job events about problems of its pods: crashed or waiting containers, unschedulable pods."""

from __future__ import annotations

from rowlock.objects import FINAL_PHASES, Object, is_deleting, name, phase, seconds
from rowlock.training.reconcile_context import ReconcileContext


def is_active(pod: Object) -> bool:
    """Whether the pod has neither ended nor is being deleted."""
    return phase(pod) not in FINAL_PHASES and not is_deleting(pod)


def record_pod_events(context: ReconcileContext) -> None:
    """Write events about the problems of each active pod."""
    for pod in context.observed.pods:
        if is_active(pod):
            _record_pod_problems(context, pod)


def _record_pod_problems(context: ReconcileContext, pod: Object) -> None:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or status.get("initContainerStatuses") or ()
    for container in containers:
        _record_container_problems(context, name(pod), container)
    conditions = status.get("conditions") or ()
    if containers or not conditions:
        return
    latest = max(conditions, key=lambda c: seconds(c.get("lastTransitionTime")))
    if latest.get("status") != "True":
        message = f"Error pod {name(pod)} condition message: {latest.get('message') or ''}"
        context.record_event("Warning", str(latest.get("reason") or ""), message)


def _record_container_problems(context: ReconcileContext, pod: str, container: Object) -> None:
    state, prefix = container.get("state") or {}, f"Error pod {pod} container {container.get('name')}"
    terminated, waiting = state.get("terminated"), state.get("waiting")
    if terminated and terminated.get("exitCode"):
        text = f"{prefix} exitCode: {terminated['exitCode']} terminated message: {terminated.get('message') or ''}"
        context.record_event("Warning", str(terminated.get("reason") or ""), text)
    if waiting and waiting.get("message"):
        context.record_event(
            "Warning", str(waiting.get("reason") or ""), f"{prefix} waiting message: {waiting['message']}"
        )
