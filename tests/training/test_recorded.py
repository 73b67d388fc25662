"""The recorded cases of the real operator on a real API server, played on the little world of `conftest.py`.

Each step is performed, the operator looks until nothing changes, and what can be seen is compared with every accepted
variant. What only an API server can answer (schema, admission of pods, quota) is left to the run over HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.evidence import operator_case_files

from rowlock.kinds import AUTOSCALER, CONFIG_MAP, POD, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT, Kind
from rowlock.objects import Object, controller_of, is_deleting, meta, name, phase, timestamp, uid, with_field

if TYPE_CHECKING:
    from tests.training.conftest import Play

CASES: list[Object] = [
    case
    for file in operator_case_files()
    for case in json.loads(file.read_text())["cases"]
    if "admit" not in case["steps"][0]["do"]
]
NEEDS_SERVER = {
    "quota lets one pod through",
    "service account that does not exist",
    "priority class that does not exist",
    "two identical volumes are refused",
    "sidecar with a bad name is refused",
    "bad restart policy",
    "name of 63 characters",
    "job exists already",
    "policy without a gang scheduler",
    "no scale subresource",
    "own service account",
    "priority class",
    "same name while old pods terminate",
}
PLAYED = [case for case in CASES if case["name"] not in NEEDS_SERVER]

OTHERS: dict[str, tuple[Kind, ...]] = {
    "MPIJob": (CONFIG_MAP, ROLE, ROLE_BINDING, SERVICE_ACCOUNT),
    "PyTorchJob": (AUTOSCALER,),
    "PaddleJob": (AUTOSCALER,),
}
NAMESPACE = "team-a"
SOMETIMES = re.compile("already exists$|Created worker pod: $|^Warning FailedDelete.* not found$")
CONTAINER_FIELDS = (
    "name", "image", "command", "args", "workingDir", "env", "envFrom", "ports", "resources", "securityContext",
    "volumeMounts",
)  # fmt: skip
POD_FIELDS = (
    "restartPolicy", "nodeSelector", "affinity", "hostNetwork", "priorityClassName", "imagePullSecrets", "hostname",
    "subdomain", "securityContext", "volumes", "tolerations",
)  # fmt: skip
POD_DEFAULTS = {
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
}
API_DEFAULTS = {("protocol", "TCP"), ("apiVersion", "v1"), ("defaultMode", 420), ("value", "")}


# ---------------------------------------------------------------- what is seen


def plain(value: Any) -> Any:
    """Without empty values and what an API server adds."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    value = {k: plain(v) for k, v in value.items()}
    if "limits" in value and value.get("requests") == value["limits"]:
        value.pop("requests")
    if "targetPort" in value and value["targetPort"] == value.get("port"):
        value.pop("targetPort")
    simple = {k: v for k, v in value.items() if isinstance(v, str | int)}
    return {k: v for k, v in value.items() if v not in (None, {}, []) and (k, simple.get(k)) not in API_DEFAULTS}


def container(c: Object) -> Object:
    return {k: c.get(k) for k in CONTAINER_FIELDS}


def detail(kind: Kind, obj: Object) -> Any:
    m, spec = meta(obj), obj.get("spec") or {}
    fields = ("labels", "annotations", "finalizers") if kind is POD else ("labels",)
    shown: Object = {k: m.get(k) for k in fields}
    shown["owners"] = [{k: v for k, v in o.items() if k != "uid"} for o in m.get("ownerReferences") or ()]
    if kind is POD:
        shown["spec"] = {k: spec.get(k) for k in POD_FIELDS}
        shown["spec"] |= {k: spec[k] for k, v in POD_DEFAULTS.items() if spec.get(k, v) != v}
        for key in ("containers", "initContainers"):
            shown["spec"][key] = [container(c) for c in spec.get(key) or ()]
    elif kind is SERVICE:
        shown["spec"] = {k: spec.get(k) for k in ("clusterIP", "selector")}
        shown["spec"]["ports"] = sorted((dict(p) for p in spec.get("ports") or ()), key=lambda p: str(p.get("name")))
    else:
        shown |= {k: obj.get(k) for k in ("spec", "data", "rules", "subjects", "roleRef")}
    return plain(shown)


def job_state(run: Recorded, job: Object) -> Object:
    status, called = job.get("status") or {}, name(job)
    conditions = [
        [c.get(k, "") for k in ("type", "status", "reason", "message")] for c in status.get("conditions") or ()
    ]
    hidden = {"selector"} if any(c[:2] == ["Succeeded", "True"] for c in conditions) else set()
    start, before = status.get("startTime"), run.starts.get(called)
    run.starts[called] = start
    return {
        "conditions": conditions,
        "replicaStatuses": {
            t: {k: v for k, v in counts.items() if k not in hidden}
            for t, counts in (status.get("replicaStatuses") or {}).items()
        },
        "startTime": bool(start),
        "completionTime": bool(status.get("completionTime")),
        **({"startTimeMoved": True} if before and start and before != start else {}),
        **({"terminating": True} if is_deleting(job) else {}),
    }


