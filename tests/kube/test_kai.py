"""Jobs for KAI Scheduler: what `rowlock up --kubeconfig` makes where KAI's kinds are, on a real API server. KAI itself does not run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.test_served_cluster import kubectl

from rowlock.gangs.dialects import BIND_REQUEST
from rowlock.kube.installation import crd_objects

NINE_NUMBERS = {"quota", "limit", "overQuotaWeight"}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster with the training operator and KAI's three kinds."""
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("kai")
    with real_cluster(directory, "--operator") as path:
        kinds = directory / "kinds.json"
        kinds.write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [*crd_objects(), bind_request_crd()]})
        )
        kubectl(path, "apply", "-f", str(kinds))
        kubectl(path, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield path


def bind_request_crd() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": BIND_REQUEST.version, "served": True, "storage": True, "schema": schema}
    names = {"kind": BIND_REQUEST.name, "plural": BIND_REQUEST.plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": BIND_REQUEST.resource},
        "spec": {"group": BIND_REQUEST.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture
def served(tmp_path: Path, kubeconfig: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        yield made


@pytest.mark.real
def test_jobs_and_queues_are_as_kai_wants_them(served: Cluster, kubeconfig: Path) -> None:
    refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(kubeconfig), "--scheduler", "own", code=1)
    assert "two gang schedulers" in refusal
    assert "warning" not in served.run("rowlock", "up", "-d", "--kubeconfig", str(kubeconfig))
    served.run("rowlock", "project", "create", "team-a", "--gpus", "4")
    resources = json.loads(kubectl(kubeconfig, "get", "queue", "team-a", "-o", "json"))["spec"]["resources"]
    assert {name: set(numbers) for name, numbers in resources.items()} == dict.fromkeys(
        ("cpu", "memory", "gpu"), NINE_NUMBERS
    )
    assert resources["gpu"]["quota"] == 4

    submit = ("runai", "submit-dist", "pytorch", "shares", "-i", "x", "--workers=1", "-p", "team-a")
    served.run(*submit, "-g", "0.5")
    job = json.loads(kubectl(kubeconfig, "get", "pytorchjob", "shares", "-n", "runai-team-a", "-o", "json"))
    assert job["metadata"]["labels"]["kai.scheduler/queue"] == "team-a"
    served.until(lambda: len(pods(kubeconfig)) == 2, "the operator makes the pods")
    for pod in pods(kubeconfig):
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "team-a"
        assert pod["metadata"]["annotations"]["gpu-fraction"] == "0.5"
    found = {finding["what"]: finding for finding in doctor(served, kubeconfig)}
    assert found["scheduler"]["found"] == "KAI Scheduler" and found["runtime class"]["state"] == "bad"


def pods(kubeconfig: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kubectl(kubeconfig, "get", "pods", "-n", "runai-team-a", "-o", "json"))[
        "items"
    ]
    return found


def doctor(served: Cluster, kubeconfig: Path) -> list[dict[str, Any]]:
    said = served.run("rowlock", "doctor", "--kubeconfig", str(kubeconfig), "--json", code=1)
    found: list[dict[str, Any]] = json.loads(said)
    return found
