"""Figures of a workload over time: steps where something changed, read at points of time."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from tests.rest.conftest import World
from tests.waiting import until

from rowlock import kinds, objects
from rowlock.api import DeleteOptions
from rowlock.archive.database import put_samples
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.workload_routes import usage_history
from rowlock.storage.store import Store
from rowlock.workloads.figures.gauges import GAUGES
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample, UsageSeries
from rowlock.workloads.runai_json import Workload

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


def test_a_workload_is_read_again_only_when_it_has_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every five seconds ten thousand pods would be added up, for nothing."""
    world.project()
    world.submit()
    read: list[str] = []

    def read_gauges(workload: Workload) -> tuple[Decimal, ...]:
        read.append(objects.name(workload.job))
        return tuple(Decimal(len(read)) for _ in GAUGES)

    world.do(world.rest.usage.look)
    monkeypatch.setattr(usage_history, "read_gauges", read_gauges)
    world.do(world.rest.usage.look)
    assert read == []
    world.patch(kinds.PYTORCHJOB, "runai-team-a", "dist-train1", {"status": {"conditions": []}}, "status")
    deadline = time.monotonic() + 60
    while not read and time.monotonic() < deadline:
        world.do(world.rest.usage.look)
    assert read[:1] == ["dist-train1"]
    world.rest.usage._steps.clear()
    world.do(world.rest.usage.look)
    assert world.rest.usage._steps, "what was forgotten is read again"


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


# ---------------------------------------------------------------- what nodes measure


class FakeSampler:
    """Every pod that it is asked about has used the same, a sample every 10 s; `pods` by their uid."""

    def __init__(self, pods: dict[str, UsageSample]) -> None:
        self.pods = pods

    def series(self, pod_uid: str) -> UsageSeries | None:
        if pod_uid not in self.pods:
            return None
        series = UsageSeries(objects.seconds(START))
        for number in range(1, 7):
            series.add(series.start + 10 * number, self.pods[pod_uid])
        return series

    def latest(self, pod_uid: str) -> LatestUsage | None:
        series = self.series(pod_uid)
        last = series.last if series else None
        parts = {"GPU-1": (80.0, 7.0)}
        return None if last is None else LatestUsage(*last, objects.seconds(START), 1.0, 0.0, 0.0, 0.0, 0.0, parts)


def make_pods(world: World, identity: str, count: int) -> tuple[str, list[str]]:
    """The uid of the job, and those of its pods `p-0`, `p-1`, … on node-1."""
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None
    owner = {**objects.owner_reference(job), "controller": True}
    template = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template")
    for number in range(count):
        meta = {
            **template["metadata"],
            "name": f"p-{number}",
            "namespace": "runai-team-a",
            "ownerReferences": [owner],
        }
        world.create(kinds.POD, {"metadata": meta, "spec": {**template["spec"], "nodeName": "node-1"}})
        world.patch(kinds.POD, "runai-team-a", f"p-{number}", {"status": {"phase": "Running"}}, "status")
    pods = world.client.get(f"{W}/{identity}/pods").json()["pods"]
    assert len(pods) == count
    return objects.uid(job), [pod["id"] for pod in pods]


def measured_world(world: World, samples: list[UsageSample]) -> tuple[str, str, list[str]]:
    """A workload whose pods are measured: its id, its job's uid, its pods'."""
    world.project()
    identity = world.submit().json()["workloadId"]
    job_uid, pods = make_pods(world, identity, len(samples))
    context = world.rest._context
    object.__setattr__(context, "pod_usage", FakeSampler(dict(zip(pods, samples, strict=True))))
    return identity, job_uid, pods


def ask(world: World, path: str, types: str, count: int = 7) -> tuple[int, dict[str, list[str]]]:
    query = {"metricType": types, "start": START, "end": END, "numberOfSamples": str(count)}
    answer = world.client.get(path, params=query)
    assert answer.status_code in (200, 207), answer.text
    return answer.status_code, {
        m["type"]: [value["value"] for value in m["values"]] for m in answer.json()["measurements"]
    }


def test_what_pods_use_is_summed_and_percent_is_a_mean(world: World) -> None:
    samples = [UsageSample(1.0, 100.0, gpu_utilization=20.0), UsageSample(0.5, 50.0, gpu_utilization=80.0)]
    identity, _, pods = measured_world(world, samples)
    code, values = ask(world, f"{W}/{identity}/metrics", "CPU_USAGE_CORES,CPU_MEMORY_USAGE_BYTES,GPU_UTILIZATION")
    assert code == 200, values
    assert values["CPU_USAGE_CORES"][1:] == ["1.5"] * 6 and values["CPU_MEMORY_USAGE_BYTES"][1:] == ["150"] * 6
    assert values["GPU_UTILIZATION"][1:] == ["50"] * 6
    for name in ("p-1", pods[1]):
        code, values = ask(world, f"{W}/{identity}/pods/{name}/metrics", "CPU_USAGE_CORES,GPU_UTILIZATION_PER_GPU")
        assert code == 200 and values["CPU_USAGE_CORES"][-1] == "0.5" and values["GPU_UTILIZATION_PER_GPU"][-1] == "80"
    code, values = ask(world, f"{W}/{identity}/metrics", "CPU_USAGE_CORES,GPU_MEMORY_USAGE_BYTES")
    assert code == 207 and values["GPU_MEMORY_USAGE_BYTES"] == [], "what nobody measured is no zero"
    refusal = world.client.get(f"{W}/{identity}/pods/p-7/metrics")
    assert refusal.status_code == 404 and "no pod 'p-7'" in refusal.json()["message"]


