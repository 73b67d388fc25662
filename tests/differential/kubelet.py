"""Plays one step on one side: the user's requests, and a pretend kubelet that moves pods by writing their status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.differential.histories import History, Step
from tests.differential.jobs import SHAPE
from tests.differential.side import NODE, Side, Space

from rowlock import kinds
from rowlock.api import DeleteOptions, WriteOptions
from rowlock.errors import ApiError
from rowlock.kinds import POD, Kind
from rowlock.objects import Object, is_deleting, name, phase, timestamp

NOW = DeleteOptions(grace=0)
MESSAGES = {
    "ImagePullBackOff": 'Back-off pulling image "img"',
    "CrashLoopBackOff": "back-off 10s restarting failed container",
    "Error": "it failed",
}
State = dict[str, Any]


@dataclass
class Stage:
    """A history on one side."""

    side: Side
    history: History
    namespace: str
    answers: list[Any] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        return next(kind for kind in kinds.JOBS if kind.name == self.history.kind)

    @property
    def job(self) -> str:
        return str(self.history.job["metadata"]["name"])

    @property
    def main(self) -> str:
        return SHAPE[self.history.kind][1]

    @property
    def space(self) -> Space:
        return self.side.space(self.namespace)

    async def play(self, step: Step) -> None:
        """Perform it. What the API answers is part of the picture."""
        verb, *args = step
        warnings: list[str] = []
        said: dict[str, Any] = {"step": verb}
        try:
            await VERBS[verb](self, warnings, *args)
        except ApiError as error:
            said["refused"] = [error.code, error.reason, error.message]
        if warnings:
            said["warnings"] = sorted(warnings)
        if len(said) > 1:
            self.answers.append(said)

    def pod(self, slot: str) -> Object | None:
        """The pod of a slot, unless it has ended: what has ended stays as it is."""
        found = self.space.get(POD, f"{self.job}-{slot}")
        return None if found is None or phase(found) in ("Succeeded", "Failed") else found

    async def write(self, pod: Object, status: State) -> None:
        """Bind the pod if it is not, then write its status."""
        if not pod["spec"].get("nodeName"):
            await self.side.kube.bind(self.namespace, name(pod), NODE)
        await self.side.kube.patch(POD, self.namespace, name(pod), {"status": status}, subresource="status")


def _status(pod: Object, state: Callable[[str], State], *, restarts: int = 0, init: State | None = None) -> State:
    now = timestamp(time.time())
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}

    def one(container: Object, what: State) -> State:
        running = "running" in what
        facts = {"name": container["name"], "image": container["image"], "imageID": "id", "ready": running}
        return {**facts, "started": running, "restartCount": restarts, "state": what}

    spec = pod["spec"]
    made: State = {"startTime": now, "containerStatuses": [one(c, state(c["name"])) for c in spec["containers"]]}
    if spec.get("initContainers"):
        made["initContainerStatuses"] = [{**one(c, init or done), "restartCount": 0} for c in spec["initContainers"]]
    return made


def _terminated(code: int) -> State:
    now = timestamp(time.time())
    reason = "Completed" if code == 0 else "OOMKilled" if code == 137 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}


def _is_over(pod: Object) -> bool:
    """A container that has terminated stays terminated."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any((one.get("state") or {}).get("terminated") for one in statuses)


async def _create(stage: Stage, warnings: list[str]) -> None:
    obj = {**stage.history.job, "metadata": {**stage.history.job["metadata"], "namespace": stage.namespace}}
    await stage.side.kube.create(stage.kind, obj, options=WriteOptions(validation="Warn", warnings=warnings))


async def _running(stage: Stage, warnings: list[str], slots: list[str]) -> None:
    for slot in slots:
        await _restarts(stage, warnings, slot, 0)


async def _restarts(stage: Stage, warnings: list[str], slot: str, count: int) -> None:
    pod = stage.pod(slot)
    if pod and not _is_over(pod):
        running = {"running": {"startedAt": timestamp(time.time())}}
        await stage.write(pod, {"phase": "Running", **_status(pod, lambda _: running, restarts=count)})


async def _exit(stage: Stage, warnings: list[str], slot: str, code: int) -> None:
    if pod := stage.pod(slot):
        status = _status(pod, lambda container: _terminated(code if container == stage.main else 0))
        worst = max(one["state"]["terminated"]["exitCode"] for one in status["containerStatuses"])
        await stage.write(pod, {"phase": "Failed" if worst else "Succeeded", **status})


async def _exit_others(stage: Stage, warnings: list[str], slot: str, code: int) -> None:
    """Containers beside the main one end; the main one runs on if they succeed."""
    pod = stage.pod(slot)
    if not pod or _is_over(pod) or len(pod["spec"]["containers"]) < 2:
        return
    running = {"running": {"startedAt": timestamp(time.time())}}
    main = _terminated(0) if code else running
    status = _status(pod, lambda container: main if container == stage.main else _terminated(code))
    await stage.write(pod, {"phase": "Failed" if code else "Running", **status})


async def _evict(stage: Stage, warnings: list[str], slot: str) -> None:
    if pod := stage.pod(slot):
        message = "The node was low on resource: memory."
        gone = {"containerStatuses": None, "initContainerStatuses": None}
        await stage.write(pod, {"phase": "Failed", "reason": "Evicted", "message": message, **gone})


