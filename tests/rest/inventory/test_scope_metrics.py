"""Figures of projects, departments, nodes, node pools and the cluster: what is held and used over time, and now."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import CLUSTER, World

from rowlock import kinds, objects
from rowlock.rest.workload_routes.usage_history import UsageHistory
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample, UsageSeries

START, END = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
ORGANISATION, CLUSTERS = "/api/v1/org-unit", f"/api/v1/clusters/{CLUSTER}"


class PodMeter:
    """Every pod uses the same: two cores, 100 bytes, and half of its one GPU."""

    def series(self, pod_uid: str) -> UsageSeries | None:
        return None

    def latest(self, pod_uid: str) -> LatestUsage | None:
        sample = UsageSample(2.0, 100.0, gpu_utilization=50.0, gpu_memory_bytes=10.0)
        return LatestUsage(0, sample, None, 1, 0, 0, 0, 0, {"GPU-1": (50.0, 10.0)})


def ask(world: World, path: str, types: str, **more: str) -> dict[str, Any]:
    query = {"metricType": types, "start": START, "end": END, "numberOfSamples": "4", **more}
    answer = world.client.get(path, params=query)
    assert answer.status_code in (200, 207), answer.text
    return {one["type"]: [value["value"] for value in one["values"]] for one in answer.json()["measurements"]}


def make_busy_cluster(world: World) -> None:
    """A node of the pool `big` with four GPUs and four cores, where the one pod of team-a's workload holds a GPU; two looks."""
    world.project()
    assert world.submit(compute={"gpuDevicesRequest": 1, "cpuCoreRequest": 1.5}).status_code == 202
    amounts = {"nvidia.com/gpu": "4", "cpu": "4", "memory": "1000"}
    labels = {"kai.scheduler/node-pool": "big"}
    status = {"allocatable": amounts, "capacity": amounts}
    world.create(kinds.NODE, {"metadata": {"name": "a", "labels": labels}, "status": status})
    world.patch(kinds.NODE, "", "a", {"status": status}, "status")
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None
    template = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template")
    owner = {**objects.owner_reference(job), "controller": True}
    meta = {**template["metadata"], "name": "p", "namespace": "runai-team-a", "ownerReferences": [owner]}
    world.create(kinds.POD, {"metadata": meta, "spec": {**template["spec"], "nodeName": "a"}})
    world.patch(kinds.POD, "runai-team-a", "p", {"status": {"phase": "Running"}}, "status")

    async def wait() -> None:
        cache = world.rest.cache
        assert await cache.wait_until("", lambda: [*map(objects.phase, cache.pods())] == ["Running"])

    world.do(wait)
    scopes, now = world.rest.scopes, [objects.seconds(START) + 20]
    world.rest.usage._steps.clear()
    scopes._steps.clear()
    scopes._means.clear()
    world.rest.usage._clock = scopes._clock = lambda: now[0]
    scopes._pod_usage = PodMeter()
    for _ in range(2):
        world.do(world.rest.usage.look)
        world.do(scopes.look)
        now[0] += 20


def test_what_is_held_is_told_of_every_scope(world: World) -> None:
    make_busy_cluster(world)
    project = world.client.get(f"{ORGANISATION}/projects").json()["projects"][0]
    kept = ask(
        world, f"{ORGANISATION}/projects/{project['id']}/metrics", "GPU_QUOTA,GPU_ALLOCATION,CPU_ALLOCATION_MILLICORES"
    )
    quota = f"{project['totalResources']['gpuQuota']:g}"
    assert kept == {"GPU_QUOTA": [quota] * 3, "GPU_ALLOCATION": ["1"] * 3, "CPU_ALLOCATION_MILLICORES": ["1500"] * 3}
    department = ask(world, f"{ORGANISATION}/departments/default/metrics", "GPU_ALLOCATION")
    assert department == {"GPU_ALLOCATION": ["1"] * 3}
    pool = ask(world, f"{CLUSTERS}/nodepools/big/metrics", "TOTAL_GPU_NODES,TOTAL_GPU,ALLOCATED_GPU,UNALLOCATED_GPU")
    assert [values[-1] for values in pool.values()] == ["1", "4", "1", "3"]
    cluster = ask(world, f"{CLUSTERS}/metrics", "ALLOCATED_GPU,WORKLOADS_COUNT")
    assert [values[-1] for values in cluster.values()] == ["1", "1"]


def test_what_is_used_is_that_of_the_pods(world: World) -> None:
    make_busy_cluster(world)
    node = ask(
        world,
        "/runai/api/v1/nodes/a/metrics",
        "CPU_USAGE_CORES,CPU_UTILIZATION,GPU_UTILIZATION,GPU_UTILIZATION_PER_GPU",
    )
    assert {name: values[-1:] for name, values in node.items()} == {
        "CPU_USAGE_CORES": ["2"], "CPU_UTILIZATION": ["50"], "GPU_UTILIZATION": ["12.5"], "GPU_UTILIZATION_PER_GPU": [],
    }, "three of its four GPUs are idle"  # fmt: skip
    pool = ask(world, f"{CLUSTERS}/nodepools/big/metrics", "CPU_UTILIZATION,GPU_UTILIZATION")
    assert {name: values[-1] for name, values in pool.items()} == {"CPU_UTILIZATION": "50", "GPU_UTILIZATION": "12.5"}


