"""A kubelet whose processes are entries in a dict. The dict is its disk: it survives every crash.

A rank waits in a barrier until all ranks of its job have started (that is where half a gang would deadlock), then
works for some seconds, then exits with a code drawn from its pod's uid.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Change, Decision, Delete, DeleteOptions, Patch, View
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

BARRIER = 1.0  # seconds between two looks of a rank at the barrier


@dataclass(slots=True)
class Process:
    """What the disk says about one container."""

    gang: str
    rank: str
    world: int
    began: float
    ends: float | None = None
    code: int = 0
    restarts: int = 0


@dataclass
class Disk:
    """Processes by pod uid; and what a saboteur does to them."""

    seed: int
    processes: dict[str, Process] = field(default_factory=dict)
    troubled: bool = True
    """While it is, some ranks fail."""
    pace: float = 1.0
    """How long everything takes."""

    def start(self, pod: Object, now: float) -> Process:
        owner = objects.controller_of(pod) or {}
        found = Process(str(owner.get("uid") or objects.uid(pod)), objects.name(pod), _world(pod), now)
        self.processes[objects.uid(pod)] = found
        return found

    def look(self, pod: Object, process: Process, now: float) -> None:
        """Pass the barrier when everybody is there."""
        ranks = {p.rank for p in self.processes.values() if p.gang == process.gang}
        if process.ends is None and len(ranks) >= process.world:
            dice = random.Random(f"{self.seed}/{objects.uid(pod)}/{process.restarts}")
            process.ends = now + dice.choice((0.5, 2.0, 7.0)) * self.pace
            process.code = dice.choice((0, 0, 0, 1, 137)) if self.troubled else 0

    def kill(self, pod: Object, now: float, code: int) -> None:
        process = self.processes.get(objects.uid(pod))
        if process:
            process.ends, process.code = now, code


def _world(pod: Object) -> int:
    for container in pod["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable["name"] == "WORLD_SIZE":
                return int(variable["value"])
    return 1


class Kubelet:
    """All nodes' kubelet."""

    name = "kubelet"
    kinds: tuple[Kind, ...] = (kinds.POD, kinds.NODE)

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is kinds.NODE:
            name = objects.name(change.object)
            return [objects.key(pod) for pod in view.all(kinds.POD) if objects.dig(pod, "spec.nodeName") == name]
        return [objects.key(change.object)] if objects.dig(change.object, "spec.nodeName") else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        pod = view.get(kinds.POD, *key)
        node = objects.dig(pod, "spec.nodeName") if pod else None
        if pod is None or not node or view.get(kinds.NODE, "", node) is None:
            return Decision()
        if objects.is_deleting(pod):
            return Decision((Delete(kinds.POD, *key, DeleteOptions(grace=0, uid=objects.uid(pod))),))
        if objects.phase(pod) in ("Succeeded", "Failed"):
            return Decision()
        process = self._disk.processes.get(objects.uid(pod)) or self._disk.start(pod, now)
        self._disk.look(pod, process, now)
        if process.ends is not None and process.ends <= now and process.code and _restarts(pod):
            process.ends, process.restarts = None, process.restarts + 1
            self._disk.look(pod, process, now)
        return _reported(pod, process, now)


def _restarts(pod: Object) -> bool:
    return pod["spec"].get("restartPolicy", "Always") in ("Always", "OnFailure")


def _reported(pod: Object, process: Process, now: float) -> Decision:
    ended = process.ends is not None and process.ends <= now
    status = {**(pod.get("status") or {}), **(_terminated(process) if ended else _running(process))}
    status["startTime"] = objects.timestamp(process.began)
    for container in status["containerStatuses"]:
        container |= {"name": pod["spec"]["containers"][0]["name"], "restartCount": process.restarts}
    ready = {"type": "Ready", "status": "False" if ended else "True"}
    others = [c for c in status.get("conditions") or () if c["type"] != "Ready"]
    status["conditions"] = [*others, ready]
    again = None if ended else BARRIER if process.ends is None else process.ends - now
    if status == pod.get("status"):
        return Decision(requeue_after=again)
    meta = {"uid": objects.uid(pod), "resourceVersion": str(objects.revision(pod))}  # others write conditions, too
    patch = {"metadata": meta, "status": status}
    return Decision((Patch(kinds.POD, *objects.key(pod), patch, subresource="status"),), again)


def _running(process: Process) -> dict[str, Any]:
    state = {"running": {"startedAt": objects.timestamp(process.began)}}
    return {"phase": "Running", "containerStatuses": [{"ready": True, "state": state}]}


def _terminated(process: Process) -> dict[str, Any]:
    state = {"terminated": {"exitCode": process.code, "reason": "Error" if process.code else "Completed"}}
    phase = "Failed" if process.code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"ready": False, "state": state}]}
