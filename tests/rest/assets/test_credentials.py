"""Credentials: what is secret lies in a Secret of the project, and in no answer; data sources and pods use it."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from tests.rest.assets.test_assets import A, W, make
from tests.rest.assets.test_assets import lab as lab
from tests.rest.conftest import World

from rowlock import kinds, objects

SECRET_WORD = "s3cr3t-word"
SPECS: dict[str, dict[str, Any]] = {
    "access-key": {"accessKeyId": "AKIA", "secretAccessKey": SECRET_WORD},
    "password": {"user": "ana", "password": SECRET_WORD},
    "docker-registry": {"user": "ana", "password": SECRET_WORD, "url": "registry.test"},
    "generic-secret": {"keyValuePairs": [{"key": "WANDB_API_KEY", "value": SECRET_WORD}]},
    "ngc-api-key": {"ngc_api_key": SECRET_WORD},
}
DATA = {
    "access-key": {"AccessKeyId": "AKIA", "SecretKey": SECRET_WORD},
    "password": {"username": "ana", "password": SECRET_WORD},
    "generic-secret": {"WANDB_API_KEY": SECRET_WORD},
    "ngc-api-key": {"NGC_API_KEY": SECRET_WORD},
}
SHOWN: dict[str, dict[str, Any]] = {
    "access-key": {"accessKeyId": "AKIA"},
    "password": {"user": "ana"},
    "docker-registry": {"user": "ana", "url": "registry.test"},
    "generic-secret": {"keys": ["WANDB_API_KEY"]},
    "ngc-api-key": {},
}


def secret_data(world: World, name: str) -> dict[str, str] | None:
    secret = world.store.view.get(kinds.SECRET, "runai-team-a", name)
    return None if secret is None else {key: b64decode(value).decode() for key, value in secret["data"].items()}


def pod_of(world: World, job: str) -> Any:
    found = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", job)
    return objects.dig(found, "spec.pytorchReplicaSpecs.Master.template.spec")


@pytest.mark.parametrize("path", SPECS)
@pytest.mark.both_engines
def test_a_credential_from_create_to_delete(lab: World, path: str) -> None:
    made = make(lab, f"credentials/{path}", SPECS[path], "login")
    assert made.status_code == 202, made.text
    body = made.json()
    one = f"{A}/credentials/{path}/{body['meta']['id']}"
    assert body["spec"] == {**SHOWN[path], "secretName": "login", "keyId": 0}
    data = secret_data(lab, "login")
    if path == "docker-registry":
        login = json.loads((data or {})[".dockerconfigjson"])["auths"]["registry.test"]
        assert (login["username"], login["password"]) == ("ana", SECRET_WORD)
    else:
        assert data == DATA[path]
    of_all = lab.client.get(f"{A}/credentials").json()["entries"]
    assert [entry["spec"] for entry in of_all] == [{body["meta"]["kind"]: body["spec"]}]
    changed = {name: value for name, value in SPECS[path].items() if name != "keyValuePairs"}
    changed = {**changed, "password": "other"} if "password" in changed else SPECS[path]
    renamed = lab.client.put(one, json={"meta": {"name": "new name", "description": "d"}, "spec": changed})
    assert renamed.status_code == 202 and renamed.json()["spec"]["secretName"] == "login", renamed.text
    answers = [
        made,
        renamed,
        *(lab.client.get(where) for where in (one, f"{A}/credentials", f"{A}/credentials/{path}")),
    ]
    maps = [one for one in lab.store.view.all(kinds.CONFIG_MAP) if "asset.json" in one.get("data", {})]
    assert SECRET_WORD not in "".join(answer.text for answer in answers) + json.dumps(maps), "it is told to nobody"
    if "password" in changed:
        assert "other" in json.dumps(secret_data(lab, "login"))
    assert lab.client.delete(one).status_code == 202
    assert secret_data(lab, "login") is None and lab.client.get(one).status_code == 404


@pytest.mark.both_engines
def test_a_secret_that_exists_stays_its_owners(lab: World) -> None:
    spec = {"existingSecretName": "mine"}
    answer = make(lab, "credentials/password", spec)
    assert answer.status_code == 400 and "there is no Secret 'mine'" in answer.text
    metadata = {"name": "mine", "namespace": "runai-team-a"}
    lab.create(kinds.SECRET, {"metadata": metadata, "data": {"username": "YQ==", "password": "Yg=="}})
    made = make(lab, "credentials/password", spec)
    assert made.json()["spec"] == {"existingSecretName": "mine", "secretName": "mine", "keyId": 0}
    one = f"{A}/credentials/password/{made.json()['meta']['id']}"
    refused = lab.client.put(one, json={"meta": {}, "spec": SPECS["password"]})
    assert refused.status_code == 400 and "changed itself, with kubectl" in refused.text
    taken = make(lab, "credentials/generic-secret", SPECS["generic-secret"], "mine")
    assert taken.status_code == 409 and "has a Secret 'mine' already" in taken.text
    assert [entry["meta"]["kind"] for entry in lab.client.get(f"{A}/credentials").json()["entries"]] == ["password"]
    assert lab.client.delete(one).status_code == 202
    assert secret_data(lab, "mine") == {"username": "a", "password": "b"}


@pytest.mark.parametrize(
    ("path", "spec", "name", "words"),
    [
        ("password", {"user": "ana"}, "x", "spec.password: is needed, or existingSecretName"),
        ("password", {"usr": "ana"}, "x", 'Did you mean "user"?'),
        ("password", {"existingSecretName": "x", "user": "a"}, "x", "must be absent: the Secret x has it"),
        ("password", SPECS["password"], "My Login", "use 'my-login', for example"),
        ("generic-secret", {}, "x", "needs one pair of key and value"),
        (
            "generic-secret",
            {"keyValuePairs": [{"key": "a", "value": ""}] * 1_001},
            "x",
            "has 1,001 pairs; 1,000 are allowed",
        ),
        ("generic-secret", {"keyValuePairs": [{"key": "a b", "value": "c"}]}, "x", "must be a key of its own"),
        ("access-key", [], "x", "must be a JSON object"),
        ("ngc-api-key", {}, "x", "spec.ngc_api_key: is needed"),
        ("ngc-api-key", {"ngc_api_key": "a b"}, "x", "must be a key of NVIDIA's NGC"),
        ("access-key", {"accessKeyId": "a", "secretAccessKey": "b" * 600_000}, "x", "a Secret holds no more"),
    ],
)
def test_what_is_no_credential(lab: World, path: str, spec: Any, name: str, words: str) -> None:
    answer = make(lab, f"credentials/{path}", spec, name)
    assert answer.status_code == 400 and words in answer.json()["message"], answer.text
    assert lab.client.get(f"{A}/credentials").json() == {"entries": []}


def test_a_credential_belongs_to_a_project(lab: World) -> None:
    answer = make(lab, "credentials/password", SPECS["password"], scope="cluster")
    assert answer.status_code == 400 and "lies in one project" in answer.json()["message"]


@pytest.mark.both_engines
def test_data_sources_and_pods_use_credentials(lab: World) -> None:
    """A bucket's key, a repository's login and a Secret's files come from Secrets; images are pulled with the registry's."""
    ids = {
        path: make(lab, f"credentials/{path}", spec, f"the-{path}").json()["meta"]["id"] for path, spec in SPECS.items()
    }
    sources = {
        "s3": {"bucket": "sets", "path": "/sets", "accessKeyAssetId": ids["access-key"]},
        "git": {"repository": "https://git.test/x.git", "path": "/code", "credentialId": ids["password"]},
        "secrets": {"credentialAssetId": ids["generic-secret"], "mountPath": "/etc/keys", "defaultMode": "0400"},
        "nfs": {"server": "nas", "path": "/home", "mountPath": "/home"},
    }
    made = {path: make(lab, f"datasource/{path}", spec, f"of-{path}") for path, spec in sources.items()}
    assert [answer.status_code for answer in made.values()] == [202] * 4, [one.text for one in made.values()]
    body = {
        "name": "train", "projectId": lab.project_id, "spec": {"image": "i"},
        "assets": {"datasources": [{"id": f"of-{path}"} for path in sources]},
    }  # fmt: skip
    answer = lab.client.post(f"{W}/trainings", json=body)
    assert answer.status_code == 202 and SECRET_WORD not in answer.text, answer.text
    pod = pod_of(lab, "train")
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {"nfs": {"server": "nas", "path": "/home", "readOnly": True}} in [
        {kind: source for kind, source in volume.items() if kind != "name"} for volume in volumes.values()
    ]
    assert {"secretName": "the-generic-secret", "defaultMode": 0o400} in [v.get("secret") for v in volumes.values()]
    variables = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for container in pod["initContainers"] for variable in container["env"] if "valueFrom" in variable
    }  # fmt: skip
    assert variables == {
        "AWS_ACCESS_KEY_ID": {"name": "the-access-key", "key": "AccessKeyId"},
        "AWS_SECRET_ACCESS_KEY": {"name": "the-access-key", "key": "SecretKey"},
        "GIT_USERNAME": {"name": "the-password", "key": "username"},
        "GIT_PASSWORD": {"name": "the-password", "key": "password"},
    }
    assert pod["imagePullSecrets"] == [{"name": "the-docker-registry"}]
    assert [source["type"] for source in lab.client.get(f"{W}/{answer.json()['workloadId']}").json()["datasources"]] == [
        "s3", "git", "secret-volume", "nfs",
    ]  # fmt: skip


def test_a_credential_of_another_kind_or_project_is_refused(lab: World) -> None:
    password = make(lab, "credentials/password", SPECS["password"]).json()["meta"]["id"]
    wrong = make(lab, "datasource/s3", {"bucket": "b", "path": "/d", "accessKeyAssetId": password})
    assert wrong.status_code == 400 and "there is no credential" in wrong.text and "accessKey" in wrong.text
    shared = {"meta": {"name": "all", "scope": "tenant"}, "spec": {"credentialAssetId": password, "mountPath": "/d"}}
    assert lab.client.post(f"{A}/datasource/secrets", json=shared).status_code == 202
    other = lab.project("team-b")["id"]
    body = {"name": "x", "projectId": other, "spec": {"image": "i"}, "assets": {"datasources": [{"id": "all"}]}}
    answer = lab.client.post(f"{W}/trainings", json=body)
    assert answer.status_code == 400 and "which this project may not use" in answer.text


def test_keys_are_not_kept_in_jobs(lab: World) -> None:
    storage = {"s3": [{"bucket": "b", "path": "/d", "accessKeyId": "a", "secretAccessKey": SECRET_WORD}]}
    body = {"name": "x", "projectId": lab.project_id, "spec": {"image": "i", "storage": storage}}
    answer = lab.client.post(f"{W}/trainings", json=body)
    assert answer.status_code == 400 and "into a Secret, and name it" in answer.text and SECRET_WORD not in answer.text
