"""The cluster as a whole: every card and who is on it, who waits in which order, and what would help."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from tests.rest.conftest import World
from tests.rest.served import EmbeddedServed, Served

from rowlock import kinds, objects
from rowlock.cli.client import StatusError
from rowlock.rest.cluster_view.queue import try_changes
from rowlock.scheduling.model.snapshot import Gang, Node, Queue, Shape, Snapshot, Status, Task
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample


def ask(served: Served, path: str) -> dict[str, Any]:
    body: dict[str, Any] = served.get(f"/api/v1/{path}")
    return body


def post(served: Served, path: str, body: dict[str, Any], code: int = 200) -> dict[str, Any]:
    try:
        found: dict[str, Any] = served.post(f"/api/v1/{path}", body)
    except StatusError as refusal:
        assert refusal.status == code, refusal
        return dict(refusal.body)
    assert code == 200, found
    return found


def workload_id(served: Served, name: str) -> str:
    return str(next(w["id"] for w in ask(served, "workloads")["workloads"] if w["name"] == name))


def test_every_card_says_who_is_on_it(served: Served) -> None:
    served.node("a", 2)
    served.node("b", 0)
    served.ok("runai submit-dist pytorch part --workers=1 -g 0.25 -i host")
    served.bound(2)
    served.ok("runai distributed submit whole -i host --workers 1 --no-master -g 1")
    served.bound(3)
    served.until(lambda: ask(served, "scheduler/cards")["nodes"][0]["allocated"] == 1.5)
    a, b = ask(served, "scheduler/cards")["nodes"]
    assert (b["cards"], b["allocated"]) == ([], 0) and a["elsewhere"] == []
    shares = {
        card["index"]: sorted((one["workloadName"], one["share"]) for one in card["holders"]) for card in a["cards"]
    }
    assert sorted(shares.values()) == [[("part", 0.25), ("part", 0.25)], [("whole", 1.0)]]
    holder = next(one for card in a["cards"] for one in card["holders"] if one["workloadName"] == "whole")
    assert holder["workloadId"] == workload_id(served, "whole") and holder["projectName"] == "default"
    assert holder["pod"] in served.pods() and not holder["leaving"]


def test_every_card_says_what_is_used_of_it(served: EmbeddedServed) -> None:
    """Two pods share a card, one has another for itself, and nobody holds the third; the figures of the fourth are not known."""
    served.node("a", 4, card_memory=8000)
    served.ok("runai submit-dist pytorch part --workers=1 -g 0.25 -i host")
    served.bound(2)
    served.ok("runai distributed submit whole -i host --workers 1 --no-master -g 1")
    served.ok("runai distributed submit untold -i host --workers 1 --no-master -g 1")
    served.bound(4)
    served.run_pods()
    now, gibibyte = time.time(), float(2**30)
    played = {
        "part-master-0": (0.0, 1 * gibibyte, now - 700), "part-worker-0": (0.0, gibibyte / 2, now - 400),
        "whole-worker-0": (80.0, 2 * gibibyte, None),
    }  # fmt: skip
    for name, (busy, memory, since) in played.items():
        idle = {} if since is None else {"GPU-x": since}
        sample = UsageSample(1.0, 1.0, gpu_utilization=busy, gpu_memory_bytes=memory)
        gpus = {"GPU-x": (busy, memory)}
        uid = objects.uid(served.pods()[name])
        served.usage[uid] = LatestUsage(now, sample, since, 1.0, 0.0, 0.0, 0.0, 0.0, gpus, idle)
    (node,) = ask(served, "scheduler/cards")["nodes"]
    told = {
        card["holders"][0]["workloadName"] if card["holders"] else "": (
            card["usedMemory"], card["utilization"], None if card["idleSeconds"] is None else card["idleSeconds"] // 100,
        )
        for card in node["cards"]
    }  # fmt: skip
    assert told == {"part": (1536, 0, 4), "whole": (2048, 80, 0), "untold": (None, None, None), "": (None, None, None)}
    assert (node["readyGpus"], node["totalGpus"], node["pods"], node["cpu"]) == (4, 4, 4, 16)
    (held,) = ask(served, "scheduler/nodes")["nodes"]
    assert (
        node["memory"] == 32 * 2**30 and f"{node['allocatedMemory'] / 2**20:.0f}Mi" == held["allocatedMemory"] != "0Mi"
    )
    assert node["allocatedCpu"] == held["allocatedCpu"] > 0
    (whole,) = (one for one in ask(served, "workloads?filterBy=name==whole")["workloads"])
    (part,) = (one for one in ask(served, "workloads?filterBy=name==part")["workloads"])
    assert (whole["idleAllocatedGpus"], part["idleAllocatedGpus"]) == (0, 2)
    by_idle = [one["name"] for one in ask(served, "workloads?sortBy=idleAllocatedGpus&sortOrder=desc")["workloads"]]
    assert by_idle == ["part", "whole", "untold"], "what is not known comes last"
    assert [one["name"] for one in ask(served, "workloads?filterBy=idleGpus>=1")["workloads"]] == ["part"]


def test_a_pod_whose_cards_nobody_named_is_not_drawn_on_one(world: World) -> None:
    """Schedulers of others name no card, and pods that no job made have no workload."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": "node-1", "containers": [{"name": "a", "image": "b", **limits}]}
    world.create(kinds.NAMESPACE, {"metadata": {"name": "apart"}})
    world.create(kinds.POD, {"metadata": {"name": "p", "namespace": "apart"}, "spec": spec})
    (node,) = world.client.get("/api/v1/scheduler/cards").json()["nodes"]
    assert [card["holders"] for card in node["cards"]] == [[]] and node["allocated"] == 1
    assert [(one["pod"], one["workloadId"], one["projectName"]) for one in node["elsewhere"]] == [("p", "", "")]


