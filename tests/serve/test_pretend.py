"""Pretend nodes take pods, say that they run, and let them go; by equality on a store in memory."""

from __future__ import annotations

from rowlock import objects
from rowlock.api import WRITE, Delete, Patch
from rowlock.kinds import NAMESPACE, NODE, POD
from rowlock.kubelet.node.fake_nodes import (
    DURATION_ANNOTATION,
    STATUS_MESSAGE,
    FakeKubelet,
    make_fake_nodes,
    superfluous_nodes,
)
from rowlock.objects import Key, Object
from rowlock.storage.store import Store


def world(annotations: Object) -> Store:
    store = Store.open()
    for node in make_fake_nodes(2, 8, 0.0):
        store.core.create(NODE, node, WRITE)
    store.core.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}, WRITE)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    store.core.create(POD, pod, WRITE)
    store.core.bind("default", "a", "pretend-0001", None, "")
    store.commit()
    return store


def test_a_bound_pod_runs_with_one_write_and_ends_when_it_says() -> None:
    store, kubelet = world({DURATION_ANNOTATION: "5"}), FakeKubelet()
    decision = kubelet.decide(store.view, Key("default", "a"), 100.0)
    (write,) = decision.writes
    assert isinstance(write, Patch) and decision.requeue_after == 5.0
    assert write.patch["status"]["phase"] == "Running" and write.patch["status"]["message"] == STATUS_MESSAGE
    store.core.patch(POD, Key("default", "a"), write.patch, type="merge", subresource="status", options=WRITE)
    store.commit()
    assert kubelet.decide(store.view, Key("default", "a"), 104.0).requeue_after == 1.0
    (write,) = kubelet.decide(store.view, Key("default", "a"), 105.0).writes
    assert isinstance(write, Patch) and write.patch["status"]["phase"] == "Succeeded"


def test_a_deleted_pod_goes_at_once() -> None:
    store = world({})
    pod = store.view.get(POD, "default", "a")
    assert pod is not None
    store.core.delete(POD, "default", "a")
    store.commit()
    (write,) = FakeKubelet().decide(store.view, Key("default", "a"), 0.0).writes
    assert isinstance(write, Delete) and write.options.grace == 0 and write.options.uid == objects.uid(pod)


def test_nodes_say_that_they_are_pretended_and_go_when_fewer_are_wanted() -> None:
    store = world({})
    assert superfluous_nodes(store.view, make_fake_nodes(1, 8, 0.0)) == ["pretend-0001"]
    node = store.view.get(NODE, "", "pretend-0000")
    assert node is not None and node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["annotations"]["rowlock.dev/pretend"] == "true"
