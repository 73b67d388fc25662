"""Pods of nodes that do not exist."""

from __future__ import annotations

from tests.storage.conftest import pod
from tests.system.cluster import POD, Cluster

from rowlock import kinds


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