def test_every_node_says_what_its_pods_hold(world: World) -> None:
    """Init containers and overhead count as a scheduler counts them; pods that have ended, or are bound to nothing, hold nothing."""
    world.create(kinds.NAMESPACE, {"metadata": {"name": "apart"}})
    asks = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"nvidia.com/gpu": "1"}}
    main = {"name": "a", "image": "b", "resources": asks}
    init = {"name": "i", "image": "b", "resources": {"requests": {"cpu": 2}}}
    for name, place, more in (("p", "node-1", {"initContainers": [init]}), ("q", "node-1", {}), ("free", "", {})):
        spec = {"containers": [main], **more, **({"nodeName": place} if place else {})}
        world.create(kinds.POD, {"metadata": {"name": name, "namespace": "apart"}, "spec": spec})
    share = {"metadata": {"name": "s", "namespace": "apart", "annotations": {"gpu-fraction": "0.25"}}}
    world.create(kinds.POD, {**share, "spec": {"nodeName": "node-1", "containers": [{"name": "a", "image": "b"}]}})
    node = _node_with_pods(world, 3)
    assert (node["name"], node["allocatedGpus"]) == ("node-1", 2.25)
    assert (node["allocatedCpu"], node["allocatedMemory"]) == (2.5, "128Mi")
    world.patch(kinds.POD, "apart", "q", {"status": {"phase": "Failed"}}, "status")
    node = _node_with_pods(world, 2)
    assert (node["allocatedGpus"], node["allocatedCpu"]) == (1.25, 2.0)


def _node_with_pods(world: World, count: int) -> dict[str, Any]:
    """The only node, once the cache has seen so many pods on it."""
    deadline = time.monotonic() + 60
    while True:
        (node,) = world.client.get("/api/v1/scheduler/nodes").json()["nodes"]
        if node["pods"] == count or time.monotonic() > deadline:
            assert node["pods"] == count
            found: dict[str, Any] = node
            return found


def test_the_queue_is_in_the_order_of_the_scheduler(served: Served) -> None:
    """The priority of a workload goes before its age; what runs does not wait."""
    served.node("a", 1)
    served.ok("runai distributed submit holds -i host --workers 1 --no-master -g 1")
    served.bound(1)
    for name, priority in (("early", "low"), ("late", "low"), ("urgent", "medium")):
        served.ok(f"runai distributed submit {name} -i host --workers 2 -g 1 --priority {priority}")
    served.until(lambda: [one["name"] for one in waiting(served)] == ["urgent", "early", "late"])
    served.until(lambda: all(one["hint"] for one in waiting(served)))
    first = waiting(served)[0]
    assert (first["position"], first["projectName"]) == (1, "default")
    assert "ask for 1 GPU or less in all" in first["hint"]
    header, *rows = [line.split() for line in served.ok("rowlock queue").splitlines()]
    assert header == ["POSITION", "NAME", "PRIORITY", "GPUS", "AGE", "WHY"]
    assert [row[:4] for row in rows] == [
        ["1", "urgent", "medium", "3"],
        ["2", "early", "low", "3"],
        ["3", "late", "low", "3"],
    ]
    assert all(len(row) > len(header) for row in rows), "each has a sentence"
    assert served.ok("rowlock queue -A").split()[:7] == [
        "POSITION",
        "NAME",
        "PROJECT",
        "PRIORITY",
        "GPUS",
        "AGE",
        "WHY",
    ]
    told = json.loads(served.ok("rowlock queue --json"))
    assert told["total"] == 3 and [one["name"] for one in told["waiting"]] == ["urgent", "early", "late"]
    assert told["waiting"][0]["message"] and told["waiting"][0]["requestedGpus"] == 3
    body = ask(served, f"workloads/{workload_id(served, 'early')}/what-if")
    assert body["verdict"] == "waits" and "would wait" in body["message"]
    assert ask(served, f"workloads/{workload_id(served, 'holds')}/what-if")["message"] == "holds waits for no node."
    assert len(served.pods()) == 10, "a question makes nothing"