def observe(run: Recorded) -> Object:
    world, pods, others, new = run.play.world, {}, [], {}
    seen: dict[str, tuple[str, Any]] = {}
    for kind in (POD, SERVICE, *OTHERS.get(run.play.kind.name, ())):
        for obj in world.all(kind, NAMESPACE):
            at, shown = f"{kind.name}/{name(obj)}", detail(kind, obj)
            was, old = run.known.get(at, (uid(obj), None))
            flags = "+Recreated" * (was != uid(obj)) + "+Terminating" * is_deleting(obj)
            flags += "+Unowned" * (controller_of(obj) is None)
            seen[at] = (uid(obj), shown)
            if old != shown:
                new[at] = shown
            if kind is POD:
                pods[name(obj)] = (phase(obj) or "Pending") + flags
            else:
                others.append(at + flags)
    run.known.update(seen)
    jobs = {name(j): job_state(run, j) for j in world.all(run.play.kind, NAMESPACE)}
    return {"jobs": jobs, "pods": pods, "others": sorted(others), "new": new}


# ---------------------------------------------------------------- what is done


class Recorded:
    """One case in one world; a method for each word of the steps."""

    def __init__(self, play: Play, main: str) -> None:
        self.play, self.main = play, main
        self.known: dict[str, tuple[str, Any]] = {}
        self.starts: dict[str, str | None] = {}
        self.restarted: dict[str, int] = {}

    def status(self, short: str, phase: str, state: Callable[[str], Object] | None, **more: Any) -> None:
        pod = self.play.pod(short)
        main = pod["spec"]["containers"]
        counts = [self.restarted.get(uid(pod), 0), *[0] * len(main)]
        one = [
            {"name": c["name"], "restartCount": n, "state": state(c["name"])} if state else {}
            for c, n in zip(main, counts, strict=False)
        ]
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(self.play.world.now)}]
        self.play.set(
            short, {"phase": phase, "containerStatuses": one if state else [], "conditions": conditions, **more}
        )
        self.play.world.settle(self.play.controller, NAMESPACE, patient=False)

    def do_create(self, job: Object) -> None:
        self.play.job = name(job)
        self.play.world.create(self.play.kind, with_field(job, "metadata.namespace", NAMESPACE))

    def do_apply(self, obj: Object) -> None:
        kind = {k.name: k for k in (POD, SERVICE)}[obj["kind"]]
        self.play.world.create(kind, with_field(obj, "metadata.namespace", NAMESPACE))

    def do_running(self, pods: list[str]) -> None:
        for pod in pods:
            self.status(pod, "Running", lambda c: {"running": {}})

    def do_restarts(self, pods: dict[str, int]) -> None:
        for pod, count in pods.items():
            self.restarted[uid(self.play.pod(pod))] = count
        self.do_running(list(pods))

    def do_exit(self, pods: dict[str, Any]) -> None:
        for pod, given in pods.items():
            codes = given if isinstance(given, dict) else {self.main: given}
            values = {str(v).split()[0] for v in codes.values()}
            phase = "Running" if "running" in values else "Succeeded" if values == {"0"} else "Failed"
            self.status(pod, phase, lambda c, codes=codes: ended(codes.get(c, 0)))  # type: ignore[misc]  # bound now

    def do_evict(self, pods: list[str]) -> None:
        for pod in pods:
            self.status(pod, "Failed", None, reason="Evicted", message="The node was low on resource: memory.")

    def do_waiting(self, pods: dict[str, str]) -> None:
        for pod, reason in pods.items():
            if reason.startswith("Init:"):
                self.status(pod, "Pending", lambda c: {"waiting": {"reason": "PodInitializing"}})
                continue
            crash = reason == "CrashLoopBackOff"
            if crash:
                self.restarted[uid(self.play.pod(pod))] = 1
            why = ('Back-off pulling image "img"', "back-off 10s restarting failed container")[crash]
            state = {"waiting": {"reason": reason, "message": why}}
            self.status(pod, "Running" if crash else "Pending", lambda c, state=state: state)  # type: ignore[misc]  # bound now

    def do_unschedulable(self, pods: list[str]) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for short in pods:
            pod = self.play.pod(short)
            text = {**condition, "message": "0/1 nodes are available"}
            self.play.world.put(POD, with_field(pod, "status.conditions", [text]))

    def do_gone(self, pods: list[str] | str) -> None:
        world = self.play.world
        names = [f"{self.play.job}-{p}" for p in pods]
        if pods == "all":
            names = [name(p) for p in world.all(POD, NAMESPACE) if is_deleting(p)]
        for called in names:
            world.delete(POD, NAMESPACE, called, now=True)
            self.look()

    def do_delete(self, pods: list[str]) -> None:
        for pod in pods:
            self.play.world.delete(POD, NAMESPACE, f"{self.play.job}-{pod}")

    def do_patch(self, patch: Object) -> None:
        self.play.patch({"spec": patch})

    def do_patchmeta(self, patch: Object) -> None:
        self.play.patch({"metadata": patch})

    def do_replicas(self, counts: dict[str, int]) -> None:
        self.do_patch({self.play.controller.framework.replicas: {t: {"replicas": n} for t, n in counts.items()}})

    def do_scale(self, count: int) -> None:
        self.do_replicas({"Worker": count})

    def do_deletejob(self, how: str) -> None:
        world, job = self.play.world, self.play.object
        assert job is not None
        owned = [(kind, o) for kind in (POD, SERVICE) for o in world.by_owner(kind, uid(job))]
        if how == "Background":
            world.delete(self.play.kind, NAMESPACE, name(job))
            return
        for kind, obj in owned:
            if how == "Orphan":
                world.put(kind, with_field(obj, "metadata.ownerReferences", None))
            else:
                world.delete(kind, NAMESPACE, name(obj))
        if how == "Orphan":
            world.delete(self.play.kind, NAMESPACE, name(job))
        else:
            world.put(self.play.kind, with_field(job, "metadata.deletionTimestamp", timestamp(world.now)))

    def do_wait(self, seconds: float) -> None:
        self.play.world.now += seconds

    def do_nocheck(self, _: bool) -> None:
        return None

    def look(self) -> None:
        self.play.world.settle(self.play.controller, NAMESPACE)
        for job in list(self.play.world.all(self.play.kind, NAMESPACE)):
            if is_deleting(job) and not list(self.play.world.by_owner(POD, uid(job))):
                self.play.world.delete(self.play.kind, NAMESPACE, name(job))

    def step(self, do: Object) -> None:
        self.play.world.now += 0.4
        for word, argument in do.items():
            getattr(self, f"do_{word}")(argument)
        self.look()


