"""Workloads that are manifests: made, shown, changed and deleted at `/api/v2/workloads`, and in the lists of all."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from typing import Any

import pytest
import yaml
from tests.rest.conftest import World

from rowlock import kinds, objects
from rowlock.errors import Conflict
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.workloads import manifests

V2, V1 = "/api/v2/workloads", "/api/v1/workloads"


def job(kind: str = "PyTorchJob", **more: Any) -> dict[str, Any]:
    role = {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}, "replicas": 1}
    spec = {"pytorchReplicaSpecs": {"Master": role, "Worker": role}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "own", "labels": {"a": "b"}},
        "spec": spec,
        **more,
    }


@pytest.fixture
def lab(world: World) -> World:
    world.project_id = world.project()["id"]
    return world


def create(world: World, manifest: Any, **meta: Any) -> Any:
    body: dict[str, Any] = {"metadata": {"projectId": world.project_id, "clusterId": world.cluster, **meta}}
    if isinstance(manifest, str):
        body["manifestBase64Encoded"] = b64encode(manifest.encode()).decode()
    else:
        body["manifest"] = manifest
    return world.client.post(V2, json=body)


@pytest.mark.parametrize("as_yaml", [False, True])
@pytest.mark.both_engines
def test_a_manifest_from_create_to_delete(lab: World, as_yaml: bool) -> None:
    manifest = job()
    made = create(
        lab,
        yaml.safe_dump(json.loads(json.dumps(manifest))) if as_yaml else manifest,
        name="given",
        priority="high",
        category="Build",
    )
    assert made.status_code == 202, made.text
    body = made.json()
    meta = body["metadata"]
    assert (meta["name"], meta["priority"], meta["category"], meta["gvk"]["kind"], meta["createdBy"]) == (
        "given", "high", "Build", "PyTorchJob", "ana",
    )  # fmt: skip
    assert body["rawManifest"] == manifest and body["desiredPhase"] == "Running"
    stored = lab.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "given")
    assert stored is not None and objects.labels(stored)["a"] == "b"
    worker = objects.dig(stored, "spec.pytorchReplicaSpecs.Worker.template.metadata.labels")
    assert (worker["kai.scheduler/queue"], worker["priorityClassName"]) == ("team-a", "high")
    one = f"{V2}/{meta['id']}"
    shown = lab.client.get(one).json()
    assert shown["syncInfo"]["status"] == "Synced" and shown["workload"]["metadata"]["id"] == meta["id"]
    assert [entry["name"] for entry in lab.client.get(V1).json()["workloads"]] == ["given"], "it is in the list of all"
    taken = create(lab, manifest, name="given")
    assert taken.status_code == 409 and "already exists" in taken.text
    changed = lab.client.put(one, json={"metadata": {"priority": "low"}})
    assert changed.status_code == 202 and changed.json()["metadata"]["priority"] == "low", changed.text
    assert lab.client.delete(one).status_code == 202
    assert lab.client.get(one).status_code == 404


@pytest.mark.parametrize("refusals", [1, 100])
def test_an_update_is_about_the_job_as_it_is_now(lab: World, monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    """The operator of a job writes to it, too; who asks for another priority has no revision that could be too old."""
    identity = create(lab, job()).json()["metadata"]["id"]
    write, asked = lab.store.update, list[Object]()

    async def interrupted(kind: Kind, obj: Object, **options: Any) -> Object:
        asked.append(obj)
        if len(asked) > refusals:
            return await write(kind, obj, **options)
        await write(kind, {**obj, "spec": {**obj["spec"], "runPolicy": {"ttlSecondsAfterFinished": len(asked)}}})
        raise Conflict("somebody was faster")

    monkeypatch.setattr(lab.store, "update", interrupted)
    answer = lab.client.put(f"{V2}/{identity}", json={"metadata": {"priority": "low"}})
    (stored,) = lab.store.view.all(kinds.PYTORCHJOB)
    if refusals == 1:
        assert answer.status_code == 202 and answer.json()["metadata"]["priority"] == "low", answer.text
        assert stored["spec"]["runPolicy"] == {"ttlSecondsAfterFinished": 1}, "what the other wrote stays"
    else:
        assert answer.status_code == 409 and 2 <= len(asked) < 10


def test_the_name_may_be_the_manifests_own_or_a_prefix(lab: World) -> None:
    assert create(lab, job()).json()["metadata"]["name"] == "own"
    name = create(lab, job(), name="many", useGivenNameAsPrefix=True).json()["metadata"]["name"]
    assert name.startswith("many-") and len(name) == len("many-") + 12


@pytest.mark.parametrize(
    ("manifest", "meta", "words"),
    [
        (job("Deployment"), {}, "must be one of kubeflow.org/v1 PyTorchJob"),
        (job(apiVersion="kubeflow.org/v2"), {}, "must be one of kubeflow.org/v1 PyTorchJob"),
        (job(spec=[]), {}, "needs a spec"),
        (job(), {"name": "Not_A_Name"}, "'not-a-name', for example"),
        (job(), {"priority": "urgent"}, "must be one of very-low"),
        (job(), {"projectId": "team-b"}, "project 'team-b' was not found"),
        (job(), {"clusterId": "x"}, "there is no cluster 'x'"),
        (job(), {"prio": "low"}, 'Did you mean \\"priority\\"?'),
        (job(note="x" * 200_000), {}, "Create it with kubectl"),
        ("a: &a [1]\nb: *a", {}, "write the values out"),
        ("- a", {}, "one YAML document with one object"),
        ("a: [", {}, "is no YAML document in base 64"),
        ("a: " + "[" * 5_000, {}, "is no YAML document in base 64"),
        ("a: 1" + ":5" * 10_000 + ".5", {}, "must be one of kubeflow.org/v1 PyTorchJob"),
        ("a: !!int 1" + ":5" * 10_000, {}, "numbers to the base 60 are not accepted"),
        ("a: !!float 1" + ":5" * 10_000 + ".5", {}, "numbers to the base 60 are not accepted"),
        ("a: .inf", {}, "there is no JSON for inf"),
        ("é", {}, "one YAML document with one object"),
    ],
)
def test_what_is_no_manifest_of_a_workload(lab: World, manifest: Any, meta: dict[str, Any], words: str) -> None:
    answer = create(lab, manifest, **meta)
    assert answer.status_code in (400, 422) and words in answer.text, answer.text
    assert lab.client.get(V1).json()["workloads"] == []


def test_yaml_is_read_beside_the_event_loop(lab: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read by a parser in Python: 10 KiB of brackets were 0.6 s in which nobody else was answered."""
    parse, threads = manifests.parse_manifest_request, list[int]()

    def note(body: Any, *, new: bool) -> manifests.ManifestRequest:
        threads.append(threading.get_ident())
        return parse(body, new=new)

    monkeypatch.setattr(manifests, "parse_manifest_request", note)

    async def loop_thread() -> int:
        return threading.get_ident()

    assert create(lab, "a: [").status_code == 400
    assert len(threads) == 1 and threads[0] != lab.do(loop_thread)


def test_what_is_no_base_64_is_said(lab: World) -> None:
    body = {"metadata": {"projectId": lab.project_id, "name": "x"}, "manifestBase64Encoded": "é"}
    answer = lab.client.post(V2, json=body)
    assert answer.status_code == 400 and "is no YAML document in base 64" in answer.text, answer.text


def test_dates_in_yaml_stay_texts(lab: World) -> None:
    """As in Kubernetes, whose JSON has none."""
    text = yaml.safe_dump(json.loads(json.dumps(job()))).replace("a: b", "a: 2026-01-02")
    made = create(lab, text)
    assert made.status_code == 202, made.text
    assert made.json()["rawManifest"]["metadata"]["labels"] == {"a": "2026-01-02"}


def test_a_workload_keeps_its_kind(lab: World) -> None:
    identity = create(lab, job()).json()["metadata"]["id"]
    answer = lab.client.put(f"{V2}/{identity}", json={"manifest": job("TFJob")})
    assert answer.status_code == 400 and "is a TFJob, but the workload is a PyTorchJob" in answer.text
