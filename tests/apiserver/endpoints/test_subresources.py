"""Small things that kubectl shows: gates of a pod, the table of a scale, selectors of fields that nobody wrote."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def test_a_gated_pod_says_so_from_the_first_moment(client: httpx.Client, space: str) -> None:
    gated = {
        **POD,
        "spec": {**POD["spec"], "schedulingGates": [{"name": "example.com/wait"}], "schedulerName": "other"},
    }
    (condition,) = client.post(f"{space}/pods", json=gated).json()["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert condition["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    rows = client.get(f"{space}/pods", headers=TABLE).json()["rows"]
    assert [row["cells"][2] for row in rows] == ["SchedulingGated"]


def test_a_pod_outside_the_hosts_network_is_found_by_that(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/pods", json=POD)
    for wanted, names in (("false", ["p"]), ("true", [])):
        found = client.get(f"{space}/pods", params={"fieldSelector": f"spec.hostNetwork={wanted}"}).json()["items"]
        assert [item["metadata"]["name"] for item in found] == names


def test_the_scale_of_a_job_is_a_table_too(client: httpx.Client, space: str) -> None:
    where = space.replace("/api/v1", "/apis/kubeflow.org/v1") + "/pytorchjobs"
    container = {"name": "pytorch", "image": "x:1"}
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    made = client.post(where, json={**job, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}})
    assert made.status_code == 201, made.text
    shown = client.get(f"{where}/j/scale", headers=TABLE).json()
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert shown["rows"][0]["cells"][:3] == ["j", 2, 0]
    assert list(client.get(f"{where}/j/scale").json()["metadata"])[-2:] == ["resourceVersion", "creationTimestamp"]


def test_whoever_is_impersonated_with_a_uid_has_it(client: httpx.Client) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    jane = {"impersonate-user": "jane", "impersonate-uid": "u1"}
    made = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review, headers=jane)
    assert made.json()["status"]["userInfo"] == {"username": "jane", "uid": "u1", "groups": ["system:authenticated"]}


def test_an_address_that_is_set_stays_and_is_complained_of_once(client: httpx.Client, space: str) -> None:
    spec = {"clusterIP": "None", "ports": [{"port": 80}]}
    client.post(f"{space}/services", json={"metadata": {"name": "s"}, "spec": spec})
    kind = {"content-type": "application/merge-patch+json"}
    answer = client.patch(f"{space}/services/s", json={"spec": {"clusterIP": "10.0.0.9"}}, headers=kind)
    said = 'spec.clusterIPs[0]: Invalid value: ["10.0.0.9"]: may not change once set'
    assert answer.json()["message"] == f'Service "s" is invalid: {said}'


def test_impersonation_in_several_groups(client: httpx.Client) -> None:
    """kubectl sends a header for each `--as-group`."""
    path, headers = "/apis/authentication.k8s.io/v1/selfsubjectreviews", [("impersonate-user", "jane")]
    both = [*headers, ("impersonate-group", "a"), ("impersonate-group", "b,c")]
    info = client.post(path, json={}, headers=both).json()["status"]["userInfo"]
    assert info["groups"] == ["a", "b,c", "system:authenticated"]
    account = client.post(path, json={}, headers={"impersonate-user": "system:serviceaccount:team:x"}).json()
    groups = ["system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"]
    assert account["status"]["userInfo"]["groups"] == groups and account["metadata"]["creationTimestamp"]


@pytest.mark.parametrize(
    ("kind", "spec", "code", "said"),
    [
        (
            "selfsubjectaccessreviews",
            {},
            422,
            '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of'
            " nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": {}},
            422,
            '.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be'
            " specified",
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": 5},
            400,
            'SelfSubjectAccessReview in version "v1" cannot be handled as a SelfSubjectAccessReview: json: cannot unmarshal'
            " number into Go struct field SelfSubjectAccessReviewSpec.spec.resourceAttributes of type v1.ResourceAttributes",
        ),
        ("selfsubjectrulesreviews", {}, 400, "no namespace on request"),
    ],
)
def test_a_question_that_is_none(client: httpx.Client, kind: str, spec: object, code: int, said: str) -> None:
    answer = client.post(f"/apis/authorization.k8s.io/v1/{kind}", json={"spec": spec})
    assert (answer.status_code, answer.json()["message"]) == (code, said)


def test_a_token_of_nobody(client: httpx.Client) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert client.post(path, json={"spec": {"token": "x"}}).json()["status"] == {
        "user": {},
        "error": "invalid bearer token",
    }
    answer = client.post(path, json={"spec": {}})
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "token is required for TokenReview in authentication",
    )


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("limit=-1", 200, None),
        ("fieldSelector=metadata.name%3Da%5C%2Cb", 200, None),
        ("fieldSelector=metadata.name%3Da%3Db", 400, "invalid field selector: unescaped character in value: 61"),
        ("fieldSelector=metadata.name%3Da%5Cb", 400, "invalid field selector: invalid escape sequence: \\b"),
        (
            "labelSelector=a%3Ex",
            400,
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an"
            " integer",
        ),
        (
            "resourceVersion=bogus",
            400,
            'invalid resource version: resourceVersion: Invalid value: "bogus": strconv.ParseUint: parsing "bogus":'
            " invalid syntax",
        ),
    ],
)
def test_what_a_list_is_asked_for(client: httpx.Client, query: str, code: int, said: str | None) -> None:
    answer = client.get(f"/api/v1/configmaps?{query}")
    assert (answer.status_code, answer.json().get("message")) == (code, said)


ABSENT = "rowlock has no Deployment objects: create pods, or a job of kubeflow.org/v1 (PyTorchJob, TFJob, MPIJob …)"


def test_kinds_that_are_not_here_are_none(client: httpx.Client) -> None:
    """`kubectl get all` and `kubectl apply --prune` ask for many of them."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    found = client.get(path).json()
    assert (found["kind"], found["apiVersion"], found["items"]) == ("DeploymentList", "apps/v1", [])
    assert client.get(path, headers=TABLE).json()["rows"] == []
    missing = client.get(f"{path}/web")
    assert (missing.status_code, missing.json()["message"]) == (404, 'deployments.apps "web" not found')
    made = client.post(path, json={"metadata": {"name": "web"}})
    assert (made.status_code, made.json()["message"]) == (405, ABSENT)
    (listed,) = [r for r in client.get("/apis/apps/v1").json()["resources"] if r["name"] == "deployments"]
    assert listed["verbs"] == ["get", "list"] and listed["categories"] == ["all"]


def test_a_config_map_may_be_called_like_a_kind(client: httpx.Client, space: str) -> None:
    for name in ("deployments", "jobs", "endpoints"):
        client.post(f"{space}/configmaps", json={"metadata": {"name": name}})
        assert client.get(f"{space}/configmaps/{name}").json()["metadata"]["name"] == name


def test_endpoints_of_a_service(client: httpx.Client, space: str) -> None:
    spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    client.post(f"{space}/services", json={"metadata": {"name": "ranks"}, "spec": spec})
    client.post(f"{space}/pods", json={**POD, "metadata": {"name": "p", "labels": {"a": "b"}}})
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.7", "phase": "Running"}
    headers = {"content-type": "application/merge-patch+json"}
    client.patch(f"{space}/pods/p/status", json={"status": ready}, headers=headers)
    answer = client.get(f"{space}/endpoints", headers=TABLE)
    (row,) = answer.json()["rows"]
    assert row["cells"][:2] == ["ranks", "10.0.0.7:80"] and "deprecated" in answer.headers["warning"]
    (found,) = client.get(f"{space}/endpoints").json()["items"]
    assert found["subsets"][0]["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
