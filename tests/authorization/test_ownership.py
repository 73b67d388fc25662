"""Whose queue somebody may name: by equality."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.scheduling.ownership import WITH_TEMPLATES, named_queues, refusal

PROJECT: Object = {"metadata": {"name": "runai-a", "labels": {"runai/queue": "a"}}}
ELSEWHERE: Object = {"metadata": {"name": "plain"}}


def labelled(**labels: str) -> Object:
    return {
        "metadata": {"name": "x", "namespace": "runai-a", "labels": {k.replace("_", "/"): v for k, v in labels.items()}}
    }


def job(template: Object | None = None, **more: Any) -> Object:
    replica = {"replicas": 1, "template": template or {}}
    return {**labelled(), "spec": {"pytorchReplicaSpecs": {"Worker": replica}, **more}}


KAI, RUNAI = "kai.scheduler_queue", "runai_queue"
FOREIGN: list[tuple[Kind, Object]] = [
    (kinds.POD, labelled(**{KAI: "b"})),
    (kinds.POD, labelled(**{RUNAI: "b"})),
    (kinds.POD, labelled(**{KAI: "a", RUNAI: "b"})),
    (kinds.PYTORCHJOB, {**job(), **labelled(**{KAI: "b"})}),
    (kinds.PYTORCHJOB, {**job(), **labelled(project="b")}),
    (kinds.PYTORCHJOB, job(labelled(**{KAI: "b"}))),
    (kinds.PYTORCHJOB, job(runPolicy={"schedulingPolicy": {"queue": "b"}})),
    (kinds.MPIJOB, {**labelled(), "spec": {"mpiReplicaSpecs": {"Launcher": {"template": labelled(**{RUNAI: "b"})}}}}),
    (kinds.POD_GROUP, {**labelled(), "spec": {"queue": "b"}}),
    (kinds.POD_GROUP, {**labelled(**{KAI: "b"}), "spec": {"queue": "a"}}),
]


def of_pods(**labels: str) -> Object:
    return {**labelled(**labels), "spec": {"containers": []}}


def in_set(job: Object) -> Object:
    return {"replicatedJobs": [{"name": "own", "template": labelled(**{KAI: "a"})}, {"name": "r", "template": job}]}


def in_runtime(jobset: Object) -> Object:
    return {**labelled(), "spec": {"template": jobset}}


def in_patch(jobset: Object) -> Object:
    patch = {"manager": "m", "trainingRuntimeSpec": {"template": jobset}}
    return {**labelled(), "spec": {"runtimeRef": {"name": "x"}, "runtimePatches": [{"manager": "other"}, patch]}}


JOB_OF_PODS: Object = {**labelled(), "spec": {"template": of_pods(**{RUNAI: "b"})}}
MADE_BY_CONTROLLERS: list[tuple[Kind, Object]] = [
    (kinds.BATCH_JOB, labelled(**{KAI: "b"})),
    (kinds.BATCH_JOB, {**labelled(project="b"), "spec": {"template": of_pods()}}),
    (kinds.BATCH_JOB, JOB_OF_PODS),
    (kinds.CRON_JOB, labelled(**{RUNAI: "b"})),
    (kinds.CRON_JOB, labelled(project="b")),
    (kinds.CRON_JOB, {**labelled(), "spec": {"jobTemplate": labelled(**{KAI: "b"})}}),
    (kinds.CRON_JOB, {**labelled(), "spec": {"jobTemplate": labelled(project="b")}}),
    (kinds.CRON_JOB, {**labelled(), "spec": {"jobTemplate": JOB_OF_PODS}}),
    (kinds.JOB_SET, labelled(**{KAI: "b"})),
    (kinds.JOB_SET, labelled(project="b")),
    (kinds.JOB_SET, {**labelled(), "spec": in_set(JOB_OF_PODS)}),
    (kinds.JOB_SET, {**labelled(), "spec": in_set(labelled(project="b"))}),
    (kinds.TRAIN_JOB, labelled(**{KAI: "b"})),
    (kinds.TRAIN_JOB, labelled(project="b")),
    (kinds.TRAIN_JOB, in_patch(labelled(**{KAI: "b"}))),
    (kinds.TRAIN_JOB, in_patch({**labelled(), "spec": in_set(JOB_OF_PODS)})),
    (kinds.TRAINING_RUNTIME, in_runtime(labelled(**{RUNAI: "b"}))),
    (kinds.TRAINING_RUNTIME, in_runtime({**labelled(), "spec": in_set(JOB_OF_PODS)})),
]
"""Their pods and PodGroups are written by controllers, which no rule asks."""


@pytest.mark.parametrize(("kind", "obj"), [*FOREIGN, *MADE_BY_CONTROLLERS])
def test_a_queue_of_others_is_refused(kind: Kind, obj: Object) -> None:
    why = refusal(kind, None, obj, PROJECT, lambda _: False)
    assert why.startswith('it names the queue "b", and jobs of namespace runai-a use "a": leave the queue out')
    assert refusal(kind, None, obj, PROJECT, lambda queue: queue == "b") == ""
    assert refusal(kind, obj, {**obj, "status": {}}, PROJECT, lambda _: False) == "", "what it named before may stay"
    assert refusal(kind, None, obj, {"metadata": {"labels": {"runai/queue": "b"}}}, lambda q: q == "a") == ""


def test_the_own_queue_may_be_named() -> None:
    for kind, obj in ((kinds.POD, labelled(**{KAI: "a"})), (kinds.PYTORCHJOB, job()), (kinds.POD_GROUP, labelled())):
        assert refusal(kind, None, obj, PROJECT, lambda _: False) == ""
    assert refusal(kinds.POD, None, labelled(**{KAI: "default"}), ELSEWHERE, lambda _: False) == ""
    assert refusal(kinds.POD, None, labelled(**{KAI: "a"}), ELSEWHERE, lambda _: False)
    own = {**job(), **labelled(**{KAI: "a", "project": "some-study"})}
    assert list(named_queues(kinds.PYTORCHJOB, own)) == ["a"], (
        "a label `project` names a queue only where no other does"
    )
    of_study = {"spec": in_set({**labelled(**{KAI: "a"}), "spec": {"template": of_pods(project="some-study")}})}
    assert set(named_queues(kinds.JOB_SET, of_study)) == {"a"}, "nor does the project label of a pod"


def test_a_namespace_gets_no_queue_of_others() -> None:
    changed = {"metadata": {"name": "runai-a", "labels": {"runai/queue": "b"}}}
    assert "the verb use on this queue" in refusal(kinds.NAMESPACE, PROJECT, changed, None, lambda _: False)
    assert refusal(kinds.NAMESPACE, PROJECT, {**PROJECT, "spec": {}}, None, lambda _: False) == ""
    assert refusal(kinds.NAMESPACE, PROJECT, changed, None, lambda _: True) == ""


def test_devices_are_the_schedulers_to_give() -> None:
    noted: Object = {"metadata": {"name": "x", "namespace": "runai-a", "annotations": {"rowlock.dev/devices": "0,1"}}}
    of_job: Object = {**labelled(), "spec": {"template": noted}}
    for kind, obj in (
        (kinds.POD, noted),
        (kinds.PYTORCHJOB, job(noted)),
        (kinds.BATCH_JOB, of_job),
        (kinds.CRON_JOB, {**labelled(), "spec": {"jobTemplate": of_job}}),
        (kinds.JOB_SET, {**labelled(), "spec": in_set(of_job)}),
        (kinds.TRAIN_JOB, in_patch({"spec": in_set(of_job)})),
    ):
        assert "leave it out" in refusal(kind, None, obj, PROJECT, lambda _: True)
    given = {**noted, "spec": {}}
    assert refusal(kinds.POD, noted, given, PROJECT, lambda _: True) == "", "what the scheduler has written may stay"


@pytest.mark.parametrize(
    "junk", [1, "text", [], [1], True, {"labels": 1}, {"metadata": 1}, {"metadata": {"labels": [1], "annotations": 1}}]
)
def test_what_is_not_validated_yet_is_no_error(junk: Any) -> None:
    """Whose queue it is, is asked before the shape of an object is: what is wrong with that is said there."""
    objects_of_junk: list[tuple[Kind, Object]] = [
        (kinds.PYTORCHJOB, {"metadata": {"labels": junk}, "spec": junk}),
        (kinds.PYTORCHJOB, {"metadata": {}, "spec": {"pytorchReplicaSpecs": junk, "runPolicy": junk}}),
        (kinds.PYTORCHJOB, job(junk)),
        (kinds.PYTORCHJOB, {"metadata": {}, "spec": {"pytorchReplicaSpecs": {"Master": junk}}}),
        (
            kinds.PYTORCHJOB,
            {"metadata": {"labels": {"runai/queue": junk}, "annotations": {"rowlock.dev/devices": junk}}},
        ),
        (kinds.POD, {"metadata": {"labels": junk, "annotations": junk}}),
        *((kind, {"metadata": {"labels": junk}, "spec": junk}) for kind in WITH_TEMPLATES),
        *((kind, {"metadata": {}, "spec": {"template": junk, "a": [junk]}}) for kind in WITH_TEMPLATES),
        (kinds.POD_GROUP, {"metadata": {}, "spec": junk}),
        (kinds.NAMESPACE, {"metadata": {"labels": {"runai/queue": junk}}}),
    ]
    for kind, obj in objects_of_junk:
        assert isinstance(refusal(kind, None, obj, PROJECT, lambda _: False), str)
        assert isinstance(refusal(kind, obj, obj, PROJECT, lambda _: False), str)


def test_an_object_of_thousands_of_templates_is_read_once() -> None:
    """Each project label counts; what lies deeper than any template is not searched."""
    many = [{"name": f"r{n}", "template": labelled(project=f"p{n}")} for n in range(5_000)]
    assert len(list(named_queues(kinds.JOB_SET, {**labelled(), "spec": {"replicatedJobs": many}}))) == 5_000
    deep: Object = labelled(**{KAI: "b"})
    for _ in range(500):
        deep = {"spec": deep}
    assert list(named_queues(kinds.JOB_SET, {**labelled(), "spec": deep})) == [], "no template lies so deep"
