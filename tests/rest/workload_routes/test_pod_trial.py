"""What no pod can be made with is refused at submit, and by a dry run as by the real create."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rest.conftest import World, admitting_world, submission

from rowlock import kinds

PATH = "/api/v1/workloads/distributed"


@pytest.fixture
def strict(tmp_path: Path) -> Any:
    yield from admitting_world(tmp_path)


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
@pytest.mark.parametrize(
    ("body", "status", "field", "words"),
    [
        ({"labels": [{"name": "a b", "value": "c"}]}, 400, "spec.labels", "no pod can be made with it: Invalid value"),
        ({"annotations": [{"name": "a b", "value": "c"}]}, 400, "spec.annotations", "no pod can be made with it"),
        (
            {"masterSpec": {"labels": [{"name": "a b", "value": "c"}]}},
            400,
            "masterSpec.labels",
            "no pod can be made with it",
        ),
        (
            {"compute": {"extendedResources": [{"resource": "foo", "quantity": "1"}]}},
            400,
            "spec.compute.extendedResources",
            "no pod can be made with it",
        ),
        ({"numWorkers": 3000}, 400, "spec.numWorkers", "the job asks for 3001 pods"),
    ],
)
def test_it_is_refused(strict: World, query: str, body: dict[str, Any], status: int, field: str, words: str) -> None:
    strict.project()
    answer = strict.client.post(PATH + query, json=submission(**body))
    assert answer.status_code == status, answer.text
    issues = {issue["field"]: issue["details"] for issue in answer.json()["complianceIssues"]}
    assert list(issues) == [field] and words in issues[field]
    assert strict.client.get("/api/v1/workloads/count").json() == {"count": 0}


@pytest.mark.parametrize("framework", ["PyTorch", "TF", "MPI", "XGBoost", "JAX"])
def test_what_pods_can_be_made_with_is_taken(strict: World, framework: str) -> None:
    strict.project()
    body = submission(distributedFramework=framework, labels=[{"name": "a", "value": "c"}])
    assert strict.client.post(f"{PATH}?dryRun=true", json=body).status_code == 200
    assert strict.client.post(PATH, json=body).status_code == 202
    assert strict.client.post(f"{PATH}?dryRun=true", json=body).status_code == 200, "the name may be taken"


def test_a_pod_that_is_there_refuses_no_job(strict: World) -> None:
    """Its name is an earlier job's, whose own refusal says what to do; or that job is this very submit, sent again."""
    strict.project()
    container = {"name": "c", "image": "i"}
    metadata = {"name": "dist-train1-master-0", "namespace": "runai-team-a"}
    strict.create(
        kinds.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    )
    assert strict.submit().status_code == 202
    assert "please delete it first" in strict.submit().json()["message"]


def test_a_check_says_it_of_a_manifest(strict: World) -> None:
    strict.project()
    job = strict.client.post(f"{PATH}?dryRun=true", json=submission()).json()["objects"][-1]
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"]["a b"] = "c"
    answer = strict.client.post("/api/v1/check", json={"objects": [job], "project": "team-a"})
    (result,) = answer.json()["results"]
    assert result["refused"] == "" and any(
        "no pod can be made with it: metadata.labels" in r for r in result["remarks"]
    )
