"""Phases and presentation by equality: objects in, Run:ai's words out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from rowlock.workloads import projects, submission
from rowlock.workloads.compute import pod_gpus
from rowlock.workloads.objects import Submitter, to_job
from rowlock.workloads.phase import pod_status, workload_status
from rowlock.workloads.runai_json import completed_at, is_preemptible, priority_class

T = "2026-01-01T00:00:0{}Z"
GROUP: dict[str, Any] = {"status": {}}
RUNNING = {"running": {"startedAt": T.format(1)}}


def job(*conditions: str, suspend: bool = False, deleted: bool = False, workers: int = 1) -> dict[str, Any]:
    found = [{"type": c, "status": "True", "lastTransitionTime": T.format(2), "message": f"{c}."} for c in conditions]
    return {
        "metadata": {"name": "j", "creationTimestamp": T.format(0), **({"deletionTimestamp": "x"} if deleted else {})},
        "spec": {
            "runPolicy": {"suspend": suspend},
            "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": workers}},
        },
        "status": {"conditions": found},
    }


def pod(phase: str = "Pending", state: dict[str, Any] | None = None, node: str = "n", **status: Any) -> dict[str, Any]:
    states = [{"name": "pytorch", "state": state}] if state is not None else []
    return {
        "metadata": {"name": "j-worker-0"},
        "spec": {"nodeName": node, "initContainers": [{"name": "init-pytorch"}]},
        "status": {"phase": phase, "containerStatuses": states, **status},
    }


UP = pod("Running", RUNNING)
DONE = pod("Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}})
FAILED = pod("Failed", {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": T.format(3)}})
WAITING = pod(state={"waiting": {"reason": "ErrImagePull", "message": "no image"}})
CREATING = pod(state={"waiting": {"reason": "ContainerCreating"}})
UNPLACED = pod(node="")


@pytest.mark.parametrize(
    ("phase", "status", "made", "pods", "group"),
    [
        ("Creating", "Pending", job(), [], None),
        ("Pending", "Pending", job("Created"), [], GROUP),
        ("Pending", "Pending", job("Created"), [UNPLACED, UNPLACED], GROUP),
        ("Initializing", "ContainerCreating", job("Created"), [CREATING, CREATING], GROUP),
        ("Initializing", "ErrImagePull", job("Created"), [WAITING, CREATING], GROUP),
        ("Initializing", "ContainerCreating", job("Created"), [UP, CREATING], GROUP),
        ("Running", "Running", job("Created", "Running"), [UP, UP], GROUP),
        ("Running", "Running", job("Created", "Running"), [UP, DONE], GROUP),
        ("Degraded", "Error", job("Created", "Running"), [UP], GROUP),
        ("Degraded", "Error", job("Created", "Running"), [UP, FAILED], GROUP),
        ("Stopping", "Terminating", job("Created", suspend=True), [UP], GROUP),
        ("Stopped", "Suspended", job("Suspended", suspend=True), [], None),
        ("Resuming", "Pending", job("Suspended"), [], None),
        ("Completed", "Succeeded", job("Succeeded"), [DONE, UP], GROUP),
        ("Failed", "Failed", job("Failed"), [FAILED], GROUP),
        ("Deleting", "Terminating", job("Running", deleted=True), [UP, UP], GROUP),
    ],
)
def test_phases(phase: str, status: str, made: dict[str, Any], pods: list[Any], group: dict[str, Any] | None) -> None:
    found = workload_status(made, pods, group)
    assert (found.phase, found.status) == (phase, status)


WAITS = {"reasons": [{"reason": "FairShareExhausted", "message": "no room is idle."}]}


@pytest.mark.parametrize(
    ("least", "pods", "phase", "status", "message"),
    [
        (1, [UP, UNPLACED], "Degraded", "Running", "no room is idle. Meanwhile 1 of 2 pods run."),
        (2, [UP, UNPLACED], "Pending", "Pending", "no room is idle."),
        (1, [UNPLACED, UNPLACED], "Pending", "Pending", "no room is idle."),
        (1, [UP, CREATING], "Initializing", "ContainerCreating", ""),
        (1, [UP, WAITING], "Degraded", "ErrImagePull", "j-worker-0: no image"),
    ],
    ids=["minimum runs", "below the minimum", "nothing runs", "the other starts", "the other cannot start"],
)
def test_an_elastic_job_that_waits_to_grow(least: int, pods: list[Any], phase: str, status: str, message: str) -> None:
    group = {"spec": {"minMember": least}, "status": {"schedulingConditions": [WAITS]}}
    found = workload_status(job("Created", "Running"), pods, group)
    assert (found.phase, found.status, found.message) == (phase, status, message)


def test_a_failed_job_names_its_first_failure() -> None:
    assert workload_status(job("Failed"), [FAILED], GROUP).message == "j-worker-0 was killed by signal 9. Failed."


def test_a_program_that_could_not_start_says_why() -> None:
    ended = {"exitCode": 128, "reason": "StartError", "message": 'exec: "x": executable file not found in $PATH'}
    never = pod("Failed", {"terminated": ended})
    said = workload_status(job("Failed"), [never], GROUP).message
    assert said.startswith('j-worker-0 could not start: exec: "x": executable file not found in $PATH. ')


def test_the_schedulers_sentence_is_the_message() -> None:
    reasons = [{"reason": "GangDoesNotFit", "message": "needs 4 GPUs; 1 is free"}]
    group = {"status": {"schedulingConditions": [{"reason": "Unschedulable", "message": "x", "reasons": reasons}]}}
    found = workload_status(job("Created"), [UNPLACED, UNPLACED], group)
    assert (found.message, found.reason) == ("needs 4 GPUs; 1 is free", "GangDoesNotFit")


@pytest.mark.parametrize(
    ("action", "note"),
    [("reclaim", "preempted; it starts again when there is room. "), ("preempt", "preempted; "), ("lost", "evicted. ")],
)
def test_a_job_that_waits_because_its_room_was_taken_says_so(action: str, note: str) -> None:
    reasons = [{"reason": "FairShareExhausted", "message": "no room is idle."}]
    waits = [{"reason": "Unschedulable", "message": "x", "reasons": reasons}]
    group = {"status": {"schedulingConditions": waits, "evicted": {"action": action, "time": "2026-01-01T00:00:00Z"}}}
    found = workload_status(job("Created", "Running"), [UNPLACED, UNPLACED], group)
    assert found.phase == "Pending" and found.message.startswith(note)
    assert found.message.endswith(" no room is idle.") and found.reason == "FairShareExhausted"
    assert workload_status(job("Failed"), [FAILED], group).message == "j-worker-0 was killed by signal 9. Failed."


def test_an_init_container_is_shown_as_kubectl_does() -> None:
    waits = pod(initContainerStatuses=[{"name": "init-pytorch", "state": {"running": {}}}])
    assert pod_status(waits) == "Init:0/1"


PROJECT = projects.Project("1", "Team_A", "runai-team-a", "team-a", "default", "", Decimal(1), Decimal(-1))


def made(**fields: Any) -> dict[str, Any]:
    body = {"name": "j", "projectId": "1", "spec": {"image": "i", **fields}}
    return to_job(submission.parse_submission(body), PROJECT, Submitter("uuid", "ana@example.com"))


@pytest.mark.parametrize(
    ("framework", "kind", "key", "roles"),
    [
        ("PyTorch", "PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 3}),
        ("TF", "TFJob", "tfReplicaSpecs", {"Chief": 1, "Worker": 3}),
        ("MPI", "MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": 3}),
        ("XGBoost", "XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 3}),
        ("JAX", "JAXJob", "jaxReplicaSpecs", {"Worker": 3}),
    ],
)
def test_frameworks(framework: str, kind: str, key: str, roles: dict[str, int]) -> None:
    found = made(distributedFramework=framework, numWorkers=3, command="run it", compute={"gpuDevicesRequest": 2})
    assert found["kind"] == kind
    assert {role: r["replicas"] for role, r in found["spec"][key].items()} == roles
    gpus = {role: int(pod_gpus(r["template"])) for role, r in found["spec"][key].items()}
    assert gpus == {role: 0 if role == "Launcher" else 2 for role in roles}
    worker = found["spec"][key]["Worker"]["template"]["spec"]["containers"][0]
    assert ("command" in worker) == (framework != "MPI")


def test_no_master_and_master_alone() -> None:
    assert list(made(noMaster=True)["spec"]["pytorchReplicaSpecs"]) == ["Worker"]
    assert list(made(noWorkers=True)["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def container_variables(job: dict[str, Any], role: str = "Worker") -> dict[str, Any]:
    container = job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"][0]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def test_the_ranks_of_a_group_without_a_master_meet_at_worker_0() -> None:
    """The operator names an address and ranks only where there is a Master."""
    found = container_variables(made(noMaster=True, numWorkers=3, nprocPerNode="2"))
    index = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    group = {"ADDR": "j-worker-0", "PORT": "23456"}
    assert {f"MASTER_{name}": found[f"MASTER_{name}"] for name in group} == {f"MASTER_{k}": v for k, v in group.items()}
    assert {f"PET_MASTER_{n}": found[f"PET_MASTER_{n}"] for n in group} == {
        f"PET_MASTER_{k}": v for k, v in group.items()
    }
    assert (found["WORLD_SIZE"], found["RANK"], found["PET_NODE_RANK"]) == ("6", index, index)
    own = container_variables(
        made(noMaster=True, numWorkers=2, environmentVariables=[{"name": "MASTER_ADDR", "value": "x"}])
    )
    assert (own["MASTER_ADDR"], own["WORLD_SIZE"]) == ("x", "2")


@pytest.mark.parametrize(
    "fields",
    [{}, {"noMaster": True, "minReplicas": 1, "maxReplicas": 2}, {"noMaster": True, "distributedFramework": "TF"}],
)
def test_where_the_operator_says_how_ranks_meet_the_submit_is_silent(fields: dict[str, Any]) -> None:
    job = made(numWorkers=2, **fields)
    assert "MASTER_ADDR" not in str(job) and "RANK" not in str(job)


def test_labels_carry_what_labels_may_carry() -> None:
    labels = made()["metadata"]["labels"]
    assert (labels["project"], labels["user"], labels["kai.scheduler/queue"]) == ("team-a", "ana-example.com", "team-a")


@pytest.mark.parametrize(
    ("name", "fixed"),
    [("My_Job", "my-job"), ("1st", "job-1st"), ("x" * 60, "x" * 49), ("---", "job"), ("a--b-", "a-b")],
)
def test_a_refused_name_comes_with_one_that_is_not(name: str, fixed: str) -> None:
    assert submission.valid_name(name) == fixed


@pytest.mark.parametrize(("name", "namespace"), [("team-a", "runai-team-a"), ("project_name", "runai-project-name")])
def test_project_names_are_mangled(name: str, namespace: str) -> None:
    assert projects.namespace_of(name) == namespace


def test_a_share_by_memory_is_counted_as_a_part_of_a_card() -> None:
    def share(mebibytes: int, **more: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {"gpu-memory": str(mebibytes), **more}}}

    assert pod_gpus(share(4000), 16000) == Decimal("0.25")
    assert pod_gpus(share(2000), 81559) == Decimal("0.0245")
    assert pod_gpus(share(4000, **{"gpu-fraction-num-devices": "2"}), 16000) == Decimal("0.5")
    assert pod_gpus(share(4000)) == 0  # nobody knows the card


@pytest.mark.parametrize("reason", ["CreateContainerError", "CreateContainerConfigError", "RunContainerError"])
def test_a_pod_that_cannot_start_says_so(reason: str) -> None:
    waiting = pod(state={"waiting": {"reason": reason, "message": "no such file"}})
    found = workload_status(job("Created"), [CREATING, waiting], GROUP)
    assert (found.phase, found.status, found.message) == ("Initializing", reason, "j-worker-0: no such file")


def test_a_failure_without_a_time_has_no_time() -> None:
    """Whoever writes a status by hand may leave the time out; the list of everybody's workloads failed with a KeyError."""
    failed = job("Failed")
    del failed["status"]["conditions"][0]["lastTransitionTime"]
    assert completed_at(failed) is None
    assert completed_at(job("Failed")) == T.format(2)
    assert completed_at(job("Running")) is None


@pytest.mark.parametrize(
    ("label", "template", "shown"),
    [
        ("", {}, ("low", True)),
        ("build", {"spec": {"priorityClassName": "train"}}, ("build", False)),
        (
            "",
            {"metadata": {"labels": {"priorityClassName": "high"}}, "spec": {"priorityClassName": "train"}},
            ("high", False),
        ),
        ("", {"spec": {"priorityClassName": "inference"}}, ("inference", False)),
    ],
)
def test_the_priority_is_read_where_the_scheduler_reads_it(
    label: str, template: dict[str, Any], shown: tuple[str, bool]
) -> None:
    metadata = {"name": "j", "namespace": "n", "labels": {"priorityClassName": label} if label else {}}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    assert (priority_class(made), is_preemptible(made)) == shown
