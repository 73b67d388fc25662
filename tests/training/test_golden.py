"""`training-operator-golden.json`: what training operator 1.9.4 did when it was run, against our pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.evidence import BESIDE

from rowlock.kinds import JOBS, POD
from rowlock.objects import timestamp
from rowlock.training.admission.webhooks import review_job
from rowlock.training.model import FIXED, STRICT

if TYPE_CHECKING:
    from tests.training.conftest import Play

FILE = BESIDE / "data" / "training-operator-golden.json"
GOLDEN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
pytestmark = pytest.mark.skipif(not GOLDEN, reason="the operator's golden scenarios are not beside this repository")

MAIN = {"PyTorchJob": "pytorch", "TFJob": "tensorflow"}


def state(code: int | None) -> dict[str, Any]:
    if code is None:
        return {"running": {}}
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}


def containers(play: Play, code: int | None, restarts: int = 0) -> list[dict[str, Any]]:
    return [{"name": MAIN[play.kind.name], "restartCount": restarts, "state": state(code)}]


def running(play: Play, pods: str, restarts: str | None = None) -> None:
    for pod in pods.split():
        play.set(pod, {"phase": "Running", "containerStatuses": containers(play, None, int(restarts or 0))})


def exits(play: Play, code: str, pod: str) -> None:
    phase = "Failed" if int(code) else "Succeeded"
    play.set(pod, {"phase": phase, "containerStatuses": containers(play, int(code))})


def evicted(play: Play, pod: str) -> None:
    play.set(pod, {"phase": "Failed", "reason": "Evicted", "containerStatuses": []})


def deleted(play: Play, pod: str) -> None:
    play.world.graceful = True
    play.world.delete(POD, play.namespace, f"job-{pod}")
    play.world.graceful = False


def removed(play: Play, pod: str) -> None:
    play.world.delete(POD, play.namespace, f"job-{pod}", now=True)


def replicas(play: Play, role: str, count: str) -> None:
    play.patch({"spec": {play.controller.framework.replicas: {role: {"replicas": int(count)}}}})


def suspend(play: Play, value: str) -> None:
    play.patch({"spec": {"runPolicy": {"suspend": value == "true"}}})


def clock(play: Play, field: str, back: str) -> None:
    play.patch({"status": {field: timestamp(play.world.now - int(back))}})


def waiting(play: Play, reason: str, pod: str) -> None:
    message = {"ImagePullBackOff": 'Back-off pulling image "img"'}.get(reason, "back-off restarting failed container")
    status = {"name": MAIN[play.kind.name], "state": {"waiting": {"reason": reason, "message": message}}}
    play.set(pod, {"phase": "Pending", "containerStatuses": [status]})


def unschedulable(play: Play, pod: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    play.set(pod, {"conditions": [{**condition, "message": "0/1 nodes are available"}]})


VOCABULARY: list[tuple[str, Callable[..., None]]] = [
    (r"pods Running: (?P<pods>.*)", running),
    (r"pods Running, container restartCount=(?P<restarts>\d+): (?P<pods>.*)", running),
    (r"main container exits (?P<code>\d+) \(phase Succeeded/Failed\): (?P<pod>\S+)", exits),
    (r"pod phase Failed, reason Evicted, no containerStatuses: (?P<pod>\S+)", evicted),
    (r"user deletes Running pod \(stays Terminating\): (?P<pod>\S+)", deleted),
    (r"pod object removed: (?P<pod>\S+)", removed),
    (r"patch: (?P<role>\w+)\.replicas=(?P<count>\d+)", replicas),
    (r"patch: runPolicy\.suspend=(?P<value>\w+)", suspend),
    (r"clock: make status\.(?P<field>\w+) (?P<back>\d+)s in the past", clock),
    (r"container waiting (?P<reason>\w+): (?P<pod>\S+)", waiting),
    (r"PodScheduled=False Unschedulable: (?P<pod>\S+)", unschedulable),
    (r"reconcile", lambda play: None),
]


def perform(play: Play, text: str) -> None:
    for part in text.split(" ; "):
        for pattern, act in VOCABULARY:
            if found := re.fullmatch(pattern, part):
                act(play, **found.groupdict())
                break
        else:
            raise AssertionError(f"unknown step: {part}")


def observe(play: Play, again: float | None) -> dict[str, Any]:
    status = play.status
    zero = {"active": 0, "succeeded": 0, "failed": 0}
    fields = ("type", "status", "reason", "message")
    return {
        "conditions": [{k: c[k] for k in fields} for c in status.get("conditions") or ()],
        "replicaStatuses": {
            t: {**zero, **{k: v for k, v in counts.items() if k in zero}}
            for t, counts in (status.get("replicaStatuses") or {}).items()
        },
        "startTimeSet": "startTime" in status,
        "completionTimeSet": "completionTime" in status,
        "events_sorted": sorted(play.world.events),
        "pods": play.pods(),
        "services": play.services(),
        "requeueAfterSeconds": round(again or 0),
        "error": "",
        "jobGone": play.object is None,
    }


def expected(variant: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """A recorded variant, without what is only a shadow in the operator's memory."""
    want = {k: (v or type(seen[k])()) for k, v in variant.items() if k in seen}
    if not want["startTimeSet"] and not want["replicaStatuses"]:
        want["conditions"] = []  # never reconciled: Created stands in the operator's cache only (Q19)
    if want["jobGone"]:  # nobody can see a deleted job's status, and garbage collection is not the operator's
        want |= {k: seen[k] for k in seen if k not in ("events_sorted", "jobGone")}
    return want


