"""The collectors on a store, one decision at a time until nothing is left to decide."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.conftest import NOW, Clock, config, counted_ids, pod

from rowlock import errors, kinds, objects
from rowlock.api import Bind, Create, Decision, Delete, DeleteOptions, Patch, Propagation, Update
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.state import StoredChange
from rowlock.storage.store import Store
from rowlock.system import garbage_collector

CM, POD, NS, EVENT = kinds.CONFIG_MAP, kinds.POD, kinds.NAMESPACE, kinds.EVENT
CLAIM = kinds.PERSISTENT_VOLUME_CLAIM


class Cluster:
    """A store whose collectors decide after every change, until they are calm."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = Store.open(clock=self.clock, new_uid=counted_ids())
        self.controllers = garbage_collector.controllers()
        self.again: dict[tuple[int, Key], float] = {}
        self.core = self.store.core
        self.create(NS, {"metadata": {"name": "default"}})

    def create(self, kind: Kind, obj: Object) -> Object:
        made = self.core.create(kind, obj)
        self.settle()
        return made

    def delete(self, kind: Kind, name: str, propagation: Propagation | None = None, namespace: str = "default") -> None:
        self.core.delete(kind, namespace, name, DeleteOptions(propagation=propagation, grace=0))
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        due = [ref for ref, when in self.again.items() if when <= self.clock.now]
        for number, key in due:
            del self.again[number, key]
            self._decide(number, key)
        self.settle()

    def settle(self) -> None:
        while batch := self.core.take_staged():
            self.core.apply_committed(batch)
            self._react(batch)

    def _react(self, batch: list[StoredChange]) -> None:
        for number, controller in enumerate(self.controllers):
            concerned = {
                key: None
                for change in batch
                if change.kind in controller.kinds
                for key in controller.keys(self.store.view, change)
            }
            for key in concerned:
                self._decide(number, key)

    def _decide(self, number: int, key: Key) -> None:
        decision = self.controllers[number].decide(self.store.view, key, self.clock.now)
        if decision.requeue_after is not None:
            self.again[number, key] = self.clock.now + decision.requeue_after
        try:
            self._carry_out(decision)
        except (errors.Conflict, errors.NotFound):
            pass  # the change behind it wakes the collector again

    def _carry_out(self, decision: Decision) -> None:
        for write in decision.writes:
            match write:
                case Delete():
                    self.core.delete(write.kind, write.namespace, write.name, write.options)
                case Patch():
                    self.core.patch(
                        write.kind, Key(write.namespace, write.name), write.patch, subresource=write.subresource
                    )
                case Update():
                    self.core.update(write.kind, write.object, write.subresource)
                case Create() | Bind() | _:
                    raise AssertionError(f"a collector does not write {write}")

    def status(self, kind: Kind, name: str, status: dict[str, Any]) -> None:
        there = self.store.view.get(kind, "default", name)
        assert there is not None
        self.core.update(kind, {**there, "status": status}, "status")
        self.settle()

    def names(self, kind: Kind = CM) -> list[str]:
        return [objects.name(o) for o in self.store.view.all(kind)]


def owned(name: str, *owners: Object, **meta: Any) -> Object:
    references = [objects.owner_reference(owner) for owner in owners]
    return config(name, ownerReferences=references, **meta)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_background_deletes_what_the_owner_leaves_behind(cluster: Cluster) -> None:
    parent = cluster.create(CM, config("parent"))
    child = cluster.create(CM, owned("child", parent))
    cluster.create(CM, owned("grandchild", child))
    cluster.create(CM, config("stranger"))
    cluster.delete(CM, "parent")
    assert cluster.names() == ["stranger"]


def test_a_dependent_of_two_owners_needs_one(cluster: Cluster) -> None:
    one, two = cluster.create(CM, config("one")), cluster.create(CM, config("two"))
    cluster.create(CM, owned("child", one, two))
    cluster.delete(CM, "one")
    assert cluster.names() == ["child", "two"]
    (child, _) = cluster.store.view.all(CM)
    assert [r["name"] for r in child["metadata"]["ownerReferences"]] == ["two"]
    cluster.delete(CM, "two")
    assert cluster.names() == []


