"""Pretend nodes: they accept pods and report them as running, but run nothing. For trying the scheduler at any size.

`rowlock up --pretend-nodes 500 --simulated-gpus 8 --without kubelet` is what kwok is to Kubernetes. Every such node is
marked in its annotations, and its pods in their status message. One status write makes a pod Running; a deleted pod is
removed at once. A pod with the annotation `rowlock.dev/pretend-seconds` succeeds after that long.
"""

from collections.abc import Iterable
from decimal import Decimal

from rowlock.api import NOTHING, Change, Decision, Delete, DeleteOptions, Patch, View
from rowlock.kinds import NODE, POD, Kind
from rowlock.kubelet.node import machine
from rowlock.kubelet.node.machine import FAKE_NODE_ANNOTATION, Gpu, NodePlan
from rowlock.objects import Key, Object, annotations, dig, is_deleting, key, name, phase, seconds, timestamp, uid

DURATION_ANNOTATION = "rowlock.dev/pretend-seconds"
STATUS_MESSAGE = "this pod runs no program: its node is a fake node (rowlock up --pretend-nodes)"


def make_fake_nodes(count: int, gpus: int, now: float, *, cpus: float = 64.0, memory: int = 512 << 30) -> list[Object]:
    """Node objects `pretend-0000` …, each with this many CPUs, bytes of memory and GPUs."""
    fake_nodes = []
    for number in range(count):
        node_name = f"pretend-{number:04d}"
        gpu_devices = tuple(
            Gpu(f"GPU-{node_name}-{i}", machine.SIMULATED_PRODUCT, machine.SIMULATED_MEMORY) for i in range(gpus)
        )
        plan = NodePlan(name=node_name, cpus=Decimal(str(cpus)), memory=memory, gpus=gpu_devices, simulated=True)
        node = machine.node_object(plan, ("none", "a fake node runs no programs"), now)
        node["metadata"]["annotations"][FAKE_NODE_ANNOTATION] = "true"
        fake_nodes.append(node)
    return fake_nodes


def superfluous_nodes(view: View, current_nodes: Iterable[Object]) -> list[str]:
    """Names of pretend nodes of an earlier start that are not among `current_nodes`."""
    current_names = {name(node) for node in current_nodes}
    return [
        name(n)
        for n in view.all(NODE)
        if annotations(n).get(FAKE_NODE_ANNOTATION) == "true" and name(n) not in current_names
    ]


class FakeKubelet:
    """A controller that acts as the kubelet of all pretend nodes; one key per pod."""

    name = "pretend-kubelet"
    kinds: tuple[Kind, ...] = (POD,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return (key(change.object),) if _is_on_fake_node(view, change.object) else ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        pod = view.get(POD, key.namespace, key.name)
        if pod is None or not _is_on_fake_node(view, pod):
            return NOTHING
        if is_deleting(pod):
            return Decision((Delete(POD, key.namespace, key.name, DeleteOptions(grace=0, uid=uid(pod))),))
        if phase(pod) in ("", "Pending"):
            duration = _duration(pod)
            return Decision((_status_patch(pod, "Running", now),), duration)
        remaining = _remaining_seconds(pod, now)
        if remaining is None or phase(pod) != "Running":
            return NOTHING
        return (
            Decision((_status_patch(pod, "Succeeded", now),)) if remaining <= 0 else Decision(requeue_after=remaining)
        )


def _is_on_fake_node(view: View, pod: Object) -> bool:
    node_name = dig(pod, "spec.nodeName")
    node = view.get(NODE, "", str(node_name)) if node_name else None
    return node is not None and annotations(node).get(FAKE_NODE_ANNOTATION) == "true"


def _duration(pod: Object) -> float | None:
    text = annotations(pod).get(DURATION_ANNOTATION, "")
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def _remaining_seconds(pod: Object, now: float) -> float | None:
    """Seconds until the pod is to succeed; None = it runs until it is deleted."""
    lasts = _duration(pod)
    return None if lasts is None else seconds(dig(pod, "status.startTime", "")) + lasts - now


def _status_patch(pod: Object, new_phase: str, now: float) -> Patch:
    now_text = timestamp(now)
    is_running = new_phase == "Running"
    state: Object = {"running": {"startedAt": now_text}}
    if not is_running:
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now_text, "finishedAt": now_text}}
    own_types = ("Initialized", "Ready", "ContainersReady")
    other_conditions = [c for c in dig(pod, "status.conditions", ()) if c["type"] not in own_types]
    own_conditions = [
        {
            "type": kind,
            "status": "True" if is_running or kind == "Initialized" else "False",
            "lastTransitionTime": now_text,
        }
        for kind in own_types
    ]
    containers = [
        {"name": c["name"], "image": c.get("image", ""), "imageID": "", "ready": is_running, "restartCount": 0,
         "state": state}
        for c in pod["spec"]["containers"]
    ]  # fmt: skip
    status = {
        "phase": new_phase,
        "message": STATUS_MESSAGE,
        "conditions": other_conditions + own_conditions,
        "containerStatuses": containers,
    }
    if is_running:
        status["startTime"] = now_text
    return Patch(POD, *key(pod), {"status": status}, "merge", "status")