def test_what_was_used_is_there_when_the_workload_is_gone(world: World) -> None:
    identity, job_uid, _ = measured_world(world, [UsageSample(1.0, 100.0)])
    series = UsageSeries(objects.seconds(START))
    series.add(series.start + 30, UsageSample(4.0, 7.0))
    world.archive.put("u", put_samples(job_uid, "p-9", series.start, {"pod": "an-earlier-pod", **series.to_json()}))
    world.archive.put("v", put_samples(job_uid, "p-8", 1.0, {"start": "damaged"}))
    assert world.do(world.archive.settle)
    _, values = ask(world, f"{W}/{identity}/metrics", "CPU_USAGE_CORES", 3)
    assert values["CPU_USAGE_CORES"] == ["5", "5", "1"], "pods that are gone count for the time in which they were"
    world.rest._context.pod_usage.pods.clear()  # type: ignore[union-attr]
    world.client.delete(f"{W}/distributed/{identity}")
    until(lambda: world.client.get(f"{W}/{identity}").json().get("phase") == "Deleted", "the archive to know its end")
    code, values = ask(world, f"{W}/{identity}/metrics", "CPU_USAGE_CORES,POD_COUNT", 3)
    assert (code, values) == (207, {"CPU_USAGE_CORES": ["4", "4"], "POD_COUNT": []})


def test_what_a_pod_used_is_there_when_the_pod_is_gone(world: World) -> None:
    """Its workload may be suspended, or have ended with cleanPodPolicy All."""
    identity, job_uid, pods = measured_world(world, [UsageSample(1.0, 100.0)])
    path = f"{W}/{identity}/pods"
    world.until(lambda: bool(world.client.get(f"/api/v1/runs/{identity}").json()["ranks"]))
    series = UsageSeries(objects.seconds(START))
    series.add(series.start + 30, UsageSample(4.0, 7.0))
    world.archive.put("u", put_samples(job_uid, "p-0", series.start, series.to_json()))
    assert world.do(world.archive.settle)
    world.do(lambda: world.store.delete(kinds.POD, "runai-team-a", "p-0", options=DeleteOptions(grace=0)))
    world.until(lambda: not world.client.get(path).json()["pods"])
    world.rest._context.pod_usage.pods.clear()  # type: ignore[union-attr]
    for name in ("p-0", pods[0]):
        assert ask(world, f"{path}/{name}/metrics", "CPU_USAGE_CORES", 3) == (200, {"CPU_USAGE_CORES": ["4", "4"]})
    refusal = world.client.get(f"{path}/p-1/metrics")
    assert refusal.status_code == 404 and "no pod 'p-1'" in refusal.json()["message"]


def test_usage_names_workloads_nodes_and_ranks(world: World) -> None:
    sample = UsageSample(0.25, 64000.0, 1.0, 2.0, 3.0, 4.0, 40.0, 8.0)
    identity, _, _ = measured_world(world, [sample, sample])
    answer = world.client.get("/api/v1/usage").json()
    (workload,) = answer["workloads"]
    assert answer["measured"] and workload["usage"]["cpuCores"] == 0.5 and workload["usage"]["netTransmitBytes"] == 8.0
    assert workload["usage"]["gpuUtilization"] == 40.0 and workload["idleSeconds"] > 0
    (node,) = answer["nodes"]
    assert node["pods"] == 2 and node["usage"]["memoryBytes"] == 128000 and node["usage"]["gpuUtilization"] == 160.0
    one = world.client.get(f"/api/v1/usage/{identity}").json()
    assert [pod["usage"]["cpuCores"] for pod in one["pods"]] == [0.25, 0.25]
    assert one["pods"][0]["perGpu"] == [{"gpu": "GPU-1", "gpuUtilization": 80.0, "gpuMemoryBytes": 7.0}]
    assert world.client.get("/api/v1/usage", params={"project": "team-b"}).status_code == 404
    assert world.client.get("/api/v1/usage", params={"projects": "team-a"}).status_code == 400
    (named,) = world.client.get("/api/v1/usage", params={"project": "team-a"}).json()["workloads"]
    assert named["idleSeconds"] >= workload["idleSeconds"], "it grows from one request to the next"
    assert {**named, "idleSeconds": 0} == {**workload, "idleSeconds": 0}
