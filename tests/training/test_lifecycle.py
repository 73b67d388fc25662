"""What no recording shows: where rowlock differs from the operator on purpose, rare inputs, timers, size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from rowlock.api import Create, Decision, Delete, Patch, Record, Update
from rowlock.controllers.writer import batch_steps, plan_steps
from rowlock.kinds import AUTOSCALER, CONFIG_MAP, POD, PYTORCHJOB, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object, labels, name, owner_reference, with_field
from rowlock.training.dependents.pods import pods_per_look
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.job import reconcile
from rowlock.training.job_changes import pace_decision
from rowlock.training.model import DEFAULT, FIXED, STRICT, Parity
from rowlock.training.reconcile_context import Observed

if TYPE_CHECKING:
    from tests.training.conftest import Play

Player = Callable[..., "Play"]


def replica(container: str, count: int | None, policy: str = "", **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": container, "image": "i"}], **spec}}
    return {
        "template": template,
        **({} if count is None else {"replicas": count}),
        **({"restartPolicy": policy} if policy else {}),
    }


def torch(workers: int, *, policy: str = "", master: bool = True, **spec: Any) -> Object:
    replicas = {"Worker": replica("pytorch", workers, policy)} if workers >= 0 else {}
    if master:
        replicas["Master"] = replica("pytorch", 1, policy)
    return {"pytorchReplicaSpecs": replicas, **spec}


def exited(code: int, container: str = "pytorch") -> Object:
    state = {"name": container, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [state]}


def conditions(run: Play) -> list[str]:
    return [c["type"] + ("" if c["status"] == "True" else "!") for c in run.status.get("conditions") or ()]


RUNNING: Object = {"phase": "Running", "containerStatuses": []}


# ---------------------------------------------------------------- deliberate differences


def test_the_deadline_has_a_timer(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(0, runPolicy={"activeDeadlineSeconds": 5}))
    assert run.turn().requeue_after == 5
    run.world.now += 5
    run.turn()
    assert conditions(run) == ["Created", "Failed"]
    assert run.status["conditions"][-1]["message"].endswith("active longer than specified deadline")


def test_strictly_the_deadline_has_none(play: Player) -> None:
    run = play("PyTorchJob", parity=STRICT)
    run.create(torch(0, runPolicy={"activeDeadlineSeconds": 5}))
    assert run.turn().requeue_after is None


def test_no_replicas_are_no_pods(play: Player) -> None:
    run = play("TFJob")
    run.create({"tfReplicaSpecs": {"Chief": replica("tensorflow", 1), "Worker": replica("tensorflow", 0)}})
    run.world.settle(run.controller, "team-a")
    assert list(run.pods()) == ["job-chief-0"]


@pytest.mark.parametrize(("parity", "completed"), [(DEFAULT, False), (FIXED, True)])
def test_a_permanent_exit_code_and_its_time_to_live(play: Player, parity: Parity, completed: bool) -> None:
    run = play("PyTorchJob", parity=parity)
    run.create(torch(1, policy="ExitCode", runPolicy={"ttlSecondsAfterFinished": 5}))
    run.turn()
    run.set("worker-0", exited(7))
    run.turn()
    assert conditions(run) == ["Created", "Failed"]
    assert ("completionTime" in run.status) is completed
    run.world.now += 5
    run.turn()
    assert (run.object is None) is completed


@pytest.mark.parametrize("parity", [DEFAULT, STRICT])
def test_a_finished_job_that_is_suspended_has_no_time_to_live(play: Player, parity: Parity) -> None:
    run = play("PyTorchJob", parity=parity)
    run.create(torch(0, runPolicy={"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 5}))
    run.turn()
    run.world.now += 1
    run.turn()
    assert conditions(run) == ["Created", "Failed"]
    run.patch({"spec": {"runPolicy": {"suspend": True}}})
    run.world.now += 60
    assert run.turn().requeue_after is None
    assert run.object is not None
    run.patch({"spec": {"runPolicy": {"suspend": False}}})
    run.turn()
    assert run.object is None


def test_an_event_whose_cause_continues_is_told_once(play: Player) -> None:
    run = play("PyTorchJob", parity=DEFAULT)
    run.create(torch(1, policy="Never"))
    run.turn()
    run.set("worker-0", exited(0))
    for _ in range(3):
        run.turn()
    assert run.world.events.count("Normal ExitedWithCode Pod: team-a.job-worker-0 exited with code 0") == 1


def test_pods_may_end_by_themselves_for_a_moment(play: Player) -> None:
    run = play("PyTorchJob", graceful=True)
    run.create(torch(1, runPolicy={"cleanPodPolicy": "Running"}))
    run.turn()
    run.set("worker-0", RUNNING)
    run.set("master-0", exited(0))
    run.turn()
    decision = run.turn()
    assert decision.requeue_after == pytest.approx(0.1)
    assert run.pods()["job-worker-0"] == "Running"
    run.world.now += 0.2
    run.turn()
    assert run.pods()["job-worker-0"] == "Running+Terminating"


@pytest.mark.parametrize(("parity", "late"), [(DEFAULT, []), (STRICT, ["job-worker-1"])])
def test_the_end_of_an_elastic_job_makes_no_missing_worker(play: Player, parity: Parity, late: list[str]) -> None:
    run = play("PyTorchJob", parity=parity)
    run.create(torch(2, policy="OnFailure", master=False, elasticPolicy={"minReplicas": 1, "maxReplicas": 2}))
    run.turn()
    run.set("worker-0", exited(0))
    run.world.delete(POD, "team-a", "job-worker-1", now=True)
    decision = run.turn()
    assert [name(w.object) for w in decision.writes if isinstance(w, Create) and w.kind is POD] == late
    events = [w.message for w in decision.writes if isinstance(w, Record)]
    assert ("Created pod: job-worker-1" in events) is bool(late)
    assert "Succeeded" in conditions(run)


# ---------------------------------------------------------------- rare inputs


def test_limit_reached_and_no_time_to_live(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(0, runPolicy={"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0}))
    run.turn()
    run.world.now += 2
    run.turn()
    assert run.object is None


def test_elastic_policy_one_bound_and_odd_fields(play: Player) -> None:
    conf = {"maxReplicas": 4, "rdzvConf": [], "standalone": True, "rdzvPort": 0, "rdzvBackend": ""}
    run = play("PyTorchJob")
    run.create(torch(2, master=False, elasticPolicy=conf))
    run.turn()
    env = {e["name"]: e["value"] for e in run.pod("worker-1")["spec"]["containers"][0]["env"]}
    assert env["PET_NNODES"] == "4:4"
    assert env["PET_STANDALONE"] == ""
    assert env["PET_RDZV_ENDPOINT"] == "job-worker-0:0"
    assert env["PET_RDZV_BACKEND"] == ""
    assert "PET_RDZV_CONF" not in env


def test_elastic_policy_of_a_master_alone(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(-1, elasticPolicy={}))
    run.turn()
    env = {e["name"]: e["value"] for e in run.pod("master-0")["spec"]["containers"][0]["env"]}
    assert env["PET_NNODES"] == "1:1"
    assert env["PET_RDZV_ENDPOINT"] == "job-worker-0:23456"


@pytest.mark.parametrize(("per_node", "size"), [("2", "6"), ("+2", "6"), ("gpu", "3"), ("9" * 20, "3")])
def test_world_size_counts_processes_where_their_number_is_one(play: Player, per_node: str, size: str) -> None:
    run = play("PyTorchJob")
    run.create(torch(2, nprocPerNode=per_node))
    run.turn()
    env = {e["name"]: e["value"] for e in run.pod("master-0")["spec"]["containers"][0]["env"]}
    assert env["WORLD_SIZE"] == size


def test_a_job_with_a_replica_without_containers_stays_as_it_is(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(-1))
    run.turn()
    before = run.status
    run.patch(
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
    )  # what `scale` makes of a job without Workers
    assert not run.turn().writes
    assert run.status == before


def test_a_job_that_was_changed_before_its_first_status_is_not_said_to_be_created() -> None:
    metadata = {"name": "job", "namespace": "team-a", "uid": "u"}
    job: Object = {"kind": "PyTorchJob", "metadata": metadata, "spec": torch(1, runPolicy={"suspend": True})}
    for as_created, types in ((True, ["Created", "Suspended"]), (False, ["Suspended"])):
        decision = reconcile(FRAMEWORKS[PYTORCHJOB], Observed(job, as_created=as_created), 0.0)
        (update,) = [w for w in decision.writes if isinstance(w, Update)]
        assert [c["type"] for c in update.object["status"]["conditions"]] == types


def test_of_a_job_whose_pods_are_refused_nothing_is_concluded(play: Player) -> None:
    run = play("XGBoostJob")
    run.create({"xgbReplicaSpecs": {"Master": replica("xgboost", 1), "Worker": replica("xgboost", 1)}})
    run.turn()
    run.set("master-0", exited(1, "xgboost"))
    run.world.delete(POD, "team-a", "job-worker-0")
    writes = run.turn().writes
    refused = next(i for i, w in enumerate(writes) if isinstance(w, Create))
    said = next(i for i, w in enumerate(writes) if isinstance(w, Record) and w.reason == "XGBoostJobFailed")
    assert refused < said


def test_clean_up_takes_a_foreign_service_of_the_pods_name(play: Player) -> None:
    run = play("XGBoostJob")
    run.create({"xgbReplicaSpecs": {"Master": replica("xgboost", 1)}, "runPolicy": {"suspend": False}})
    run.world.create(SERVICE, {"metadata": {"name": "job-master-0", "namespace": "team-a"}, "spec": {"ports": []}})
    run.turn()
    run.patch({"spec": {"runPolicy": {"suspend": True}}})
    gone = [(w.kind, w.name) for w in run.turn().writes if isinstance(w, Delete)]
    assert gone == [(POD, "job-master-0"), (SERVICE, "job-master-0")]


def test_pods_go_in_one_run_of_writes_and_their_services_in_another(play: Player) -> None:
    """A run is one commit. A pod, its service, the next pod: each waited for the disk, and 600 pods took 22 s to stop."""
    run = play("PyTorchJob")
    run.create(torch(3, runPolicy={"suspend": False}))
    run.turn()
    run.patch({"spec": {"runPolicy": {"suspend": True}}})
    _, steps = plan_steps(run.turn().writes)
    runs = [[step.write for step in batch] for batch in batch_steps(steps)]
    deletes = [[(w.kind, w.name) for w in batch if isinstance(w, Delete)] for batch in runs]
    names = ["job-master-0", "job-worker-0", "job-worker-1", "job-worker-2"]
    found = [sorted(batch, key=str) for batch in deletes if batch]
    assert found == [[(POD, pod) for pod in names], [(SERVICE, pod) for pod in names]]


def test_where_one_types_pods_are_refused_the_others_get_theirs_in_the_end(play: Player) -> None:
    run = play("PaddleJob")
    run.create({"paddleReplicaSpecs": {"Master": replica("paddle", 1), "Worker": replica("paddle", 1)}})
    made = []
    for _ in range(2):
        writes = run.controller.decide(run.world, Key("team-a", "job"), 0.0).writes
        made.append([name(w.object) for w in writes if isinstance(w, Create) and w.kind is POD])
    assert made == [["job-master-0", "job-worker-0"], ["job-worker-0", "job-master-0"]]


def test_mpi_says_that_a_restart_policy_of_a_template_counts_for_nothing(play: Player) -> None:
    run = play("MPIJob")
    spec = replica("mpi", 1)
    spec["template"]["spec"]["restartPolicy"] = "Always"
    run.create({"mpiReplicaSpecs": {"Launcher": spec, "Worker": spec}})
    said = [w.reason for w in run.turn().writes if isinstance(w, Record)]
    assert said.count("SettedPodTemplateRestartPolicy") == 1  # only of the launcher


def test_mpi_spells_the_reason_of_its_success_like_the_operator(play: Player) -> None:
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": {"Launcher": replica("mpi", 1)}})
    run.turn()
    run.set("launcher", exited(0, "mpi"))
    assert "mpijobsSucceeded" in [w.reason for w in run.turn().writes if isinstance(w, Record)]


def test_pods_without_a_number_and_two_of_one_number_are_left_alone(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(1))
    run.turn()
    for called, number in (("x", "zero"), ("y", "0")):
        pod = with_field(run.pod("worker-0"), "metadata.name", called)
        pod["metadata"]["labels"] = {**labels(pod), "training.kubeflow.org/replica-index": number}
        run.world.put(POD, pod)
        service = run.world.get(SERVICE, "team-a", "job-worker-0")
        assert service is not None
        twin = with_field(service, "metadata.name", called)
        run.world.put(SERVICE, with_field(twin, "metadata.labels", pod["metadata"]["labels"]))
    assert not [w for w in run.turn().writes if isinstance(w, Create | Delete)]


@pytest.mark.parametrize("parity", [DEFAULT, STRICT])
def test_no_number_that_a_pods_label_has_is_counted_up_to(play: Player, parity: Parity) -> None:
    """The user of a job may relabel its pods: a loop up to the number would never end."""
    run = play("PyTorchJob", parity=parity)
    run.create(torch(1))
    run.turn()
    pod = with_field(run.pod("worker-0"), "metadata.name", "x")
    pod["metadata"]["labels"] = {**labels(pod), "training.kubeflow.org/replica-index": "9" * 18}
    run.world.put(POD, pod)
    writes = run.turn().writes
    assert [write.name for write in writes if isinstance(write, Delete) and write.kind is POD] == ["x"]
    assert len([write for write in writes if isinstance(write, Create)]) < 25_000


def test_a_gap_below_the_last_pod_is_not_filled_beyond_the_replicas(play: Player) -> None:
    run = play("PyTorchJob", graceful=True)
    run.create(torch(3))
    run.turn()
    for pod in ("worker-0", "worker-1", "worker-2"):
        run.set(pod, RUNNING)
    run.patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}})
    run.turn()
    run.world.delete(POD, "team-a", "job-worker-1", now=True)
    service = run.world.get(SERVICE, "team-a", "job-worker-0")
    assert service is not None
    last = with_field(
        with_field(service, "metadata.name", "job-worker-2"), "metadata.deletionTimestamp", "2026-01-01T00:00:00Z"
    )
    last["metadata"]["labels"] = {**labels(service), "training.kubeflow.org/replica-index": "2"}
    run.world.put(SERVICE, last)
    run.turn()
    assert sorted(run.pods()) == ["job-master-0", "job-worker-0", "job-worker-2"]
    assert run.services() == ["job-master-0", "job-worker-0", "job-worker-2"]


def test_tensorflow_adopts_services_with_its_labels(play: Player) -> None:
    run = play("TFJob")
    run.create({"tfReplicaSpecs": {"Worker": replica("tensorflow", 1)}})
    marks = {
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    service = {"metadata": {"name": "job-worker-0", "namespace": "team-a", "labels": marks}, "spec": {}}
    run.world.put(SERVICE, service)
    patches = [w for w in run.turn().writes if isinstance(w, Patch)]
    assert run.object is not None
    assert [p.patch for p in patches] == [{"metadata": {"ownerReferences": [owner_reference(run.object)]}}]
    assert not [w for w in run.turn().writes if isinstance(w, Patch | Create)]


def test_trouble_of_init_containers_and_quiet_pods(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(2))
    run.turn()
    waiting = {"name": "init-pytorch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    run.set("worker-0", {"initContainerStatuses": [waiting]})
    run.set("worker-1", {"conditions": [{"type": "PodScheduled", "status": "True"}]})
    run.world.events.clear()
    run.turn()
    assert run.world.events == [
        "Warning ErrImagePull Error pod job-worker-0 container init-pytorch waiting message: no such image"
    ]


def test_jax_workers_that_fail_for_good(play: Player) -> None:
    run = play("JAXJob")
    run.create({"jaxReplicaSpecs": {"Worker": replica("jax", 2)}})
    run.turn()
    run.set("worker-1", exited(2, "jax"))
    run.turn()
    assert conditions(run) == ["Created", "Failed"]


def test_a_job_that_is_being_deleted_is_left_alone(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(0))
    run.patch({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert run.turn().writes == ()


# ---------------------------------------------------------------- the autoscaler


METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]


def test_the_autoscaler_is_kept_and_left_while_it_goes(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(2, master=False, elasticPolicy={"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}))
    run.turn()
    scaler = run.world.get(AUTOSCALER, "team-a", "job")
    assert scaler is not None
    assert not [w for w in run.turn().writes if isinstance(w, Update) and w.kind is AUTOSCALER]
    run.world.put(AUTOSCALER, with_field(scaler, "spec.maxReplicas", 9))
    run.turn()
    again = run.world.get(AUTOSCALER, "team-a", "job")
    assert again is not None
    assert again["spec"]["maxReplicas"] == 3
    going = with_field(with_field(again, "spec.maxReplicas", 9), "metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
    run.world.put(AUTOSCALER, going)
    run.turn()
    left = run.world.get(AUTOSCALER, "team-a", "job")
    assert left is not None
    assert left["spec"]["maxReplicas"] == 9
    run.patch({"spec": {"runPolicy": {"suspend": True}}})
    assert not [w for w in run.turn().writes if isinstance(w, Delete) and w.kind is AUTOSCALER]


# ---------------------------------------------------------------- MPI


@pytest.mark.parametrize(
    ("replicas", "why"),
    [
        (None, "MPIReplicaSpecs is not valid"),
        ({"Launcher": {}}, "MPIReplicaSpecs is not valid: containers definition expected in Launcher"),
        ({"Foo": replica("mpi", 1)}, "MPIReplicaType is Foo but must be one of [Launcher Worker]"),
        (
            {"Launcher": replica("", 1)},
            "MPIReplicaSpec is not valid: ImageName is undefined in the container of Launcher",
        ),
    ],
)
def test_mpi_jobs_that_the_operator_refuses(play: Player, replicas: Object | None, why: str) -> None:
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": replicas} if replicas is not None else {})
    run.turn()
    assert run.world.events == [f"Warning MPIJobFailedValidation MPIJob failed validation because {why}"]
    assert run.status == {}


def test_mpi_workers_are_scaled_down_and_the_hostfile_follows(play: Player) -> None:
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 2)}, "slotsPerWorker": 3})
    run.turn()
    run.patch({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}})
    run.world.settle(run.controller, "team-a")
    config, role = run.world.get(CONFIG_MAP, "team-a", "job-config"), run.world.get(ROLE, "team-a", "job-launcher")
    assert config is not None
    assert config["data"]["hostfile"] == "job-worker-0 slots=3\n"
    assert role is not None
    assert role["rules"][1]["resourceNames"] == ["job-worker-0"]
    assert sorted(run.pods()) == ["job-launcher", "job-worker-0"]


@pytest.mark.parametrize(
    ("policy", "seen"), [("Never", ["Created", "Running!", "Failed"]), ("ExitCode", ["Created", "Restarting"])]
)
def test_xgboost_says_running_before_every_verdict(play: Player, policy: str, seen: list[str]) -> None:
    """Recorded from the real operator: a Master that fails before anything ran."""
    run = play("XGBoostJob")
    run.create({"xgbReplicaSpecs": {t: replica("xgboost", 1, policy) for t in ("Master", "Worker")}})
    run.turn()
    run.set("master-0", {"phase": "Failed", "reason": "Evicted", "containerStatuses": []})
    run.turn()
    assert conditions(run) == seen
    assert "1 Master replica(s) failed" in run.status["conditions"][-1]["message"]


@pytest.mark.parametrize(
    ("kind", "called", "made"),
    [
        (POD, "job-launcher", []),
        (POD, "job-worker-0", ["job-launcher"]),
        (CONFIG_MAP, "job-config", ["job-launcher"]),
        (SERVICE_ACCOUNT, "job-launcher", None),
    ],
)
def test_mpi_objects_of_somebody_else(play: Player, kind: Kind, called: str, made: list[str] | None) -> None:
    """As recorded from the real operator: a foreign ServiceAccount is used, anything else stops the job."""
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 1)}})
    run.world.create(kind, {"metadata": {"name": called, "namespace": "team-a"}, "spec": {"containers": []}})
    run.world.settle(run.controller, "team-a")
    complaint = f'Warning ErrResourceExists Resource "{called}" of MPIJobKind "{kind.name}" already exists'
    assert any(e.startswith(complaint) for e in run.world.events) is (made is not None)
    if made is None:
        assert sorted(run.pods()) == ["job-launcher", "job-worker-0"]
    else:
        assert [name(a) for a in run.world.all(SERVICE_ACCOUNT)] == made
        assert run.status == {}
        assert run.turn().requeue, "nothing that it hears of tells when the way is free"


def test_an_mpi_job_that_no_longer_speaks_of_workers_keeps_them(play: Player) -> None:
    """As the differential test found it."""
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 2)}})
    run.turn()
    run.patch({"spec": {"mpiReplicaSpecs": {"Worker": None}}})
    run.world.settle(run.controller, "team-a")
    assert sorted(run.pods()) == ["job-launcher", "job-worker-0", "job-worker-1"]


def test_a_refused_mpi_worker_is_told_twice_once_with_the_reason(play: Player) -> None:
    """As the differential test found it (seed 224): a container's name that no pod may have."""
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 1)}})
    worker = next(w for w in run.turn().writes if isinstance(w, Create) and name(w.object) == "job-worker-0")
    assert [(f.reason, f.message) for f in worker.failure_records] == [
        ("FailedCreatePod", "Created worker pod: "),
        ("MPIJobFailed", "worker pod created failed: {error}"),
    ]


