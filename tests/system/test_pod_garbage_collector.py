"""Pods of nodes that do not exist."""

from __future__ import annotations

from tests.storage.conftest import pod
from tests.system.cluster import POD, Cluster

from rowlock import kinds, objects


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


def test_a_pod_that_is_deleted_unbound_and_kept_by_a_finalizer_fails(cluster: Cluster) -> None:
    """Else a Job that waits for its end never makes another one."""
    for name, node in (("held", ""), ("bound", "n1")):
        made = pod(name, node=node) if node else pod(name)
        made["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        cluster.create(POD, made)
    cluster.create(kinds.NODE, {"metadata": {"name": "n1"}})
    for name in ("held", "bound"):
        cluster.delete(POD, name)
    cluster.pass_time(1)
    phases = {objects.name(found): objects.phase(found) for found in cluster.store.view.all(POD)}
    assert phases == {"held": "Failed", "bound": ""}, "a bound pod is its kubelet's"
