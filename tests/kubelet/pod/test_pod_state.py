"""What the kubelet remembers of all its pods."""

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.pod_state import PodState, PodStates


def state(uid: str, node: str = "node-a") -> PodState:
    return PodState(PodCard("n", uid, uid, node, "", 0.0))


def test_active_pods_of_a_node_are_those_that_are_there_and_have_not_finished() -> None:
    states = PodStates()
    for uid, node in (("a", "node-a"), ("b", "node-a"), ("c", "node-a"), ("d", "node-b")):
        states[uid] = state(uid, node)
    assert (states.count_active("node-a"), states.count_active("node-b"), states.count_active("node-c")) == (3, 1, 0)
    states["a"].finished = True
    assert states.count_active("node-a") == 2
    states.pop("b")
    assert states.count_active("node-a") == 1
    states["b"] = state("b")  # another life of the same pod
    assert states.count_active("node-a") == 2
    assert list(states) == ["a", "c", "d", "b"], "who has finished is still known"
