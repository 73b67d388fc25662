"""What ran is answered after it has gone: workloads, pods, events, history, logs of every attempt, and runs as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.archive.test_archive import put_aside
from tests.rest.conftest import World

from rowlock import kinds, objects
from rowlock.api import DeleteOptions
from rowlock.archive.archive import Archive
from rowlock.archive.database import Statement
from rowlock.archive.records import PodRecord, RunRecord
from rowlock.objects import Object
from rowlock.rest.run_history import recorder
from rowlock.rest.run_history.past_logs import Life, _sort_by_age, choose_container
from rowlock.rest.run_history.past_workloads import PastRun, _ran_for
from rowlock.workloads import history

NAMESPACE = "runai-team-a"
WORKLOADS = "/api/v1/workloads"


def submit(world: World, **body: Any) -> tuple[str, Object]:
    """The workload's id and its job."""
    world.project()
    identity = world.submit(numWorkers=1, **body).json()["workloadId"]
    (job,) = world.store.view.all(kinds.PYTORCHJOB)
    return identity, job


def give_pod(world: World, job: Object, role: str = "worker", status: dict[str, Any] | None = None) -> None:
    """A pod of the job as its operator and kubelet would have it."""
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": "0"}
    owner = {**objects.owner_reference(job), "controller": True}
    name = f"{objects.name(job)}-{role}-0"
    meta: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "ownerReferences": [owner],
        "labels": labels,
    }
    spec = {"nodeName": "node-1", "containers": [{"name": "pytorch", "image": "i"}]}
    world.create(kinds.POD, {"metadata": meta, "spec": spec})
    state = status or {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    containers = [{"name": "pytorch", "image": "i", "ready": True, "restartCount": 0, "state": state}]
    world.patch(kinds.POD, NAMESPACE, name, {"status": {"phase": "Running", "containerStatuses": containers}}, "status")


def remove(world: World, identity: str, job: Object, *pods: str) -> None:
    world.client.delete(f"{WORKLOADS}/distributed/{identity}")

    async def gone() -> None:
        for pod in pods:
            await world.store.delete(kinds.POD, NAMESPACE, pod)
            if world.store.view.get(kinds.POD, NAMESPACE, pod) is not None:
                await world.store.delete(kinds.POD, NAMESPACE, pod, options=DeleteOptions(grace=0))

    world.do(gone)
    wait(lambda: world.client.get(f"{WORKLOADS}/count").json()["count"] == 0)


def wait(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


def get_text(world: World, path: str, **query: Any) -> str:
    answer = world.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


def get(world: World, path: str, **query: Any) -> Any:
    answer = world.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"running": {"startedAt": "2026-01-02T03:04:05Z"}}, "Deleted"),
        ({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-02T03:04:06Z"}}, "Completed"),
        ({"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-02T03:04:06Z"}}, "Error"),
    ],
)
def test_a_pod_that_is_gone_does_not_run(world: World, state: dict[str, Any], status: str) -> None:
    """The policy for pods of a job that is over removes those that still run; the archive had seen them run last, or end."""
    identity, job = submit(world)
    give_pod(world, job, status=state)
    run = f"/api/v1/runs/{identity}"
    wait(lambda: len(get(world, run)["ranks"]) == 1)
    name = "dist-train1-worker-0"

    async def removed() -> None:
        for options in (DeleteOptions(), DeleteOptions(grace=0)):
            await world.store.delete(kinds.POD, NAMESPACE, name, options=options)

    world.do(removed)
    wait(lambda: bool(get(world, run)["ranks"][0]["pods"][0]["deletedAt"]))
    assert get(world, run)["ranks"][0]["pods"][0]["status"] == status


