"""What is said of pods whose node does not answer: which node, for how long, and whose state is unknown."""

from __future__ import annotations

import pytest
from tests.kube_evidence.test_rank_failures import JOB

from rowlock.kube_evidence.silent_nodes import silence_verdict, silent_nodes
from rowlock.objects import Object


def node(name: str, status: str, **condition: str) -> Object:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:16:40Z", **condition}
    return {"metadata": {"name": name}, "status": {"conditions": [ready]}}


def pod(index: int, on: str) -> Object:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
    return {"metadata": {"name": f"j-worker-{index}", "namespace": "n", "labels": labels}, "spec": {"nodeName": on}}


@pytest.mark.parametrize(
    ("nodes", "pods", "sentence"),
    [
        (
            [node("a", "Unknown")],
            [pod(0, "a")],
            "Node a has not been ready for 65 s (its kubelet is silent): nothing is known of rank 1, which runs there.",
        ),
        (
            [node("a", "False", message="container runtime is down")],
            [pod(0, "a"), pod(1, "a")],
            "Node a has not been ready for 65 s (container runtime is down): nothing is known of rank 1 and rank 2, which run there.",
        ),
        (
            [node("a", "Unknown"), node("b", "False", lastTransitionTime="", reason="KubeletNotReady")],
            [pod(0, "a"), pod(1, "b")],
            "Node a has not been ready for 65 s (its kubelet is silent) and node b has not been ready (KubeletNotReady): "
            "nothing is known of rank 1 and rank 2, which run there.",
        ),
    ],
)
def test_the_node_is_named_with_its_time(nodes: list[Object], pods: list[Object], sentence: str) -> None:
    verdict = silence_verdict(JOB, pods, silent_nodes(nodes), 1065.0)
    assert (verdict.sentence, verdict.kind, verdict.is_hang) == (sentence, "lost", False)


def test_ready_nodes_and_those_that_have_not_reported_are_not_silent() -> None:
    assert silent_nodes([node("a", "True"), {"metadata": {"name": "new"}}]) == {}
