"""Which pods a server that is stopped should wait for: those that end without a further request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.conftest import config
from tests.system.cluster import CM, NS, POD, Cluster, owned

from rowlock import kinds, objects
from rowlock.api import DeleteOptions
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.system.ending_pods import ending_pods


@pytest.fixture
def cluster() -> Cluster:
    """Its garbage collector does nothing: what a deletion leaves behind at first stays to be seen."""
    made = Cluster()
    made.controllers = ()
    return made


def a_pod(cluster: Cluster, name: str, *owners: Object, node: str = "node-1", phase: str = "Running") -> Object:
    made = owned(name, *owners)
    made["metadata"].pop("finalizers", None)
    body: dict[str, Any] = {
        "metadata": made["metadata"],
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": 30,
            **({"nodeName": node} if node else {}),
        },
    }
    pod = cluster.create(POD, body)
    key = objects.key(pod)
    cluster.core.patch(POD, key, {"status": {"phase": phase}}, subresource="status")
    return pod


def ending(cluster: Cluster) -> list[str]:
    cluster.settle()
    return [objects.name(pod) for pod in ending_pods(cluster.store.view)]


def test_pods_of_a_living_owner_and_of_none_stay(cluster: Cluster) -> None:
    parent = cluster.create(CM, config("parent"))
    a_pod(cluster, "bare")
    a_pod(cluster, "child", parent)
    a_pod(cluster, "of-others", {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "uid": "u"}})
    assert ending(cluster) == []


def test_pods_end_whose_owner_is_gone_or_was_replaced_by_another_of_its_name(cluster: Cluster) -> None:
    parent = cluster.create(CM, config("parent"))
    a_pod(cluster, "child", parent)
    cluster.delete(CM, "parent")
    assert ending(cluster) == ["child"]
    cluster.create(CM, config("parent"))
    assert ending(cluster) == ["child"]


def test_pods_end_whose_owners_owner_is_gone(cluster: Cluster) -> None:
    """A TrainJob is deleted, its JobSet and Job are still there."""
    top = cluster.create(CM, config("top"))
    middle = cluster.create(CM, owned("middle", top))
    lowest = cluster.create(CM, owned("lowest", middle))
    for number in range(3):
        a_pod(cluster, f"child-{number}", lowest)
    cluster.delete(CM, "top")
    assert ending(cluster) == ["child-0", "child-1", "child-2"]


def test_a_pod_with_one_owner_left_stays(cluster: Cluster) -> None:
    one, two = cluster.create(CM, config("one")), cluster.create(CM, config("two"))
    a_pod(cluster, "child", one, two)
    cluster.delete(CM, "one")
    assert ending(cluster) == []
    cluster.delete(CM, "two")
    assert ending(cluster) == ["child"]


@pytest.mark.parametrize(("propagation", "expected"), [("Foreground", ["child"]), ("Orphan", [])])
def test_an_owner_that_is_being_deleted(cluster: Cluster, propagation: Any, expected: list[str]) -> None:
    parent = cluster.create(CM, config("parent"))
    a_pod(cluster, "child", parent)
    cluster.delete(CM, "parent", propagation)
    assert ending(cluster) == expected


def test_terminating_pods_end_until_their_programs_have(cluster: Cluster) -> None:
    a_pod(cluster, "alone")
    a_pod(cluster, "over", phase="Succeeded")
    a_pod(cluster, "waiting", node="", phase="Pending")
    for name in ("alone", "over", "waiting"):
        cluster.core.delete(POD, "default", name, DeleteOptions())
    assert ending(cluster) == ["alone"]


def test_pods_end_with_their_namespace(cluster: Cluster) -> None:
    cluster.create(NS, {"metadata": {"name": "team"}, "spec": {"finalizers": ["kubernetes"]}})
    pod = {
        "metadata": {"name": "alone", "namespace": "team"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
    }
    cluster.create(POD, pod)
    cluster.core.patch(POD, Key("team", "alone"), {"status": {"phase": "Running"}}, subresource="status")
    assert ending(cluster) == []
    cluster.delete(NS, "team", namespace="")
    assert ending(cluster) == ["alone"]


def test_owners_in_a_circle_keep_each_other(cluster: Cluster) -> None:
    one = cluster.create(CM, config("one"))
    two = cluster.create(CM, owned("two", one))
    reference = owned("x", two)["metadata"]["ownerReferences"]
    cluster.core.patch(CM, Key("default", "one"), {"metadata": {"ownerReferences": reference}})
    a_pod(cluster, "child", two)
    assert ending(cluster) == []


def test_each_owner_is_looked_at_once(cluster: Cluster) -> None:
    parent = cluster.create(CM, config("parent"))
    for number in range(50):
        a_pod(cluster, f"child-{number:02}", parent)
    view, asked = cluster.store.view, list[tuple[Kind, str]]()

    class Counting:
        revision = 0

        def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
            asked.append((kind, name))
            return view.get(kind, namespace, name)

        def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
            asked.append((kind, name))
            return view.metadata(kind, namespace, name)

        def all_unfinished(self, kind: Kind, namespace: str = "") -> Any:
            return view.all_unfinished(kind, namespace)

    assert ending_pods(Counting()) == []  # type: ignore[arg-type]
    assert asked == [(kinds.NAMESPACE, "default"), (CM, "parent")]