def test_a_deleted_workload_is_listed_and_shown(world: World) -> None:
    identity, job = submit(world, environmentVariables=[{"name": "API_TOKEN", "value": "hush-hush"}])
    give_pod(world, job, "master")
    about = {"kind": "PyTorchJob", "name": objects.name(job), "namespace": NAMESPACE, "uid": objects.uid(job)}
    event = {"metadata": {"name": "e", "namespace": NAMESPACE}, "involvedObject": about, "reason": "R", "message": "m"}
    world.create(kinds.EVENT, {**event, "type": "Warning", "lastTimestamp": "2026-01-02T03:04:05Z"})
    wait(lambda: len(get(world, f"/api/v1/runs/{identity}")["ranks"]) == 1)
    wait(lambda: get(world, f"/api/v1/runs/{identity}")["events"] == 1)
    assert get(world, WORKLOADS, deleted="true") == {"workloads": []}
    remove(world, identity, job, "dist-train1-master-0")

    (listed,) = get(world, WORKLOADS, deleted="true", filterBy="name==dist-train1")["workloads"]
    assert (listed["id"], listed["phase"], listed["runningPods"]) == (identity, "Deleted", 0) and listed["deletedAt"]
    assert get(world, f"{WORKLOADS}/count", deleted="true") == {"count": 1}
    assert get(world, WORKLOADS, deleted="true", filterBy="name==other") == {"workloads": []}
    assert get(world, f"{WORKLOADS}/{identity}")["name"] == "dist-train1"
    (pod,) = get(world, f"{WORKLOADS}/{identity}/pods", deleted="true")["pods"]
    assert pod["rank"] == "rank 0" and pod["deletedAt"] and pod["allocatedResources"]["gpu"] == 0
    (told,) = get(world, f"{WORKLOADS}/{identity}/events")["events"]
    assert told["message"] == "m"
    records = get(world, f"{WORKLOADS}/{identity}/history")["records"]
    phases = [r["spec"]["phaseUpdate"]["phase"] for r in records if r["meta"]["type"] == "PhaseUpdate"]
    assert phases[0] == "Creating" and phases[-1] == "Deleted"
    assert "deleted while" in get(world, f"{WORKLOADS}/{identity}/why")["sentence"]
    run = get(world, f"/api/v1/runs/{identity}")
    assert run["ran"]["image"] == "kubeflow/pytorch-dist-mnist:latest" and "API_TOKEN" in run["ran"]["environment"]
    assert "hush-hush" not in str(run) + str(listed)
    assert [one["id"] for one in get(world, "/api/v1/runs", name="dist-*", phase="deleted", since="60")["runs"]] == [
        identity
    ]
    assert world.client.get("/api/v1/runs", params={"phase": "Runing"}).status_code == 400
    assert world.client.get("/api/v1/runs/none").status_code == 404


def test_logs_of_all_attempts_are_answered(world: World, tmp_path: Path) -> None:
    identity, job = submit(world)
    give_pod(world, job, "worker")
    world.logs["dist-train1-worker-0"] = [b"2026-11-23T21:00:09.000000000Z now\n"]
    earlier = put_aside(tmp_path / "logs", "dist-train1-worker-0", lines=2, owner=objects.uid(job))
    master = put_aside(tmp_path / "logs", "dist-train1-master-0", lines=1, owner=objects.uid(job))
    (earlier / "main.0.log").rename(earlier / "pytorch.0.log")
    (master / "main.0.log").rename(master / "pytorch.0.log")
    world.archive.take_logs(str(earlier))
    world.archive.take_logs(str(master))
    logs = f"{WORKLOADS}/{identity}/logs"

    def text(path: str, **query: Any) -> str:
        answer = world.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    # whatever its status says of its beginning, the pod that is there comes after the one that is gone
    assert text(logs, attempt=1) == "[rank 0] line 0\n[rank 1] line 0\n[rank 1] line 1\n"
    assert text(logs, attempt=2) == "[rank 1] now\n"
    pod = f"{WORKLOADS}/{identity}/pods/dist-train1-worker-0/logs"
    assert (text(pod, attempt=1), text(pod, attempt=2)) == ("line 0\nline 1\n", "now\n")
    assert text(f"{WORKLOADS}/{identity}/pods/rank-0/logs", attempt=1) == "line 0\n"
    for path, whose in ((logs, "dist-train1"), (pod, "dist-train1-worker-0")):
        refused = world.client.get(path, params={"container": "foo", "attempt": 1})
        assert (
            refused.status_code == 400 and f"{whose} has no container foo with a log: it has pytorch." in refused.text
        )
    for attempt in ("3", "0", "x"):
        assert world.client.get(logs, params={"attempt": attempt}).status_code == 400
    remove(world, identity, job, "dist-train1-worker-0")
    assert text(logs, follow="true", tail="1") == "[rank 0] line 0\n[rank 1] line 1\n"
    assert text(pod) == "line 0\nline 1\n"
    assert text(f"{WORKLOADS}/{identity}/pods/chief/logs") == "line 0\n"
    refused = world.client.get(f"{WORKLOADS}/{identity}/pods/none/logs")
    assert refused.status_code == 404 and "Failed to find pod" in refused.text


