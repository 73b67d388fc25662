"""Who must leave a tainted node, and when. By equality, on a real store in memory."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.api import WRITE, Change, Decision, Delete, Patch, Record
from rowlock.kinds import NAMESPACE, NODE, POD
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.system.taint_eviction import TaintEviction, tolerated_seconds

TAINT = {"key": "maintenance", "value": "disk", "effect": "NoExecute"}
POD_KEY = Key("default", "rank-0")


class Node:
    """A store with one node and one pod on it."""

    def __init__(self, *tolerations: dict[str, Any], taints: tuple[dict[str, Any], ...] = (TAINT,)) -> None:
        self.store = Store.open()
        self.eviction = TaintEviction()
        self.store.core.create(NAMESPACE, {"metadata": {"name": "default"}}, WRITE)
        self.node = self.store.core.create(NODE, {"metadata": {"name": "n"}, "spec": {"taints": list(taints)}}, WRITE)
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "tolerations": list(tolerations)}
        metadata = {"name": POD_KEY.name, "namespace": POD_KEY.namespace}
        self.pod = self.store.core.create(POD, {"metadata": metadata, "spec": spec}, WRITE)
        self.store.commit()

    def set_taints(self, *taints: dict[str, Any]) -> Change:
        old = self.node
        self.node = self.store.core.update(NODE, {**old, "spec": {"taints": list(taints)}}, "", WRITE)
        self.store.commit()
        return Change("Modified", 1, NODE, self.node, old)

    def decide(self, now: float) -> Decision:
        return self.eviction.decide(self.store.view, POD_KEY, now)


def written(decision: Decision) -> list[str]:
    return [type(write).__name__ for write in decision.writes]


def reason_of(decision: Decision) -> str:
    (patch,) = (w for w in decision.writes if isinstance(w, Patch))
    reason: str = patch.patch["status"]["conditions"][-1]["reason"]
    return reason


def test_a_pod_without_toleration_goes_at_once() -> None:
    node = Node()
    decision = node.decide(100.0)
    assert written(decision) == ["Record", "Patch", "Delete"] and reason_of(decision) == "DeletionByTaintManager"
    assert decision.writes[0] == Record(
        node.pod,
        "Normal",
        "TaintManagerEviction",
        "Marking for deletion Pod default/rank-0",
        "taint-eviction-controller",
    )
    assert isinstance(decision.writes[-1], Delete) and decision.writes[-1].options.grace is None


def test_a_tolerated_taint_costs_nothing() -> None:
    assert Node({"key": "maintenance", "operator": "Exists"}).decide(100.0) == Decision()
    assert Node(taints=({**TAINT, "effect": "NoSchedule"},)).decide(100.0) == Decision()


def test_a_pod_may_stay_for_its_seconds_counted_from_the_taint() -> None:
    node = Node({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30})
    assert node.decide(100.0) == Decision(requeue_after=30.0)
    assert node.decide(125.0) == Decision(requeue_after=5.0)
    assert written(node.decide(130.0)) == ["Record", "Patch", "Delete"]


def test_a_taint_that_goes_cancels_the_eviction_and_says_so() -> None:
    node = Node({"operator": "Exists", "tolerationSeconds": 30})
    node.decide(100.0)
    change = node.set_taints()
    assert list(node.eviction.keys(node.store.view, change)) == [POD_KEY]
    (event,) = node.decide(110.0).writes
    assert isinstance(event, Record) and event.message == "Cancelling deletion of Pod default/rank-0"
    assert node.decide(111.0) == Decision(), "said once"
    node.set_taints(TAINT)
    assert node.decide(200.0) == Decision(requeue_after=30.0), "the time begins anew"


def test_only_changed_taints_wake_the_pods_of_a_node() -> None:
    node = Node()
    assert list(node.eviction.keys(node.store.view, Change("Modified", 1, NODE, node.node, node.node))) == []
    assert list(node.eviction.keys(node.store.view, Change("Added", 1, NODE, node.node))) == [POD_KEY]
    assert list(node.eviction.keys(node.store.view, Change("Added", 1, POD, node.pod))) == [POD_KEY]


def test_a_pod_that_leaves_already_is_left_alone() -> None:
    node = Node()
    node.store.core.delete(POD, *POD_KEY)
    node.store.commit()
    assert node.decide(100.0) == Decision()


OTHER: Object = {"key": "gpu", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("taints", "tolerations", "seconds"),
    [
        ([TAINT], [{"key": "maintenance", "value": "disk"}], None),
        ([TAINT], [{"key": "maintenance", "value": "ssd"}], 0.0),
        ([TAINT], [{"key": "maintenance", "operator": "Exists", "effect": "NoSchedule"}], 0.0),
        ([TAINT, OTHER], [{"key": "gpu"}], 0.0),
        ([TAINT, OTHER], [{"operator": "Exists", "tolerationSeconds": 5}], 5.0),
        (
            [TAINT, OTHER],
            [{"key": "gpu", "tolerationSeconds": 9}, {"operator": "Exists", "tolerationSeconds": 60}],
            9.0,
        ),
        ([TAINT], [{"operator": "Exists", "tolerationSeconds": -3}], 0.0),
    ],
)
def test_the_shortest_time_of_the_tolerations_that_apply(
    taints: list[Object], tolerations: list[Object], seconds: float | None
) -> None:
    assert tolerated_seconds(taints, tolerations) == seconds
