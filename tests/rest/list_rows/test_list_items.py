"""A list item of a workload that was shown before is the one that would be made anew, whatever has changed meanwhile."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.rest.list_rows import fed_state

from rowlock import kinds, objects
from rowlock.answers import workloads as answers
from rowlock.controllers.view.state import State
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.list_rows.list_items import STEADY_FIELDS, ListItems
from rowlock.rest.list_rows.selection import SortedRows, select_rows
from rowlock.rest.list_rows.workload_rows import WorkloadRow
from rowlock.storage.store import Store
from rowlock.workloads import runai_json
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample
from rowlock.workloads.list_query import Filter, Query

T = "2026-01-01T00:00:{:02}Z"
SPACE = "runai-team-a"


def named(name: str, namespace: str = "", uid: str = "", **metadata: Any) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "uid": uid or f"uid-{name}", **where, **metadata}}


class Lab:
    """A cache that is told of objects by hand, with one project and one job of two pods that ask for a share of a card."""

    def __init__(self) -> None:
        self.now = objects.seconds(T.format(30))
        self.diagnosis = ""
        self.idle_since = math.inf
        self.state = State()
        self.cache = InformerCache(
            Store.open(None), "c", lambda uid, phase: self.diagnosis, lambda: self.now, pod_usage=self, view=self.state
        )
        self.items = ListItems()
        self.kept: dict[Kind, Object] = {}
        labels = {"runai/queue": "team-a"}
        self.put(kinds.NAMESPACE, named(SPACE, uid="5f0c0000-0000-0000-0000-000000000000", labels=labels))
        self.put(kinds.QUEUE, {**named("team-a"), "spec": {"parentQueue": "department-default"}})
        self.put(kinds.NODE, self.node(16000))
        self.put(kinds.PYTORCHJOB, self.job())
        self.put(kinds.POD_GROUP, named("pg", SPACE, ownerReferences=[{"uid": "uid-j"}]))
        self.put(kinds.POD, self.pod("Pending"))

    def latest(self, uid: str) -> LatestUsage | None:
        """What the pod used last: a card that is idle since `idle_since`."""
        idle = {"card": self.idle_since}
        return LatestUsage(
            self.now, UsageSample(), math.inf, 0, 0, 0, 0, 0, gpus={"card": (0.0, 0.0)}, gpu_idle_since=idle
        )

    def series(self, uid: str) -> None:
        """Nothing is asked of what it used before."""

    def node(self, mebibytes: int) -> Object:
        resources = {"nvidia.com/gpu": "1"}
        labels = {"nvidia.com/gpu.memory": str(mebibytes)}
        return {**named("n", labels=labels), "status": {"capacity": resources, "allocatable": resources}}

    def job(self, *conditions: str, labels: dict[str, str] | None = None, replicas: int = 2, **spec: Any) -> Object:
        said = [{"type": c, "status": "True", "lastTransitionTime": T.format(9), "message": c} for c in conditions]
        container = {"name": "pytorch", "image": "i", "command": ["run"], "env": [{"name": "A", "value": "1"}]}
        template = {"metadata": {"annotations": {"gpu-memory": "4000"}}, "spec": {"containers": [container]}}
        worker = {"replicas": replicas, "template": template}
        made = named("j", SPACE, creationTimestamp=T.format(0), labels=labels or {})
        return {
            **made, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "spec": {"pytorchReplicaSpecs": {"Worker": worker}, **spec}, "status": {"conditions": said},
        }  # fmt: skip

    def pod(self, phase: str, node: str = "", index: int = 0) -> Object:
        owner = {**objects.owner_reference(self.job()), "controller": True}
        state = {"running": {}} if phase == "Running" else {"waiting": {"reason": "ErrImagePull", "message": "none"}}
        return {
            **named(f"j-worker-{index}", SPACE, ownerReferences=[owner], annotations={"gpu-memory": "4000"}),
            "spec": {"nodeName": node, "containers": [{"name": "pytorch"}]},
            "status": {"phase": phase, "containerStatuses": [{"name": "pytorch", "state": state}]},
        }  # fmt: skip

    def put(self, kind: Kind, obj: Object) -> None:
        fed_state.put(self.state, kind, obj)
        self.kept[kind] = obj

    def drop(self, *those: Kind) -> None:
        for kind in those:
            fed_state.drop(self.state, kind, objects.key(self.kept[kind]))

    @property
    def row(self) -> WorkloadRow:
        (row,) = self.cache.rows()
        return row

    def shown(self) -> answers.Workload:
        workload = self.cache.workload("uid-j")
        assert workload is not None
        item = self.items.item_json(self.row, workload)
        assert item == runai_json.workload_json(workload)
        assert list(item) == list(runai_json.workload_json(workload)), "the order of fields stays, too"
        return item


def run(lab: Lab) -> None:
    """Both pods run, and hold a share of a card each."""
    lab.put(kinds.POD, lab.pod("Running", "n"))
    lab.put(kinds.POD, lab.pod("Running", "n", 1))


def group(lab: Lab, **status: Any) -> Object:
    return {**lab.kept[kinds.POD_GROUP], "status": status}


REASONS = [{"message": "it needs 2 GPUs, and 1 is free", "reason": "OverLimit"}]
CHANGES: dict[str, Callable[[Lab], None]] = {
    "a pod starts": run,
    "a pod gets a node": lambda lab: lab.put(kinds.POD, lab.pod("Pending", "n")),
    "a pod is added": lambda lab: lab.put(kinds.POD, lab.pod("Running", "n", 1)),
    "a pod is deleted": lambda lab: lab.drop(kinds.POD),
    "the job is labelled with a priority": lambda lab: lab.put(
        kinds.PYTORCHJOB, lab.job(labels={"priorityClassName": "high"})
    ),
    "the job moves to a node pool": lambda lab: lab.put(
        kinds.PYTORCHJOB, lab.job(labels={"kai.scheduler/node-pool": "b"})
    ),
    "the job has more replicas": lambda lab: lab.put(kinds.PYTORCHJOB, lab.job(replicas=3)),
    "the job is suspended": lambda lab: lab.put(kinds.PYTORCHJOB, lab.job(runPolicy={"suspend": True})),
    "the job ends": lambda lab: lab.put(kinds.PYTORCHJOB, lab.job("Running", "Failed")),
    "the scheduler says why it waits": lambda lab: lab.put(
        kinds.POD_GROUP, group(lab, schedulingConditions=[{"type": "x", "reasons": REASONS}])
    ),
    "the pod group goes, and the pod": lambda lab: lab.drop(kinds.POD_GROUP, kinds.POD),
    "the cards of a node are others": lambda lab: lab.put(kinds.NODE, lab.node(8000)),
    "the node goes": lambda lab: lab.drop(kinds.NODE),
    "the project is in another department": lambda lab: lab.put(
        kinds.QUEUE, {**lab.kept[kinds.QUEUE], "spec": {"parentQueue": "department-b"}}
    ),
    "the project has another name": lambda lab: lab.put(
        kinds.NAMESPACE, objects.with_field(lab.kept[kinds.NAMESPACE], "metadata.annotations", {"rowlock.dev/project": "A"})
    ),
    "time passes": lambda lab: setattr(lab, "now", lab.now + 60),
    "a diagnosis is made": lambda lab: setattr(lab, "diagnosis", "rank 1 hangs"),
    "its card does nothing": lambda lab: setattr(lab, "idle_since", lab.now - 1000),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_an_item_that_is_kept_equals_a_fresh_one(change: str) -> None:
    lab = Lab()
    before = lab.shown()
    assert lab.shown() == before
    CHANGES[change](lab)
    assert lab.shown() != before, "this change is to be seen"


def test_a_guarantee_of_the_queue_is_seen_at_once() -> None:
    """It depends on the quota of the project, which no object of the workload tells."""
    lab = Lab()
    run(lab)
    lab.put(kinds.POD_GROUP, group(lab, startTime=T.format(5)))
    assert lab.shown()["guaranteedRuntimeEndsAt"] is None
    lab.put(kinds.QUEUE, {**lab.kept[kinds.QUEUE], "spec": {"preemptMinRuntime": "10m", "reclaimMinRuntime": "10m"}})
    assert lab.shown()["guaranteedRuntimeEndsAt"] == "2026-01-01T00:10:05Z"


def test_what_a_caller_sets_in_an_item_stays_with_him() -> None:
    lab = Lab()
    lab.shown()["phaseMessage"] = "the operator could not make its pods"
    assert lab.shown()["phaseMessage"] == ""


def test_a_few_pages_are_kept_and_not_the_whole_list() -> None:
    lab = Lab()
    lab.items = ListItems(limit=1)
    lab.shown()
    other = {**lab.job(), **named("k", SPACE, creationTimestamp=T.format(1))}
    lab.put(kinds.PYTORCHJOB, other)
    rows = {row.name: row for row in lab.cache.rows()}
    workload = lab.cache.workload("uid-k")
    assert workload is not None and STEADY_FIELDS in rows["j"].known
    lab.items.item_json(rows["k"], workload)
    assert STEADY_FIELDS in rows["k"].known and STEADY_FIELDS not in rows["j"].known


def names_in_order(lab: Lab, orders: SortedRows, **query: Any) -> list[str]:
    found = asyncio.run(select_rows(lab.cache, Query(**query), orders))
    assert list(found) == list(asyncio.run(select_rows(lab.cache, Query(**query), SortedRows())))
    return [row.name for row in found]


def test_an_order_that_is_kept_follows_the_workloads() -> None:
    """They come, go, change, and their project goes; each time as if nothing had been kept."""
    lab, orders = Lab(), SortedRows()
    for name in "cab":
        lab.put(kinds.PYTORCHJOB, {**lab.job(), **named(name, SPACE, creationTimestamp=T.format(1))})
    for _ in range(2):
        assert names_in_order(lab, orders, sort="name") == ["a", "b", "c", "j"]
        assert names_in_order(lab, orders, sort="name", descending=True) == ["j", "c", "b", "a"]
        assert names_in_order(lab, orders, sort="createdAt") == ["j", "c", "b", "a"]
        assert names_in_order(lab, orders, sort="name", search="j") == ["j"]
    lab.drop(kinds.PYTORCHJOB)
    assert names_in_order(lab, orders, sort="name") == ["a", "c", "j"]
    lab.put(kinds.PYTORCHJOB, lab.job("Failed"))
    assert names_in_order(lab, orders, sort="phase") == ["c", "a", "j"]
    assert names_in_order(lab, orders, sort="name") == ["a", "c", "j"]
    lab.drop(kinds.NAMESPACE)
    assert names_in_order(lab, orders, sort="name") == []


def test_a_kept_answer_to_a_filter_follows_the_workloads() -> None:
    """The same for what is filtered by fields that never change; another filter, and one by the phase, has an answer of its own."""
    lab, orders = Lab(), SortedRows()
    for name in ("ca", "ab", "ba"):
        lab.put(kinds.PYTORCHJOB, {**lab.job(), **named(name, SPACE, creationTimestamp=T.format(1))})
    with_a, with_b = (Filter("name", "=@", "a"),), (Filter("name", "=@", "b"),)
    for _ in range(2):
        assert names_in_order(lab, orders, filters=with_a, sort="name") == ["ab", "ba", "ca"]
        assert names_in_order(lab, orders, filters=with_b, sort="name") == ["ab", "ba"]
        assert names_in_order(lab, orders, filters=(Filter("name", "==", "ab"),), sort="name") == ["ab"]
        assert names_in_order(lab, orders, filters=(*with_a, Filter("phase", "==", "Failed")), sort="name") == []
    lab.put(kinds.PYTORCHJOB, {**lab.job("Failed"), **named("ab", SPACE, creationTimestamp=T.format(1))})
    assert names_in_order(lab, orders, filters=(*with_a, Filter("phase", "==", "Failed")), sort="name") == ["ab"]
    lab.drop(kinds.PYTORCHJOB)
    assert names_in_order(lab, orders, filters=with_a, sort="name") == ["ba", "ca"]


def test_only_the_answers_that_were_asked_for_last_are_kept() -> None:
    lab, orders = Lab(), SortedRows()
    first = Query(filters=(Filter("name", "=@", "j"),))
    for query in [first, *(Query(filters=(Filter("name", "=@", f"j{n}"),)) for n in range(15)), first]:
        asyncio.run(select_rows(lab.cache, query, orders))
    asyncio.run(select_rows(lab.cache, Query(sort="name"), orders))
    assert orders.find(lab.cache.rows(), first) is not None
    assert orders.find(lab.cache.rows(), Query(filters=(Filter("name", "=@", "j0"),))) is None
