"""Kinds of which nothing is stored: lists, tables and single objects of them, and what is said to who would write one."""

from __future__ import annotations

import httpx
import pytest

from rowlock.apiserver.discovery import computed_kinds

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def path_of(row: computed_kinds.ComputedKind, space: str) -> str:
    kind = row.kind
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    return f"{root}/namespaces/{space.rpartition('/')[2]}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


@pytest.mark.parametrize("row", computed_kinds.UNSERVED, ids=lambda row: row.kind.name)
def test_there_are_none_and_nobody_makes_one(
    client: httpx.Client, space: str, row: computed_kinds.ComputedKind
) -> None:
    path = path_of(row, space)
    listed = client.get(path).json()
    assert (listed["kind"], listed["apiVersion"], listed["items"]) == (f"{row.kind.name}List", row.kind.api_version, [])
    assert client.get(path, headers=TABLE).json()["rows"] == []
    made = client.post(path, json={"metadata": {"name": "a"}})
    assert (made.status_code, made.json()["message"]) == (405, row.refusal)
    assert client.get(path, params={"watch": "1"}).status_code == 405
    assert client.get(f"{path}/a").status_code == 404
    assert client.delete(path).status_code == 200


def test_definitions_are_those_of_the_custom_kinds(client: httpx.Client) -> None:
    names = [crd["metadata"]["name"] for crd in client.get(CRDS).json()["items"]]
    assert "pytorchjobs.kubeflow.org" in names and names == sorted(names)
    one = client.get(f"{CRDS}/queues.scheduling.run.ai").json()
    assert (one["kind"], one["spec"]["names"]["plural"]) == ("CustomResourceDefinition", "queues")
    table = client.get(f"{CRDS}/queues.scheduling.run.ai", headers=TABLE).json()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Created At"]
    assert [row["cells"][0] for row in table["rows"]] == ["queues.scheduling.run.ai"]
    missing = client.get(f"{CRDS}/none.example.test")
    assert (missing.status_code, missing.json()["reason"]) == (404, "NotFound")
    assert client.delete(CRDS).status_code == 405


def test_endpoints_are_the_pods_of_a_service(client: httpx.Client, space: str) -> None:
    spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "web"}]}
    client.post(f"{space}/services", json={"metadata": {"name": "s", "labels": {"x": "y"}}, "spec": spec})
    container = {"name": "c", "image": "x", "ports": [{"name": "web", "containerPort": 8080}]}
    pod = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [container], "nodeName": "n"}}
    client.post(f"{space}/pods", json=pod)
    status = {"podIP": "10.0.0.9", "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    merge = {"Content-Type": "application/merge-patch+json"}
    client.patch(f"{space}/pods/p/status", json={"status": status}, headers=merge).raise_for_status()
    answer = client.get(f"{space}/endpoints")
    assert "deprecated" in answer.headers["warning"]
    (endpoints,) = answer.json()["items"]
    assert endpoints["subsets"][0]["addresses"][0]["ip"] == "10.0.0.9"
    assert endpoints["subsets"][0]["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert client.get(f"{space}/endpoints", headers=TABLE).json()["rows"][0]["cells"][:2] == ["s", "10.0.0.9:8080"]
    assert client.get(f"{space}/endpoints/s").json()["kind"] == "Endpoints"
    assert client.get(f"{space}/endpoints", params={"labelSelector": "x=z"}).json()["items"] == []
    slices = space.replace("/api/v1", "/apis/discovery.k8s.io/v1") + "/endpointslices"
    label = {"labelSelector": "kubernetes.io/service-name=s"}
    (one,) = client.get(slices, params=label).json()["items"]
    assert one["endpoints"][0]["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert client.post(slices, json={}).status_code == 405
