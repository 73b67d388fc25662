"""TrainJobs and JobSets, made with kubectl, as rowlock's commands show them: each once, with ranks over all its Jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kubectl.walks import kubectl, missing

SPACE = "runai-default"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
SPEAK = "import os, time; print('number', os.environ['JOB_COMPLETION_INDEX'], flush=True); time.sleep(1000)"
DIVIDE = "import os, time; os.environ['JOB_COMPLETION_INDEX'] == '1' and 1 / 0; time.sleep(1000)"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("trainjobs")) as made:
        made.up()
        yield made


def apply(machine: Cluster, path: Path, *objects: dict[str, Any]) -> None:
    program = kubectl() or pytest.skip(missing())
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    machine.run(program, "apply", "-n", SPACE, "-f", str(path))


def train_job(name: str, program: str) -> dict[str, Any]:
    trainer = {"numNodes": 2, "image": "rowlock.dev/host", "command": ["python3", "-c", program]}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def job_set(name: str, program: str, **replicas: int) -> dict[str, Any]:
    """Replicated jobs, each with Jobs of two pods."""
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["python3", "-c", program]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod}}
    jobs = [{"name": one, "replicas": count, "template": {"spec": job}} for one, count in replicas.items()]
    spec = {"replicatedJobs": jobs}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


def listed(machine: Cluster) -> dict[str, str]:
    rows = machine.json("rowlock", "list", "--json")
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)), names
    return {row["name"]: row["phase"] for row in rows}


def gone(machine: Cluster, name: str) -> None:
    def pods() -> list[dict[str, Any]]:
        return list(machine.api("GET", f"{PODS}?labelSelector=jobset.sigs.k8s.io/jobset-name={name}")["items"])

    machine.until(lambda: not pods(), f"the pods of {name} to go", 120)


def test_a_trainjob_is_one_workload_from_its_start_to_its_history(machine: Cluster, tmp_path: Path) -> None:
    apply(machine, tmp_path / "objects.json", train_job("shown", SPEAK))
    machine.run("rowlock", "wait", "shown", "--for", "running", "--timeout", "200s")
    assert listed(machine) == {"shown": "Running"}
    machine.until(lambda: "[rank 1] number 1" in machine.run("rowlock", "logs", "shown"), "the programs to speak")
    assert "2 running, 0 pending" in machine.run("rowlock", "describe", "shown")
    assert machine.run("rowlock", "exec", "shown", "--rank", "1", "--", "printenv", "PET_NNODES") == "2\n"
    machine.until(lambda: "rank 1" in machine.run("rowlock", "top", "shown"), "its use to be measured")
    machine.run("rowlock", "suspend", "shown")
    machine.until(lambda: listed(machine) == {"shown": "Stopped"}, "it to be stopped", 120)
    gone(machine, "shown")
    machine.run("rowlock", "resume", "shown")
    machine.run("rowlock", "wait", "shown", "--for", "running", "--timeout", "200s")
    machine.until(lambda: "[rank 0] number 0" in machine.run("rowlock", "logs", "shown"), "the programs to speak")
    machine.run("rowlock", "delete", "shown")
    gone(machine, "shown")
    assert listed(machine) == {}
    machine.until(lambda: "shown" in machine.run("rowlock", "history"), "the history to know it")
    machine.until(
        lambda: "[rank 1] number 1" in machine.run("rowlock", "logs", "shown", code=None), "its logs to be kept", 120
    )


def test_a_jobset_numbers_the_ranks_of_all_its_jobs(machine: Cluster, tmp_path: Path) -> None:
    apply(machine, tmp_path / "objects.json", job_set("ranks", SPEAK, w=2), job_set("roles", SPEAK, a=1, b=2))
    for name in ("ranks", "roles"):
        machine.run("rowlock", "wait", name, "--for", "running", "--timeout", "200s")
    assert listed(machine) == {"ranks": "Running", "roles": "Running"}
    machine.until(lambda: machine.run("rowlock", "logs", "ranks").count("number") == 4, "the programs to speak")
    assert sorted(machine.run("rowlock", "logs", "ranks").splitlines()) == [
        "[rank 0] number 0", "[rank 1] number 1", "[rank 2] number 0", "[rank 3] number 1"
    ]  # fmt: skip
    machine.until(lambda: machine.run("rowlock", "logs", "roles").count("number") == 6, "the programs to speak")
    assert sorted(machine.run("rowlock", "logs", "roles").splitlines()) == [
        "[a-0] number 0", "[a-1] number 1", "[b-0] number 0", "[b-1] number 1", "[b-2] number 0", "[b-3] number 1"
    ]  # fmt: skip
    assert machine.run("rowlock", "exec", "ranks", "--rank", "3", "--", "hostname") == "ranks-w-1-1\n"
    machine.run("rowlock", "suspend", "ranks")
    machine.until(lambda: listed(machine)["ranks"] == "Stopped", "it to be stopped", 120)
    ends = "was stopped (suspend: its job was suspended)"
    machine.until(lambda: machine.run("rowlock", "why", "ranks").count(ends) == 4, "the ends of its pods to be told")
    machine.run("rowlock", "resume", "ranks")
    machine.run("rowlock", "wait", "ranks", "--for", "running", "--timeout", "200s")
    for name in ("ranks", "roles"):
        machine.run("rowlock", "delete", name)
        gone(machine, name)
    assert listed(machine) == {}


def test_a_rank_that_fails_is_named_for_its_workload(machine: Cluster, tmp_path: Path) -> None:
    apply(machine, tmp_path / "objects.json", job_set("broken", DIVIDE, w=1), train_job("again", DIVIDE))
    machine.until(lambda: listed(machine).get("broken") == "Failed", "the set to fail", 120)
    error = "ended with exit code 1"
    for name in ("broken", "again"):
        machine.until(
            lambda: "rank 1 (pod" in (told := machine.run("rowlock", "why", name)) and "ZeroDivisionError" in told,  # noqa: B023
            f"the reason of {name} to be told",
            120,
        )
        assert error in machine.run("rowlock", "why", name)
    machine.run("rowlock", "explain", "broken")
    for name in ("broken", "again"):
        machine.run("rowlock", "delete", name)
        gone(machine, name)


def test_labels_alone_make_no_pod_a_part(machine: Cluster, tmp_path: Path) -> None:
    """A Job with the labels of a set's, and no owner, is a workload of its own."""
    apply(machine, tmp_path / "objects.json", job_set("real", SPEAK, w=1))
    machine.run("rowlock", "wait", "real", "--for", "running", "--timeout", "200s")
    labels = {"jobset.sigs.k8s.io/jobset-name": "real", "jobset.sigs.k8s.io/replicatedjob-name": "w"}
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sleep", "1000"]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forged", "labels": labels}}
    apply(machine, tmp_path / "objects.json", {**job, "spec": {"template": template}})
    machine.run("rowlock", "wait", "forged", "--for", "running", "--timeout", "200s")
    assert listed(machine) == {"real": "Running", "forged": "Running"}
    assert "2 running, 0 pending" in machine.run("rowlock", "describe", "real")
    for name in ("forged", "real"):
        machine.run("rowlock", "delete", name)
    gone(machine, "real")


