"""Job → PodGroup by KAI's rules: members, sub-groups, queue, priority; and when it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from rowlock.api import NOTHING, Change, Create, Decision, Record, Update
from rowlock.kinds import JOBS, MPIJOB, NAMESPACE, POD, POD_GROUP, PRIORITY_CLASS, PYTORCHJOB, TFJOB, Kind
from rowlock.objects import Key, Object, labels, owner_reference, with_field
from rowlock.training.controller import JobController, controllers
from rowlock.training.pod_group import FINISHED_ANNOTATION, PodGroupController

if TYPE_CHECKING:
    from tests.training.conftest import World

GROUPS = PodGroupController()
FIELD = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}


def job(kind: Kind, counts: dict[str, int | None], *, marks: dict[str, str] | None = None, **spec: Any) -> Object:
    replicas = {
        role: {"template": {"spec": {"containers": []}}, **({} if n is None else {"replicas": n})}
        for role, n in counts.items()
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "j", "namespace": "team", "labels": marks or {}},
        "spec": {FIELD[kind.name]: replicas, **spec},
    }


def decided(world: World, kind: Kind) -> Any:
    return GROUPS.decide(world, Key("team", f"{kind.plural}/j"), world.now)


def made(world: World, kind: Kind, obj: Object) -> Object:
    world.create(kind, obj)
    (write,) = decided(world, kind).writes
    assert isinstance(write, Create)
    world.create(POD_GROUP, write.object)
    return write.object


def test_the_gang_of_a_pytorchjob(world: World) -> None:
    obj = job(PYTORCHJOB, {"Master": 1, "Worker": 2}, marks={"kai.scheduler/queue": "team-a", "app": "x"})
    group = made(world, PYTORCHJOB, obj)
    stored = world.get(PYTORCHJOB, "team", "j")
    assert stored is not None
    assert group["metadata"]["name"] == "pg-j-uid-1"
    assert group["metadata"]["ownerReferences"] == [owner_reference(stored)]
    assert labels(group) == {"kai.scheduler/queue": "team-a", "app": "x"}
    assert group["metadata"]["annotations"]["kai.scheduler/top-owner-metadata"].startswith("name: j\nuid: uid-1\n")
    assert group["spec"] == {
        "minMember": 3,
        "queue": "team-a",
        "priorityClassName": "train",
        "subGroups": [{"name": "master", "minMember": 1}, {"name": "worker", "minMember": 2}],
    }
    assert decided(world, PYTORCHJOB) == NOTHING


@pytest.mark.parametrize(
    ("kind", "counts", "spec", "members", "groups"),
    [
        (PYTORCHJOB, {"Worker": 3}, {}, 3, [("worker", 3)]),
        (PYTORCHJOB, {"Master": None}, {}, 1, [("master", 1)]),
        (PYTORCHJOB, {"Worker": 3}, {"elasticPolicy": {"minReplicas": 2}}, 2, [("worker", 2)]),
        (
            PYTORCHJOB,
            {"Master": 1, "Worker": 5},
            {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}, "elasticPolicy": {"minReplicas": 4}},
            2,
            [("master", 1), ("worker", 1)],
        ),
        (TFJOB, {"PS": 2, "Worker": 4}, {}, 6, []),
        (TFJOB, {"PS": 2, "Worker": 4}, {"runPolicy": {"schedulingPolicy": {"minAvailable": 0}}}, 0, []),
        (MPIJOB, {"Launcher": 1, "Worker": None}, {}, 1, []),
    ],
)
def test_members_and_sub_groups(
    world: World, kind: Kind, counts: dict[str, int | None], spec: Object, members: int, groups: list[tuple[str, int]]
) -> None:
    group = made(world, kind, job(kind, counts, **spec))["spec"]
    assert group["minMember"] == members
    assert [(g["name"], g["minMember"]) for g in group.get("subGroups", [])] == groups


@pytest.mark.parametrize(
    ("marks", "pod", "home", "queue"),
    [
        ({"kai.scheduler/queue": "a", "runai/queue": "b"}, {}, {}, "a"),
        ({"runai/queue": "b"}, {"kai.scheduler/queue": "c"}, {}, "b"),
        ({"project": "p"}, {"kai.scheduler/queue": "c"}, {"runai/queue": "d"}, "c"),
        ({"project": "p"}, {}, {"runai/queue": "d"}, "p"),
        ({}, {}, {"runai/queue": "d"}, "d"),
        ({}, {}, {}, "default"),
    ],
)
def test_queue(world: World, marks: Object, pod: Object, home: Object, queue: str) -> None:
    world.create(NAMESPACE, {"metadata": {"name": "team", "labels": home}})
    obj = job(PYTORCHJOB, {"Worker": 1}, marks=marks)
    obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": pod}
    assert made(world, PYTORCHJOB, obj)["spec"]["queue"] == queue


@pytest.mark.parametrize(
    ("marks", "class_name", "priority"),
    [
        ({"priorityClassName": "build"}, "mine", "build"),
        ({}, "mine", "mine"),
        ({"priorityClassName": "nosuch"}, "mine", "train"),
        ({}, "", "train"),
    ],
)
def test_priority(world: World, marks: Object, class_name: str, priority: str) -> None:
    world.create(PRIORITY_CLASS, {"metadata": {"name": "mine"}, "value": 7})
    obj = job(PYTORCHJOB, {"Worker": 1}, marks=marks)
    if class_name:
        obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = class_name
    assert made(world, PYTORCHJOB, obj)["spec"]["priorityClassName"] == priority


@pytest.mark.parametrize(("wish", "seen"), [("non-preemptible", "non-preemptible"), ("banana", None)])
def test_preemptibility(world: World, wish: str, seen: str | None) -> None:
    obj = job(PYTORCHJOB, {"Worker": 1}, marks={"kai.scheduler/preemptibility": wish})
    assert made(world, PYTORCHJOB, obj)["spec"].get("preemptibility") == seen


def test_a_changed_job_changes_its_gang_and_keeps_what_others_wrote(world: World) -> None:
    made(world, PYTORCHJOB, job(PYTORCHJOB, {"Worker": 2}))
    group = world.get(POD_GROUP, "team", "pg-j-uid-1")
    obj = world.get(PYTORCHJOB, "team", "j")
    assert group is not None
    assert obj is not None
    world.put(POD_GROUP, with_field(group, "spec.markUnschedulable", True))
    world.put(PYTORCHJOB, with_field(obj, "spec.pytorchReplicaSpecs.Worker.replicas", 4))
    (write,) = decided(world, PYTORCHJOB).writes
    assert isinstance(write, Update)
    assert write.object["spec"]["minMember"] == 4
    assert write.object["spec"]["markUnschedulable"] is True
    world.put(POD_GROUP, with_field(group, "metadata.deletionTimestamp", "2026-01-01T00:00:00Z"))
    assert decided(world, PYTORCHJOB) == NOTHING


def test_what_a_job_says_to_the_scheduler_follows_the_job(world: World) -> None:
    notes = {"kai.scheduler/preemption-delay": "5m", "kai.scheduler/staleness-grace-period": "2m"}
    wish = with_field(job(PYTORCHJOB, {"Worker": 2}), "metadata.annotations", {**notes, "other": "x"})
    annotations = made(world, PYTORCHJOB, wish)["metadata"]["annotations"]
    assert notes.items() <= annotations.items() and "other" not in annotations
    obj = world.get(PYTORCHJOB, "team", "j")
    assert obj is not None
    later = {**notes, "kai.scheduler/preemption-delay": "1m", "rowlock.dev/max-runtime": "30m"}
    world.put(PYTORCHJOB, with_field(obj, "metadata.annotations", later))
    (write,) = decided(world, PYTORCHJOB).writes
    assert isinstance(write, Update)
    assert write.object["metadata"]["annotations"] == {**annotations, **later}
    world.put(POD_GROUP, write.object)
    assert decided(world, PYTORCHJOB) == NOTHING


PARTS = [("spec.elasticPolicy", {"minReplicas": 1}), ("spec.runPolicy.schedulingPolicy", {"minAvailable": 1})]


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
@pytest.mark.parametrize(("path", "value"), PARTS)
def test_the_gang_of_a_job_that_has_ended_is_marked(world: World, path: str, value: Any, end: str) -> None:
    group = made(world, PYTORCHJOB, with_field(job(PYTORCHJOB, {"Worker": 2}), path, value))
    old = world.get(PYTORCHJOB, "team", "j")
    assert old is not None
    ended = with_field(old, "status.conditions", [{"type": end, "status": "True"}])
    world.put(PYTORCHJOB, ended)
    assert list(GROUPS.keys(world, Change("Modified", 2, PYTORCHJOB, ended, old))) == [Key("team", "pytorchjobs/j")]
    (write,) = decided(world, PYTORCHJOB).writes
    assert isinstance(write, Update)
    assert write.object["metadata"]["annotations"] == {**group["metadata"]["annotations"], FINISHED_ANNOTATION: "true"}
    world.put(POD_GROUP, write.object)
    assert decided(world, PYTORCHJOB) == NOTHING


def test_the_end_of_a_job_whose_pods_all_started_costs_no_write(world: World) -> None:
    made(world, PYTORCHJOB, job(PYTORCHJOB, {"Worker": 2}))
    old = world.get(PYTORCHJOB, "team", "j")
    assert old is not None
    ended = with_field(old, "status.conditions", [{"type": "Succeeded", "status": "True"}])
    world.put(PYTORCHJOB, ended)
    assert list(GROUPS.keys(world, Change("Modified", 2, PYTORCHJOB, ended, old))) == []
    assert decided(world, PYTORCHJOB) == NOTHING


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.runPolicy.suspend", True),
        ("spec.runPolicy.managedBy", "kueue.x-k8s.io/multikueue"),
        ("spec.pytorchReplicaSpecs", {}),
        ("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"),
        ("status.conditions", [{"type": "Failed", "status": "True"}]),
    ],
)
def test_jobs_that_need_no_gang(world: World, path: str, value: Any) -> None:
    world.create(PYTORCHJOB, with_field(job(PYTORCHJOB, {"Worker": 2}), path, value))
    assert decided(world, PYTORCHJOB) == NOTHING


def test_a_job_that_is_gone(world: World) -> None:
    assert decided(world, PYTORCHJOB) == NOTHING


# ---------------------------------------------------------------- whom a change concerns


def keys(controller: PodGroupController | JobController, world: World, kind: Kind, obj: Object) -> list[Key]:
    found: Iterable[Key] = controller.keys(world, Change("Modified", 1, kind, obj))
    return list(found)


def test_whom_a_change_concerns(world: World) -> None:
    world.create(PYTORCHJOB, job(PYTORCHJOB, {"Worker": 1}))
    world.create(TFJOB, job(TFJOB, {"Worker": 1}))
    mine = Key("team", "pytorchjobs/j")
    obj = world.get(PYTORCHJOB, "team", "j")
    assert obj is not None
    assert keys(GROUPS, world, PYTORCHJOB, obj) == [mine]
    group = {"metadata": {"name": "pg", "namespace": "team", "ownerReferences": [owner_reference(obj)]}}
    assert keys(GROUPS, world, POD_GROUP, group) == [mine]
    assert keys(GROUPS, world, POD_GROUP, {"metadata": {"name": "pg", "namespace": "team"}}) == []
    everybody = [mine, Key("team", "tfjobs/j")]
    assert keys(GROUPS, world, NAMESPACE, {"metadata": {"name": "team"}}) == everybody
    assert keys(GROUPS, world, NAMESPACE, {"metadata": {"name": "other"}}) == []
    assert keys(GROUPS, world, PRIORITY_CLASS, {"metadata": {"name": "x"}}) == everybody


def test_a_status_concerns_no_gang(world: World) -> None:
    obj = world.create(PYTORCHJOB, job(PYTORCHJOB, {"Master": 1}))
    group = {"metadata": {"name": "pg", "namespace": "team", "ownerReferences": [owner_reference(obj)]}}
    mine = [Key("team", "pytorchjobs/j")]
    for kind, old in ((PYTORCHJOB, obj), (POD_GROUP, group)):
        for path, value, expected in (
            ("status.conditions", [], []),
            ("metadata.resourceVersion", "9", []),
            ("metadata.managedFields", [], []),
            ("metadata.labels", {"a": "b"}, mine),
            ("metadata.deletionTimestamp", "2026-01-01T00:00:00Z", mine),
            ("spec.runPolicy", {"suspend": True}, mine),
        ):
            change = Change("Modified", 2, kind, with_field(old, path, value), old)
            assert list(GROUPS.keys(world, change)) == expected, (kind.name, path)
        assert list(GROUPS.keys(world, Change("Deleted", 3, kind, old, old))) == mine
        assert list(GROUPS.keys(world, Change("Added", 3, kind, old))) == mine


def test_jobs_are_woken_by_what_they_own(world: World) -> None:
    world.create(PYTORCHJOB, job(PYTORCHJOB, {"Worker": 1}))
    obj = world.get(PYTORCHJOB, "team", "j")
    assert obj is not None
    controller = JobController(PYTORCHJOB)
    owned = {"metadata": {"name": "p", "namespace": "team", "ownerReferences": [owner_reference(obj)]}}
    bare = {"metadata": {"name": "p", "namespace": "team"}}
    assert keys(controller, world, PYTORCHJOB, obj) == [Key("team", "j")]
    assert keys(controller, world, POD, owned) == [Key("team", "j")]
    assert keys(controller, world, POD, bare) == []
    assert keys(JobController(TFJOB), world, POD, owned) == []
    orphaned = Change("Modified", 1, POD, bare, owned)
    assert list(controller.keys(world, orphaned)) == [Key("team", "j")]


def test_a_deleted_job_is_forgotten(world: World) -> None:
    controller = JobController(PYTORCHJOB)
    world.create(PYTORCHJOB, job(PYTORCHJOB, {"Worker": 1}))
    obj = world.get(PYTORCHJOB, "team", "j")
    assert obj is not None
    world.apply(controller.decide(world, Key("team", "j"), world.now))
    world.delete(PYTORCHJOB, "team", "j")
    gone = Change("Deleted", 9, PYTORCHJOB, obj)
    assert list(controller.keys(world, gone)) == [Key("team", "j")]
    assert controller.decide(world, Key("team", "j"), world.now) == NOTHING


def test_there_is_a_controller_for_each_kind() -> None:
    assert [c.framework.kind for c in controllers()] == list(JOBS)
    assert len({c.name for c in controllers()}) == len(JOBS)


def decided_for_real_cluster(world: World, *scheduler_names: str) -> Decision:
    obj = job(PYTORCHJOB, {"Master": 1, "Worker": 2})
    replicas = obj["spec"]["pytorchReplicaSpecs"].values()
    for replica, scheduler_name in zip(replicas, scheduler_names, strict=True):
        if scheduler_name:
            replica["template"]["spec"]["schedulerName"] = scheduler_name
    world.create(PYTORCHJOB, obj)
    controller = PodGroupController({"rowlock-scheduler"}, "rowlock-scheduler")
    return controller.decide(world, Key("team", "pytorchjobs/j"), world.now)


def test_a_job_of_another_scheduler_gets_no_group_from_us(world: World) -> None:
    assert decided_for_real_cluster(world, "", "kai-scheduler") == NOTHING


def test_a_job_whose_pods_all_name_us_gets_its_group(world: World) -> None:
    (write,) = decided_for_real_cluster(world, "rowlock-scheduler", "rowlock-scheduler").writes
    assert isinstance(write, Create) and write.object["spec"]["minMember"] == 3


def test_a_job_whose_pods_name_several_schedulers_is_told_so(world: World) -> None:
    (write,) = decided_for_real_cluster(world, "rowlock-scheduler", "").writes
    assert isinstance(write, Record) and (write.reason, write.source) == ("MixedSchedulers", "rowlock-scheduler")
    assert "Worker no schedulerName" in write.message and "the same spec.schedulerName" in write.message


@pytest.mark.parametrize(
    ("path", "value", "is_woken"),
    [
        ("metadata.resourceVersion", "9", False),
        ("metadata.annotations", {"gpu": "0"}, False),
        ("metadata.labels", {"a": "b"}, True),
        ("metadata.deletionTimestamp", "2026-01-01T00:00:00Z", True),
        ("metadata.ownerReferences", [], True),  # the job that it leaves
        ("status.phase", "Failed", True),
        ("status.containerStatuses", [{"name": "pytorch", "state": {"waiting": {"message": "no image"}}}], True),
        ("status.conditions", [{"type": "Initialized", "status": "False", "message": "a volume is missing"}], True),
    ],
)
def test_a_pod_that_got_its_node_and_nothing_else_wakes_no_operator(
    world: World, path: str, value: Any, is_woken: bool
) -> None:
    world.create(PYTORCHJOB, job(PYTORCHJOB, {"Worker": 1}))
    obj = world.get(PYTORCHJOB, "team", "j")
    assert obj is not None
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    meta = {"name": "j-worker-0", "namespace": "team", "ownerReferences": [owner_reference(obj)]}
    waiting: Object = {"metadata": meta, "spec": {}, "status": {"phase": "Pending"}}
    bound = {**waiting, "spec": {"nodeName": "n"}, "status": {"phase": "Pending", "conditions": scheduled}}
    controller = JobController(PYTORCHJOB)
    woken = [Key("team", "j")]
    assert list(controller.keys(world, Change("Modified", 2, POD, bound, waiting))) == []
    changed = with_field(bound, path, value)
    assert list(controller.keys(world, Change("Modified", 2, POD, changed, waiting))) == (woken if is_woken else [])
    for other in (Change("Modified", 3, POD, changed, bound), Change("Added", 2, POD, changed)):
        assert list(controller.keys(world, other)) == (
            [] if path == "metadata.ownerReferences" and not other.old else woken
        )
