"""Credentials of one user: nobody else sees or uses them; a workload that names one gets a Secret of its own, which goes with it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from tests.rest.assets.test_assets import lab as lab
from tests.rest.conftest import World
from tests.rest.test_tenants import MARK, OWNER, Tenancy, play

from rowlock import kinds, objects
from rowlock.accounts import user_credentials
from rowlock.accounts.user_credentials import UserCredential, UserCredentials
from rowlock.errors import AlreadyExists, BadRequest, NotFound
from rowlock.kinds import Kind
from rowlock.storage.store import Store

OWN, W = "/api/v1/me/credentials", "/api/v1/workloads"
SECRET_WORD = "s3cr3t-word"
SPECS: dict[str, dict[str, Any]] = {
    "accessKey": {"accessKeyId": "AKIA", "secretAccessKey": SECRET_WORD},
    "password": {"user": "ana", "password": SECRET_WORD},
    "dockerRegistry": {"user": "ana", "password": SECRET_WORD, "url": "registry.test"},
    "genericSecret": {"keyValuePairs": [{"key": "WANDB_API_KEY", "value": SECRET_WORD}]},
    "ngcApiKey": {"ngc_api_key": SECRET_WORD},
}
SHOWN: dict[str, dict[str, Any]] = {
    "accessKey": {"accessKeyId": "AKIA", "keys": ["AccessKeyId", "SecretKey"]},
    "password": {"user": "ana", "keys": ["password", "username"]},
    "dockerRegistry": {"user": "ana", "url": "registry.test", "keys": [".dockerconfigjson"]},
    "genericSecret": {"keys": ["WANDB_API_KEY"]},
    "ngcApiKey": {"keys": ["NGC_API_KEY"]},
}


def make(world: World, kind: str, name: str = "mine", **more: Any) -> Any:
    return world.client.post(OWN, json={"name": name, "type": kind, "spec": SPECS[kind], **more})


@pytest.mark.parametrize("kind", SPECS)
def test_a_credential_of_ones_own_from_create_to_delete(lab: World, kind: str, tmp_path: Path) -> None:
    made = make(lab, kind, description="for tests")
    assert made.status_code == 202, made.text
    body = made.json()
    one = f"{OWN}/{body['id']}"
    assert (body["name"], body["type"], body["description"], body["spec"]) == ("mine", kind, "for tests", SHOWN[kind])
    answers = [made, *(lab.client.get(where) for where in (one, f"{OWN}/mine", OWN, f"{OWN}?type={kind}"))]
    assert [answer.status_code for answer in answers] == [202, 200, 200, 200, 200]
    assert answers[1].json() == answers[2].json() == body == answers[3].json()["credentials"][0]
    changed = lab.client.put(one, json={"name": "other", "spec": SPECS[kind]})
    assert changed.status_code == 202 and changed.json()["name"] == "other", changed.text
    assert SECRET_WORD not in "".join(answer.text for answer in (*answers, changed)), "it is told to nobody"
    objects_of_it = [one for kind in (kinds.SECRET, kinds.CONFIG_MAP) for one in lab.store.view.all(kind)]
    assert objects_of_it == [], "it is no object of the cluster"
    file = tmp_path / user_credentials.FILE_NAME
    assert file.stat().st_mode & 0o777 == 0o600 and SECRET_WORD in file.read_text()
    assert lab.client.delete(one).status_code == 202
    assert lab.client.get(one).status_code == 404 and lab.client.get(OWN).json() == {"credentials": []}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "x", "spec": SPECS["password"]}, "must be one of accessKey, password, dockerRegistry"),
        ({"name": "x", "type": "passwort", "spec": {}}, 'Did you mean "password"?'),
        ({"name": "X_y", "type": "password", "spec": SPECS["password"]}, "1 to 63 lower case letters"),
        ({"name": "a" * 64, "type": "password", "spec": SPECS["password"]}, "1 to 63 lower case letters"),
        ({"type": "password", "spec": SPECS["password"]}, "1 to 63 lower case letters"),
        ({"name": "x", "type": "password", "spec": {"user": "a"}}, "spec.password: is needed"),
        ({"name": "x", "type": "password", "spec": {"existingSecretName": "a"}}, "is for credentials of a project"),
        ({"name": "x", "type": "password", "spec": SPECS["password"], "scope": "project"}, "there is no such field"),
        ({"name": "x", "type": "password", "spec": SPECS["password"], "description": "d" * 251}, "at most 250"),
    ],
)
def test_what_is_no_credential_of_ones_own(lab: World, body: dict[str, Any], words: str) -> None:
    answer = lab.client.post(OWN, json=body)
    assert answer.status_code == 400 and words in answer.json()["message"], answer.text
    assert lab.client.get(OWN).json() == {"credentials": []}


def test_a_name_is_taken_once_and_a_type_is_known(lab: World) -> None:
    assert make(lab, "password").status_code == 202
    taken = make(lab, "ngcApiKey")
    assert taken.status_code == 409 and "you have a credential 'mine' already" in taken.text
    refused = lab.client.get(f"{OWN}?type=secret")
    assert refused.status_code == 400 and "there is no type 'secret'" in refused.text


def submit(world: World, name: str, query: str = "", **spec: Any) -> Any:
    body = {"name": name, "projectId": world.project_id, "spec": {"image": "i", "numWorkers": 1, **spec}}
    return world.client.post(f"{W}/distributed{query}", json=body)


def variable(credential: str, key: str, name: str = "KEY") -> dict[str, Any]:
    return {"name": name, "userCredential": {"name": credential, "key": key}}


def secrets_of(world: World) -> dict[str, Any]:
    return {objects.name(one): one for one in world.store.view.all(kinds.SECRET)}


def test_a_workload_has_secrets_of_its_own_with_the_values(lab: World) -> None:
    for kind in SPECS:
        make(lab, kind, kind.lower())
    pulls = [{"name": "dockerregistry", "userCredential": True}, {"name": "of-the-project"}]
    variables = [variable("genericsecret", "WANDB_API_KEY"), variable("ngcapikey", "NGC_API_KEY", "NGC")]
    answer = submit(lab, "train", environmentVariables=variables, imagePullSecrets=pulls)
    assert answer.status_code == 202 and SECRET_WORD not in answer.text, answer.text
    job = lab.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "train") or {}
    made, short = secrets_of(lab), answer.json()["workloadId"][:8]
    names = {word: f"train-my-{word}-{short}" for word in ("genericsecret", "ngcapikey", "dockerregistry")}
    assert set(made) == set(names.values()), "only those that it names"
    assert {one["type"] for one in made.values()} == {"Opaque", "kubernetes.io/dockerconfigjson"}
    assert b64decode(made[names["ngcapikey"]]["data"]["NGC_API_KEY"]).decode() == SECRET_WORD
    for one in made.values():
        assert one["metadata"]["ownerReferences"][0]["uid"] == objects.uid(job), "they go with the job"
    for role in ("Master", "Worker"):
        pod = job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": names["dockerregistry"]}, {"name": "of-the-project"}]
        env = {one["name"]: one.get("valueFrom") for one in pod["containers"][0]["env"]}
        assert env["KEY"] == {"secretKeyRef": {"name": names["genericsecret"], "key": "WANDB_API_KEY"}}
        assert env["NGC"] == {"secretKeyRef": {"name": names["ngcapikey"], "key": "NGC_API_KEY"}}
    assert SECRET_WORD not in json.dumps(job)
    lab.client.put(f"{OWN}/ngcapikey", json={"spec": {"ngc_api_key": "another"}})
    assert b64decode(secrets_of(lab)[names["ngcapikey"]]["data"]["NGC_API_KEY"]).decode() == SECRET_WORD
    second = submit(lab, "again", environmentVariables=variables)
    values = [b64decode(text).decode() for one in secrets_of(lab).values() for text in one["data"].values()]
    assert second.status_code == 202 and "another" in values, "workloads that are submitted later get it"


def test_a_preview_shows_no_values_and_makes_nothing(lab: World) -> None:
    make(lab, "genericSecret")
    answer = submit(lab, "train", "?dryRun=true", environmentVariables=[variable("mine", "WANDB_API_KEY")])
    shown = [one for one in answer.json()["objects"] if one["kind"] == "Secret"]
    assert [one["data"] for one in shown] == [{"WANDB_API_KEY": ""}] and SECRET_WORD not in answer.text
    assert secrets_of(lab) == {}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"environmentVariables": [variable("nobodys", "a")]}, "you have no credential 'nobodys'"),
        (
            {"environmentVariables": [variable("mine", "a")]},
            "your credential mine has no key 'a'; it has WANDB_API_KEY",
        ),
        ({"environmentVariables": [variable("", "a")]}, "needs the name of a credential of yours"),
        ({"environmentVariables": [{**variable("mine", "a"), "value": "x"}]}, "KEY may have one of value, "),
        ({"imagePullSecrets": [{"name": "nobodys", "userCredential": True}]}, "you have no credential 'nobodys'"),
        ({"imagePullSecrets": [{"name": "mine", "userCredential": True}]}, "images are pulled with a dockerRegistry"),
    ],
)
def test_what_one_does_not_have_is_refused_before_anything_is_made(lab: World, spec: Any, words: str) -> None:
    make(lab, "genericSecret")
    answer = submit(lab, "train", **spec)
    assert answer.status_code == 400 and words in answer.json()["message"], answer.text
    assert secrets_of(lab) == {} and lab.client.get(W).json()["workloads"] == []


def test_a_refused_job_leaves_no_secret(lab: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Secrets come before the job, whose pods need them at once."""
    make(lab, "genericSecret")
    create = Store.create

    async def refuse_jobs(store: Store, kind: Kind, obj: Any, **more: Any) -> Any:
        if kind is kinds.PYTORCHJOB:
            raise BadRequest("not this one")
        return await create(store, kind, obj, **more)

    monkeypatch.setattr(Store, "create", refuse_jobs)
    answer = submit(lab, "train", environmentVariables=[variable("mine", "WANDB_API_KEY")])
    assert answer.status_code == 400 and "not this one" in answer.text and secrets_of(lab) == {}


