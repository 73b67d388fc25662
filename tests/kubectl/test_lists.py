"""`kind: List` through kubectl, which validates what is inside by itself, with the definitions of OpenAPI v2 in protobuf."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kubectl.walks import kubectl, missing

POD = {"containers": [{"name": "pytorch", "image": "none", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}
GOOD: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}},
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ranks"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]},
    },
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": POD},
    {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": POD}}}},
    },
    {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"}, "spec": {"resources": {}}},
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(why)
    with lent(tmp_path_factory.mktemp("lists")) as made:
        made.up()
        yield made


def written(folder: Path, *items: Any) -> str:
    path = folder / "list.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.mark.parametrize("command", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
def test_one_bad_item_and_nothing_is_made(cluster: Cluster, tmp_path: Path, command: tuple[str, ...]) -> None:
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {**POD, "nope": 1, "priority": "low"}}
    job = json.loads(json.dumps(GOOD[3]))
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restart"] = "never"
    said = cluster.run(kubectl(), *command, "-f", written(tmp_path, GOOD[0], bad, job), code=1)
    assert 'ValidationError(Pod.spec): unknown field "nope" in io.k8s.api.core.v1.PodSpec' in said
    assert (
        'ValidationError(Pod.spec.priority): invalid type for io.k8s.api.core.v1.PodSpec.priority: got "string"' in said
    )
    assert 'unknown field "restart" in org.kubeflow.v1.PyTorchJob.spec.pytorchReplicaSpecs' in said
    assert "settings" not in cluster.run(kubectl(), "get", "configmaps")


def test_a_list_of_one_kind_is_validated_too(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    job = {**GOOD[3], "spec": {"nope": 1}}
    path.write_text(json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJobList", "items": [job]}))
    said = cluster.run(kubectl(), "create", "-f", str(path), code=1)
    where, kind = "ValidationError(PyTorchJobList.items[0].spec)", "org.kubeflow.v1.PyTorchJob.spec"
    assert f'{where}: unknown field "nope" in {kind}' in said
    assert f'{where}: missing required field "pytorchReplicaSpecs" in {kind}' in said


def test_a_good_list_is_made_whole(cluster: Cluster, tmp_path: Path) -> None:
    said = cluster.run(kubectl(), "create", "--dry-run=server", "-f", written(tmp_path, *GOOD))
    assert [line.split()[0] for line in said.splitlines()] == [
        "configmap/settings",
        "service/ranks",
        "pod/alone",
        "pytorchjob.kubeflow.org/job",
        "queue.scheduling.run.ai/team",
    ]


def test_explain_reads_the_older_document_too(cluster: Cluster) -> None:
    said = cluster.run(kubectl(), "explain", "pods.spec.containers", "--output=plaintext-openapiv2")
    assert "KIND:     Pod" in said and "imagePullPolicy\t<string>" in said
