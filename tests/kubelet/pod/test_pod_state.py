"""What the kubelet remembers of all its pods."""

from dataclasses import replace
from typing import Any

import pytest

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerFacts, Exit, Run
from rowlock.kubelet.pod.pod_state import PodState, PodStates
from rowlock.objects import Object


def state(uid: str, node: str = "node-a") -> PodState:
    return PodState(PodCard("n", uid, uid, node, "", 0.0))


def test_active_pods_of_a_node_are_those_that_are_there_and_have_not_finished() -> None:
    states = PodStates()
    for uid, node in (("a", "node-a"), ("b", "node-a"), ("c", "node-a"), ("d", "node-b")):
        states[uid] = state(uid, node)
    assert (states.count_active("node-a"), states.count_active("node-b"), states.count_active("node-c")) == (3, 1, 0)
    states["a"].finished = True
    assert states.count_active("node-a") == 2
    assert [uid for uid, _ in states.held_pods()] == ["a", "b", "c", "d"]
    states["a"].is_released = True
    assert [uid for uid, _ in states.held_pods()] == ["b", "c", "d"]
    states.pop("b")
    assert states.count_active("node-a") == 1
    states["b"] = state("b")  # another life of the same pod
    assert states.count_active("node-a") == 2
    assert list(states) == ["a", "c", "d", "b"], "who has finished is still known"


ENDED = ContainerFacts(run=Run(1, started=10.0, exit=Exit(0, 10.0, 20.0)))


def ended_pod(phase: str = "Succeeded", restarts: int = 1, state: str = "terminated", **metadata: Any) -> Object:
    status = {"name": "main", "restartCount": restarts, "state": {state: {"exitCode": 0}}}
    return {"metadata": {"uid": "a", **metadata}, "status": {"phase": phase, "containerStatuses": [status]}}


def test_a_pod_has_settled_when_its_status_tells_the_end_of_each_program() -> None:
    ended = state("a")
    ended.set_facts("main", ENDED)
    assert ended.has_settled(ended_pod(), told_until=21.0) and ended.has_settled(ended_pod("Failed"), told_until=21.0)
    assert not ended.has_settled(ended_pod(), told_until=20.0), "the server before may not have told it"
    assert not state("a").has_settled(ended_pod(), told_until=21.0), "nothing is known of its programs"


@pytest.mark.parametrize(
    "stored",
    [
        ended_pod("Running"),
        ended_pod(restarts=0),
        ended_pod(state="running"),
        ended_pod(deletionTimestamp="2026-01-01T00:00:00Z"),
        {"metadata": {"uid": "a"}, "status": {"phase": "Succeeded"}},
    ],
)
def test_a_pod_whose_status_is_behind_has_not_settled(stored: Object) -> None:
    ended = state("a")
    ended.set_facts("main", ENDED)
    assert not ended.has_settled(stored, told_until=21.0)


def test_a_pod_with_a_program_that_runs_or_starts_has_not_settled() -> None:
    for facts in (replace(ENDED, asked=2), ContainerFacts(run=Run(1, started=10.0)), ContainerFacts()):
        ended = state("a")
        ended.set_facts("main", ENDED)
        ended.set_facts("helper", facts)
        assert not ended.has_settled(ended_pod(), told_until=21.0)
