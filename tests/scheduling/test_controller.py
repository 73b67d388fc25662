"""The scheduler on a real store: what it writes, how often, and in which words."""

from __future__ import annotations

import json

import pytest
from tests.scheduling.cluster import Bench

from rowlock import api
from rowlock.kinds import NAMESPACE, NODE, POD, POD_GROUP, PYTORCHJOB, QUEUE
from rowlock.objects import condition, dig, is_condition_true, is_deleting, with_field
from rowlock.scheduling import controller
from rowlock.scheduling.explain.explanations import Explainer


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


@pytest.mark.parametrize(("pods", "settle"), [(3, 0.0), (200, 0.02)])
def test_cycles_that_read_a_large_gang_have_a_pause(pods: int, settle: float) -> None:
    b = bench()
    b.gang("j", pods)
    scheduler = controller.Scheduler()
    assert scheduler.decide(b.store.view, controller.SCHEDULER_KEY, b.now).settle == pytest.approx(settle)
    assert scheduler.decide(b.store.view, controller.SCHEDULER_KEY, b.now).settle == 0.0, "it was not read again"


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


def test_the_pods_of_a_gang_are_told_once_for_each_reason() -> None:
    b = bench(gpus=3)

    def told(pod: str) -> list[str]:
        return [e.split(": ")[1] for e in b.events() if e.startswith(f"{pod} FailedScheduling: ")]

    b.gang("j", 4)
    b.now += 2
    b.turn()
    assert (
        told("j-0")
        == told("j-3")
        == told("pg-j")
        == told("j")
        == ["Each pod needs 1 GPU, 0.1 CPU cores; 3 of 4 pods fit now (1 node"]
    )
    waits_since = (condition(b.all(POD)["j-0"], "PodScheduled") or {})["lastTransitionTime"]
    b.pod("p")
    b.now += 11
    b.turn()
    assert told("pg-j") and not told("j-0"), "the numbers have changed, and not the reason"
    b.put(QUEUE, "", "small", spec={"resources": {"gpu": {"quota": 0, "limit": 1}}})
    b.store.core.update(POD_GROUP, with_field(b.all(POD_GROUP)["pg-j"], "spec.queue", "small"))
    b.store.commit()
    b.now += 11
    b.turn()
    assert len(told("pg-j")) == len(told("j-0")) == 1, "the reason has"
    late = condition(b.all(POD)["j-0"], "PodScheduled")
    assert late and late["message"].startswith("OverLimit") and late["lastTransitionTime"] == waits_since, (
        "it has waited since its first reason"
    )
    b.gang("quick", 2)
    b.turn()
    assert not told("quick-0"), "it starts at once"


def test_what_a_gang_was_told_is_told_anew_though_nothing_changes_then() -> None:
    """What it waits for changed too soon after it was told; once that is told, nobody comes back for it."""
    b = bench(gpus=3)
    b.gang("j", 4)
    b.now += 2
    b.turn()
    b.pod("p")
    b.now += 1
    b.turn()
    assert "3 GPUs free" in dig(b.all(POD_GROUP)["pg-j"], "status.explanation.message")
    for _ in range(6):
        if b.again is None:
            break
        b.now += b.again + 0.01
        b.turn()
    assert "2 of 4 pods fit now (1 node: 2 GPUs free)" in dig(b.all(POD_GROUP)["pg-j"], "status.explanation.message")
    assert b.again is None, "the scheduler rests"


def test_another_gang_of_the_same_name_is_told_at_once() -> None:
    b = bench(gpus=2)
    for _ in range(2):
        b.gang("j", 3)
        b.now += 2
        b.turn()
        assert dig(b.all(POD_GROUP)["pg-j"], "status.explanation.message")
        b.remove_gang("j")
        b.turn()
    assert not b.scheduler.last_explanations, "of gangs that are gone nothing is kept"


def test_a_cycle_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    b.turn()
    b.gang("fits", 2)
    b.gang("waits", 8)
    b.now += 2

    def fail(*_: object) -> None:
        raise KeyError("an odd object")

    with monkeypatch.context() as patch:
        patch.setattr(Explainer, "explain", fail)
        with pytest.raises(KeyError):
            b.turn()
    b.turn()
    assert b.node_of("fits-0") == b.node_of("fits-1") == "n1"
    b.gang("next", 2)
    b.turn()
    assert b.node_of("next-0") == "n1", "nothing of the plan that failed is left"


