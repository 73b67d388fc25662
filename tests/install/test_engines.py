"""`rowlock diff-engines`: what differs between an embedded and a real cluster is told, and what is each run's own is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server
from tests.end_to_end.cluster import Cluster, lent

from rowlock.errors import BadRequest
from rowlock.kube.comparison import engines
from rowlock.kube.comparison.engines import compare, observe_job, read_job
from rowlock.objects import dig


def job(**spec: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "rowlock.dev/host", "command": ["sh", "-c", "true"]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    replicas = {"Master": replica, "Worker": {**replica, "replicas": 2}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "both"},
        "spec": {"pytorchReplicaSpecs": replicas, **spec},
    }


def pod(**env: str) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {"metadata": {"name": "both-master-0"}, "spec": {"containers": [{"name": "pytorch", "env": variables}]}}


def test_a_variable_that_differs_is_told_under_both_clusters() -> None:
    left, right = (observe_job(job(), [pod(RANK="0", WORLD_SIZE=size)], []) for size in ("3", "2"))
    found = compare(left, right)
    assert found["environment"] == ["- both-master-0 pytorch WORLD_SIZE=3", "+ both-master-0 pytorch WORLD_SIZE=2"]
    assert not any(lines for section, lines in found.items() if section != "environment")


def test_events_of_kubelets_and_schedulers_are_each_clusters_own() -> None:
    regarding = {"kind": "PyTorchJob", "name": "both"}
    own = {"type": "Normal", "reason": "SuccessfulCreatePod", "message": "m", "involvedObject": regarding}
    foreign = [{**own, "reason": "Scheduled"}, {**own, "involvedObject": {"kind": "Pod", "name": "both-master-0"}}]
    assert observe_job(job(), [], [own, *foreign]).events == ("Normal SuccessfulCreatePod: m",)


def test_a_file_without_one_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("kind: Service\n---\n[1]\n")
    with pytest.raises(BadRequest, match="holds 0 jobs"):
        read_job(path)
    with pytest.raises(BadRequest, match="cannot be read"):
        read_job(tmp_path / "absent.yaml")


@pytest.mark.parametrize("lines, code", [([], 0), (["- both-master-0 pytorch RANK=0"], 1)])
def test_differences_as_json(
    lines: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def compared(*_: Any, log: Callable[[str], None], **__: Any) -> dict[str, list[str]]:
        log("1 variables")
        return {"pods": [], "environment": lines}

    monkeypatch.setattr(engines, "compare_engines", compared)
    assert engines.print_differences("job.yaml", "a", "b", context="", wait=1.0, as_json=True) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"pods": [], "environment": lines} and "1 variables" in printed.err


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of an embedded cluster, which stands for the real one (that is in `tests/kube_evidence/test_real_node.py`)."""
    with embedded_server(tmp_path_factory.mktemp("other"), "rowlock.serve", "--warm-start", "off") as kubeconfig:
        yield kubeconfig


def test_a_job_of_three_ranks_has_the_same_pods_and_variables_on_both(other: Path, tmp_path: Path) -> None:
    compare_with(other, tmp_path, [job()])


def roles(kind: str, field: str, container: str, **counts: int) -> dict[str, Any]:
    """A job of another framework, with this many pods of each role."""
    template = {"spec": {"containers": [{"name": container, "image": "rowlock.dev/host", "command": ["true"]}]}}
    specs = {
        role: {"replicas": count, "restartPolicy": "Never", "template": template} for role, count in counts.items()
    }
    return {**job(), "kind": kind, "spec": {field: specs}}


def changed(**changes: Any) -> dict[str, Any]:
    """The job of three ranks, with other fields of its worker, of its pods or of its container."""
    made: dict[str, Any] = json.loads(json.dumps(job()))
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    pod = worker["template"]["spec"]
    worker |= changes.get("replica", {})
    pod |= changes.get("pod", {})
    pod["containers"][0] |= changes.get("container", {})
    worker["template"]["metadata"] = changes.get("metadata", {})
    return made


def twenty_jobs() -> list[dict[str, Any]]:
    """Each of a kind, or with a field, that changes what an operator makes."""
    port = {"name": "pytorchjob-port", "containerPort": 29400}
    scratch = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    workers_only = {"Worker": job()["spec"]["pytorchReplicaSpecs"]["Worker"]}
    return [
        job(),
        job(runPolicy={"cleanPodPolicy": "All"}),
        job(runPolicy={"suspend": True}),
        job(runPolicy={"backoffLimit": 3, "ttlSecondsAfterFinished": 60}),
        job(nprocPerNode="2"),
        job(pytorchReplicaSpecs=workers_only),
        changed(replica={"replicas": 1}),
        changed(replica={"restartPolicy": "ExitCode"}),
        changed(replica={"restartPolicy": "OnFailure"}),
        changed(container={"env": [{"name": "MASTER_PORT", "value": "1"}, {"name": "MINE", "value": "2"}]}),
        changed(container={"ports": [port]}),
        changed(container={"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}}}),
        changed(pod={"initContainers": [{"name": "first", "image": "rowlock.dev/host", "command": ["true"]}]}),
        changed(pod={"nodeSelector": {"pool": "a"}, "tolerations": [{"operator": "Exists"}]}),
        changed(pod=scratch, container={"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}),
        changed(metadata={"labels": {"team": "a"}, "annotations": {"note": "b"}}),
        roles("TFJob", "tfReplicaSpecs", "tensorflow", Chief=1, PS=1, Worker=2),
        roles("TFJob", "tfReplicaSpecs", "tensorflow", Worker=2, Evaluator=1),
        roles("XGBoostJob", "xgbReplicaSpecs", "xgboost", Master=1, Worker=2),
        roles("JAXJob", "jaxReplicaSpecs", "jax", Worker=2),
    ]


def test_there_are_twenty_of_them_and_all_differ() -> None:
    assert len({json.dumps(one, sort_keys=True) for one in twenty_jobs()}) == 20


def compare_with(other: Path, directory: Path, jobs: list[dict[str, Any]]) -> None:
    """Four at a time: most of it is waiting for what the operators do."""
    with lent(directory) as served:
        served.up("--pretend-nodes", "1", "--without", "kubelet,scheduler")

        def compare_job(number: int, wanted: dict[str, Any]) -> str:
            path = directory / f"job-{number}.json"
            path.write_text(json.dumps(wanted))
            command = ("rowlock", "diff-engines", "-f", str(path), "--kubeconfig", str(other), "--wait", "4s")
            return served.run(*command, code=None)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(compare_job, range(len(jobs)), jobs))
        for wanted, told in zip(jobs, answers, strict=True):
            assert "pods: the same" in told and "environment: the same" in told, f"{told}\n{json.dumps(wanted)}"
            is_suspended = dig(wanted, "spec.runPolicy.suspend")
            assert is_suspended or not told.startswith("0 variables"), told
        assert not leftovers(served), "nothing stays behind"
        refusal = served.run("rowlock", "diff-engines", "-f", "/nowhere.yaml", "--kubeconfig", str(other), code=2)
        assert "cannot be read" in refusal


def leftovers(served: Cluster) -> list[str]:
    found = served.api("GET", "/api/v1/namespaces")["items"]
    active = [n["metadata"]["name"] for n in found if n["status"]["phase"] == "Active"]
    return [name for name in active if name.startswith("rowlock-diff-")]