def test_mpi_slots_and_account_as_given(play: Player) -> None:
    run = play("MPIJob")
    launcher = replica("mpi", 1, serviceAccountName="mine")
    run.create({"mpiReplicaSpecs": {"Launcher": launcher, "Worker": replica("mpi", 1)}, "slotsPerWorker": 0})
    run.turn()
    config, binding = (
        run.world.get(CONFIG_MAP, "team-a", "job-config"),
        run.world.get(ROLE_BINDING, "team-a", "job-launcher"),
    )
    assert config is not None
    assert config["data"]["hostfile"] == "job-worker-0 slots=0\n"
    assert binding is not None
    assert binding["subjects"][0]["name"] == "mine"
    assert run.pod("launcher")["spec"]["serviceAccountName"] == "mine"


# ---------------------------------------------------------------- refusals and size


def test_a_refused_pod_leaves_a_record_and_no_status(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(1))
    foreign = {"metadata": {"name": "job-worker-0", "namespace": "team-a"}, "spec": {"containers": []}}
    run.world.create(POD, foreign)
    run.turn()
    assert run.status == {}
    assert run.world.events[-1] == 'Warning FailedCreatePod Error creating: pods "job-worker-0" already exists'
    assert "Normal SuccessfulCreatePod Created pod: job-master-0" in run.world.events