def test_orphan_lets_dependents_live(cluster: Cluster) -> None:
    parent = cluster.create(CM, config("parent"))
    cluster.create(CM, owned("child", parent))
    cluster.delete(CM, "parent", "Orphan")
    (child,) = cluster.store.view.all(CM)
    assert objects.name(child) == "child" and "ownerReferences" not in child["metadata"]


def test_foreground_waits_for_the_dependents_that_block(cluster: Cluster) -> None:
    parent = cluster.create(CM, config("parent"))
    child = cluster.create(CM, owned("child", parent, finalizers=["example.com/slow"]))
    cluster.create(CM, owned("grandchild", child))
    cluster.delete(CM, "parent", "Foreground")
    assert cluster.names() == ["child", "parent"]
    cluster.core.patch(CM, Key("default", "child"), {"metadata": {"finalizers": None}})
    cluster.settle()
    assert cluster.names() == []


def test_a_child_of_nobody_goes(cluster: Cluster) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    cluster.create(CM, owned("child", ghost))
    assert cluster.names() == []


def test_owners_outside_the_fence_are_not_judged(cluster: Cluster) -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "uid": "u"}}
    cluster.create(CM, owned("child", other))
    assert cluster.names() == ["child"]


def test_a_deleted_namespace_is_emptied_first(cluster: Cluster) -> None:
    cluster.create(NS, {"metadata": {"name": "team"}})
    for n in range(3):
        cluster.create(CM, config(f"c{n}", "team"))
    cluster.create(POD, pod("p", "team", node="n1"))
    cluster.delete(NS, "team", namespace="")
    assert cluster.names() == [] and cluster.names(NS) == ["default", "team"]
    cluster.delete(POD, "p", namespace="team")
    assert cluster.names(NS) == ["default"]


def test_events_live_an_hour(cluster: Cluster) -> None:
    for name, seen in (("old", NOW), ("new", NOW + 600)):
        event = {"metadata": {"name": name, "namespace": "default"}, "lastTimestamp": objects.timestamp(seen)}
        cluster.create(EVENT, event)
    cluster.pass_time(3_599)
    assert cluster.names(EVENT) == ["new", "old"]
    cluster.pass_time(61)
    assert cluster.names(EVENT) == ["new"]
    cluster.pass_time(600)
    assert cluster.names(EVENT) == []


def test_pods_of_a_lost_node_fail_and_go_after_the_quarantine(cluster: Cluster) -> None:
    cluster.create(kinds.NODE, {"metadata": {"name": "n1"}})
    cluster.create(POD, pod("p", node="n1"))
    cluster.create(POD, pod("q"))
    cluster.delete(kinds.NODE, "n1", namespace="")
    cluster.pass_time(39)
    assert cluster.names(POD) == ["p", "q"]
    cluster.pass_time(2)
    assert cluster.names(POD) == ["q"]


def test_a_node_that_comes_back_in_time_keeps_its_pods(cluster: Cluster) -> None:
    cluster.create(kinds.NODE, {"metadata": {"name": "n1"}})
    cluster.create(POD, pod("p", node="n1"))
    cluster.delete(kinds.NODE, "n1", namespace="")
    cluster.pass_time(20)
    cluster.create(kinds.NODE, {"metadata": {"name": "n1"}})
    cluster.pass_time(60)
    assert cluster.names(POD) == ["p"]