def test_a_server_that_keeps_none_says_so(locked: World) -> None:
    headers = {"authorization": "Bearer secret"}
    answer = locked.client.get(OWN, headers=headers)
    assert answer.status_code == 400 and "make one of the project" in answer.text


# ---------------------------------------------------------------- other people


@pytest.mark.parametrize("person", ["editor", "viewer", "admin", "nobody", "typist", "guest", "owner"])
def test_nobody_else_sees_uses_or_guesses_a_credential(person: str) -> None:
    """Not the owner of the cluster either; what is somebody else's looks like what is not there."""

    async def check(tenancy: Tenancy) -> None:
        token = OWNER if person == "owner" else person * 8
        maker = "typist" * 8 if person != "typist" else "editor" * 8
        body = {"name": MARK, "type": "genericSecret", "spec": {"keyValuePairs": [{"key": "k", "value": SECRET_WORD}]}}
        made = await tenancy.ask(maker, "POST", OWN, body)
        assert made.status_code == 202, made.text
        identity = made.json()["id"]
        for method in ("GET", "PUT", "DELETE"):
            changes = {"description": "x"} if method == "PUT" else None
            for word, other in ((identity, "0" * 36), (MARK, "none")):
                secret = await tenancy.ask(token, method, f"{OWN}/{word}", changes)
                absent = await tenancy.ask(token, method, f"{OWN}/{other}", changes)
                assert (secret.status_code, absent.status_code) == (404, 404), secret.text
                assert secret.text.replace(word, other) == absent.text
        assert (await tenancy.ask(token, "GET", OWN)).json() == {"credentials": []}
        job = {
            "name": "uses", "projectId": tenancy.ids["mine project"],
            "spec": {"image": "i", "environmentVariables": [variable(MARK, "k")]},
        }  # fmt: skip
        answer = await tenancy.ask(token, "POST", "/api/v1/workloads/trainings", job)
        assert answer.status_code in (400, 403) and SECRET_WORD not in answer.text, answer.text
        own = {**body, "spec": {"keyValuePairs": [{"key": "k", "value": "mine"}]}}
        assert (await tenancy.ask(token, "POST", OWN, own)).status_code == 202, "the name is free for everybody"
        kept = await tenancy.ask(maker, "GET", f"{OWN}/{identity}")
        assert kept.status_code == 200 and kept.json()["description"] is None

    play(check)