INITIALIZERS = "ghcr.io/kubeflow/trainer/{}-initializer"
READ = "cat /workspace/dataset/rows.csv /workspace/model/weights.txt"


def initialized_runtime() -> dict[str, Any]:
    """As the torchtune runtimes are, with a program that any machine has."""
    mounts = [{"name": "initializer", "mountPath": "/workspace"}]

    def job(name: str, step: str, image: str, **more: Any) -> dict[str, Any]:
        container = {"name": name, "image": image, "volumeMounts": mounts}
        metadata = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}
        spec = {"template": {"spec": {"containers": [container]}}}
        return {"name": name, "template": {"metadata": metadata, "spec": spec}, **more}

    steps = ("dataset-initializer", "model-initializer")
    after = [{"name": step, "status": "Complete"} for step in steps]
    jobs = [job(step, step, INITIALIZERS.format(step.partition("-")[0])) for step in steps]
    jobs.append(job("node", "trainer", "rowlock.dev/host", dependsOn=after))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"templates": [{"metadata": {"name": "initializer"}, "spec": claim}]}]
    template = {"spec": {"replicatedJobs": jobs, "volumeClaimPolicies": claims}}
    metadata = {"name": "initialized", "labels": {"trainer.kubeflow.org/framework": "torch"}}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": metadata}
    return {**head, "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template}}


def test_data_and_model_are_there_before_the_trainer_starts(machine: Cluster, tmp_path: Path) -> None:
    for what in ("dataset", "model"):
        machine.run("rowlock", "image", "add", INITIALIZERS.format(what), "--host")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("1,2\n")
    (tmp_path / "weights.txt").write_text("0.5\n")
    sources = {"dataset": (tmp_path / "data").as_uri(), "model": (tmp_path / "weights.txt").as_uri()}
    job = train_job("initialized", "")
    job["spec"] = {
        "runtimeRef": {"kind": "TrainingRuntime", "name": "initialized"},
        "initializer": {what: {"storageUri": uri} for what, uri in sources.items()},
        "trainer": {"command": ["sh", "-c", READ]},
    }
    apply(machine, tmp_path / "runtime.json", initialized_runtime())
    apply(machine, tmp_path / "job.json", job)
    machine.until(
        lambda: listed(machine).get("initialized") == "Completed",
        lambda: machine.run("rowlock", "why", "initialized"),
        180,
    )
    log = machine.run("rowlock", "logs", "initialized")
    assert "[rank 0] 1,2\n[rank 0] 0.5\n" in log
    assert f"copied {tmp_path}/data to /workspace/dataset\n" in log
    machine.run("rowlock", "delete", "initialized")
    gone(machine, "initialized")


def test_data_that_cannot_be_fetched_is_the_reason(machine: Cluster, tmp_path: Path) -> None:
    for what in ("dataset", "model"):
        machine.run("rowlock", "image", "add", INITIALIZERS.format(what), "--host")
    job = train_job("unfetched", "")
    job["spec"] = {
        "runtimeRef": {"kind": "TrainingRuntime", "name": "initialized"},
        "initializer": {"dataset": {"storageUri": "s3://bucket/rows"}, "model": {"storageUri": tmp_path.as_uri()}},
        "trainer": {"command": ["sh", "-c", READ]},
    }
    apply(machine, tmp_path / "runtime.json", initialized_runtime())
    apply(machine, tmp_path / "job.json", job)

    def told() -> str:
        return machine.run("rowlock", "why", "unfetched").splitlines()[0]

    waits = "node starts when dataset-initializer has completed."

    def is_told(sentence: str) -> bool:
        begins = sentence.startswith("dataset-initializer-0 (pod unfetched-dataset-initializer-0-0-")
        because = "'s3://bucket/rows', and what stands for" in sentence and "ended with exit code 1" in sentence
        return begins and because and sentence.endswith(waits)

    machine.until(lambda: is_told(told()), told, 120)  # in one answer: the next attempt may begin between two
    (row,) = machine.json("rowlock", "list", "--json")
    assert row["phaseMessage"].endswith(waits), row["phaseMessage"]
    machine.run("rowlock", "delete", "unfetched")
    gone(machine, "unfetched")


def test_a_step_that_never_starts_says_so(machine: Cluster, tmp_path: Path) -> None:
    """The check of JobSet's webhook lets a replicated job depend on itself."""
    jobs = job_set("waits", "", a=1, b=1)
    jobs["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "b", "status": "Complete"}]
    apply(machine, tmp_path / "objects.json", jobs)
    never = "b never starts: its dependsOn names b itself."
    machine.until(lambda: never in machine.run("rowlock", "list"), lambda: machine.run("rowlock", "list"))
    assert machine.run("rowlock", "why", "waits").splitlines()[0] == never
    assert never in machine.run("rowlock", "explain", "waits")
    machine.run("rowlock", "delete", "waits")
    gone(machine, "waits")


def test_what_keeps_a_trainjob_from_having_pods_is_told(machine: Cluster, tmp_path: Path) -> None:
    """A quota refuses the pods of its Job, which is not the TrainJob's own event."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    apply(machine, tmp_path / "objects.json", quota, train_job("refused", SPEAK))
    try:
        for face in ("list", "why", "explain", "describe"):
            name = () if face == "list" else ("refused",)
            machine.until(
                lambda: "exceeded quota: none" in machine.run("rowlock", face, *name),  # noqa: B023
                lambda: machine.run("rowlock", face, *name),  # noqa: B023
            )
    finally:
        machine.api("DELETE", f"/api/v1/namespaces/{SPACE}/resourcequotas/none")
    machine.run("rowlock", "wait", "refused", "--for", "running", "--timeout", "200s")
    machine.run("rowlock", "delete", "refused")
    gone(machine, "refused")
