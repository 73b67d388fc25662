"""Kubeflow's TrainingClient 1.9: create a job, follow it to its end, look at its pods, delete it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.clients.conftest import Site

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # it warns about itself in several ways
]
training = pytest.importorskip("kubeflow.training", reason="kubeflow-training 1.9 is not installed")
kubernetes = pytest.importorskip("kubernetes")


@pytest.fixture
def client(site: Site) -> Any:
    return training.TrainingClient(config_file=str(site.kubeconfig), namespace=site.namespace, job_kind="PyTorchJob")


@pytest.fixture
def core(site: Site) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(site.kubeconfig)) as api:
        yield kubernetes.client.CoreV1Api(api)


def _typed(name: str, workers: int) -> Any:
    k8s = kubernetes.client
    container = k8s.V1Container(name="pytorch", image="example.test/none:1", command=["true"])
    template = k8s.V1PodTemplateSpec(spec=k8s.V1PodSpec(containers=[container]))
    replica = training.KubeflowOrgV1ReplicaSpec(replicas=workers, template=template, restart_policy="OnFailure")
    spec = training.KubeflowOrgV1PyTorchJobSpec(
        pytorch_replica_specs={"Master": _one(replica), "Worker": replica},
        run_policy=training.KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
    )
    return training.KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1", kind="PyTorchJob", metadata=k8s.V1ObjectMeta(name=name), spec=spec
    )


def _one(replica: Any) -> Any:
    return training.KubeflowOrgV1ReplicaSpec(replicas=1, template=replica.template, restart_policy="OnFailure")


def _play(core: Any, site: Site, count: int, phase: str) -> None:
    """What a kubelet would say of the job's pods."""
    deadline = time.monotonic() + 60
    while len(pods := core.list_namespaced_pod(site.namespace).items) < count:
        assert time.monotonic() < deadline, f"the operator made {len(pods)} of {count} pods"
        time.sleep(0.05)
    for pod in pods:
        state: dict[str, dict[str, Any]] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if phase == "Succeeded":
            state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        said = {
            "name": "pytorch",
            "ready": phase == "Running",
            "restartCount": 0,
            "image": "x",
            "imageID": "",
            "state": state,
        }
        status = {"phase": phase, "containerStatuses": [said]}
        core.patch_namespaced_pod_status(pod.metadata.name, site.namespace, {"status": status})


def test_a_job_from_creation_to_deletion(client: Any, core: Any, site: Site) -> None:
    client.create_job(_typed("train", workers=2))
    assert client.get_job("train").spec.pytorch_replica_specs["Worker"].replicas == 2
    assert [j.metadata.name for j in client.list_jobs()] == ["train"]
    _play(core, site, 3, "Running")
    client.wait_for_job_conditions("train", expected_conditions={"Running"}, timeout=200, polling_interval=0.1)
    assert client.is_job_running("train")
    names = sorted(client.get_job_pod_names("train"))
    assert names == ["train-master-0", "train-worker-0", "train-worker-1"]
    assert client.get_job_pod_names("train", is_master=True) == ["train-master-0"]
    assert client.get_job_pod_names("train", replica_type="worker", replica_index=1) == ["train-worker-1"]
    _play(core, site, 3, "Succeeded")
    done = client.wait_for_job_conditions("train", timeout=200, polling_interval=0.1)
    assert done.status.completion_time and client.is_job_succeeded("train")
    client.delete_job("train")
    deadline = time.monotonic() + 60
    while client.list_jobs() or core.list_namespaced_pod(site.namespace).items:
        assert time.monotonic() < deadline, "the job's pods outlive it"
        time.sleep(0.05)


def test_a_job_is_changed(client: Any, site: Site) -> None:
    client.create_job(_typed("train", workers=1))
    job = client.get_job("train")
    job.spec.run_policy.suspend = True
    job.metadata.resource_version = None  # whatever the operator has written since
    client.update_job(job, "train")
    deadline = time.monotonic() + 60
    while "Suspended" not in {c.type for c in client.get_job_conditions("train")}:
        assert time.monotonic() < deadline, "the job was not suspended"
        time.sleep(0.05)


def test_a_missing_job_is_told(client: Any) -> None:
    with pytest.raises(RuntimeError, match="Failed to get PyTorchJob"):
        client.get_job("nobody")


def test_every_kind_of_job_is_listed(client: Any) -> None:
    for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"):
        assert client.list_jobs(job_kind=kind) == []
