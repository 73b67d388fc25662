"""What a step does: a user's requests, and those by which a scheduler and a kubelet would move pods.

The requests are plain HTTP, so that nothing of rowlock's own client stands between the server and what is compared.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.differential.side import NODE
from tests.operator_cases.cases import Case
from tests.operator_cases.picture import tidy

from rowlock.objects import timestamp

Json = Any
JSON, MERGE = "application/json", "application/merge-patch+json"
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_GROUPS = {
    "": {
        "Pod",
        "Service",
        "ConfigMap",
        "ServiceAccount",
        "Event",
        "ResourceQuota",
        "Namespace",
        "Secret",
        "PersistentVolumeClaim",
    },
    "rbac.authorization.k8s.io/v1": {"Role", "RoleBinding"},
    "scheduling.k8s.io/v1": {"PriorityClass"},
    "batch/v1": {"Job"},
    "jobset.x-k8s.io/v1alpha2": {"JobSet"},
    "trainer.kubeflow.org/v1alpha1": {"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"},
}
_CLUSTERED = {"Namespace", "PriorityClass", "ClusterTrainingRuntime"}


def path(kind: str, namespace: str, name: str = "") -> str:
    """Where objects of a kind are; a kind that no other group has is the training operator's."""
    group = next((group for group, members in _GROUPS.items() if kind in members), "kubeflow.org/v1")
    plural = kind.lower() + ("es" if kind.endswith("s") else "s")
    place = "" if kind in _CLUSTERED else f"/namespaces/{namespace}"
    return (f"/apis/{group}" if group else "/api/v1") + f"{place}/{plural}" + (f"/{name}" if name else "")


def warnings(answer: httpx.Response) -> list[str]:
    """The sentences of the Warning headers (RFC 7234: a code, an agent, a quoted string)."""
    quoted = (re.search(r'"(.*)"', header) for header in answer.headers.get_list("warning"))
    return sorted(found[1].replace('\\"', '"') for found in quoted if found)


@dataclass
class Hands:
    """Those who act in one case's namespace."""

    http: httpx.AsyncClient
    case: Case
    namespace: str
    job: str = "job"
    answers: list[str] = field(default_factory=list)
    """What the API said to the step that is being done: refusals and warnings."""
    restarts: dict[str, int] = field(default_factory=dict)
    """uid of a pod → how often its main container has been restarted."""

    async def ask(
        self, verb: str, kind: str, name: str = "", body: Json = None, media: str = JSON, ignored: tuple[int, ...] = ()
    ) -> tuple[int, Json]:
        """A request whose refusal and warnings belong to what is compared."""
        answer = await self.http.request(
            verb, path(kind, self.namespace, name), json=body, headers={"Content-Type": media, "Accept": JSON}
        )
        found = _object(answer)
        if answer.status_code >= 300 and answer.status_code not in ignored:
            why = f"{found.get('reason', '')}: {tidy(found.get('message', ''))}"
            self.answers.append(f"{verb} {kind}: {answer.status_code} {why}")
        self.answers += [f"Warning: {sentence}" for sentence in warnings(answer)]
        return answer.status_code, found

    async def look(self, kind: str, name: str = "") -> Json:
        return _object(await self.http.get(path(kind, self.namespace, name)))

    async def change_job(self, part: str, change: Json, subresource: str = "") -> None:
        name = self.job + (f"/{subresource}" if subresource else "")
        await self.ask("PATCH", self.case.kind, name, {part: change}, MERGE)

    async def delete_pods(self, names: Iterable[str], options: Json = None) -> None:
        for name in names:
            await self.ask("DELETE", "Pod", name, options)

    async def report(self, slot: str, phase: str, state: Callable[[str], Json] | None, **more: Json) -> None:
        """As a kubelet: bind the pod where it is not, and write its status. `state` answers for a container's name;
        None: the pod has lost its containers. `init`: the state of the init containers, which else have completed."""
        name = f"{self.job}-{slot}"
        pod = await self.look("Pod", name)
        if "spec" not in pod:
            self.answers.append(f"no pod {name}")
            return
        if not pod["spec"].get("nodeName"):
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            await self.ask("POST", "Pod", f"{name}/binding", {**binding, "target": target})
        status = self._status(pod, phase, state, **more)
        await self.ask("PATCH", "Pod", f"{name}/status", {"status": status}, MERGE)

    def _status(
        self, pod: Json, phase: str, state: Callable[[str], Json] | None, init: Json = None, restarts: int | None = None,
        **more: Json,
    ) -> Json:  # fmt: skip
        uid, now, main = pod["metadata"]["uid"], timestamp(time.time()), pod["spec"]["containers"]
        if restarts is not None:
            self.restarts[uid] = restarts

        def one(container: Json, now_in: Json) -> Json:
            count = self.restarts.get(uid, 0) if container is main[0] else 0
            facts = {"name": container["name"], "image": container["image"], "imageID": ""}
            return {**facts, "ready": "running" in now_in, "restartCount": count, "state": now_in}

        states = None if state is None else [one(each, state(each["name"])) for each in main]
        ready = phase == "Running" and bool(states) and all(each["ready"] for each in states or ())
        facts = {"PodScheduled": True, "Initialized": init is None, "ContainersReady": ready, "Ready": ready}
        found: dict[str, Json] = {
            "phase": phase,
            "startTime": pod["status"].get("startTime") or now,
            "conditions": [{"type": k, "status": str(v), "lastTransitionTime": now} for k, v in facts.items()],
            "containerStatuses": states,
            **more,
        }
        if first := pod["spec"].get("initContainers"):
            done = init or ended(0)
            found["initContainerStatuses"] = None if state is None else [one(each, done) for each in first]
        return found


def _object(answer: httpx.Response) -> Json:
    try:
        found = answer.json()
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": answer.text}


