"""Requests that mean nothing and did not pass admission (`tests/apiserver/admission/test_gangs.py`): held, with a sentence."""

from __future__ import annotations

import pytest
from tests.scheduling.cluster import Bench

from rowlock.kinds import POD, QUEUE
from rowlock.objects import condition


def told(b: Bench, pod: str = "p") -> str:
    b.now += 2
    b.turn()
    assert b.node_of(pod) == ""
    found = condition(b.all(POD)[pod], "PodScheduled")
    assert found is not None and found["status"] == "False" and found["reason"] == "Unschedulable"
    return str(found["message"])


def bench() -> Bench:
    b = Bench()
    b.node("n1", 4)
    b.queue("default")
    return b


@pytest.mark.parametrize(
    ("notes", "gpus", "sentence"),
    [
        ({"gpu-fraction": "0"}, 0, "gpu-fraction must lie between 0.01 and 1"),
        ({"gpu-fraction": "0.004"}, 0, "gpu-fraction must lie between 0.01 and 1"),
        ({"gpu-fraction": "-0.1"}, 0, "gpu-fraction must lie between 0.01 and 1"),
        ({"gpu-fraction": "1.5"}, 0, "gpu-fraction must lie between 0.01 and 1"),
        ({"gpu-fraction": "NaN"}, 0, "gpu-fraction='NaN' or gpu-memory=None is not a number"),
        ({"gpu-fraction": "Infinity"}, 0, "is not a number"),
        ({"gpu-fraction": "half"}, 0, "gpu-fraction='half' or gpu-memory=None is not a number"),
        ({"gpu-fraction": "0.5", "gpu-memory": "500"}, 0, "gpu-fraction and gpu-memory exclude each other; keep one"),
        ({"gpu-fraction": "0.5"}, 1, "a fraction of a GPU and 1 whole GPUs exclude each other; keep one"),
        ({"gpu-memory": "0"}, 0, "gpu-memory and gpu-fraction-num-devices above 0"),
        ({"gpu-memory": "5Gi"}, 0, "is not a number"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, 0, "gpu-fraction-num-devices above 0"),
        ({"gpu-fraction-num-devices": "2"}, 0, "gpu-fraction-num-devices needs gpu-fraction or gpu-memory"),
        ({"gpu-memory": "90000"}, 0, "1 Insufficient nvidia.com/gpu"),
        ({}, 5, "Insufficient nvidia.com/gpu"),
    ],
)
def test_a_request_that_means_nothing(notes: dict[str, str], gpus: int, sentence: str) -> None:
    b = bench()
    b.pod("p", gpus, annotations=notes)
    assert sentence in told(b)


def test_a_tenth_is_not_refused() -> None:
    b = bench()
    b.pod("p", 0, annotations={"gpu-fraction": "0.1"})
    b.turn()
    assert b.node_of("p") == "n1"


def test_a_queue_that_is_not_there() -> None:
    b = bench()
    b.pod("p", queue="nowhere")
    assert told(b) == "Queue 'nowhere' does not exist."


def test_queues_in_a_circle() -> None:
    b = bench()
    b.queue("one", parent="two")
    b.queue("two", parent="one")
    b.queue("leaf", parent="two")
    b.pod("p", queue="leaf")
    assert told(b) == "Queue 'leaf' has the parent 'two', which does not exist or is part of a cycle."
    assert len(b.all(QUEUE)) == 4