def test_writes_are_in_the_order_that_survives_a_refusal(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(1))
    writes = run.turn().writes
    creates = [i for i, w in enumerate(writes) if isinstance(w, Create)]
    assert all(isinstance(writes[i + 1], Record) for i in creates)
    assert isinstance(writes[-1], Update)
    assert writes[-1].subresource == "status"


def test_the_cost_of_a_look_grows_with_the_ranks_and_no_faster(play: Player) -> None:
    """A thousand ranks against a hundred: ten times the calls. (Counted, not timed: tests run on busy machines.)"""
    assert _cost(play, 999) < 11 * _cost(play, 99)


def _cost(play: Player, workers: int) -> int:
    """Calls during one look at a running job."""
    run = play("PyTorchJob")
    run.create(torch(workers))
    run.turn()
    for pod in list(run.world.all(POD)):
        run.world.put(POD, {**pod, "status": RUNNING})
    run.turn()
    assert run.status["replicaStatuses"]["Worker"]["active"] == workers
    assert run.object is not None
    seen, now = run.controller.observe_job(run.world, run.object), run.world.now
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        reconcile(run.controller.framework, seen, now)
    finally:
        sys.setprofile(None)
    return calls


def test_names_of_pods(play: Player) -> None:
    run = play("PyTorchJob")
    run.create(torch(1))
    run.turn()
    assert [name(p) for p in run.world.all(POD)] == ["job-master-0", "job-worker-0"]


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_pod_that_the_scheduler_took_back_is_made_again_whatever_its_restart_policy(play: Player, kind: str) -> None:
    run = play(kind, graceful=True)
    container, prefix = ("pytorch", "pytorch") if kind == "PyTorchJob" else ("tensorflow", "tf")
    run.create({f"{prefix}ReplicaSpecs": {"Worker": replica(container, 2, "Never")}})
    run.world.settle(run.controller, "team-a")
    for short in ("worker-0", "worker-1"):
        run.set(short, RUNNING)
    run.world.settle(run.controller, "team-a")
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    for status in (RUNNING, exited(143, container)):  # while it ends, and when it has ended before it is removed
        run.set("worker-1", {**status, "conditions": [mark]})
        run.world.delete(POD, "team-a", "job-worker-1")
        run.world.settle(run.controller, "team-a")
        assert conditions(run) == ["Created", "Running"]
    run.world.delete(POD, "team-a", "job-worker-1", now=True)
    run.world.settle(run.controller, "team-a")
    assert sorted(run.pods()) == ["job-worker-0", "job-worker-1"]
    assert conditions(run) == ["Created", "Running"]