def test_a_claim_stays_for_the_pods_that_are_placed_and_not_over(cluster: Cluster) -> None:
    claim = {
        "metadata": {"name": "data", "namespace": "default", "finalizers": [garbage_collector.PVC_PROTECTION_FINALIZER]}
    }
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    for name, node in (("runs", "n1"), ("waits", ""), ("other", "n1")):
        made = pod(name, node=node)
        made["spec"]["volumes"] = volumes if name != "other" else []
        cluster.create(POD, made)
    cluster.create(CLAIM, claim)
    cluster.delete(CLAIM, "data")
    assert cluster.names(CLAIM) == ["data"]
    cluster.delete(POD, "other")
    assert cluster.names(CLAIM) == ["data"]
    cluster.status(POD, "runs", {"phase": "Succeeded"})
    assert cluster.names(CLAIM) == []


def test_a_claim_goes_with_its_last_pod_and_at_once_without_any(cluster: Cluster) -> None:
    for name in ("used", "unused"):
        cluster.create(
            CLAIM,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "finalizers": [garbage_collector.PVC_PROTECTION_FINALIZER],
                }
            },
        )
    made = pod("p", node="n1")
    made["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "used"}}]
    cluster.create(POD, made)
    for name in ("used", "unused"):
        cluster.delete(CLAIM, name)
    assert cluster.names(CLAIM) == ["used"]
    cluster.delete(POD, "p")
    assert cluster.names(CLAIM) == []


def test_a_claim_gets_its_protection_back() -> None:
    cluster = Cluster()
    cluster.create(CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": {}})
    held = cluster.core.latest_object(CLAIM, "default", "c")
    assert held is not None and held["metadata"]["finalizers"] == [garbage_collector.PVC_PROTECTION_FINALIZER]
    cluster.delete(CLAIM, "c")
    assert cluster.core.latest_object(CLAIM, "default", "c") is None


def test_a_namespace_says_what_holds_it(cluster: Cluster) -> None:
    cluster.create(NS, {"metadata": {"name": "team"}})
    for name in ("a", "b"):
        meta = {"name": name, "namespace": "team", "finalizers": ["example.com/archive"]}
        cluster.create(CM, {"metadata": meta})
    cluster.delete(NS, "team", namespace="")
    cluster.pass_time(1.0)

    def conditions() -> dict[str, dict[str, Any]]:
        namespace = cluster.store.view.get(NS, "", "team")
        assert namespace is not None
        return {c["type"].removeprefix("Namespace"): c for c in namespace["status"]["conditions"]}

    said = conditions()
    assert [(type_, c["status"], c["reason"]) for type_, c in said.items()] == [
        ("DeletionDiscoveryFailure", "False", "ResourcesDiscovered"),
        ("DeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions"),
        ("DeletionContentFailure", "False", "ContentDeleted"),
        ("ContentRemaining", "True", "SomeResourcesRemain"),
        ("FinalizersRemaining", "True", "SomeFinalizersRemain"),
    ]
    assert said["ContentRemaining"]["message"] == "Some resources are remaining: configmaps. has 2 resource instances"
    text = "Some content in the namespace has finalizers remaining: example.com/archive in 2 resource instances"
    assert said["FinalizersRemaining"]["message"] == text

    def release(name: str) -> None:
        cluster.core.patch(CM, Key("team", name), {"metadata": {"finalizers": None}})
        cluster.settle()

    release("a")
    cluster.pass_time(1.0)
    later = conditions()
    assert later["ContentRemaining"]["message"].endswith("configmaps. has 1 resource instances")
    assert later["ContentRemaining"]["lastTransitionTime"] > said["ContentRemaining"]["lastTransitionTime"]
    assert later["DeletionContentFailure"] == said["DeletionContentFailure"], "what says the same keeps its time"
    release("b")
    assert cluster.store.view.get(NS, "", "team") is None


def test_an_owner_in_a_namespace_cannot_take_what_is_in_none_with_it() -> None:
    cluster = Cluster()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "gone"}
    cluster.create(kinds.PRIORITY_CLASS, {"metadata": {"name": "c", "ownerReferences": [owner]}, "value": 1})
    assert cluster.core.latest_object(kinds.PRIORITY_CLASS, "", "c") is not None