def test_the_ranks_of_which_a_job_was_made_smaller_are_in_its_log(world: World, tmp_path: Path) -> None:
    identity, job = submit(world)
    give_pod(world, job, "worker")
    world.logs["dist-train1-worker-0"] = [b"2026-11-23T21:00:09.000000000Z now\n"]
    removed = put_aside(tmp_path / "logs", "dist-train1-worker-1", lines=1, owner=objects.uid(job))
    (removed / "main.0.log").rename(removed / "pytorch.0.log")
    world.archive.take_logs(str(removed))
    logs = f"{WORKLOADS}/{identity}/logs"
    assert world.client.get(logs).text == "[rank 1] now\n", "no size of it has changed: the archive is not asked"
    changed = {**job["spec"], "runPolicy": {**job["spec"].get("runPolicy", {}), "backoffLimit": 7}}
    world.patch(kinds.PYTORCHJOB, NAMESPACE, "dist-train1", {"spec": changed})
    wait(lambda: world.client.get(logs).text != "[rank 1] now\n")
    assert sorted(world.client.get(logs).text.splitlines()) == ["[rank 1] now", "[rank 2] line 0"]
    assert world.client.get(f"{WORKLOADS}/{identity}/pods/rank-2/logs").text == "line 0\n"
    failed = {"type": "Failed", "status": "True", "reason": "R", "message": "m"}
    world.patch(kinds.PYTORCHJOB, NAMESPACE, "dist-train1", {"status": {"conditions": [failed]}}, "status")
    for container, seen in (("", ["[rank 1] now", "[rank 2] line 0"]), ("other", ["[rank 1] now"])):
        followed = get_text(world, logs, follow="true", container=container)
        assert sorted(followed.splitlines()) == seen, "who follows gets them, too, where they have his container"


def test_an_init_container_is_read_only_when_it_is_named() -> None:
    """`logs` of a job whose pods wait for the end of an init container tells why they wait."""
    init, main = Life("p", "u", "init-pytorch", 0, 1.0, is_init=True), Life("p", "u", "main", 0, 2.0)
    assert choose_container([init], "", {}) == []
    assert choose_container([init, main], "", {}) == [main]
    assert choose_container([init, main], "init-pytorch", {}) == [init]


def test_restarts_within_one_second_are_in_their_order() -> None:
    """An archived log knows when it began to the microsecond, the status of a pod to the second."""
    restarts = [Life("p", "u", "main", 0, 55.7, None), Life("p", "u", "main", 1, 55.0), Life("p", "u", "main", 2, 65.0)]
    earlier = Life("p", "gone", "main", 0, 55.9)
    assert _sort_by_age([*reversed(restarts), earlier], {"u"}) == [earlier, *restarts]


def test_a_short_run_is_written_once_and_its_end_waits_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write costs more CPU than the look before it; but what ends is on its way to the disk at once."""
    monkeypatch.setattr(recorder, "_WRITE_DELAY", 3600.0)
    written: list[str] = []
    put = Archive.put

    def note(self: Archive, key: str, statement: Statement) -> None:
        written.append(key)
        put(self, key, statement)

    monkeypatch.setattr(Archive, "put", note)
    _, job = submit(world)
    give_pod(world, job, "master")
    name = f"{objects.name(job)}-master-0"
    pod = world.store.view.get(kinds.POD, NAMESPACE, name)
    assert pod is not None
    ended = {"terminated": {"exitCode": 0, "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:06Z"}}
    status = {**objects.dig(pod, "status.containerStatuses", [])[0], "state": ended}
    world.patch(kinds.POD, NAMESPACE, name, {"status": {"phase": "Succeeded", "containerStatuses": [status]}}, "status")
    done = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z"}
    world.patch(kinds.PYTORCHJOB, NAMESPACE, objects.name(job), {"status": {"conditions": [done]}}, "status")
    run = f"run/{objects.uid(job)}"
    wait(lambda: run in written)
    assert sorted(written) == [f"pod/{objects.uid(pod)}", run]


def test_ranks_that_are_stopped_after_a_failure_are_told_in_its_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine they end seconds after the job has failed, and their pods go without a phase of their own."""
    told = ["rank 0 failed."]
    monkeypatch.setattr(history, "explain_workload", lambda *_: {"sentence": told[0], "incidents": []})
    identity, job = submit(world)
    give_pod(world, job)
    done = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z", "message": "it broke"}
    world.patch(kinds.PYTORCHJOB, NAMESPACE, objects.name(job), {"status": {"conditions": [done]}}, "status")
    wait(lambda: get(world, f"/api/v1/runs/{identity}")["verdict"] == "rank 0 failed.")
    told[0] = "rank 0 failed; rank 1 was then stopped."
    world.do(
        lambda: world.store.delete(
            kinds.POD, NAMESPACE, f"{objects.name(job)}-worker-0", options=DeleteOptions(grace=0)
        )
    )
    wait(lambda: get(world, f"/api/v1/runs/{identity}")["verdict"] == told[0])


