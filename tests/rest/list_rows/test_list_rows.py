"""Rows of ten thousand workloads remember what was read of them, until the workload, its pods or a node's cards change."""

from __future__ import annotations

import time

import pytest
from tests.rest.conftest import World, node

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.list_rows.workload_rows import FIELDS, WorkloadRow
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads import list_query, runai_json
from rowlock.workloads.objects import ASSETS_ANNOTATION, CODE_ANNOTATION, COMMAND_ANNOTATION


@pytest.fixture
def lab(world: World) -> World:
    world.project_id = world.project()["id"]
    assert world.submit(projectId=world.project_id).status_code == 202
    return world


def _row(world: World) -> WorkloadRow:
    (row,) = world.rest.cache.rows()
    return row


def _make_pod(world: World) -> None:
    row = _row(world)
    owner = {**objects.owner_reference(row.job), "controller": True}
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "a", "image": "b", "resources": {"limits": limits, "requests": limits}}
    meta = {"name": "p", "namespace": row.namespace, "ownerReferences": [owner]}
    world.create(kinds.POD, {"metadata": meta, "spec": {"containers": [container], "nodeName": "node-1"}})


def _until_forgotten(world: World, row: WorkloadRow, field: str) -> None:
    async def wait() -> None:
        assert await world.rest.cache.wait_until("", lambda: field not in row.known)

    world.do(wait)


def test_a_field_is_read_once_until_the_workload_changes(lab: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    read = runai_json.workload_type

    def read_and_count(job: Object) -> str:
        calls.append(objects.name(job))
        return read(job)

    monkeypatch.setattr(runai_json, "workload_type", read_and_count)
    for _ in range(5):
        assert lab.client.get("/api/v1/workloads?sortBy=type&limit=1&offset=1").status_code == 200
    assert len(calls) == 1
    row = _row(lab)
    _make_pod(lab)
    _until_forgotten(lab, row, "type")
    lab.client.get("/api/v1/workloads?sortBy=type&limit=1&offset=1")
    assert len(calls) == 2


def test_cards_of_another_size_are_seen_and_heartbeats_change_nothing(lab: World) -> None:
    row = _row(lab)
    FIELDS["allocatedGPU"](row)
    lab.patch(kinds.NODE, "", "node-1", {"status": {**node("node-1", 1)["status"], "conditions": []}}, "status")
    assert "allocatedGPU" in row.known
    lab.patch(kinds.NODE, "", "node-1", {"metadata": {"name": "node-1", "labels": {"nvidia.com/gpu.memory": "100"}}})
    _until_forgotten(lab, row, "allocatedGPU")


def test_the_order_follows_what_changes(lab: World) -> None:
    assert lab.submit(projectId=lab.project_id, name="second").status_code == 202
    path = "/api/v1/workloads?sortBy=phase&filterBy=phase==Pending"
    assert lab.client.get(path).json()["workloads"] == []
    for job in lab.store.view.all(kinds.PYTORCHJOB):
        spec = {**job["spec"], "runPolicy": {"suspend": True}}
        lab.patch(kinds.PYTORCHJOB, objects.namespace(job), objects.name(job), {"spec": spec})
    for row in lab.rest.cache.rows():
        _until_stopped(lab, row)
    stopped = lab.client.get("/api/v1/workloads?search=stop").json()["workloads"]
    assert sorted(one["name"] for one in stopped) == ["dist-train1", "second"]


def _until_stopped(world: World, row: WorkloadRow) -> None:
    async def wait() -> None:
        assert await world.rest.cache.wait_until("", lambda: world.rest.cache.phase(row.uid).startswith("Stop"))

    world.do(wait)


def test_a_list_takes_a_bounded_number_of_filters(lab: World) -> None:
    """64 KiB of them were ten thousand looks at each of ten thousand rows."""

    def ask(count: int) -> int:
        filters = ",".join(["name!=x"] * count)
        return int(lab.client.get("/api/v1/workloads", params={"filterBy": filters}).status_code)

    assert (ask(50), ask(51)) == (200, 400)


def test_blanks_in_a_filter_cost_their_number_not_its_square() -> None:
    began = time.process_time()
    (one,) = list_query.parse_query({"filterBy": " name  ==  a" + " " * 60_000 + "b  "}).filters
    assert (one.field, one.operator, len(one.value)) == ("name", "==", 60_002)
    assert time.process_time() - began < 2, "it was half a minute, on the event loop"


def test_annotations_that_are_nested_without_end_cost_nobody_the_list(lab: World) -> None:
    """They came from one manifest, and each list in which the job was answered 500: those of all admins."""
    job = _row(lab).job
    deep = "[" * 9000 + "]" * 9000
    notes = dict.fromkeys((REQUEST_ANNOTATION, ASSETS_ANNOTATION, CODE_ANNOTATION, COMMAND_ANNOTATION), deep)
    lab.patch(kinds.PYTORCHJOB, *objects.key(job), {"metadata": {**job["metadata"], "annotations": notes}})
    identity = runai_json.workload_id(job)
    for path in (
        "workloads",
        "workloads/pods",
        f"workloads/{identity}",
        f"workloads/distributed/{identity}",
        f"runs/{identity}",
    ):
        answer = lab.client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, (path, answer.text[:300])
    assert lab.client.get(f"/api/v2/workloads/{identity}").status_code < 500