def test_a_pod_that_was_spared_in_the_end_counts(play: Player) -> None:
    """The scheduler marks a pod first and deletes it then; when only the mark came through, its end is its own."""
    run = play("PyTorchJob")
    run.create({"pytorchReplicaSpecs": {"Master": replica("pytorch", 1, "Never")}})
    run.world.settle(run.controller, "team-a")
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    run.set("master-0", {**RUNNING, "conditions": [mark]})
    run.world.settle(run.controller, "team-a")
    run.set("master-0", {**exited(0), "conditions": [mark]})
    run.world.settle(run.controller, "team-a")
    assert conditions(run)[-1] == "Succeeded"


def test_a_refused_object_of_an_mpijob_is_tried_again_without_an_event(play: Player) -> None:
    run = play("MPIJob")
    run.create({"mpiReplicaSpecs": {"Launcher": replica("mpi", 1)}})
    made = [w for w in run.turn().writes if isinstance(w, Create) and w.kind in (SERVICE_ACCOUNT, CONFIG_MAP, ROLE)]
    assert len(made) == 3 and not any(w.failure_records for w in made)


@pytest.mark.parametrize(("kind", "field", "kept"), [("MPIJob", "mpi", None), ("TFJob", "tf", ["a.b/c"])])
def test_finalizers_of_templates_are_kept_but_by_mpijobs(play: Player, kind: str, field: str, kept: Any) -> None:
    run = play(kind)
    spec = replica("mpi" if field == "mpi" else "tensorflow", 1)
    spec["template"]["metadata"] = {"finalizers": ["a.b/c"]}
    types = ("Launcher", "Worker") if field == "mpi" else ("Worker",)
    run.create({f"{field}ReplicaSpecs": dict.fromkeys(types, spec)})
    pods = [w.object for w in run.turn().writes if isinstance(w, Create) and w.kind is POD]
    assert [p["metadata"].get("finalizers") for p in pods] == [kept] * len(types)


