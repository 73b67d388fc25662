"""The scheduler on a real store: what it writes, how often, and in which words."""

from __future__ import annotations

from tests.scheduling.cluster import Bench

from rowlock import api
from rowlock.kinds import NODE, POD, POD_GROUP, QUEUE
from rowlock.objects import changed, condition, deleting, dig, is_true
from rowlock.scheduling.explain import what_if
from rowlock.scheduling.snapshot import Gang, Shape, Task


def bench(gpus: int = 4) -> Bench:
    found = Bench()
    found.node("n1", gpus)
    found.queue("default")
    return found


def test_a_placed_pod_costs_one_bind_and_one_event() -> None:
    b = bench()
    b.pod("p")
    writes = b.turn()
    assert [type(w) for w in writes] == [api.Bind, api.Record]
    assert b.node_of("p") == "n1"
    assert b.all(POD)["p"]["metadata"]["annotations"]["rowlock.dev/devices"] == "0"
    assert b.events() == ["p Scheduled: Successfully assigned t/p to n1"]


def test_nothing_changed_nothing_written() -> None:
    b = bench()
    b.pod("p")
    b.turn()
    b.now += 10
    b.turn()
    b.now += 10
    assert b.turn() == []
    b.kubelet()
    b.now += 10
    assert b.turn() == []


def test_a_gang_binds_in_one_turn_and_its_group_starts() -> None:
    b = bench()
    b.gang("j", 3)
    b.turn()
    assert [b.node_of(f"j-{i}") for i in range(3)] == ["n1"] * 3
    assert dig(b.all(POD_GROUP)["pg-j"], "status.phase") == "Running"


def test_a_gang_that_waits_is_told_once() -> None:
    b = bench(gpus=2)
    b.gang("j", 3)
    b.now += 2
    b.turn()
    group = b.all(POD_GROUP)["pg-j"]
    assert dig(group, "status.explanation.message") == (
        "Each pod needs 1 GPU, 0.1 CPU cores; 2 of 3 pods fit now (1 node: 2 GPUs free)."
    )
    assert dig(group, "status.explanation.podsFit") == 2
    hint = "ask for 2 GPUs or less in all, or add nodes: the cluster has no more"
    assert dig(group, "status.explanation.hint") == hint
    assert all(dig(p, "status.conditions")[0]["reason"] == "Unschedulable" for p in b.all(POD).values())
    for _ in range(5):
        b.now += 11
        b.pod(f"other-{b.now}", gpus=0)
        assert not [w for w in b.turn() if isinstance(w, api.Patch) and w.kind is POD_GROUP]


def test_a_job_pod_without_its_group_is_not_scheduled_yet() -> None:
    b = bench()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "u", "controller": True}
    b.pod("j-0", ownerReferences=[owner])
    assert not [w for w in b.turn() if isinstance(w, api.Bind)]
    b.put(POD_GROUP, "t", "pg-j", metadata={"ownerReferences": [owner]}, spec={"minMember": 1, "queue": "default"})
    b.turn()
    assert b.node_of("j-0") == "n1"


def test_bound_pods_keep_their_room_when_their_group_is_gone() -> None:
    """A deleted job's PodGroup may go before its pods have ended: their cards are taken until they have."""
    b = bench(gpus=2)
    b.gang("j", 1)
    b.put(POD_GROUP, "t", "mine", spec={"minMember": 1, "queue": "default"})
    b.pod("named", annotations={"pod-group-name": "mine"})
    b.turn()
    assert (b.node_of("j-0"), b.node_of("named")) == ("n1", "n1")
    b.store.core.delete(POD_GROUP, "t", "pg-j")
    b.store.core.delete(POD_GROUP, "t", "mine")
    b.store.commit()
    b.pod("late")
    b.pod("later", annotations={"pod-group-name": "theirs"})
    b.turn()
    assert b.node_of("late") == b.node_of("later") == ""
    b.store.core.delete(POD, "t", "j-0", api.DeleteOptions(grace=0))
    b.store.core.delete(POD, "t", "named", api.DeleteOptions(grace=0))
    b.put(POD_GROUP, "t", "theirs", spec={"minMember": 1, "queue": "default"})
    b.turn()
    assert b.node_of("late") == b.node_of("later") == "n1"