def ended(value: Any) -> Object:
    code, _, why = str(value).partition(" ")
    if code == "running":
        return {"running": {}}
    return {"terminated": {"exitCode": int(code), "reason": why or ("Error" if int(code) else "Completed")}}


# ---------------------------------------------------------------- the comparison


def wanted(variant: Object) -> Object:
    text = json.dumps(variant).replace("$NS", NAMESPACE)
    state: Object = json.loads(text)
    return {**{k: state[k] for k in ("jobs", "pods", "others")}, "new": {k: plain(v) for k, v in state["new"].items()}}


def differences(step: Object, state: Object, events: set[str]) -> list[str]:
    """What is wrong, for the nearest variant; empty = right."""
    required = {e.replace("$NS", NAMESPACE) for e in step["events"]}
    allowed = required | {e.replace("$NS", NAMESPACE) for e in step.get("maybe", ())}
    lines = [f"event missing: {e}" for e in sorted(required - events)]
    if "*" not in step.get("maybe", ()):
        lines += [f"event surplus: {e}" for e in sorted(events - allowed) if not SOMETIMES.search(e)]
    nearest = min((compare(wanted(v), state) for v in step["variants"]), key=len)
    return lines + nearest


def compare(want: Any, have: Any, at: str = "") -> list[str]:
    if isinstance(want, dict) and isinstance(have, dict):
        keys = sorted({*want, *have})
        return [line for k in keys for line in compare(want.get(k), have.get(k), f"{at}.{k}")]
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        return [line for i, (w, h) in enumerate(zip(want, have, strict=True)) for line in compare(w, h, f"{at}[{i}]")]
    return [] if want == have else [f"{at}: {json.dumps(have)}, expected {json.dumps(want)}"]


def title(case: Object) -> str:
    return f"{case['family']}-{case['kind']}-{case['name']}"


@pytest.mark.parametrize("case", PLAYED, ids=title)
def test_case(case: Object, play: Callable[..., Play]) -> None:
    run = play(case["kind"], graceful=True)
    recorded = Recorded(run, run.controller.framework.container)
    for number, step in enumerate(case["steps"]):
        recorded.step(step["do"])
        if "variants" not in step:
            continue
        wrong = differences(step, observe(recorded), set(run.world.events))
        assert not wrong, "\n".join([f"step {number + 1}: {[k for k in step['do']]}", *wrong])
