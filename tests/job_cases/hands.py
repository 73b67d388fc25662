"""What a step of a case of a Job, JobSet or TrainJob does. Pods have random names: a step calls them `job.2` or `job-1.1`, the n-th pod of a Job and index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.differential.side import NODE
from tests.operator_cases.actions import AT_ONCE, MERGE, Hands, ended, running

from rowlock.objects import Object, controller_of, is_deleting, labels, name, phase, timestamp, uid
from rowlock.objects import annotations as annotations_of

Json = Any
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_LABEL = "batch.kubernetes.io/job-name"


@dataclass
class JobHands(Hands):
    """Those who act in one case's namespace, and the names by which they know its pods."""

    called: dict[str, str] = field(default_factory=dict)
    """uid of a pod → what the steps call it."""
    _numbers: dict[str, int] = field(default_factory=dict)

    def name_pods(self, pods: Iterable[Object]) -> None:
        """New pods get the next numbers, the oldest first."""
        for pod in sorted(pods, key=lambda p: (p["metadata"]["creationTimestamp"], name(p))):
            if uid(pod) in self.called:
                continue
            owner = controller_of(pod) or {}
            base = str(owner.get("name") or labels(pod).get(JOB_LABEL) or name(pod))
            if INDEX in annotations_of(pod):
                base += f"-{annotations_of(pod)[INDEX]}"
            self._numbers[base] = self._numbers.get(base, 0) + 1
            self.called[uid(pod)] = f"{base}.{self._numbers[base]}"

    async def pods(self) -> list[Object]:
        found = (await self.look("Pod")).get("items") or []
        self.name_pods(found)
        return list(found)

    async def find(self, which: str | Iterable[str]) -> list[Object]:
        """The pods that are meant; of several with one base the newest. `all`: those that neither ended nor terminate."""
        pods = {self.called[uid(pod)]: pod for pod in await self.pods()}
        if which == "all":
            active = {c: p for c, p in pods.items() if phase(p) not in ("Succeeded", "Failed") and not is_deleting(p)}
            return [active[called] for called in sorted(active)]
        found = []
        for wanted in which:
            matching = [called for called in pods if wanted in (called, called.rpartition(".")[0])]
            if not matching:
                self.answers.append(f"no pod {wanted}")
                continue
            found.append(pods[max(matching, key=lambda called: int(called.rpartition(".")[2]))])
        return found

    async def tell(
        self, pod: Object, phase: str, state: Callable[[str], Json], *, restarts: int | None = None, ready: bool = True,
        extra: Iterable[Json] = (), **more: Json,
    ) -> None:  # fmt: skip
        """As a kubelet: bind the pod where it is not, and write its status."""
        if not pod["spec"].get("nodeName"):
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name(pod)}}
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            await self.ask("POST", "Pod", f"{name(pod)}/binding", {**binding, "target": target})
        status = self._status(pod, phase, state, restarts=restarts)
        if not ready:
            status["containerStatuses"] = [{**each, "ready": False} for each in status["containerStatuses"]]
            no = {"ContainersReady": "False", "Ready": "False"}
            status["conditions"] = [{**c, "status": no.get(c["type"], c["status"])} for c in status["conditions"]]
        status["conditions"] += extra
        await self.ask("PATCH", "Pod", f"{name(pod)}/status", {"status": {**status, **more}}, MERGE)


