"""Owners and dependents: background, foreground and orphaning deletions."""

from __future__ import annotations

from tests.storage.conftest import config
from tests.system.cluster import CM, Cluster, owned

from rowlock import kinds, objects
from rowlock.objects import Key


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
