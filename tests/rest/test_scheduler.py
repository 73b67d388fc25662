"""`rowlock scheduler snapshot` and `rowlock explain --what-if`: questions to the scheduler of a running cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.rest.conftest import World
from tests.rest.served import Served

from rowlock import kinds
from rowlock.scheduling.model.snapshot import Gang
from rowlock.simulator.replay import main as replay
from rowlock.workloads import dry_run_gangs

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: new}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      template:
        spec:
          containers:
          - {name: pytorch, image: host, env: [{name: KEY, value: hunter2}], resources: {limits: {nvidia.com/gpu: 1}}}
    Worker: {<<: *replica, replicas: WORKERS}
"""


def job(tmp_path: Path, workers: int, text: str = JOB) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text.replace("WORKERS", str(workers)))
    return str(path)


def test_a_snapshot_replays_and_keeps_secrets(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.node("a", 1)
    served.ok("runai submit-dist pytorch big --workers=3 -g 1 -i host -e PASSWORD=hunter2")
    served.until(lambda: len(served.pods()) == 4)

    async def secret() -> None:
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "runai-default"}}
        await served.store.create(kinds.SECRET, {**made, "stringData": {"k": "hunter2"}})

    served.do(secret)
    text = served.ok("rowlock scheduler snapshot")
    assert "hunter2" not in text and "PASSWORD" not in text and "aHVudGVyMg" not in text
    path = tmp_path / "s.json"
    told = served.ok(f"rowlock scheduler snapshot -o {path}")
    assert told.startswith(f"{path}: 1 nodes, ") and told.endswith(" 1 gangs\n")
    replay([str(path)])
    assert "1 of 4 pods fit" in capsys.readouterr().out


def test_what_if_starts(served: Served, tmp_path: Path) -> None:
    served.node("a", 4)
    text = served.ok(f"rowlock explain --what-if -f {job(tmp_path, 3)}")
    assert text == "runai-default/new would start now: 4 pods on node a (4).\n"
    assert served.pods() == {} and served.ok("rowlock list") == "No jobs in project default.\n"


def test_what_if_of_a_job_that_exists_asks_about_one_more(served: Served, tmp_path: Path) -> None:
    served.node("a", 4)
    served.ok("runai submit-dist pytorch new --workers=1 -g 1 -i host")
    served.bound(2)
    text = served.ok(f"rowlock explain --what-if -f {job(tmp_path, 1)}")
    assert text == "runai-default/new-again would start now: 2 pods on node a (2).\n"
    assert len(served.pods()) == 2


def test_without_a_scheduler_there_is_nothing_to_ask(world: World) -> None:
    world.project()
    for answer in (
        world.client.get("/api/v1/scheduler/snapshot"),
        world.client.post("/api/v1/scheduler/what-if", json={"objects": [POD], "project": "team-a"}),
    ):
        assert answer.status_code == 409 and "without rowlock's scheduler" in answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([], "a list of at least one manifest"),
        ({"objects": []}, "a list of at least one manifest"),
        ({"objects": [3]}, "a list of at least one manifest"),
        ({"objects": [{}] * 101}, "101 objects were given; the limit is 100"),
        ({"objects": [POD], "project": "team-b"}, 'Did you mean "team-a"?'),
        ({"objects": [POD], "projct": "team-a"}, 'Did you mean "project"?'),
        ({"objects": [POD], "clusterId": "c"}, "Its fields are objects and project."),
        ({"objects": [{"kind": "Pod", "apiVersion": "v1"}], "project": "team-a"}, "metadata with a name is missing"),
    ],
)
def test_questions_that_are_none(world: World, body: Any, sentence: str) -> None:
    world.project()
    answer = world.client.post("/api/v1/scheduler/what-if", json=body)
    assert answer.status_code == 400 and sentence in answer.json()["message"], answer.text


def test_what_if_waits_and_says_what_would_start(served: Served, tmp_path: Path) -> None:
    served.node("a", 4)
    path = job(tmp_path, 7)
    text = served.ok(f"rowlock explain --what-if -f {path}")
    assert "would wait: " in text and "4 of 8 pods fit" in text
    assert "  it would start now: ask for 4 pods instead of 8\n" in text
    body = json.loads(served.ok(f"rowlock explain --what-if -f {path} --json"))
    (outcome,) = body["outcomes"]
    assert (outcome["verdict"], outcome["record"]["podsFit"], outcome["places"]) == ("waits", 4, [])