def test_a_gang_whose_pods_are_being_made_is_not_told_so_before_a_second_is_over() -> None:
    """Its creation time is a whole second: one made at .9 seems to be 0.9 s old at once."""
    b = bench()
    b.gang("j", 1, minimum=2)
    b.now += 0.9
    b.turn()
    b.now += 1.0
    b.turn()
    assert "conditions" not in (b.all(POD_GROUP)["pg-j"].get("status") or {}) and b.again and b.again < 0.2
    b.now += 0.2
    b.turn()
    assert "Waiting for 2 pods" in str(b.all(POD_GROUP)["pg-j"]["status"])


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
    b.store.core.update(NODE, with_field(node, "spec.unschedulable", True))
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
    assert is_deleting(victim) and is_condition_true(victim, "DisruptionTarget")
    assert not is_deleting(b.all(POD)["old-0"])
    text = "Pod t/young-0 was preempted by workload t/pg-asker."
    assert any(e.startswith(f"pg-young Evict: {text}") for e in b.events())
    b.kubelet()
    b.turn()
    assert b.node_of("asker-0") == "n1"


def test_what_is_written_into_a_namespace_names_no_workload_of_another() -> None:
    """Whoever reads the events, pods and PodGroups of one project need not see another one's jobs."""
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
    b.namespace = "elsewhere"
    b.put(NAMESPACE, "", b.namespace)
    b.gang("secret", 1, queue="b")
    b.turn()
    records = [w for w in b.writes if isinstance(w, api.Record) and w.regarding["metadata"]["namespace"] == "t"]
    assert any("Pod t/young-0 was preempted by a workload of queue b." in w.message for w in records)
    assert not [w for w in records if "secret" in w.message or "elsewhere" in w.message]
    kept = [o for kind in (POD, POD_GROUP, PYTORCHJOB) for o in b.store.view.all(kind, "t")]
    assert kept and not [o for o in kept if "secret" in json.dumps(o) or "elsewhere" in json.dumps(o)]


def test_a_gang_whose_room_was_taken_is_marked_until_it_runs_again() -> None:
    b = Bench()
    b.node("n1", 2)
    for queue in ("a", "b"):
        b.queue(queue, 1, "d")
    b.queue("d")
    b.gang("old", 1, queue="a")
    b.gang("young", 1, queue="a")
    b.turn()
    b.kubelet()

    def marks() -> dict[str, str]:
        return {key: dig(group, "status.evicted.action", "") for key, group in b.all(POD_GROUP).items()}

    b.gang("asker", 1, queue="b")
    b.turn()
    b.kubelet()
    assert sorted(marks().values()) == ["", "", "reclaim"]
    (taken,) = (key.removeprefix("pg-") for key, action in marks().items() if action)
    b.remove_gang("asker")
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": taken, "uid": f"uid-{taken}"}
    b.pod(f"{taken}-1", ownerReferences=[{**owner, "controller": True}])  # its operator makes the pod anew
    b.turn()
    assert b.node_of(f"{taken}-1") == "n1" and set(marks().values()) == {""}


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


