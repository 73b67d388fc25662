"""A submit for which no node of now is large enough: a real cluster may bring one, and then it waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rest.conftest import World, dialect_world, node

from rowlock import kinds
from rowlock.gangs.dialects import CLUSTER

LARGE: dict[str, Any] = {"compute": {"gpuDevicesRequest": 8}, "image": "registry.example/torch:2"}
STATUS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
}
WAITS = "a pod asks for 8 GPUs, but the largest node has 1: it waits until %s brings a node that can hold it."


@pytest.fixture
def real(tmp_path: Path) -> Iterator[World]:
    for made in dialect_world(CLUSTER, tmp_path):
        made.project()
        yield made


def test_a_cluster_that_does_not_grow_refuses_what_no_node_can_hold(real: World) -> None:
    answer = real.submit(**LARGE)
    assert answer.status_code == 400 and "the largest node has 1. Ask for at most 1 per pod" in answer.text
    assert "`kubectl annotate namespace runai-team-a rowlock.dev/may-wait=true`" in answer.text


def test_a_cluster_without_gpus_is_not_told_to_simulate_some(real: World) -> None:
    real.do(lambda: real.store.delete(kinds.NODE, "", "node-1"))
    real.create(kinds.NODE, node("node-2", 0))
    answer = real.submit(**LARGE)
    assert answer.status_code == 400 and "no node of this cluster has one. Ask for none. Where nodes are" in answer.text


def test_nodes_of_karpenter_say_that_it_grows(real: World) -> None:
    brought = node("node-2", 1)
    meta = {**brought["metadata"], "labels": {**brought["metadata"].get("labels", {}), "karpenter.sh/nodepool": "gpus"}}
    real.create(kinds.NODE, {**brought, "metadata": meta})
    answer = real.submit(**LARGE)
    assert answer.status_code == 202, answer.text
    assert WAITS % "Karpenter" in answer.headers["warning"]


def test_the_status_of_the_cluster_autoscaler_says_that_it_grows(real: World) -> None:
    real.ensure_namespace("kube-system")
    real.create(kinds.CONFIG_MAP, {**STATUS, "metadata": {"name": "coredns", "namespace": "kube-system"}})
    assert real.submit(**LARGE).status_code == 400
    real.create(kinds.CONFIG_MAP, STATUS)
    answer = real.submit(**LARGE)
    assert answer.status_code == 202 and WAITS % "the cluster autoscaler" in answer.headers["warning"]


def test_a_project_says_that_its_jobs_may_wait_or_may_not(real: World) -> None:
    def set_choice(word: str) -> None:
        meta = real.do(lambda: real.store.get(kinds.NAMESPACE, "", "runai-team-a"))["metadata"]
        annotations = {**meta.get("annotations", {}), "rowlock.dev/may-wait": word}
        real.patch(kinds.NAMESPACE, "", "runai-team-a", {"metadata": {**meta, "annotations": annotations}})

    set_choice("true")
    answer = real.submit(**LARGE)
    assert answer.status_code == 202 and "namespace runai-team-a" in answer.headers["warning"]
    real.ensure_namespace("kube-system")
    real.create(kinds.CONFIG_MAP, STATUS)
    set_choice("false")
    assert real.submit(**{**LARGE, "name": "second"}).status_code == 400


def test_an_embedded_cluster_does_not_grow(world: World) -> None:
    world.project()
    world.ensure_namespace("kube-system")
    world.create(kinds.CONFIG_MAP, STATUS)
    assert world.submit(**LARGE).status_code == 400