def running() -> Json:
    return {"running": {"startedAt": timestamp(time.time())}}


def ended(code: int, reason: str = "") -> Json:
    now = timestamp(time.time())
    why = reason or ("Error" if code else "Completed")
    return {"terminated": {"exitCode": code, "reason": why, "startedAt": now, "finishedAt": now}}


# ---------------------------------------------------------------- the verbs of steps


async def _create(hands: Hands, job: Json) -> None:
    hands.job = job["metadata"]["name"]
    await hands.ask("POST", job["kind"], body=job)


async def _apply(hands: Hands, obj: Json) -> None:
    await hands.ask("POST", obj["kind"], body=obj, ignored=(409,))


async def _running(hands: Hands, slots: list[str]) -> None:
    for slot in slots:
        await hands.report(slot, "Running", lambda _: running())


async def _restarts(hands: Hands, counts: Mapping[str, int]) -> None:
    for slot, count in counts.items():
        await hands.report(slot, "Running", lambda _: running(), restarts=count)


async def _exit(hands: Hands, slots: Mapping[str, Json]) -> None:
    """A code for the main container, or a map of containers: a code, `running`, or a code and its reason."""
    for slot, given in slots.items():
        codes = {
            name: str(code) for name, code in (given if isinstance(given, dict) else {hands.case.main: given}).items()
        }
        firsts = {code.split()[0] for code in codes.values()}
        phase = "Running" if "running" in firsts else "Succeeded" if firsts == {"0"} else "Failed"

        def state(container: str, codes: Mapping[str, str] = codes) -> Json:
            code, _, reason = codes.get(container, "0").partition(" ")
            return running() if code == "running" else ended(int(code), reason)

        await hands.report(slot, phase, state)


async def _evict(hands: Hands, slots: list[str]) -> None:
    for slot in slots:
        await hands.report(slot, "Failed", None, reason="Evicted", message="The node was low on resource: memory.")


async def _waiting(hands: Hands, reasons: Mapping[str, str]) -> None:
    """`Init:` before a reason means the init containers."""
    for slot, given in reasons.items():
        reason = given.removeprefix("Init:")
        crashed = reason == "CrashLoopBackOff"
        message = "back-off 10s restarting failed container" if crashed else 'Back-off pulling image "img"'
        waits = {"waiting": {"reason": reason, "message": message}}

        def state(_: str, waits: Json = waits) -> Json:
            return waits

        if reason != given:
            await hands.report(slot, "Pending", lambda _: {"waiting": {"reason": "PodInitializing"}}, init=waits)
        elif crashed:
            await hands.report(slot, "Running", state, restarts=1)
        else:
            await hands.report(slot, "Pending", state)


async def _unschedulable(hands: Hands, slots: list[str]) -> None:
    why = {"reason": "Unschedulable", "message": "0/1 nodes are available"}
    for slot in slots:
        condition = {"type": "PodScheduled", "status": "False", **why, "lastTransitionTime": timestamp(time.time())}
        status = {"status": {"conditions": [condition]}}
        await hands.ask("PATCH", "Pod", f"{hands.job}-{slot}/status", status, MERGE)


async def _delete(hands: Hands, slots: list[str]) -> None:
    await hands.delete_pods(f"{hands.job}-{slot}" for slot in slots)


async def _gone(hands: Hands, slots: list[str] | str) -> None:
    """Pods that terminate have terminated: these, or all."""
    if slots == "all":
        pods = (await hands.look("Pod")).get("items") or ()
        names = sorted(pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp"))
    else:
        names = [f"{hands.job}-{slot}" for slot in slots]
    await hands.delete_pods(names, AT_ONCE)


async def _patch(hands: Hands, spec: Json) -> None:
    await hands.change_job("spec", spec)


async def _patch_metadata(hands: Hands, metadata: Json) -> None:
    await hands.change_job("metadata", metadata)


async def _replicas(hands: Hands, counts: Mapping[str, int]) -> None:
    await hands.change_job("spec", {hands.case.field: {type_: {"replicas": n} for type_, n in counts.items()}})


async def _scale(hands: Hands, count: int) -> None:
    await hands.change_job("spec", {"replicas": count}, "scale")


async def _delete_job(hands: Hands, how: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": how}
    await hands.ask("DELETE", hands.case.kind, hands.job, options)


async def _wait(hands: Hands, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _nothing(hands: Hands, _: Json) -> None:
    """`nocheck` says something of the step, and does nothing."""


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    "create": _create, "apply": _apply, "running": _running, "restarts": _restarts, "exit": _exit, "evict": _evict,
    "waiting": _waiting, "unschedulable": _unschedulable, "delete": _delete, "gone": _gone, "patch": _patch,
    "patchmeta": _patch_metadata, "replicas": _replicas, "scale": _scale, "deletejob": _delete_job, "wait": _wait,
    "nocheck": _nothing,
}  # fmt: skip


async def admitted(hands: Hands, job: Json, update: Json = None) -> dict[str, Json]:
    """What the API says to a job, and then to its replacement; and the spec it keeps, where that is not what was sent."""
    name, sent = job["metadata"]["name"], job
    code, found = await hands.ask("POST", job["kind"], body=job)
    while update and code in (201, 409):  # 409: the operator has written in between
        current = await hands.look(job["kind"], name)
        version = current["metadata"]["resourceVersion"]
        sent = {**update, "metadata": {**update["metadata"], "resourceVersion": version}}
        code, found = await hands.ask("PUT", job["kind"], name, sent, ignored=(409,))
    await hands.http.delete(path(job["kind"], hands.namespace, name))
    kept = {"stored": found["spec"]} if code < 300 and found.get("spec") != sent["spec"] else {}
    return {"answers": hands.answers, **kept}
