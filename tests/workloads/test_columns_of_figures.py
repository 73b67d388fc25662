"""Figures behind the columns of workloads and projects: guaranteed runtimes, idle GPUs, means over time, ports, applications."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads import projects, runai_json
from rowlock.workloads.figures.guarantees import RuntimeGuarantees, started_at
from rowlock.workloads.figures.overtime import OvertimeMeans
from rowlock.workloads.figures.times import count_idle_gpus
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample
from rowlock.workloads.runai_json import Workload

HOUR, DAY = 3600.0, 86400.0
PROJECT = projects.Project("1", "a", "runai-a", "a", "default", "", Decimal(1), Decimal(-1))


def queue(name: str, parent: str = "", **runtimes: str) -> Object:
    return {"metadata": {"name": name}, "spec": {**({"parentQueue": parent} if parent else {}), **runtimes}}


@pytest.mark.parametrize(
    ("queues", "seconds"),
    [
        ([queue("a", "d"), queue("d")], 0),
        ([queue("a", "d", preemptMinRuntime="10m"), queue("d")], 600),
        ([queue("a", "d"), queue("d", preemptMinRuntime="10m")], 600),
        ([queue("a", "d", preemptMinRuntime="1m"), queue("d", preemptMinRuntime="10m")], 60),
        ([queue("a", "d", preemptMinRuntime="10m"), queue("b", "d"), queue("d")], 0),
        ([queue("a", "d", preemptMinRuntime="10m", reclaimMinRuntime="5m"), queue("b", "d"), queue("d")], 300),
        ([queue("a", "d", preemptMinRuntime="10m", reclaimMinRuntime="5m"), queue("d"), queue("e")], 0),
        ([queue("a", "d", preemptMinRuntime="1h"), queue("d", reclaimMinRuntime="2m"), queue("e")], 120),
        ([queue("b", "d")], 0),
        ([queue("a", "d", preemptMinRuntime="1m"), queue("d", "a")], 60),
    ],
    ids=["none", "its own", "its department's", "the nearest", "its sibling reclaims", "and waits, too", "another department reclaims",
         "and waits, too", "no such queue", "a circle"],
)  # fmt: skip
def test_the_guarantee_is_what_holds_against_everybody(queues: list[Object], seconds: float) -> None:
    assert RuntimeGuarantees(queues).seconds("a") == seconds


def gang(started: str) -> Object:
    return {"metadata": {"annotations": {"kai.scheduler/last-start-timestamp": started}}}


def test_a_start_that_nobody_can_read_is_none() -> None:
    assert started_at(gang("2026-01-02T03:04:05Z")) == objects.seconds("2026-01-02T03:04:05Z")
    assert [started_at(one) for one in (None, {}, gang("soon"))] == [0, 0, 0]


def usage(idle_since: dict[str, float], **busy: float) -> LatestUsage:
    gpus = {name: (value, 1.0) for name, value in busy.items()}
    return LatestUsage(0, UsageSample(), None, 0, 0, 0, 0, 0, gpus, idle_since)


def test_gpus_are_idle_after_five_minutes_and_unknown_where_nobody_looks() -> None:
    pods = [{"metadata": {"uid": uid}} for uid in "ab"]
    known = {"a": usage({"one": 100.0, "two": 500.0}, one=0.0, two=0.0, three=90.0), "b": usage({}, four=50.0)}
    assert count_idle_gpus(pods, known.get, 399.0) == 0
    assert count_idle_gpus(pods, known.get, 400.0) == 1
    assert count_idle_gpus(pods, known.get, 900.0) == 2
    assert count_idle_gpus(pods, None, 900.0) is None
    assert count_idle_gpus(pods, {"a": usage({})}.get, 900.0) is None, (
        "simulated ones do nothing that could be measured"
    )
    assert count_idle_gpus(pods, {"a": usage({}, one=math.nan)}.get, 900.0) is None, "nobody knows whose work it is"


def test_means_reach_back_as_far_as_their_range() -> None:
    means = OvertimeMeans()
    means.add(0.0, (4.0, math.nan, math.nan))
    means.add(30.0, (2.0, 50.0, math.nan))
    told = means.to_json(60.0)
    assert set(told) == {"range24hData", "range7dData", "range30dData"}
    assert told["range24hData"] == {
        "averageGpuAllocation": 3, "averageGpuUtilization": 50, "averageGpuMemoryUtilization": None,
        "updatedAt": "1970-01-01T00:00:30Z",
    }  # fmt: skip
    means.add(2 * DAY, (0.0, math.nan, math.nan))
    told = means.to_json(2 * DAY)
    assert told["range24hData"]["averageGpuAllocation"] == 0
    assert told["range7dData"]["averageGpuAllocation"] == 2
    assert told["range24hData"]["averageGpuUtilization"] is None


def test_means_cost_the_same_memory_however_long_they_go_on() -> None:
    means = OvertimeMeans()
    for sample in range(2000):
        means.add(sample * HOUR, (1.0, 1.0, 1.0))
    assert {len(one._buckets) for one in means._ranges.values()} == {25}


def workload(template: dict[str, Any], job_meta: dict[str, Any] | None = None, **more: Any) -> Workload:
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", **(job_meta or {})},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }
    return Workload(job, more.pop("pods", []), more.pop("group", None), PROJECT, "c", **more)


def test_ports_are_connections_but_for_the_one_of_the_ranks() -> None:
    ports = [
        {"name": "pytorchjob-port", "containerPort": 23456},
        {"name": "board", "containerPort": 6006},
        {"containerPort": 80},
    ]
    template = {"spec": {"containers": [{"name": "a", "ports": ports}, {"name": "b", "ports": ports[1:2]}]}}
    body = runai_json.workload_json(workload(template))
    assert body["additionalFields"]["ports"] == [{"name": "board", "port": 6006}, {"name": "port-80", "port": 80}]


def test_an_application_is_a_helm_release_or_what_a_label_says() -> None:
    plain: dict[str, Any] = {"spec": {"containers": []}}
    labelled = {**plain, "metadata": {"labels": {"app.kubernetes.io/part-of": "shop"}}}
    release = {"annotations": {"meta.helm.sh/release-name": "nightly"}}
    told = [
        runai_json.workload_json(one)["aiApplicationName"]
        for one in (workload(plain), workload(labelled), workload(labelled, release))
    ]
    assert told == [None, "shop", "nightly"]


def test_one_pod_runs_once_and_many_do_not_say() -> None:
    body = runai_json.workload_json(workload({"spec": {"containers": []}}))
    assert body["type"] == "Training" and body["requestedPods"]["completions"] == 1
    many = workload({"spec": {"containers": []}})
    many.job["spec"]["pytorchReplicaSpecs"]["Worker"] = {"replicas": 2, "template": {}}
    assert runai_json.workload_json(many)["requestedPods"]["completions"] is None


def test_a_guarantee_is_of_what_holds_something_and_can_lose_it() -> None:
    pod = {"metadata": {"uid": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    given: dict[str, Any] = {
        "group": gang("2026-01-02T03:04:05Z"),
        "guaranteed_seconds": lambda queue: 600.0 if queue == "a" else 0.0,
    }
    template: dict[str, Any] = {"spec": {"containers": []}}
    ends = [
        runai_json.workload_json(one)["guaranteedRuntimeEndsAt"]
        for one in (
            workload(template, pods=[pod], **given),
            workload(template, **given),
            workload(template, {"labels": {"priorityClassName": "build"}}, pods=[pod], **given),
            workload(template, pods=[pod], group=gang("2026-01-02T03:04:05Z")),
        )
    ]
    assert ends == ["2026-01-02T03:14:05Z", None, None, None]


def test_an_annotation_that_anybody_wrote_breaks_no_list() -> None:
    for text in ('{"datasources": "x"}', '{"datasources": [1, {}, {"name": 2}]}', '{"environment": 7}', "[]", "{"):
        body = runai_json.workload_json(
            workload({"spec": {"containers": []}}, {"annotations": {"rowlock.dev/assets": text}})
        )
        assert body["datasources"] == body["environments"] == []