def test_of_many_that_wait_each_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one cycle looks at: the next cycles look at the others, and then the scheduler rests."""
    monkeypatch.setattr(controller, "MAX_HOLDS_PER_CYCLE", 8)
    b = bench(gpus=2)
    b.pod("first", 2)
    b.turn()
    for number in range(30):
        b.gang(f"j{number}", 1)
    b.now += 2
    for _ in range(40):
        b.turn()
        if b.again is None:
            break
        b.now += b.again
    waiting = {name: dig(group, "status.explanation.message") for name, group in b.all(POD_GROUP).items()}
    assert not [name for name, message in waiting.items() if not message]
    assert b.again is None, "the scheduler rests"


def test_of_many_that_wait_each_is_told_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MAX_HOLDS_PER_CYCLE", 8)
    b = bench(gpus=3)
    for number in range(30):
        b.gang(f"j{number}", 4)
    b.now += 2
    b.turn()
    for number in range(2):  # the second one comes in the middle of a sweep
        b.pod(f"p{number}")
        for _ in range(2):
            b.now += 0.3
            b.turn()
    for _ in range(200):
        if b.again is None:
            break
        b.now += b.again + 0.01
        b.turn()
    messages = {dig(group, "status.explanation.message") for group in b.all(POD_GROUP).values()}
    assert messages == {"Each pod needs 1 GPU, 0.1 CPU cores; 1 of 4 pods fit now (1 node: 1 GPU free)."}
    assert b.again is None, "the scheduler rests"


def test_an_elastic_gang_that_grows_keeps_its_start() -> None:
    """Its PodGroup says that it runs while more of its pods wait; min-runtimes count from its start."""
    b = bench(gpus=3)
    b.pod("other")
    b.gang("j", 4, minimum=1)
    b.now += 2
    b.turn()
    started = dig(b.all(POD_GROUP)["pg-j"], "status.startTime")
    b.kubelet()
    b.now += 20
    b.turn()
    status = b.all(POD_GROUP)["pg-j"]["status"]
    assert (status["phase"], status["startTime"]) == ("Running", started) and status["explanation"]["podsNeeded"] == 1
    b.store.core.delete(POD, "t", "other", api.DeleteOptions(grace=0))
    b.store.commit()
    b.turn()
    status = b.all(POD_GROUP)["pg-j"]["status"]
    assert b.node_of("j-2") and status["startTime"] == started


def test_an_elastic_gang_that_shrinks_waits_no_longer() -> None:
    b = bench(gpus=2)
    b.gang("j", 3, minimum=1)
    b.now += 2
    for _ in range(3):
        b.now += 11
        b.turn()
        b.kubelet()
    assert dig(b.all(POD_GROUP)["pg-j"], "status.explanation.message")
    b.store.core.delete(POD, "t", "j-2", api.DeleteOptions(grace=0))
    b.store.commit()
    b.turn()
    status = b.all(POD_GROUP)["pg-j"]["status"]
    assert status["phase"] == "Running" and not status.get("explanation") and not status.get("schedulingConditions")


def test_pods_of_a_finished_job_start_no_more() -> None:
    """An elastic job ended while some of its pods waited: they would hold their cards, and wait for their ranks, for ever."""
    b = bench(gpus=2)
    b.pod("other")
    b.gang("j", 2, minimum=1)
    b.turn()
    b.kubelet()
    assert (b.node_of("j-0"), b.node_of("j-1")) == ("n1", "")
    mark = {"rowlock.dev/finished": "true"}
    b.store.core.update(POD_GROUP, with_field(b.all(POD_GROUP)["pg-j"], "metadata.annotations", mark))
    b.store.core.delete(POD, "t", "other", api.DeleteOptions(grace=0))
    b.store.commit()
    b.turn()
    assert b.node_of("j-1") == ""
    b.pod("next")
    b.pod("late")
    b.turn()
    assert sorted((b.node_of("next"), b.node_of("late"))) == ["", "n1"], "what the job still runs on is not free"


def test_the_room_of_a_leader_that_has_finished_is_not_its_workers() -> None:
    """The scheduler sees that the pod has ended before the job's controller has said that the job has."""
    b = bench(gpus=1)
    b.gang("j", 2, minimum=1)
    for number, role in enumerate(("master", "worker")):
        label = {"training.kubeflow.org/replica-type": role}
        b.store.core.update(POD, with_field(b.all(POD)[f"j-{number}"], "metadata.labels", label))
    b.store.commit()
    b.turn()
    assert (b.node_of("j-0"), b.node_of("j-1")) == ("n1", "")
    b.store.core.update(POD, with_field(b.all(POD)["j-0"], "status.phase", "Succeeded"), "status")
    b.store.commit()
    b.turn()
    assert b.node_of("j-1") == ""
    b.pod("next")
    b.turn()
    assert b.node_of("next") == "n1"


@pytest.mark.parametrize("amount", [1e308, 1e300, 1e17])
def test_a_quota_beyond_all_numbers_is_no_bound(amount: float) -> None:
    b = bench(gpus=2)
    parts = {resource: {"quota": amount, "limit": amount} for resource in ("cpu", "memory", "gpu")}
    for queue in ("huge", "vast"):
        b.put(QUEUE, "", queue, spec={"resources": parts, "parentQueue": "all"})
    b.put(QUEUE, "", "all", spec={"resources": parts})
    b.gang("j", 2, queue="huge")
    b.turn()
    assert b.node_of("j-0") == b.node_of("j-1") == "n1"