def test_the_kube_schedulers_words_for_a_bare_pod() -> None:
    b = bench()
    b.pod("big", cpu="100")
    b.turn()
    text = (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert b.events() == [f"big FailedScheduling: {text}"]
    found = condition(b.all(POD)["big"], "PodScheduled")
    assert found is not None and (found["reason"], found["message"]) == ("Unschedulable", text)


def test_a_selector_a_cordon_and_a_taint_in_the_kube_schedulers_words() -> None:
    b = bench()
    b.pod("picky", 0, spec={"nodeSelector": {"disk": "ssd"}})
    b.turn()
    assert "1 node(s) didn't match Pod's node affinity/selector." in b.events()[0]
    node = b.all(NODE)["n1"]
    b.store.core.update(NODE, changed(node, "spec.unschedulable", True))
    b.store.commit()
    b.pod("late", 0)
    b.turn()
    assert any("late FailedScheduling: 0/1 nodes are available: 1 node(s) were unschedulable." in e for e in b.events())


def test_reclaim_marks_deletes_and_tells() -> None:
    b = Bench()
    b.node("n1", 2)
    for queue in ("a", "b"):
        b.queue(queue, 1, "d")
    b.queue("d")
    b.gang("old", 1, queue="a")
    b.now += 5
    b.gang("young", 1, queue="a")
    b.turn()
    b.kubelet()
    b.gang("asker", 1, queue="b")
    b.turn()
    victim = b.all(POD)["young-0"]
    assert deleting(victim) and is_true(victim, "DisruptionTarget")
    assert not deleting(b.all(POD)["old-0"])
    text = "Pod t/young-0 was preempted by workload t/pg-asker."
    assert any(e.startswith(f"pg-young Evict: {text}") for e in b.events())
    b.kubelet()
    b.turn()
    assert b.node_of("asker-0") == "n1"


def test_a_half_bound_gang_is_completed_by_a_new_scheduler() -> None:
    """A crash between two binds: whoever comes next finishes the gang before anybody else starts."""
    b = bench(gpus=2)
    b.pod("eager")
    b.gang("j", 2)
    b.store.core.bind("t", "j-0", "n1", {"rowlock.dev/devices": "0"})
    b.store.commit()
    b.turn()
    assert (b.node_of("j-1"), b.node_of("eager")) == ("n1", "")


def test_a_lost_cache_changes_nothing() -> None:
    b = bench(gpus=2)
    b.gang("j", 2)
    b.turn()
    fresh = Bench()
    fresh.store, fresh.now = b.store, b.now + 30
    assert not [w for w in fresh.turn() if isinstance(w, api.Bind | api.Delete)]


def test_queue_status_is_written_when_it_changed() -> None:
    b = bench()
    b.pod("p")
    b.turn()
    b.now += 3
    b.turn()
    b.now += 3
    b.turn()
    status = b.all(QUEUE)["default"]["status"]
    assert status["allocated"] == {"cpu": "100m", "memory": "0", "nvidia.com/gpu": "1"}
    assert status["fairShare"]["nvidia.com/gpu"] == "1"


def test_five_hundred_waiting_pods_do_not_flood_the_store() -> None:
    b = bench(gpus=1)
    b.gang("big", 500)
    b.now += 2
    total = 0
    for _ in range(6):
        total += len(b.turn())
        b.now += 0.1
        b.pod(f"x{total}", gpus=0)
    assert total <= 500 + 30


def test_what_if_answers_before_submit() -> None:
    b = bench(gpus=2)
    b.pod("p")
    b.turn()
    snapshot = b.scheduler.snapshot(b.store.view, b.now)
    one = Task("u", "t", "new", Shape(gpus=1))
    two = Task("u", "t", "new", Shape(gpus=2))
    assert what_if(snapshot, Gang("t", "new", "u", "default", (one,))) is None
    why = what_if(snapshot, Gang("t", "new", "u", "default", (two,)))
    assert (why is not None and "1 GPU free" in why.message) or (why is not None and "Insufficient" in why.message)
