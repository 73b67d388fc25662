"""Owners and dependents: background, foreground and orphaning deletions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.conftest import config
from tests.system.cluster import CM, Cluster, owned

from rowlock import kinds, objects
from rowlock.api import Change, Delete, Patch, View
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.system.garbage_collector import GarbageCollector


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


def test_an_owner_in_a_namespace_cannot_take_what_is_in_none_with_it() -> None:
    cluster = Cluster()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "gone"}
    cluster.create(kinds.PRIORITY_CLASS, {"metadata": {"name": "c", "ownerReferences": [owner]}, "value": 1})
    assert cluster.core.latest_object(kinds.PRIORITY_CLASS, "", "c") is not None


class CountingView:
    """A view that counts how often it is asked for an object."""

    def __init__(self, view: View) -> None:
        self._view, self.asked = view, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.asked += 1
        return self._view.get(kind, namespace, name)


@pytest.mark.parametrize("solid", [False, True])
def test_owners_that_are_gone_are_looked_at_once_each(cluster: Cluster, solid: bool) -> None:
    """Each of thousands has a turn: one of these deals with all, at a cost that grows with their number alone."""
    count, parent = 500, cluster.create(CM, config("parent"))
    ghosts = [{**parent, "metadata": {"name": f"g{n}", "uid": f"ghost-{n}"}} for n in range(count)]
    collector, view = GarbageCollector(), CountingView(cluster.store.view)
    child = cluster.core.create(CM, owned("child", *([parent] if solid else []), *ghosts))
    cluster.core.apply_committed(cluster.core.take_staged())
    keys = list(collector.keys(view, Change("Added", 1, CM, child)))
    writes = [write for key in keys for write in collector.decide(view, key, 0.0).writes]
    assert len(keys) == count, "an owner that is there needs no turn"
    assert view.asked <= 5 * count
    (write,) = writes
    assert isinstance(write, Patch if solid else Delete)


def test_of_thousands_of_owners_those_that_are_there_stay(cluster: Cluster) -> None:
    parent, other = cluster.create(CM, config("parent")), cluster.create(CM, config("other"))
    ghosts = [{**parent, "metadata": {"name": f"g{n}", "uid": f"ghost-{n}"}} for n in range(300)]
    cluster.create(CM, owned("child", *ghosts[:100], parent, *ghosts[100:], other))
    (child,) = [obj for obj in cluster.store.view.all(CM) if objects.name(obj) == "child"]
    assert [r["name"] for r in child["metadata"]["ownerReferences"]] == ["parent", "other"]
    cluster.delete(CM, "parent")
    assert cluster.names() == ["child", "other"]
    cluster.delete(CM, "other")
    cluster.create(CM, owned("orphan", *ghosts))
    assert cluster.names() == []
