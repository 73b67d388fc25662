"""A clock that is set back by an hour, or forward: whoever waits goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.kubelet.pod.facts import ContainerFacts, Exit, PodFacts, Problem, Run
from rowlock.kubelet.pod.progress import assess_progress
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.sync import Start, compute_pod_actions, remaining_wait

HOUR = 3600.0
NOW = 1_700_000_000.0


@pytest.mark.parametrize("step", [-HOUR, -60.0, HOUR])
def test_a_back_off_is_no_longer_than_it_is(step: float) -> None:
    ended = Run(3, started=NOW - 1, backoff=5, exit=Exit(1, NOW - 1, NOW))
    facts = PodFacts(containers={"main": ContainerFacts(run=ended)})
    assert not any(
        isinstance(a, Start)
        for a in compute_pod_actions(assess_progress(parse_pod_spec(pod("a", "", "Always")), facts, NOW + 1)).actions
    )
    actions = compute_pod_actions(assess_progress(parse_pod_spec(pod("a", "", "Always")), facts, NOW + step))
    if step == -60.0:  # less than the back-off of 160 s: it may be waited for, but not for longer
        assert any(isinstance(a, Start) for a in actions.actions) or (actions.requeue_after or 0) <= 161
    else:
        assert [a for a in actions.actions if isinstance(a, Start)] == [Start("main", 4, 6)]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_what_stood_in_the_way_is_tried_again(step: float) -> None:
    facts = PodFacts(containers={"main": ContainerFacts(problem=Problem("FailedMount", "no"), problem_since=NOW)})
    assert not any(
        isinstance(a, Start)
        for a in compute_pod_actions(assess_progress(parse_pod_spec(pod("a", "")), facts, NOW + 1)).actions
    )
    assert any(
        isinstance(a, Start)
        for a in compute_pod_actions(assess_progress(parse_pod_spec(pod("a", "")), facts, NOW + step)).actions
    )


def test_a_wait_ends() -> None:
    assert remaining_wait(NOW, 10, NOW + 4) == 6
    assert remaining_wait(NOW, 10, NOW) == 10 and 10 < remaining_wait(NOW + 0.5, 10, NOW) <= 11
    assert remaining_wait(NOW, 10, NOW + 10) == 0 and remaining_wait(NOW, 10, NOW - HOUR) == 0


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_pods_are_started_again_after_the_clock_was_set(tmp_path: Path, step: float) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "exit 3", "Always"))
        await until(lambda: (node.state("a", "restartCount") or 0) >= 1, "a restart")
        object.__setattr__(node.kubelet.node, "clock", lambda: time.time() + step)
        count = node.state("a", "restartCount")
        await until(lambda: node.state("a", "restartCount") >= count + 2, "restarts after the step")
        await node.add(pod("b", "true"))
        await node.ended("b")

    on_node(tmp_path, body)
