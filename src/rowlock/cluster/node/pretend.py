"""Pretend nodes: they take pods and say that they run, and nothing runs. For trying the scheduler at any size.

`rowlock up --pretend-nodes 500 --simulated-gpus 8 --without kubelet` is what kwok is to Kubernetes. Every such node
says so in its annotations and its pods in their status message; one status write makes a pod Running, a
deleted pod goes at once. A pod with the annotation `rowlock.dev/pretend-seconds` succeeds after that long.
"""

from collections.abc import Iterable
from decimal import Decimal

from rowlock.api import NOTHING, Change, Decision, Delete, DeleteOptions, Patch, View
from rowlock.cluster.node import machine
from rowlock.cluster.node.machine import PRETEND, Gpu, NodePlan
from rowlock.kinds import NODE, POD, Kind
from rowlock.objects import Key, Object, annotations, deleting, dig, key, name, phase, seconds, timestamp, uid

DURATION = "rowlock.dev/pretend-seconds"
MESSAGE = "this pod is pretended: its node runs nothing (rowlock up --pretend-nodes)"


def nodes(count: int, gpus: int, now: float, *, cpus: float = 64.0, memory: int = 512 << 30) -> list[Object]:
    """Node objects `pretend-0000` …, each with this many CPUs, bytes of memory and GPUs."""
    made = []
    for number in range(count):
        called = f"pretend-{number:04d}"
        cards = tuple(Gpu(f"GPU-{called}-{i}", machine.PRETEND_PRODUCT, machine.PRETEND_MEMORY) for i in range(gpus))
        plan = NodePlan(name=called, cpus=Decimal(str(cpus)), memory=memory, gpus=cards, simulated=True)
        node = machine.node_object(plan, ("none", "a pretend node runs nothing"), now)
        node["metadata"]["annotations"][PRETEND] = "true"
        made.append(node)
    return made


def superfluous(view: View, wanted: Iterable[Object]) -> list[str]:
    """Names of pretend nodes of an earlier start that are not wanted now."""
    keep = {name(node) for node in wanted}
    return [name(n) for n in view.all(NODE) if annotations(n).get(PRETEND) == "true" and name(n) not in keep]


class Pretending:
    """A controller that plays the kubelets of all pretend nodes; one key per pod."""

    name = "pretend-kubelet"
    kinds: tuple[Kind, ...] = (POD,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return (key(change.object),) if dig(change.object, "spec.nodeName") else ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        pod = view.get(POD, key.namespace, key.name)
        node = view.get(NODE, "", str(dig(pod or {}, "spec.nodeName", "")))
        if pod is None or node is None or annotations(node).get(PRETEND) != "true":
            return NOTHING
        if deleting(pod):
            return Decision((Delete(POD, key.namespace, key.name, DeleteOptions(grace=0, uid=uid(pod))),))
        if phase(pod) in ("", "Pending"):
            again = _duration(pod)
            return Decision((_status(pod, "Running", now),), again)
        left = _left(pod, now)
        if left is None or phase(pod) != "Running":
            return NOTHING
        return Decision((_status(pod, "Succeeded", now),)) if left <= 0 else Decision(again=left)


def _duration(pod: Object) -> float | None:
    text = annotations(pod).get(DURATION, "")
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def _left(pod: Object, now: float) -> float | None:
    """Seconds until the pod is to succeed; None when it runs until it is deleted."""
    lasts = _duration(pod)
    return None if lasts is None else seconds(dig(pod, "status.startTime", "")) + lasts - now


def _status(pod: Object, wanted: str, now: float) -> Patch:
    at = timestamp(now)
    running = wanted == "Running"
    state: Object = {"running": {"startedAt": at}}
    if not running:
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}}
    ours = ("Initialized", "Ready", "ContainersReady")
    known = [c for c in dig(pod, "status.conditions", ()) if c["type"] not in ours]
    ready = [
        {"type": kind, "status": "True" if running or kind == "Initialized" else "False", "lastTransitionTime": at}
        for kind in ours
    ]
    containers = [
        {"name": c["name"], "image": c.get("image", ""), "imageID": "", "ready": running, "restartCount": 0,
         "state": state}
        for c in pod["spec"]["containers"]
    ]  # fmt: skip
    status = {"phase": wanted, "message": MESSAGE, "conditions": known + ready, "containerStatuses": containers}
    if running:
        status["startTime"] = at
    return Patch(POD, *key(pod), {"status": status}, "merge", "status")