def test_what_if_of_other_kinds(served: Served, tmp_path: Path) -> None:
    """A TFJob, an MPIJob, and bare pods with their PodGroup."""
    served.node("a", 2)
    tf = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: t}\nspec: {tfReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [{name: tensorflow, image: host}]}}}}}\n"
    assert "would start now: 2 pods" in served.ok(f"rowlock explain --what-if -f {job(tmp_path, 0, tf)}")
    mpi = (
        "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: m}\nspec: {mpiReplicaSpecs: {Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi, image: host}]}}},"
        " Worker: {replicas: 3, template: {spec: {containers: [{name: mpi, image: host, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}}\n"
    )
    assert "ask for 3 pods instead of 4" in (
        text := served.ok(f"rowlock explain --what-if -f {job(tmp_path, 0, mpi)}")
    ), text
    pod = "\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d, annotations: {pod-group-name: g}}\nspec: {containers: [{name: c, image: host}]}\n"
    group = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 2, queue: default}\n"
    path = job(tmp_path, 0, group + pod % 1 + pod % 2)
    assert "runai-default/g would start now: 2 pods" in served.ok(f"rowlock explain --what-if -f {path}")


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("--what-if", 2, "needs the file"),
        ("--what-if train -f x.yaml", 2, "leave out one of the two"),
        ("-f x.yaml train", 2, "`--file` needs `--what-if`"),
        ("--what-if -f /nowhere.yaml", 1, "/nowhere.yaml cannot be read: No such file"),
    ],
)
def test_what_if_lines_that_mean_nothing(served: Served, line: str, code: int, sentence: str) -> None:
    got, out, err = served.run(f"rowlock explain {line}")
    assert (got, out) == (code, "") and sentence in err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "is not YAML in line "),
        ("", "holds no object"),
        ("- 1\n", "holds list where an object"),
        ("kind: Deployment\napiVersion: apps/v1\n", "creates no pods for apps/v1 Deployment"),
        (JOB.replace("PyTorchJob", "PyTorchJobs"), 'Did you mean "PyTorchJob"'),
        (JOB.replace("spec:\n  pytorch", "spec:\n  sytorch"), "sytorchReplicaSpecs"),
    ],
)
def test_what_if_files_that_are_wrong(served: Served, tmp_path: Path, text: str, sentence: str) -> None:
    code, out, err = served.run(f"rowlock explain --what-if -f {job(tmp_path, 1, text)}")
    assert (code, out) == (1, "") and sentence in err, err


def test_a_pod_group_without_pods_is_refused(served: Served, tmp_path: Path) -> None:
    group = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 2}\n"
    code, _, err = served.run(f"rowlock explain --what-if -f {job(tmp_path, 0, group)}")
    assert code == 1 and "no Pod of the file names the PodGroup g" in err


def test_a_question_of_many_pods_holds_nobody_up(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods are made and planned beside the event loop, and there is a limit to them."""
    served.node("a", 1)
    path, real = job(tmp_path, 3), dry_run_gangs.dry_run_gangs
    loops: list[asyncio.AbstractEventLoop] = []

    def build(*given: Any) -> list[Gang]:
        with contextlib.suppress(RuntimeError):
            loops.append(asyncio.get_running_loop())
        return real(*given)

    monkeypatch.setattr(dry_run_gangs, "dry_run_gangs", build)
    monkeypatch.setattr(dry_run_gangs, "MOST_PODS", 4)
    served.ok(f"rowlock explain --what-if -f {path}")
    (tmp_path / "jobs.yaml").write_text(
        "---".join(JOB.replace("WORKERS", "3").replace("new", f"n{number}") for number in range(3))
    )
    code, _, text = served.run(f"rowlock explain --what-if -f {tmp_path / 'jobs.yaml'}")
    assert code == 1 and "the limit of one question is 4" in text, text
    assert not loops
