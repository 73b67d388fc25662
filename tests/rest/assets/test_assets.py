"""Assets and templates: stored, listed, changed, and used by submits that name them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.rest.conftest import World

from rowlock import kinds, objects
from rowlock.workloads.assets import asset_objects
from rowlock.workloads.assets.expansion import merge

A, W, T = "/api/v1/asset", "/api/v1/workloads", "/api/v1/workload-templates"
ENVIRONMENT = {
    "image": "torch:2", "command": "python train.py", "runAsUid": 1000, "workingDir": "/code",
    "environmentVariables": [{"name": "A", "value": "of the asset"}, {"name": "B", "value": "b"}],
}  # fmt: skip


def make(world: World, path: str, spec: Any, name: str = "one", **meta: Any) -> Any:
    scope = {"scope": "project", "projectId": int(world.project_id)} if not meta else {}
    return world.client.post(f"{A}/{path}", json={"meta": {"name": name, **scope, **meta}, "spec": spec})


@pytest.fixture
def lab(world: World) -> World:
    world.project_id = world.project()["id"]
    world.ensure_namespace(asset_objects.SHARED_NAMESPACE)
    return world


SPECS: dict[str, dict[str, Any]] = {
    "environment": ENVIRONMENT,
    "compute": {"gpuDevicesRequest": 1, "cpuCoreRequest": 0.5},
    "datasource/pvc": {"path": "/data", "existingPvc": True, "claimName": "data"},
    "datasource/host-path": {"path": "/srv", "mountPath": "/data"},
    "datasource/git": {"repository": "https://example.test/x.git", "path": "/code", "branch": "main"},
    "datasource/config-map": {"configMap": "settings", "mountPath": "/etc/settings"},
    "datasource/nfs": {"server": "nas", "path": "/data", "mountPath": "/data", "readOnly": False},
    "datasource/s3": {"bucket": "sets", "path": "/data", "url": "https://minio.test"},
}


@pytest.mark.parametrize("path", SPECS)
@pytest.mark.both_engines
def test_an_asset_from_create_to_delete(lab: World, path: str) -> None:
    made = make(lab, path, SPECS[path], description="for tests")
    assert made.status_code == 400, "a scope is needed"
    made = make(lab, path, SPECS[path])
    assert made.status_code == 202, made.text
    body = made.json()
    assert body["spec"] == SPECS[path]
    meta = body["meta"]
    assert (meta["scope"], meta["projectId"], meta["projectName"], meta["createdBy"]) == (
        "project",
        int(lab.project_id),
        "team-a",
        "ana",
    )
    one = f"{A}/{path}/{meta['id']}"
    assert lab.client.get(one).json() == body
    assert body in lab.client.get(f"{A}/{path}", params={"name": "one"}).json()["entries"]
    assert lab.client.get(f"{A}/{path}?name=other").json() == {"entries": []}
    assert make(lab, path, SPECS[path]).status_code == 409, "the name is taken"
    assert make(lab, path, SPECS[path], "one", scope="cluster", clusterId=lab.cluster).status_code == 202, (
        "in this scope only"
    )
    changed = lab.client.put(one, json={"meta": {"name": "other", "description": "new"}}).json()
    assert (changed["meta"]["name"], changed["meta"]["description"], changed["spec"]) == ("other", "new", SPECS[path])
    config_map = lab.store.view.get(kinds.CONFIG_MAP, "runai-team-a", f"asset-{meta['id']}")
    assert config_map is not None and objects.labels(config_map) == {"rowlock.dev/asset": meta["kind"]}
    other = "compute" if path == "environment" else "environment"
    assert lab.client.get(f"{A}/{other}/{meta['id']}").status_code == 404, "each kind has its path"
    assert lab.client.delete(one).status_code == 202
    assert lab.client.get(one).status_code == 404


@pytest.mark.parametrize(
    ("path", "spec", "field", "words"),
    [
        ("environment", {"img": "x"}, "spec.img", 'Did you mean "image"?'),
        ("environment", {}, "spec.image", "an image is needed"),
        ("environment", {"image": "x", "connections": [{"name": "jupyter"}]}, "spec.connections", "has no ingress"),
        (
            "environment",
            {"image": "x", "environmentVariables": [{"name": "1 2"}]},
            "spec.environmentVariables[0].name",
            "is not the name",
        ),
        ("compute", {"gpuPortionRequest": 2}, "spec.compute.gpuPortionRequest", "whole GPUs with gpuDevicesRequest"),
        ("compute", [], "spec", "must be a JSON object"),
        (
            "datasource/nfs",
            {"path": "/x", "mountPath": "/y"},
            "spec.storage.nfs[0].server",
            "address of the NFS server",
        ),
        (
            "datasource/s3",
            {"bucket": "b", "path": "x"},
            "spec.storage.s3[0].path",
            "must be a directory of the container",
        ),
        (
            "datasource/s3",
            {"bucket": "b", "path": "/x", "url": "minio"},
            "spec.storage.s3[0].url",
            "must begin with http",
        ),
        ("datasource/secrets", {"mountPath": "/x"}, "spec.credentialAssetId", "needs the id of a credential"),
        ("datasource/pvc", {"path": "/x"}, "spec.storage.pvc[0].claimInfo.size", "a new claim needs a size"),
        (
            "datasource/git",
            {"repository": "x", "path": "/x", "credentialId": "y"},
            "spec.credentialId",
            "there is no credential 'y' of the kind password",
        ),
    ],
)
def test_what_a_submit_could_not_say_an_asset_cannot(lab: World, path: str, spec: Any, field: str, words: str) -> None:
    answer = make(lab, path, spec)
    issues = {issue["field"]: issue["details"] for issue in answer.json()["complianceIssues"]}
    assert answer.status_code == 400 and words in issues[field], answer.text


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"scope": "system"}, "must be one of project, department, cluster and tenant"),
        ({"scope": "project"}, "says which project"),
        ({"scope": "project", "projectId": 7}, "project '7' was not found"),
        ({"scope": "department", "departmentId": "x"}, "there is no department 'x'"),
        ({"scope": "cluster", "clusterId": "x"}, "there is no cluster 'x'"),
        ({"scope": "cluster", "private": True}, "users who may read a project's ConfigMaps"),
        ({"scop": "cluster"}, 'Did you mean "scope"?'),
    ],
)
def test_a_scope_that_is_none(lab: World, meta: dict[str, Any], words: str) -> None:
    answer = make(lab, "compute", {"cpuCoreRequest": 1}, **meta)
    assert answer.status_code == 400 and words in answer.json()["message"]


def test_small_fraction_is_there_from_the_beginning(lab: World) -> None:
    listed = {one["meta"]["name"]: one for one in lab.client.get(f"{A}/compute").json()["entries"]}
    assert set(listed) == {"small-fraction", "half-gpu", "one-gpu", "cpu-only"}
    one = f"{A}/compute/{listed['small-fraction']['meta']['id']}"
    for method in ("PUT", "DELETE"):
        answer = lab.client.request(method, one, json={"meta": {"name": "x"}})
        assert answer.status_code == 409 and "built in" in answer.json()["message"]
    body = {"name": "tiny", "projectId": "team-a", "spec": {"image": "i"}, "assets": {"compute": "small-fraction"}}
    made = lab.client.post(f"{W}/trainings", json=body)
    assert made.status_code == 202 and made.json()["spec"]["compute"]["gpuPortionRequest"] == 0.1


@pytest.mark.both_engines
def test_a_submit_names_its_assets(lab: World) -> None:
    """What the request says itself wins; lists of named items are merged, data sources add volumes."""
    environment = make(lab, "environment", ENVIRONMENT).json()["meta"]["id"]
    compute = make(lab, "compute", SPECS["compute"]).json()["meta"]["id"]
    source = make(lab, "datasource/host-path", SPECS["datasource/host-path"]).json()["meta"]["id"]
    assets = {"environment": environment, "compute": compute, "datasources": [{"id": source, "kind": "hostPath"}]}
    own = {
        "workingDir": "/other", "compute": {"cpuCoreRequest": 2}, "environmentVariables": [{"name": "A", "value": "mine"}],
        "storage": {"emptyDirVolume": [{"path": "/scratch"}]},
    }  # fmt: skip
    body = {"name": "named", "projectId": lab.project_id, "spec": {**own, "numWorkers": 1}, "assets": assets}
    made = lab.client.post(f"{W}/distributed", json=body)
    assert made.status_code == 202, made.text
    job = lab.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "named")
    pod = objects.dig(job, "spec.pytorchReplicaSpecs.Worker.template.spec")
    (container,) = pod["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (container["image"], container["command"], container["workingDir"]) == (
        "torch:2",
        ["python", "train.py"],
        "/other",
    )
    assert (env["A"], env["B"], pod["securityContext"]["runAsUser"]) == ("mine", "b", 1000)
    assert (
        container["resources"]["limits"] == {"nvidia.com/gpu": "1"} and container["resources"]["requests"]["cpu"] == "2"
    )
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/data", "/scratch"}
    (listed,) = lab.client.get(W).json()["workloads"]
    assert listed["environments"] == [{"id": environment, "name": "one"}]
    assert listed["datasources"] == [{"id": source, "name": "one", "type": "hostPath"}]
    assert lab.client.delete(f"{A}/environment/{environment}").status_code == 202, "the workload has its values"
    assert lab.client.get(f"{W}/distributed/{made.json()['workloadId']}").json()["spec"]["image"] == "torch:2"


@pytest.mark.parametrize(
    ("assets", "field", "words"),
    [
        ({"environment": "x"}, "assets.environment", "no asset of the kind environment 'x'"),
        ({"enviroment": "x"}, "assets.enviroment", 'Did you mean "environment"?'),
        ({"datasources": [{"id": "x", "kind": "tape"}]}, "assets.datasources[0].kind", "must be one of pvc"),
        ({"datasources": [{"id": "x", "kind": "git"}]}, "assets.datasources[0].id", "no asset of the kind git"),
    ],
)
def test_an_asset_that_is_not_there(lab: World, assets: Any, field: str, words: str) -> None:
    body = {"name": "x", "projectId": "team-a", "spec": {"image": "i"}, "assets": assets}
    answer = lab.client.post(f"{W}/trainings", json=body)
    issues = {issue["field"]: issue["details"] for issue in answer.json()["complianceIssues"]}
    assert answer.status_code == 400 and words in issues[field], answer.text


@pytest.mark.both_engines
def test_an_asset_of_another_project_cannot_be_named(lab: World) -> None:
    make(lab, "environment", ENVIRONMENT)
    lab.project("team-b")
    body = {"name": "x", "projectId": "team-b", "assets": {"environment": "one"}}
    assert lab.client.post(f"{W}/trainings", json=body).status_code == 400
    fitting = lab.client.get(f"{A}/environment", params={"complyToProject": "team-b"}).json()
    assert fitting == {"entries": []} and lab.client.get(f"{A}/environment?complyToProject=x").status_code == 400


# ---------------------------------------------------------------- templates


def template(world: World, word: str, spec: dict[str, Any], **more: Any) -> Any:
    meta = {"name": "one", "scopeType": "project", "scopeId": world.project_id}
    return world.client.post(f"{T}/{word}", json={"meta": meta, "spec": spec, **more})


def test_a_template_that_is_not_taken_any_more_says_so(lab: World) -> None:
    """An older version stored it, with words that this one refuses."""
    made = template(lab, "distributed", {"image": "i"}).json()
    config_map = lab.store.view.get(kinds.CONFIG_MAP, "runai-team-a", f"asset-{made['meta']['id']}")
    assert config_map is not None
    stored = json.loads(config_map["data"][asset_objects.DATA_KEY])
    stored |= {"id": "older", "name": "older", "content": {"spec": {"image": "i", "gpuTopology": "x"}}}
    metadata = {"name": "asset-older", "namespace": "runai-team-a", "labels": {asset_objects.LABEL: stored["kind"]}}
    lab.create(kinds.CONFIG_MAP, {"metadata": metadata, "data": {asset_objects.DATA_KEY: json.dumps(stored)}})
    submit = {"name": "x", "projectId": "team-a", "templateId": "older", "spec": {}}
    refusal = lab.client.post(f"{W}/distributed", json=submit).json()["message"]
    listed = {one["meta"]["name"]: one["runnable"] for one in lab.client.get(T).json()["entries"]}
    assert listed == {"one": {"isRunnable": True, "issue": None}, "older": {"isRunnable": False, "issue": refusal}}
    assert "gpuTopology" in refusal


@pytest.mark.both_engines
def test_a_template_from_create_to_delete(lab: World) -> None:
    spec = {"image": "i", "numWorkers": 3, "compute": {"cpuCoreRequest": 1}}
    made = template(lab, "distributed", spec, master={"spec": {"image": "m"}})
    assert made.status_code == 202, made.text
    body = made.json()
    assert (body["meta"]["workloadType"], body["meta"]["scopeId"]) == ("Distributed", lab.project_id)
    assert body["combinedSpec"] == spec and body["runnable"]["isRunnable"] is True
    one = f"{T}/distributed/{body['meta']['id']}"
    assert lab.client.get(one).json() == lab.client.get(f"{T}/{body['meta']['id']}").json() == body
    assert lab.client.get(T).json() == {"entries": [body], "pagination": {"limit": 50, "offset": 0, "nextOffset": None}}
    assert lab.client.get(f"{T}/trainings").json()["entries"] == [] and lab.client.get(f"{T}/count").json() == {
        "count": 1
    }
    for name, free in (("one", False), ("two", True)):
        assert lab.client.get(f"{T}/name-availability?templateName={name}").json() == {"available": free}
    submit = {"name": "from", "projectId": "team-a", "templateId": body["meta"]["id"], "spec": {"numWorkers": 1}}
    workload = lab.client.post(f"{W}/distributed", json=submit)
    assert workload.status_code == 202, workload.text
    assert workload.json()["spec"] == {**spec, "numWorkers": 1} and workload.json()["masterSpec"] == {"image": "m"}
    patched = lab.client.patch(
        one, json={"meta": {"name": "two"}, "spec": {"compute": {"cpuMemoryRequest": "1G"}}}
    ).json()
    assert (
        patched["spec"]["compute"] == {"cpuCoreRequest": 1, "cpuMemoryRequest": "1G"}
        and patched["meta"]["name"] == "two"
    )
    assert lab.client.put(one, json={"meta": {"name": "two"}, "spec": {"image": "j"}}).json()["spec"] == {"image": "j"}
    assert lab.client.delete(one).status_code == 202 and lab.client.get(one).status_code == 404


@pytest.mark.parametrize(
    ("word", "spec", "words"),
    [
        ("distributed", {"numWorker": 2}, 'Did you mean "numWorkers"?'),
        ("trainings", {"numWorkers": 2}, "there is no such field"),
        ("workspaces", {"compute": {"gpuPortionRequest": 7}}, "whole GPUs with gpuDevicesRequest"),
    ],
)
def test_a_template_that_nobody_could_submit(lab: World, word: str, spec: dict[str, Any], words: str) -> None:
    answer = template(lab, word, spec)
    assert answer.status_code == 400 and words in answer.json()["message"]


@pytest.mark.both_engines
def test_a_template_names_data_sources(lab: World) -> None:
    """What a submit names itself is mounted besides, each source once; a source that is gone by then is told."""
    source, other = (
        make(lab, "datasource/host-path", {"path": "/srv", "mountPath": path}, name).json()["meta"]["id"]
        for name, path in (("books", "/books"), ("films", "/films"))
    )
    assets = {"datasources": [{"id": source, "kind": "hostPath"}]}
    storage = {"hostPath": [{"path": "/own", "mountPath": "/own"}]}
    made = template(lab, "distributed", {"image": "i", "numWorkers": 1, "storage": storage}, assets=assets)
    assert made.status_code == 202 and made.json()["assets"] == assets, made.text
    identity = made.json()["meta"]["id"]
    one = f"{T}/distributed/{identity}"
    assert lab.client.patch(one, json={"spec": {"numWorkers": 2}}).json()["assets"] == assets
    for name, own, paths in (
        ("kept", {}, ["/books"]),
        ("more", {"assets": {"datasources": [{"id": other}]}}, ["/books", "/films"]),
        ("again", {"assets": {"datasources": [{"id": "books"}]}}, ["/books"]),
    ):
        body = {"name": name, "projectId": "team-a", "templateId": identity, **own}
        answer = lab.client.post(f"{W}/distributed", json=body)
        assert answer.status_code == 202, answer.text
        job = lab.store.view.get(kinds.PYTORCHJOB, "runai-team-a", name)
        (container,) = objects.dig(job, "spec.pytorchReplicaSpecs.Worker.template.spec.containers")
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == [*paths, "/own"], name
    assert lab.client.delete(f"{A}/datasource/host-path/{source}").status_code == 202
    body = {
        "name": "x",
        "projectId": "team-a",
        "spec": {"image": "i", "storage": "x"},
        "assets": {"datasources": [{"id": other}]},
    }
    nonsense = lab.client.post(f"{W}/trainings", json=body)
    assert nonsense.status_code == 400 and "storage: must be an object" in nonsense.json()["message"]
    gone = lab.client.post(f"{W}/distributed", json={"name": "late", "projectId": "team-a", "templateId": identity})
    assert gone.status_code == 400 and "no asset of the kind hostPath" in gone.json()["message"]
    assert lab.client.put(one, json={"meta": {"name": "one"}, "spec": {"image": "i"}}).json()["assets"] is None


@pytest.mark.parametrize(
    ("assets", "words"),
    [
        ({"datasources": [{"id": "nowhere"}]}, "there is no data source 'nowhere'."),
        ({"datasources": [{"id": "books", "kind": "git"}]}, "there is no data source 'books' of the kind git."),
        ({"datasources": [{"idd": "books"}]}, 'Did you mean "id"?'),
        ({"datasource": []}, 'Did you mean "datasources"?'),
        ([], "must be an object"),
    ],
)
def test_a_template_names_no_asset_that_is_not_there(lab: World, assets: Any, words: str) -> None:
    make(lab, "datasource/host-path", {"path": "/srv", "mountPath": "/books"}, "books")
    answer = template(lab, "trainings", {"image": "i"}, assets=assets)
    assert answer.status_code == 400 and words in answer.json()["message"], answer.text


def test_a_template_of_another_type_is_not_there(lab: World) -> None:
    made = template(lab, "trainings", {"image": "i"}).json()["meta"]["id"]
    submit = {"name": "x", "projectId": "team-a", "templateId": made, "spec": {}}
    assert lab.client.post(f"{W}/workspaces", json=submit).status_code == 400
    assert lab.client.post(f"{W}/trainings", json=submit).status_code == 202
    assert lab.client.get(f"{T}/workspaces/{made}").status_code == 404


# ---------------------------------------------------------------- what anybody may have written


@pytest.mark.parametrize("text", ["", "null", "[]", "{", json.dumps({"id": "x", "kind": 1}), "[" * 9000 + "]" * 9000])
def test_nonsense_in_a_config_map_is_no_asset(lab: World, text: str) -> None:
    metadata = {"name": "asset-x", "namespace": "runai-team-a", "labels": {asset_objects.LABEL: "environment"}}
    lab.create(kinds.CONFIG_MAP, {"metadata": metadata, "data": {asset_objects.DATA_KEY: text}})
    assert lab.client.get(f"{A}/environment").json() == {"entries": []}
    assert lab.submit(projectId=lab.project_id).status_code == 202


def test_nobody_makes_an_asset_of_the_cluster_out_of_a_project_s() -> None:
    asset = asset_objects.Asset("x", "compute", "evil", "cluster", namespace="runai-team-a", content={})
    assert asset_objects.read_object(asset_objects.to_object(asset)) is None
    shared = asset_objects.Asset("x", "compute", "good", "cluster", namespace="kube-public", content={})
    assert asset_objects.read_object(asset_objects.to_object(shared)) == shared


def test_merging() -> None:
    base = {"a": 1, "list": [1], "named": [{"name": "x", "v": 1}, {"name": "y"}], "deep": {"p": 1, "q": 2}}
    over = {"a": None, "list": [2], "named": [{"name": "x", "v": 2}], "deep": {"q": 3}}
    assert merge(base, over) == {
        "a": 1, "list": [2], "named": [{"name": "y"}, {"name": "x", "v": 2}], "deep": {"p": 1, "q": 3},
    }  # fmt: skip
