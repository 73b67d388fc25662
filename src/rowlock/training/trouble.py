"""Events that mirror a pod's trouble onto its job: crashed or waiting containers, a pod that cannot be scheduled."""

from __future__ import annotations

from rowlock.objects import Object, deleting, name, phase, seconds
from rowlock.training.turn import Turn


def is_active(pod: Object) -> bool:
    """Neither finished nor on its way out."""
    return phase(pod) not in ("Succeeded", "Failed") and not deleting(pod)


def mirror(turn: Turn) -> None:
    """Say what is wrong with each active pod."""
    for pod in turn.seen.pods:
        if is_active(pod):
            _of_pod(turn, pod)


def _of_pod(turn: Turn, pod: Object) -> None:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or status.get("initContainerStatuses") or ()
    for container in containers:
        _of_container(turn, name(pod), container)
    conditions = status.get("conditions") or ()
    if containers or not conditions:
        return
    latest = max(conditions, key=lambda c: seconds(c.get("lastTransitionTime")))
    if latest.get("status") != "True":
        message = f"Error pod {name(pod)} condition message: {latest.get('message') or ''}"
        turn.say("Warning", str(latest.get("reason") or ""), message)


def _of_container(turn: Turn, pod: str, container: Object) -> None:
    state, who = container.get("state") or {}, f"Error pod {pod} container {container.get('name')}"
    ended, waiting = state.get("terminated"), state.get("waiting")
    if ended and ended.get("exitCode"):
        text = f"{who} exitCode: {ended['exitCode']} terminated message: {ended.get('message') or ''}"
        turn.say("Warning", str(ended.get("reason") or ""), text)
    if waiting and waiting.get("message"):
        turn.say("Warning", str(waiting.get("reason") or ""), f"{who} waiting message: {waiting['message']}")