@pytest.mark.parametrize(("kind", "container"), [("PyTorchJob", "pytorch"), ("MPIJob", "mpi")])
def test_pods_of_a_template_near_the_limit_are_made_by_and_by(play: Player, kind: str, container: str) -> None:
    """All of them in one reconcile held the event loop up for 0.3 s: each is a copy of the template's lists."""
    run = play(kind)
    worker = replica(container, 40)
    worker["template"]["spec"]["containers"][0]["env"] = [{"name": f"V{n}", "value": "x"} for n in range(30_000)]
    leader = {"Master": replica(container, 1)} if kind == "PyTorchJob" else {"Launcher": replica(container, 1)}
    run.create({f"{container}ReplicaSpecs": {**leader, "Worker": worker}})
    made = list[int]()
    while len(run.pods()) < 41:
        decision = run.turn()
        made.append(sum(isinstance(write, Create) and write.kind is POD for write in decision.writes))
        assert 0 < made[-1] <= 17, made
    assert sum(made) == 41


def test_a_large_job_settles_unless_it_goes_on_creating() -> None:
    change = Decision((Patch(POD, "a", "b", {}),), requeue_after=3.0)
    assert pace_decision(change, 2) == change
    assert pace_decision(change, 1000) == Decision(change.writes, requeue_after=3.0, settle=0.25)
    creating = Decision((Create(POD, {}),))
    assert pace_decision(creating, 1000) == creating


def test_containers_count_for_more_than_what_is_copied() -> None:
    """Forty pods of 5,000 containers were made in one turn of the event loop, which took 0.18 s."""
    large = {"spec": {"containers": [{"name": f"c{n}", "image": "i"} for n in range(5_000)]}}
    assert 1 <= pods_per_look(large) <= 10
    assert pods_per_look({"spec": {"containers": [{"name": "main", "image": "i"}]}}) > 10_000