def title(case: dict[str, Any]) -> str:
    return f"{case['kind']}: {case['name']}"


@pytest.mark.parametrize("case", GOLDEN.get("state", []), ids=title)
def test_state(case: dict[str, Any], play: Callable[..., Play]) -> None:
    run = play(case["kind"], parity=STRICT, graceful="scale down" in case["name"])
    run.create(case["spec"])
    for number, step in enumerate(case["steps"]):
        perform(run, step["do"])
        run.world.events.clear()
        decision = run.turn()
        seen = observe(run, decision.requeue_after)
        wanted = [expected(variant, seen) for variant in step["variants"]]
        assert seen in wanted, f"step {number + 1}: {step['do']}: {seen} is not {wanted[0]}"


@pytest.mark.parametrize("case", GOLDEN.get("env", []), ids=title)
def test_pods(case: dict[str, Any], play: Callable[..., Play]) -> None:
    run = play(case["kind"], parity=STRICT)
    run.create(case["spec"])
    run.turn()
    seen = [
        {
            "name": pod["metadata"]["name"],
            "labels": pod["metadata"]["labels"],
            "restartPolicy": pod["spec"]["restartPolicy"],
            "initContainers": [c["name"] for c in pod["spec"].get("initContainers") or ()],
            "env_by_container": {c["name"]: c.get("env") or [] for c in pod["spec"]["containers"]},
            "ports_by_container": {c["name"]: c.get("ports") or [] for c in pod["spec"]["containers"]},
        }
        for pod in run.world.all(POD)
    ]
    wanted = [{k: v if v is not None else [] for k, v in pod.items()} for pod in case["pods"]]
    for pod in wanted:
        for field in ("env_by_container", "ports_by_container"):
            pod[field] = {c["name"]: pod[field].get(c["name"]) or [] for c in containers_of(case, pod)}
    assert seen == sorted(wanted, key=lambda p: str(p["name"]))


def containers_of(case: dict[str, Any], pod: dict[str, Any]) -> list[dict[str, Any]]:
    role = pod["labels"]["training.kubeflow.org/replica-type"]
    replicas = next(v for k, v in case["spec"].items() if k.endswith("ReplicaSpecs"))
    found = next(r for t, r in replicas.items() if t.lower() == role)
    return list(found["template"]["spec"]["containers"])


@pytest.mark.parametrize("case", GOLDEN.get("validation", []), ids=title)
def test_admission(case: dict[str, Any]) -> None:
    kind = next(k for k in JOBS if k.name == case["kind"])
    old = None if case.get("oldSpec") is None else {"metadata": {"name": case["OldName"]}, "spec": case["oldSpec"]}
    # the recording of updates called the function that the webhook of PyTorchJob fails to call (Q12)
    result = review_job(kind, old, {"metadata": {"name": case["NewName"]}, "spec": case["spec"]}, FIXED)
    assert sorted(words(result.message)) == sorted(words(case["error"]))
    assert list(result.warnings) == (case["warnings"] or [])


def words(message: str) -> list[str]:
    """The errors of a message without the operator's random orders."""
    parts = re.split(r", (?=spec|metadata)", message[1:-1] if message.startswith("[") else message)
    return ["".join(sorted(p)) if "supported values" in p else p for p in parts]