@pytest.mark.parametrize(("kind", "phase", "verdict"), [("Succeeded", "Completed", "completed"), ("Failed", "Failed", "it broke")])  # fmt: skip
def test_a_run_that_ends_and_is_deleted_between_two_looks_is_known_by_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, phase: str, verdict: str
) -> None:
    monkeypatch.setattr(recorder, "_FIRST_LOOK", 3600.0)
    monkeypatch.setattr(recorder, "_LATEST_LOOK", 3600.0)  # only who reads makes it look
    identity, job = submit(world)
    assert get(world, f"/api/v1/runs/{identity}")["phase"] == "Creating"
    done = {"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z", "message": "it broke"}
    world.patch(kinds.PYTORCHJOB, NAMESPACE, objects.name(job), {"status": {"conditions": [done]}}, "status")
    remove(world, identity, job)
    run = get(world, f"/api/v1/runs/{identity}")
    assert (run["phase"], bool(run["finishedAt"]), bool(run["deletedAt"])) == (phase, True, True)
    assert verdict in run["verdict"].lower() and [
        one["id"] for one in get(world, "/api/v1/runs", phase=phase)["runs"]
    ] == [identity]


@pytest.mark.parametrize(
    ("phases", "attempts", "seconds"),
    [
        (
            ["Creating", "Initializing", "Failed", "Deleted"],
            1,
            1.0,
        ),  # nobody saw it run: on a real cluster it failed at once
        (["Creating", "Initializing", "Running", "Failed"], 1, 1.0),
        (["Creating", "Initializing", "Failed"], 0, None),  # its image did not come
        (["Creating", "Pending", "Deleted"], 0, None),
        (["Creating", "Failed", "Deleted"], 1, 1.0),  # nor were its pods seen
        (["Creating", "Pending", "Failed", "Deleted"], 1, 2.0),
    ],
)
def test_a_run_that_failed_at_once_has_run(phases: list[str], attempts: int, seconds: float | None) -> None:
    steps = [[float(at), phase, ""] for at, phase in enumerate(phases)]
    record = RunRecord("u", "i", "n", NAMESPACE, "v", "team-a", "PyTorchJob", 0.0, phase="Failed", attempts=attempts)
    assert _ran_for(PastRun(replace(record, body={"phases": steps}), [])) == seconds


def test_a_run_that_was_over_before_anybody_looked_counts_from_its_programs_begin() -> None:
    steps = [[1767323040.25, "Creating", ""], [1767323045.1, "Pending", ""], [1767323047.5, "Completed", ""]]
    record = RunRecord("u", "i", "n", NAMESPACE, "v", "team-a", "PyTorchJob", 0.0, phase="Completed", attempts=1)
    ended = {"terminated": {"exitCode": 0, "startedAt": "2026-01-02T03:04:06Z", "finishedAt": "2026-01-02T03:04:06Z"}}
    bodies = [
        {"status": {"containerStatuses": [{"name": "a", "state": {"waiting": {}}}, {"name": "b", "state": ended}]}},
        {},
    ]
    pods = [PodRecord(str(n), "u", str(n), 0.0, None, body) for n, body in enumerate(bodies)]
    assert _ran_for(PastRun(replace(record, body={"phases": steps}), pods)) == 1.5