def deletion(how: str) -> Json:
    return {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": how}


async def _up(hands: JobHands, which: str | list[str], ready: bool = True, restarts: int | None = None) -> None:
    for pod in await hands.find(which):
        await hands.tell(pod, "Running", lambda _: running(), ready=ready, restarts=restarts)


async def _running(hands: JobHands, which: str | list[str]) -> None:
    await _up(hands, which)


async def _starting(hands: JobHands, which: str | list[str]) -> None:
    await _up(hands, which, ready=False)


async def _restarts(hands: JobHands, counts: Mapping[str, int]) -> None:
    for called, count in counts.items():
        await _up(hands, [called], restarts=count)


async def _exit(hands: JobHands, ends: Mapping[str, Json]) -> None:
    for called, given in ends.items():
        for pod in await hands.find("all" if called == "all" else [called]):
            main = pod["spec"]["containers"][0]["name"]
            codes = {k: str(v) for k, v in (given if isinstance(given, dict) else {main: given}).items()}
            firsts = {code.split()[0] for code in codes.values()}
            over = "Running" if "running" in firsts else "Succeeded" if firsts == {"0"} else "Failed"

            def state(container: str, codes: Mapping[str, str] = codes) -> Json:
                code, _, reason = codes.get(container, "0").partition(" ")
                return running() if code == "running" else ended(int(code), reason)

            await hands.tell(pod, over, state)


async def _evict(hands: JobHands, which: list[str]) -> None:
    why = "The node was low on resource: memory."
    now = timestamp(time.time())
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": why}
    for pod in await hands.find(which):
        extra = [{**mark, "lastTransitionTime": now}]
        await hands.tell(pod, "Failed", lambda _: ended(137), extra=extra, reason="Evicted", message=why)


def _state(state: Json, _: str) -> Json:
    return state


async def _waiting(hands: JobHands, reasons: Mapping[str, str]) -> None:
    for called, reason in reasons.items():
        crashed = reason == "CrashLoopBackOff"
        message = "back-off 10s restarting failed container" if crashed else 'Back-off pulling image "img"'
        waits = {"waiting": {"reason": reason, "message": message}}
        for pod in await hands.find([called]):
            over, count = ("Running", 1) if crashed else ("Pending", None)
            await hands.tell(pod, over, partial(_state, waits), restarts=count, ready=False)


async def _unschedulable(hands: JobHands, which: list[str]) -> None:
    why = {"reason": "Unschedulable", "message": "0/1 nodes are available"}
    for pod in await hands.find(which):
        condition = {"type": "PodScheduled", "status": "False", **why, "lastTransitionTime": timestamp(time.time())}
        await hands.ask("PATCH", "Pod", f"{name(pod)}/status", {"status": {"conditions": [condition]}}, MERGE)


async def _delete(hands: JobHands, which: list[str]) -> None:
    await hands.delete_pods([name(pod) for pod in await hands.find(which)])


async def _gone(hands: JobHands, which: str | list[str]) -> None:
    """They have terminated, with a word of their kubelet's before where they ran: these pods, or all that terminate."""
    found = [p for p in await hands.pods() if is_deleting(p)] if which == "all" else await hands.find(which)
    for pod in sorted(found, key=name):
        if pod["spec"].get("nodeName") and phase(pod) not in ("Succeeded", "Failed"):
            await hands.tell(pod, "Failed", lambda _: ended(137))
        await hands.ask("DELETE", "Pod", name(pod), AT_ONCE, ignored=(404,))


async def _create(hands: JobHands, job: Json) -> None:
    hands.job = job["metadata"]["name"]
    await hands.ask("POST", job["kind"], body=job)


async def _set_up(hands: JobHands, manifests: list[Json]) -> None:
    for manifest in manifests:
        await hands.ask("POST", manifest["kind"], body=manifest, ignored=(409,))


async def _patch(hands: JobHands, spec: Json) -> None:
    await hands.change_job("spec", spec)


async def _patch_object(hands: JobHands, changes: Mapping[str, Json]) -> None:
    for place, change in changes.items():
        kind, _, called = place.partition("/")
        await hands.ask("PATCH", kind, called, change, MERGE)


async def _delete_objects(hands: JobHands, places: list[str]) -> None:
    for place in places:
        kind, _, called = place.partition("/")
        await hands.ask("DELETE", kind, called, deletion("Background"))


async def _write_status(hands: JobHands, statuses: Mapping[str, Json]) -> None:
    for place, status in statuses.items():
        kind, _, called = place.partition("/")
        await hands.ask("PATCH", kind, f"{called}/status", {"status": status}, MERGE)


async def _remove(hands: JobHands, how: str) -> None:
    await hands.ask("DELETE", hands.case.kind, hands.job, deletion(how))


async def _wait(hands: JobHands, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _nothing(hands: JobHands, _: Json) -> None:
    """`nocheck` says something of the step, and does nothing."""


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    "create": _create, "setup": _set_up, "running": _running, "starting": _starting, "restarts": _restarts, "exit": _exit,
    "evict": _evict, "waiting": _waiting, "unschedulable": _unschedulable, "delete": _delete, "gone": _gone, "patch": _patch,
    "patchobj": _patch_object, "deleteobj": _delete_objects, "statusobj": _write_status, "remove": _remove, "wait": _wait,
    "nocheck": _nothing,
}  # fmt: skip


async def admitted(hands: JobHands, job: Json, update: Json = None, change: Json = None) -> dict[str, Json]:
    """What the API says to an object, and then to its replacement or to a change of its spec; and what it keeps, where that is not
    what was sent."""
    kind, called, sent = job["kind"], job["metadata"].get("name", ""), job
    code, found = await hands.ask("POST", kind, body=job)
    while update and code in (201, 409):  # 409: the controller has written in between
        version = (await hands.look(kind, called))["metadata"]["resourceVersion"]
        sent = {**update, "metadata": {**update["metadata"], "resourceVersion": version}}
        code, found = await hands.ask("PUT", kind, called, sent, ignored=(409,))
    if code < 300 and change:
        code, found = await hands.ask("PATCH", kind, called, {"spec": change}, MERGE)
    kept = {"stored": found["spec"]} if code < 300 and found.get("spec") and found["spec"] != sent.get("spec") else {}
    hands.job = called
    return {"answers": hands.answers, **kept}
