"""JobSets and TrainJobs with `--operator own`: what no webhook has seen is filled in and checked, and never beside the cluster's own operators."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from tests.conformance.subjects import open_store

from rowlock import controllers, kinds
from rowlock.api import Create, Record
from rowlock.errors import Forbidden
from rowlock.kinds import CLUSTER_TRAINING_RUNTIME, JOB_SET, TRAIN_JOB, Kind
from rowlock.kube.install.trainer_kinds import trainer_crd_objects
from rowlock.kube_operator.presence import JOBSET_CONTROLLER, TRAINER, Rival
from rowlock.kube_operator.trainer_controllers import (
    CheckedJobSetController,
    CheckedTrainJobController,
    create_runtimes,
    jobset_gang_controllers,
    trainer_controllers,
)
from rowlock.objects import Key, Object, name
from rowlock.storage.store import Store
from rowlock.training.jobset.controller import JobSetController

SPACE = "team"


async def store_with_namespaces() -> Store:
    store = open_store()
    for space in ("rowlock-system", SPACE):
        await store.create(kinds.NAMESPACE, {"metadata": {"name": space}})
    return store


JOB_TEMPLATE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "img"}]}}}}


def jobset(**spec: Any) -> Object:
    job = copy.deepcopy({"name": "w", "replicas": 2, "template": JOB_TEMPLATE})
    metadata = {"name": "js", "namespace": SPACE}
    kind = {"apiVersion": JOB_SET.api_version, "kind": JOB_SET.name}
    return {**kind, "metadata": metadata, "spec": {"replicatedJobs": [job], **spec}}


def trainjob(runtime: str = "torch-distributed", **spec: Any) -> Object:
    metadata = {"name": "tj", "namespace": SPACE}
    kind = {"apiVersion": TRAIN_JOB.api_version, "kind": TRAIN_JOB.name}
    return {**kind, "metadata": metadata, "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": 2}, **spec}}


def writes_for(kind: Kind, obj: Object, controller: Any, *, runtimes: bool = True) -> list[Any]:
    """What a controller does about an object that was stored without a webhook."""

    async def decide() -> list[Any]:
        store = await store_with_namespaces()
        if runtimes:
            await create_runtimes(store)
        stored = await store.create(kind, obj)
        decision = controller.decide(store.view, Key(SPACE, name(stored)), 1.0)
        await store.close()
        return list(decision.writes)

    return asyncio.run(decide())


def test_a_set_gets_the_defaults_of_the_webhook() -> None:
    made = [
        write.object for write in writes_for(JOB_SET, jobset(), CheckedJobSetController()) if isinstance(write, Create)
    ]
    jobs = [obj for obj in made if obj["kind"] == "Job"]
    assert [name(job) for job in jobs] == ["js-w-0", "js-w-1"]
    assert {job["spec"]["completionMode"] for job in jobs} == {"Indexed"}
    assert {job["spec"]["template"]["spec"]["restartPolicy"] for job in jobs} == {"OnFailure"}
    assert [name(obj) for obj in made if obj["kind"] == "Service"] == ["js"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["x"]}}, "invalid replicatedJob name 'x'"),
        ({"managedBy": "me"}, "must be a domain-prefixed path"),
        (
            {"replicatedJobs": [{"name": "w" * 60, "replicas": 1, "template": JOB_TEMPLATE}]},
            "will exceed 63 characters",
        ),
    ],
)
def test_what_the_webhook_of_jobset_would_refuse_is_told_and_left_alone(spec: Any, why: str) -> None:
    (record,) = writes_for(JOB_SET, jobset(**spec), CheckedJobSetController())
    assert isinstance(record, Record) and record.reason == "InvalidJobSet" and why in record.message
    assert record.message.startswith("the set cannot run: ") and "admission webhook" not in record.message


def test_what_needs_a_webhook_of_pods_is_told() -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    obj = jobset()
    (record,) = writes_for(
        JOB_SET, {**obj, "metadata": {**obj["metadata"], "annotations": exclusive}}, CheckedJobSetController()
    )
    assert record.reason == "InvalidJobSet" and "install JobSet, or place the pods with" in record.message


def test_a_trainjob_becomes_a_set() -> None:
    made = [
        write.object
        for write in writes_for(TRAIN_JOB, trainjob(), CheckedTrainJobController())
        if isinstance(write, Create)
    ]
    assert [obj["kind"] for obj in made] == ["ConfigMap", "JobSet"]


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (trainjob("nothing"), '"nothing" not found: specified clusterTrainingRuntime must be created before'),
        (trainjob(trainer={"env": [{"name": "PET_NNODES", "value": "1"}]}), "must not have reserved envs"),
        (trainjob(runtimeRef={"name": "x", "kind": "Recipe"}), "unsupported runtime: Recipe.trainer.kubeflow.org"),
    ],
)
def test_what_the_webhook_of_trainer_would_refuse_is_told_and_left_alone(job: Object, why: str) -> None:
    (record,) = writes_for(TRAIN_JOB, job, CheckedTrainJobController())
    assert isinstance(record, Record) and record.reason == "InvalidTrainJob" and why in record.message


def test_a_job_that_came_before_its_runtime_begins_with_it() -> None:
    async def play() -> tuple[list[str], list[str]]:
        store = await store_with_namespaces()
        await store.create(TRAIN_JOB, trainjob())
        loop = asyncio.create_task(
            controllers.run(store, store.view, trainer_controllers([TRAIN_JOB]), store.changes())
        )
        while not (events := [event["reason"] for event in store.view.all(kinds.EVENT)]):
            await asyncio.sleep(0.005)
        before = [name(obj) for obj in store.view.all(JOB_SET)]
        await create_runtimes(store)
        while store.view.get(JOB_SET, SPACE, "tj") is None:
            await asyncio.sleep(0.005)
        loop.cancel()
        await asyncio.wait({loop})
        await store.close()
        return events, before

    assert asyncio.run(asyncio.wait_for(play(), 200)) == (["InvalidTrainJob"], [])


def test_a_job_goes_on_when_its_runtime_is_deleted() -> None:
    async def play() -> list[Any]:
        store = await store_with_namespaces()
        await create_runtimes(store)
        await store.create(TRAIN_JOB, trainjob())
        controller, key = CheckedTrainJobController(), Key(SPACE, "tj")
        for write in controller.decide(store.view, key, 1.0).writes:
            if isinstance(write, Create):
                await store.create(write.kind, write.object)
        await store.delete(CLUSTER_TRAINING_RUNTIME, "", "torch-distributed")
        decision = controller.decide(store.view, key, 2.0)
        await store.close()
        return [write for write in decision.writes if isinstance(write, Record)]

    assert asyncio.run(play()) == []


def test_pod_groups_that_the_cluster_does_not_serve_are_left_out() -> None:
    """Kubeflow Trainer logs an error, and goes on."""

    async def play() -> list[str]:
        store = await store_with_namespaces()
        await create_runtimes(store)
        runtime = store.view.get(CLUSTER_TRAINING_RUNTIME, "", "torch-distributed")
        assert runtime is not None
        spec = {**runtime["spec"], "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 60}}}
        await store.update(CLUSTER_TRAINING_RUNTIME, {**runtime, "spec": spec})
        await store.create(TRAIN_JOB, trainjob())
        decision = trainer_controllers([TRAIN_JOB])[0].decide(store.view, Key(SPACE, "tj"), 1.0)
        await store.close()
        return [write.object["kind"] for write in decision.writes if isinstance(write, Create)]

    assert asyncio.run(play()) == ["ConfigMap", "JobSet"]


# ------------------------------------------------------------ presence


def found(rival: Rival, *controllers_there: Any, deployment: Object | None = None) -> str:
    """Where another operator is found in a store with these controllers."""

    async def ask() -> str:
        store = await store_with_namespaces()
        loop = asyncio.create_task(controllers.run(store, store.view, controllers_there, store.changes()))
        answer = await rival.find(store, "abc", 30 if controllers_there else 0.2)
        left = [*store.view.all(rival.kind)]
        loop.cancel()
        await asyncio.wait({loop})
        await store.close()
        assert not left, "the question is taken back"
        return answer

    return asyncio.run(asyncio.wait_for(ask(), 200))


@pytest.mark.parametrize("rival", [JOBSET_CONTROLLER, TRAINER])
def test_nobody_answers_where_nobody_is(rival: Rival) -> None:
    assert found(rival) == ""


def test_another_jobset_controller_answers_and_ours_does_not() -> None:
    assert "wrote a status" in found(JOBSET_CONTROLLER, JobSetController())
    assert found_beside_ours(JOBSET_CONTROLLER, CheckedJobSetController()) == ""
    assert found_beside_ours(TRAINER, CheckedTrainJobController()) == ""


def found_beside_ours(rival: Rival, controller: Any) -> str:
    async def ask() -> str:
        store = await store_with_namespaces()
        loop = asyncio.create_task(controllers.run(store, store.view, [controller], store.changes()))
        answer = await rival.find(store, "abc", 0.5)
        loop.cancel()
        await asyncio.wait({loop})
        await store.close()
        return answer

    return asyncio.run(ask())


def test_a_webhook_that_refuses_the_question_is_an_answer() -> None:
    class Webhook:
        async def list(self, *_: Any, **__: Any) -> Any:
            from rowlock.api import Page

            return Page([], 1, "", None)

        async def create(self, *_: Any, **__: Any) -> Object:
            raise Forbidden(
                'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: unsupported'
            )

    answer = asyncio.run(TRAINER.find(Webhook(), "abc", 1))  # type: ignore[arg-type]
    assert "its webhook is installed" in answer


@pytest.mark.parametrize(
    ("rival", "labels", "image"),
    [
        (JOBSET_CONTROLLER, {"app.kubernetes.io/part-of": "jobset"}, "controller:latest"),
        (JOBSET_CONTROLLER, {}, "mirror:5000/jobset/jobset:v0.12.0"),
        (TRAINER, {}, "ghcr.io/kubeflow/trainer/trainer-controller-manager@sha256:00"),
    ],
)
def test_a_deployment_is_known_by_its_labels_or_its_image(rival: Rival, labels: dict[str, str], image: str) -> None:
    deployment = {
        "metadata": {"name": "d", "namespace": "n", "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
    }

    class Cluster:
        async def list(self, *_: Any, **__: Any) -> Any:
            from rowlock.api import Page

            return Page([deployment], 1, "", None)

    assert asyncio.run(rival.find(Cluster(), "abc", 1)) == "its Deployment is n/d"  # type: ignore[arg-type]


def test_the_definitions_fit_what_kubectl_can_apply() -> None:
    """`kubectl apply` keeps the whole object in an annotation of at most 256 KiB; a structural schema has no references."""
    import json

    made = {name(crd): crd for crd in trainer_crd_objects()}
    assert set(made) == {kind.resource for kind in kinds.TRAINER}
    for crd in made.values():
        text = json.dumps(crd)
        assert len(text) < 200_000 and '"$ref"' not in text
    version = made["trainjobs.trainer.kubeflow.org"]["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["runtimeRef"]["properties"]["kind"]["default"] == "ClusterTrainingRuntime"
    assert "subresources" not in made["clustertrainingruntimes.trainer.kubeflow.org"]["spec"]["versions"][0]


def test_pods_that_rowlocks_scheduler_places_are_a_gang() -> None:
    """Of any other scheduler they are none of ours, and no webhook names the PodGroup in the pods."""

    async def play(scheduler: str) -> tuple[list[int], list[str]]:
        store = await store_with_namespaces()
        obj = jobset()
        pod_spec = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod_spec["schedulerName"] = scheduler
        await store.create(JOB_SET, obj)
        made = [
            write.object
            for controller in jobset_gang_controllers([JOB_SET])
            for write in controller.decide(store.view, Key(SPACE, "js"), 1.0).writes
            if isinstance(write, Create)
        ]
        await store.close()
        groups = {name(group): group["spec"]["minMember"] for group in made if group["kind"] == "PodGroup"}
        templates = [job["spec"]["template"]["metadata"]["annotations"] for job in made if job["kind"] == "Job"]
        named = [marks["pod-group-name"] for marks in templates if "pod-group-name" in marks]
        assert set(named) == set(groups)
        return list(groups.values()), named

    sizes, named = asyncio.run(play("rowlock-scheduler"))
    assert sizes == [2] and len(named) == 2
    assert asyncio.run(play("default-scheduler")) == ([], [])