def waiting(served: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(served, "scheduler/queue")["waiting"]
    return found


def test_what_would_help_was_tried(served: Served) -> None:
    served.node("a", 2)
    served.ok("runai submit-dist pytorch wide --workers=3 -g 1 -i host")
    served.until(lambda: [one["name"] for one in waiting(served)] == ["wide"])
    body = ask(served, f"workloads/{workload_id(served, 'wide')}/what-if")
    assert body["verdict"] == "waits" and body["changes"] == ["ask for 2 pods instead of 4"]


def test_without_a_scheduler_of_ours_nobody_knows_the_order(world: World) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    assert world.client.get("/api/v1/scheduler/queue").json() == {"isOrdered": False, "waiting": [], "total": 0}
    body = world.client.get(f"/api/v1/workloads/{identity}/what-if").json()
    assert body["verdict"] == "" and "runs without rowlock's scheduler" in body["message"]


def test_an_answer_names_nothing_of_projects_that_one_may_not_see() -> None:
    """Whoever must leave for a workload is named to those who may see him."""
    shape = Shape(gpus=1)
    hers = Task("p1", "hers", "secret-0", shape, Status.RUNNING, node="a", devices=(0,))
    mine = Task("p2", "mine", "wants-0", shape)
    snapshot = Snapshot(
        now=1000.0,
        nodes=(Node("a", cpu=8000, memory=2**34, gpus=1),),
        queues=(Queue("rich", quota=(-1, -1, 100)), Queue("poor", quota=(-1, -1, 0))),
        gangs=(
            Gang("hers", "secret", "g1", "poor", (hers,), created=1.0, started=2.0, owner=("", "", "secret", "u1")),
            Gang("mine", "wants", "g2", "rich", (mine,), created=3.0, owner=("", "", "wants", "u2")),
        ),
    )
    told = try_changes(snapshot, "u2", "wants", frozenset({"hers", "mine"}))
    assert told["verdict"] == "startsAfter" and "secret" in told["message"]
    hidden = try_changes(snapshot, "u2", "wants", frozenset({"mine"}))
    assert hidden["verdict"] == "startsAfter" and "secret" not in str(hidden) and "hers" not in str(hidden)


def test_other_quotas_are_tried_and_not_saved(served: Served) -> None:
    served.node("a", 2)
    served.ok("rowlock project create team-a --gpus 2")
    served.ok("rowlock project create team-b --gpus 0")
    served.ok("runai distributed submit holds -p team-a -i host --workers 2 --no-master -g 1")
    served.bound(2, "runai-team-a")
    served.ok("runai distributed submit wants -p team-b -i host --workers 1 --no-master -g 1")
    served.until(lambda: any(one["name"] == "wants" for one in waiting(served)))
    quotas = [{"id": "team-a", "gpuQuota": 1}, {"id": "team-b", "gpuQuota": 1}]
    found = post(served, "scheduler/quota-what-if", {"projects": quotas})
    assert [one["name"] for one in found["startsAfter"]] == ["wants"] and not found["starts"]
    assert [(one["name"], one["projectName"], one["action"]) for one in found["yields"]] == [
        ("holds", "team-a", "reclaim")
    ]
    assert found["yields"][0]["workloadId"] == workload_id(served, "holds")
    kept = {one["name"]: one["totalResources"]["gpuQuota"] for one in ask(served, "org-unit/projects")["projects"]}
    assert (kept["team-a"], kept["team-b"]) == (2, 0)
    refused = post(served, "scheduler/quota-what-if", {"projects": [{"id": "team-c", "gpuQuota": -2}]}, 400)
    assert "team-c" in str(refused) and "0 or more" in str(refused)


def test_a_node_says_where_it_stands(world: World) -> None:
    labels = {"topology.kubernetes.io/zone": "z1", "rack": "r7", "nvidia.com/gpu.clique": "c.0", "colour": "blue"}
    world.patch(kinds.NODE, "", "node-1", {"metadata": {"name": "node-1", "labels": labels}})
    (found,) = world.client.get("/api/v1/scheduler/cards").json()["nodes"]
    assert [place["value"] for place in found["topology"]] == ["z1", "r7", "c.0"]
    assert (found["nvLinkDomainUid"], found["nvLinkCliqueId"]) == ("c", "0")
    (node,) = world.client.get("/runai/api/v1/nodes").json()["nodes"]
    assert (node["nvLinkDomainUid"], node["nvLinkCliqueId"]) == ("c", "0")
    world.patch(kinds.NODE, "", "node-1", {"metadata": {"name": "node-1", "labels": {}}})
    world.do(partial(world.rest.cache.wait_until, "", lambda: not any(map(objects.labels, world.rest.cache.nodes()))))
    (found,) = world.client.get("/api/v1/scheduler/cards").json()["nodes"]
    assert (found["nvLinkDomainUid"], found["nvLinkCliqueId"]) == (None, None)