def test_the_condition_names_the_pool_of_the_gang() -> None:
    b = bench(gpus=2)
    b.gang("j", 1)
    label = {"kai.scheduler/node-pool": "a100"}
    b.store.core.update(POD_GROUP, with_field(b.all(POD_GROUP)["pg-j"], "metadata.labels", label))
    b.store.commit()
    b.now += 2
    b.turn()
    assert dig(b.all(POD_GROUP)["pg-j"], "status.schedulingConditions")[0]["nodePool"] == "a100"


def test_a_look_at_the_snapshot_swallows_no_change() -> None:
    """What the snapshot took in still makes the next turn a cycle."""
    b = bench(gpus=2)
    b.pod("p")
    assert len(b.scheduler.snapshot(b.store.view, b.now).gangs) == 1
    b.turn()
    assert b.node_of("p") == "n1"


def on_three_nodes() -> tuple[Bench, str]:
    """A gang of six that runs on three nodes, and the node of its first pod."""
    b = bench()
    b.node("n2", 2)
    b.node("n3", 4)
    b.gang("j", 6)
    b.turn()
    b.kubelet()
    return b, b.node_of("j-0")


def left_whole(b: Bench, lost: str) -> None:
    left = b.all(POD).values()
    assert left and all(is_deleting(p) for p in left), "the others leave in their own time"
    assert all(dig(p, "spec.nodeName") != lost for p in left), "nobody is left there to confirm the end"


def test_a_gang_that_lost_its_node_is_put_back_whole_at_once() -> None:
    b, lost = on_three_nodes()
    b.now += 60
    b.turn()
    b.store.core.delete(NODE, "", lost, api.DeleteOptions())
    b.store.commit()
    b.turn()
    assert len(b.all(POD)) == 6 and b.again is not None and b.again <= 5, "it might come back"
    b.now += 6
    b.turn()
    assert sum(f"node {lost} of its gang is gone" in e for e in b.events() if e.startswith("j-")) == 6
    left_whole(b, lost)


def test_a_gang_whose_node_is_not_ready_is_put_back_whole_after_a_while() -> None:
    b, lost = on_three_nodes()
    b.ready(lost, yes=False)
    b.turn()
    assert b.again is not None and 30 < b.again <= 40, "it often comes back"
    b.now += 39
    b.turn()
    assert not any(is_deleting(p) for p in b.all(POD).values())
    b.ready(lost, yes=True)
    b.now += 60
    b.turn()
    assert not any(is_deleting(p) for p in b.all(POD).values()), "it came back"
    b.ready(lost, yes=False)
    b.turn()
    b.now += 41
    b.turn()
    assert sum(f"node {lost} of its gang is not ready since " in e for e in b.events() if e.startswith("j-")) == 6
    left_whole(b, lost)


def test_levels_and_declared_runtimes_come_from_the_group() -> None:
    b = bench()
    notes = {"annotations": {"rowlock.dev/max-runtime": "30m"}}
    b.put(
        POD_GROUP, "t", "g", metadata=notes, spec={"minMember": 1, "topologyConstraint": {"requiredTopologyLevel": "r"}}
    )
    b.pod("p", annotations={"pod-group-name": "g"})
    (gang,) = b.scheduler.snapshot(b.store.view, b.now).gangs
    assert (gang.required, gang.preferred, gang.lasts) == ("r", "", 1800.0)


def test_a_gang_lives_in_the_pool_of_its_group() -> None:
    b = bench()
    b.node("n2", 4, metadata={"labels": {"kai.scheduler/node-pool": "a100"}})
    b.put(POD_GROUP, "t", "g", metadata={"labels": {"kai.scheduler/node-pool": "a100"}}, spec={"minMember": 1})
    b.pod("p", annotations={"pod-group-name": "g"})
    b.pod("plain")
    b.turn()
    assert (b.node_of("p"), b.node_of("plain")) == ("n2", "n1")


def test_closeness_of_a_sub_group_is_refused_with_a_sentence() -> None:
    b = bench()
    groups = [{"name": "w", "minMember": 1, "topologyConstraint": {"requiredTopologyLevel": "rack"}}]
    b.put(POD_GROUP, "t", "g", spec={"minMember": 1, "subGroups": groups})
    b.pod("p", annotations={"pod-group-name": "g"}, labels={"kai.scheduler/subgroup-name": "w"})
    b.now += 2
    b.turn()
    assert "put topologyConstraint on the whole PodGroup" in str(b.all(POD_GROUP)["g"]["status"])