def test_who_gets_a_name_later_gets_no_credentials_with_it() -> None:
    async def check(tenancy: Tenancy) -> None:
        body = {"name": "key", "type": "ngcApiKey", "spec": {"ngc_api_key": SECRET_WORD}}
        assert (await tenancy.ask("typist" * 8, "POST", OWN, body)).status_code == 202
        assert (await tenancy.ask(OWNER, "DELETE", "/api/v1/users/typist")).status_code == 202
        tenancy.typed = ""  # the account is made anew
        assert (await tenancy.ask("typist" * 8, "GET", OWN)).json() == {"credentials": []}

    play(check)


# ---------------------------------------------------------------- the file


def credential(user: str = "user:ana", name: str = "key", size: int = 10) -> UserCredential:
    return UserCredential("", user, name, "genericSecret", "Opaque", {}, {"k": "v" * (size - 1)}, 0.0, 0.0)


def test_credentials_outlive_the_server_and_a_file_that_others_read_is_refused(tmp_path: Path) -> None:
    made = asyncio.run(UserCredentials.open(tmp_path, lambda: 5.0).create(credential()))
    assert (made.created, made.updated) == (5.0, 5.0)
    again = UserCredentials.open(tmp_path)
    assert again.of("user:ana") == [made] and again.of("owner:ana") == []
    path = tmp_path / user_credentials.FILE_NAME
    path.chmod(0o640)
    with pytest.raises(BadRequest, match="others can read the secrets"):
        UserCredentials.open(tmp_path)
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(BadRequest, match='mend the file without its "crc32", or move it away'):
        UserCredentials.open(tmp_path)


def test_credentials_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_credentials, "MAX_OF_ONE", 3)
    monkeypatch.setattr(user_credentials, "MAX_BYTES_OF_ONE", 100)
    monkeypatch.setattr(user_credentials, "MAX_BYTES", 150)

    async def play_limits() -> None:
        stored = UserCredentials.open(tmp_path)
        first = await stored.create(credential(size=60))
        with pytest.raises(BadRequest, match="all your credentials may have 100 bytes"):
            await stored.create(credential(name="other", size=41))
        await stored.create(credential("user:bob", size=90))
        with pytest.raises(BadRequest, match="the credentials of all users may have 150 bytes"):
            await stored.create(credential("user:eve", size=10))
        await stored.forget("user:bob")
        for name in ("second", "third"):
            await stored.create(credential(name=name))
        with pytest.raises(BadRequest, match="you have 3 credentials, which is the limit"):
            await stored.create(credential(name="fourth"))
        with pytest.raises(AlreadyExists):
            await stored.create(credential())
        with pytest.raises(NotFound):
            await stored.delete("user:bob", first.id)
        await stored.change(first)  # its own bytes and name are no obstacle
        assert len(UserCredentials.open(tmp_path).of("user:ana")) == 3

    asyncio.run(play_limits())