async def _waiting(stage: Stage, warnings: list[str], slot: str, why: str) -> None:
    pod = stage.pod(slot)
    if not pod or _is_over(pod):
        return
    reason, in_init = why.removeprefix("Init:"), why.startswith("Init:")
    waits: State = {"waiting": {"reason": reason, "message": MESSAGES[reason]}}
    if in_init and phase(pod) != "Running" and pod["spec"].get("initContainers"):
        status = _status(pod, lambda _: {"waiting": {"reason": "PodInitializing"}}, init=waits)
        await stage.write(pod, {"phase": "Pending", **status})
    elif reason == "CrashLoopBackOff":
        await stage.write(pod, {"phase": "Running", **_status(pod, lambda _: waits, restarts=1)})
    elif phase(pod) != "Running" and not in_init:
        await stage.write(pod, {"phase": "Pending", **_status(pod, lambda _: waits)})


async def _unschedulable(stage: Stage, warnings: list[str], slot: str) -> None:
    pod = stage.pod(slot)
    if pod and not pod["spec"].get("nodeName"):
        now = timestamp(time.time())
        why = {"reason": "Unschedulable", "message": "0/1 nodes are available", "lastTransitionTime": now}
        status = {"conditions": [{"type": "PodScheduled", "status": "False", **why}]}
        await stage.side.kube.patch(POD, stage.namespace, name(pod), {"status": status}, subresource="status")


async def _delete(stage: Stage, warnings: list[str], slot: str) -> None:
    await stage.side.kube.delete(POD, stage.namespace, f"{stage.job}-{slot}")


async def _vanish(stage: Stage, warnings: list[str], slot: str) -> None:
    """Removed without grace. A running pod is marked as terminating first, and whether the operator sees that moment is
    chance, so those are spared."""
    pod = stage.space.get(POD, f"{stage.job}-{slot}")
    if pod and phase(pod) == "Running":
        return
    await stage.side.kube.delete(POD, stage.namespace, f"{stage.job}-{slot}", options=NOW)


async def _gone(stage: Stage, warnings: list[str]) -> None:
    """What terminates has terminated."""
    for pod in stage.space.all(POD):
        if is_deleting(pod):
            await stage.side.kube.delete(POD, stage.namespace, name(pod), options=NOW)


async def _delete_service(stage: Stage, warnings: list[str], slot: str) -> None:
    await stage.side.kube.delete(kinds.SERVICE, stage.namespace, f"{stage.job}-{slot}")


async def _patch(stage: Stage, warnings: list[str], spec: Any) -> None:
    options = WriteOptions(validation="Warn", warnings=warnings)
    await stage.side.kube.patch(stage.kind, stage.namespace, stage.job, {"spec": spec}, options=options)


async def _label(stage: Stage, warnings: list[str], labels: Any) -> None:
    await stage.side.kube.patch(stage.kind, stage.namespace, stage.job, {"metadata": {"labels": labels}})


async def _scale(stage: Stage, warnings: list[str], count: int) -> None:
    patch = {"spec": {"replicas": count}}
    await stage.side.kube.patch(stage.kind, stage.namespace, stage.job, patch, subresource="scale")


async def _delete_job(stage: Stage, warnings: list[str], how: Any) -> None:
    options = DeleteOptions(propagation=how)
    await stage.side.kube.delete(stage.kind, stage.namespace, stage.job, options=options)


async def _foreign(stage: Stage, warnings: list[str], kind: str, slot: str) -> None:
    """Somebody else's object in a place that the job needs."""
    metadata = {"name": f"{stage.job}-{slot}", "namespace": stage.namespace}
    spec: Object = {"containers": [{"name": "c", "image": "x"}]}
    if kind == "Service":
        spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    made: Object = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    await stage.side.kube.create(kinds.by_object(made), made)


async def _labelled(stage: Stage, warnings: list[str], kind: str, slot: str) -> None:
    """An object that looks like the job's own, but belongs to nobody and has another name."""
    type_, _, index = slot.partition("-")
    labels = {"operator-name": f"{stage.history.kind.lower()}-controller", "job-name": stage.job}
    labels |= {"replica-type": type_, "replica-index": index or "0"}
    named = {f"training.kubeflow.org/{key}": value for key, value in labels.items()}
    meta = {"name": "stranger", "namespace": stage.namespace, "labels": named}
    spec: Object = {"containers": [{"name": "c", "image": "x"}]}
    if kind == "Service":
        spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    made: Object = {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}
    await stage.side.kube.create(kinds.by_object(made), made)


async def _replace(stage: Stage, warnings: list[str], spec: Any) -> None:
    options = WriteOptions(validation="Warn", warnings=warnings)
    current = await stage.side.kube.get(stage.kind, stage.namespace, stage.job)
    await stage.side.kube.update(stage.kind, {**current, "spec": spec}, options=options)


async def _wait(stage: Stage, warnings: list[str], seconds: float) -> None:
    await asyncio.sleep(seconds)


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    "create": _create, "running": _running, "restarts": _restarts, "exit": _exit, "exit others": _exit_others,
    "evict": _evict, "waiting": _waiting, "unschedulable": _unschedulable, "delete": _delete, "vanish": _vanish,
    "gone": _gone, "delete service": _delete_service, "patch": _patch, "label": _label, "scale": _scale,
    "delete job": _delete_job, "foreign": _foreign, "wait": _wait, "labelled": _labelled,
    "replace": _replace,
}  # fmt: skip
