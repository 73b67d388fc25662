"""Figures of a workload over time: steps where something changed, read at points of time."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.rest.conftest import World

from rowlock import kinds, objects
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.workload_routes import usage_history
from rowlock.storage.store import Store
from rowlock.workloads.figures.gauges import GAUGES

W = "/api/v1/workloads"
START, END = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"


def test_metrics_are_steps_between_looks(world: World) -> None:
    """POD_COUNT is 0 when the workload is seen first, 1 from the look on after a pod was made."""
    world.project()
    identity = world.submit(compute={"cpuCoreRequest": 1.5, "cpuMemoryRequest": "1G"}).json()["workloadId"]
    now = [objects.seconds(START) + 20]
    usage = world.rest.usage
    usage._clock = lambda: now[0]
    usage._steps.clear()
    world.do(usage.look)
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None
    template = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template")
    owner = {**objects.owner_reference(job), "controller": True}
    meta = {**template["metadata"], "name": "p", "namespace": "runai-team-a", "ownerReferences": [owner]}
    world.create(kinds.POD, {"metadata": meta, "spec": {**template["spec"], "nodeName": "node-1"}})
    world.patch(kinds.POD, "runai-team-a", "p", {"status": {"phase": "Pending"}}, "status")
    assert len(world.client.get(f"{W}/{identity}/pods").json()["pods"]) == 1
    now[0] += 20
    world.do(usage.look)
    query: dict[str, str] = {
        "metricType": "POD_COUNT,CPU_REQUEST_CORES",
        "start": START,
        "end": END,
        "numberOfSamples": "4",
    }
    answer = world.client.get(f"{W}/{identity}/metrics", params=query)
    assert answer.status_code == 200, answer.text
    pods, cores = answer.json()["measurements"]
    assert [(v["timestamp"][-3:-1], v["value"]) for v in pods["values"]] == [("25", "0"), ("45", "1"), ("05", "1")], (
        "first seen at :25"
    )
    assert [v["value"] for v in cores["values"]] == ["0", "1.5", "1.5"]
    some = world.client.get(f"{W}/{identity}/metrics", params={**query, "metricType": "POD_COUNT,GPU_UTILIZATION"})
    assert some.status_code == 207 and some.json()["measurements"][1] == {
        "type": "GPU_UTILIZATION",
        "labels": {},
        "values": [],
    }
    world.client.delete(f"{W}/distributed/{identity}")
    world.do(usage.look)
    assert usage._steps == {}, "what is gone costs no memory"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "metricType says what is asked for"),
        ({"metricType": "POD_COUNTS"}, 'Did you mean "POD_COUNT"?'),
        ({"metricType": "POD_COUNT"}, "start and end are needed"),
        ({"metricType": "POD_COUNT", "start": "soon", "end": END}, "start and end are needed"),
        ({"metricType": "POD_COUNT", "start": END, "end": START}, "end must not lie before start"),
        ({"metricType": "POD_COUNT", "start": START, "end": END, "numberOfSamples": "1001"}, "between 1 and 1000"),
    ],
)
def test_a_question_that_is_none(world: World, query: dict[str, Any], words: str) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    answer = world.client.get(f"{W}/{identity}/metrics", params=query)
    assert answer.status_code == 400 and words in answer.json()["message"], answer.text


def test_an_odd_object_costs_only_its_own_figures(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.project()
    ids = {name: world.submit(name=name).json()["workloadId"] for name in ("odd", "even")}

    def read(workload: Any) -> tuple[Decimal, ...]:
        if objects.name(workload.job) == "odd":
            raise ValueError("odd")
        return (Decimal(1),) * len(GAUGES)

    monkeypatch.setattr(usage_history, "read_gauges", read)
    world.rest.usage._steps.clear()
    world.do(world.rest.usage.look)
    world.do(world.rest.usage.look)
    query = {"metricType": "POD_COUNT", "start": "2090-01-02T03:04:05Z", "end": "2090-01-02T03:04:05Z"}
    counts = {
        name: [m["values"] != [] for m in world.client.get(f"{W}/{one}/metrics", params=query).json()["measurements"]]
        for name, one in ids.items()
    }
    assert counts == {"odd": [False], "even": [True]}


def test_a_workload_that_nobody_saw_has_no_values() -> None:
    usage = RestApi(Store.open(None), RestSettings(user="ana")).usage
    assert usage.samples("x", [1.0, 2.0]) == [None, None] and len(GAUGES) == 8