def test_means_over_time_are_told_of_projects_and_departments(world: World) -> None:
    """Run:ai's `overtimeData`: of GPUs that are held, and of what is used of those that are measured."""
    make_busy_cluster(world)
    (project,) = world.client.get(f"{ORGANISATION}/projects").json()["projects"]
    (department,) = world.client.get(f"{ORGANISATION}/departments").json()["departments"]
    for unit in (project, department):
        week = unit["overtimeData"]["range7dData"]
        assert (week["averageGpuAllocation"], week["averageGpuUtilization"]) == (1, 50)
        assert 0 < week["averageGpuMemoryUtilization"] < 1, "10 bytes of 100 MiB"
        assert week["updatedAt"] == "2026-01-02T03:04:45Z"
    world.rest.scopes._clock = lambda: objects.seconds(END) + 40 * 86400
    for name in ("range24hData", "range30dData"):
        (project,) = world.client.get(f"{ORGANISATION}/projects").json()["projects"]
        assert project["overtimeData"][name]["averageGpuAllocation"] is None, "long ago"


def test_what_is_gone_is_forgotten(world: World) -> None:
    make_busy_cluster(world)
    scopes = world.rest.scopes
    assert scopes.series(("node", "a")) is not None
    world.do(lambda: world.rest.api.delete(kinds.NODE, "", "a"))

    async def wait() -> None:
        cache = world.rest.cache
        assert await cache.wait_until("", lambda: not any(objects.name(node) == "a" for node in cache.nodes()))

    world.do(wait)
    world.do(scopes.look)
    assert scopes.series(("node", "a")) is None and scopes.steps(("pool", "big"), [2e9]) == [None]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        (f"{ORGANISATION}/projects/none/metrics?metricType=GPU_QUOTA", 404, "project 'none' was not found"),
        (f"{ORGANISATION}/departments/default/metrics?metricType=GPU_QUOTAS", 400, 'mean "GPU_QUOTA"?'),
        (
            f"{ORGANISATION}/departments/default/metrics?metricType=GPU_QUOTA&nodepoolName=big",
            400,
            "over all node pools",
        ),
        ("/runai/api/v1/nodes/b/metrics?metricType=CPU_USAGE_CORES", 404, "no node 'b'"),
        (f"{CLUSTERS}/nodepools/bog/metrics?metricType=TOTAL_GPU", 404, "no node pool 'bog'"),
        (f"{CLUSTERS}/metrics?metricType=TOTAL_GPU&groupBy=Category", 400, "have no groups"),
        ("/api/v1/workloads/telemetry?telemetryType=WORKLOADS", 400, "Known: WORKLOADS_COUNT, GPU_ALLOCATION"),
        ("/api/v1/workloads/telemetry?telemetryType=WORKLOADS_COUNT&groupBy=colour", 400, "no group 'colour'"),
        ("/api/v1/workloads/telemetry?telemetryType=WORKLOADS_COUNT&filterByPhases=Runing", 400, 'mean "Running"?'),
        (f"{ORGANISATION}/projects/telemetry?telemetryType=GPU_QUOTA&nodepoolId=big", 400, "over all node pools"),
    ],
)
def test_a_wrong_question_is_told_so(world: World, path: str, code: int, words: str) -> None:
    world.project()
    more = f"&start={START}&end={END}" if "/metrics" in path else ""
    answer = world.client.get(path + more)
    assert answer.status_code == code and words in answer.json()["message"], answer.text


def test_telemetry_of_workloads_and_projects(world: World) -> None:
    make_busy_cluster(world)

    def tell(path: str) -> list[tuple[str, ...]]:
        answer = world.client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, answer.text
        return [(*(g["value"] for g in one["groups"]), one["value"]) for one in answer.json()["values"]]

    assert tell("workloads/telemetry?telemetryType=WORKLOADS_COUNT&groupBy=project,type") == [
        ("team-a", "Distributed", "1")
    ]
    assert tell("workloads/telemetry?telemetryType=GPU_ALLOCATION") == [("1",)]
    assert tell("workloads/telemetry?telemetryType=WORKLOADS_COUNT&filterByPhases=Stopped") == [("0",)]
    (total,) = tell("org-unit/projects/telemetry?telemetryType=GPU_QUOTA")
    (named,) = tell("org-unit/projects/telemetry?telemetryType=GPU_QUOTA&groupBy=project")
    assert named == ("team-a", *total)
    assert tell("org-unit/departments/telemetry?telemetryType=GPU_ALLOCATION&groupBy=department")[0][0] == "default"


def test_a_look_at_the_history_of_nothing(world: World) -> None:
    assert UsageHistory(world.rest.cache, lambda: 0.0).latest("none") is None
