"""`rowlock up --kubeconfig … --scheduler own`: our scheduler on a cluster that is not ours, an embedded one here and a real one where it is built."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.kube.played_nodes import played_nodes
from tests.kube.test_served_cluster import kubectl

NODES, GPUS_PER_NODE = 2, 4
GPUS = NODES * GPUS_PER_NODE
ADMIN = "admin.kubeconfig"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What our server gets: a cluster with job operators and nodes that run nothing, and no gang scheduler."""
    with cluster_without_scheduler(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@contextmanager
def cluster_without_scheduler(engine: str, directory: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        if engine == "embedded":
            nodes = ("--pretend-nodes", str(NODES), "--simulated-gpus", str(GPUS_PER_NODE))
            flags = ("--without", "scheduler,kubelet", *nodes)
            yield stack.enter_context(embedded_server(directory, "rowlock.serve", *flags))
            return
        if missing := real_cluster_missing(operator=True):
            pytest.skip(missing)
        admin = stack.enter_context(real_cluster(directory, "--operator", "--scheduler"))
        stack.enter_context(played_nodes(admin, NODES, GPUS_PER_NODE))
        (directory / ADMIN).write_bytes(admin.read_bytes())
        yield account_kubeconfig(admin, directory)


def account_kubeconfig(admin: Path, directory: Path, *flags: str) -> Path:
    """Of the service account that `rowlock manifests` makes: it has the rights that they list, and no others."""
    manifests = subprocess.run(
        [BIN / "rowlock", "manifests", *flags], capture_output=True, text=True, check=True
    ).stdout
    (directory / "manifests.yaml").write_text(manifests)
    kubectl(admin, "apply", "-f", str(directory / "manifests.yaml"))
    kubectl(
        admin, "wait", "--for=condition=Established", "crd/queues.scheduling.run.ai", "crd/podgroups.scheduling.run.ai"
    )
    token = kubectl(admin, "create", "token", "rowlock", "-n", "rowlock-system", "--duration=2h").strip()
    config = json.loads(admin.read_text())
    config["users"] = [{"name": "token", "user": {"token": token}}]
    path = directory / "account.kubeconfig"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def served(tmp_path: Path, kubeconfig: Path) -> Iterator[Cluster]:
    """A server that schedules there; what the test made is deleted afterwards."""
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(kubeconfig), "--scheduler", "own")
        yield made
        remove_everything(made)


def remove_everything(served: Cluster) -> None:
    projects = {w["projectName"] for w in workloads(served)}
    for project in projects:
        served.run("rowlock", "delete", "--all", "--yes", "-p", project, code=None)
    served.until(lambda: not pods(served), "all pods are gone")
    for project in ("team-a", "team-b"):
        served.run("rowlock", "project", "delete", "--yes", project, code=None)
    served.until(
        lambda: (
            not [n for n in served_list(served, "/api/v1/namespaces") if n["metadata"]["name"].startswith("runai-team")]
        ),
        "the namespaces are gone",
    )


def served_list(served: Cluster, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = served.api("GET", path)["items"]
    return items


def workloads(served: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = served.api("GET", "/api/v1/workloads")["workloads"]
    return found


def pods(served: Cluster) -> list[dict[str, Any]]:
    return [p for p in served_list(served, "/api/v1/pods") if p["metadata"]["namespace"].startswith("runai-team")]


def bound_pods(served: Cluster, job: str) -> list[str]:
    return [p["metadata"]["name"] for p in pods(served) if job_of(p) == job and p["spec"].get("nodeName")]


def job_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"].get("training.kubeflow.org/job-name"))


def submit(served: Cluster, name: str, gpus: int, project: str, *flags: str) -> None:
    """A gang of `gpus` pods with a GPU each."""
    size = (f"--workers={gpus - 1}", "-g", "1")
    served.run("runai", "submit-dist", "pytorch", name, "-i", "nothing:1", *size, "-p", project, *flags)


def phases(served: Cluster) -> dict[str, str]:
    return {w["name"]: w["phase"] for w in workloads(served)}


def test_a_gang_starts_together_or_not_at_all(served: Cluster) -> None:
    served.run("rowlock", "project", "create", "team-a")
    served.until(lambda: f"_{served.pid}_" in served.run("rowlock", "status"), "this process schedules, and says so")
    submit(served, "first", 6, "team-a")
    served.until(lambda: len(bound_pods(served, "first")) == 6, "the first gang is placed")
    submit(served, "second", 4, "team-a")
    served.until(
        lambda: "2 of 4 pods fit" in served.run("rowlock", "explain", "second", "-p", "team-a"),
        "it is told why it waits",
    )
    assert bound_pods(served, "second") == []
    assert {p["spec"]["schedulerName"] for p in pods(served)} == {"rowlock-scheduler"}
    served.run("rowlock", "delete", "first", "-p", "team-a")
    served.until(lambda: len(bound_pods(served, "second")) == 4, "the second gang is placed")
    served.until(lambda: phases(served)["second"] == "Running", "the second gang runs")


def test_who_asks_for_never_is_told_what_an_eviction_does(served: Cluster) -> None:
    served.run("rowlock", "project", "create", "team-a")

    def submit_run(name: str, *flags: str) -> tuple[str, list[str]]:
        """What is said, and the restartPolicies of the job's pods."""
        words = ("rowlock", "run", "--detach", "--image", "nothing:1", "-p", "team-a", "--nnodes", "2", "--name", name)
        said = served.run(*words, *flags, "--", "true")
        job = served.api("GET", f"/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs/{name}")
        return said, [replica["restartPolicy"] for replica in job["spec"]["pytorchReplicaSpecs"].values()]

    said, policies = submit_run("plain")
    assert policies == ["OnFailure"] * 2 and "warning" not in said
    flags = ("-i", "nothing:1", "--workers", "1", "-p", "team-a", "--restart-policy", "Never")
    said = served.run("runai", "pytorch", "submit", "never", *flags)
    assert "warning: the job is preemptible: when rowlock's scheduler evicts it, Kubeflow's training operator" in said
    said = served.run("runai", "pytorch", "submit", "kept", *flags, "--preemptibility", "non-preemptible")
    assert "warning" not in said


def test_a_queue_gets_its_quota_back_and_who_yields_runs_again(served: Cluster) -> None:
    for project in ("team-a", "team-b"):
        served.run("rowlock", "project", "create", project, "--gpus", str(GPUS // 2))
    submit(served, "a1", GPUS // 2, "team-a")
    submit(served, "a2", GPUS // 2, "team-a")
    both = [GPUS // 2] * 2
    served.until(lambda: [len(bound_pods(served, n)) for n in ("a1", "a2")] == both, "both jobs are placed")
    submit(served, "b1", GPUS // 2, "team-b")
    served.until(lambda: len(bound_pods(served, "b1")) == GPUS // 2, "team-b has its quota")
    served.until(
        lambda: sorted(len(bound_pods(served, n)) for n in ("a1", "a2")) == [0, GPUS // 2], "one job yields, whole"
    )
    assert "Failed" not in phases(served).values()
    served.run("rowlock", "delete", "b1", "-p", "team-b")
    served.until(lambda: [len(bound_pods(served, n)) for n in ("a1", "a2")] == both, "who yielded is placed again")


@pytest.mark.parametrize("kubeconfig", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
def test_a_share_of_a_gpu_is_a_replica_where_a_node_divides_its_gpus(served: Cluster, kubeconfig: Path) -> None:
    """A node's four GPUs are two that its device plugin announces twice each."""
    served.run("rowlock", "project", "create", "team-a")

    def submit_shares(name: str, workers: int, share: str = "0.5") -> str:
        command = ("runai", "submit-dist", "pytorch", name, "-i", "nothing:1", f"--workers={workers}", "-g", share)
        return served.run(*command, "-p", "team-a", code=None)

    assert "no node says that NVIDIA's device plugin divides its GPUs" in submit_shares("half", 3)
    node, admin = "pretend-0000", kubeconfig.with_name(ADMIN)
    kubectl(admin, "label", "node", node, "nvidia.com/gpu.replicas=2", "nvidia.com/gpu.sharing-strategy=time-slicing")
    try:
        served.until(
            lambda: "nothing holds a program to its part" in submit_shares("half", 3), "who submits is told so"
        )
        served.until(lambda: len(bound_pods(served, "half")) == 4, "all replicas are taken")
        assert {p["spec"]["nodeName"] for p in pods(served) if job_of(p) == "half"} == {node}
        (half,) = workloads(served)
        assert half["allocatedResources"]["gpu"] == 2
        assert "ask for at most 0.5 of one" in submit_shares("larger", 1, "0.75")
        submit_shares("more", 1)
        submit(served, "whole", 4, "team-a")
        served.until(lambda: len(bound_pods(served, "whole")) == 4, "whole GPUs are those of the other node")
        assert bound_pods(served, "more") == []
        served.run("rowlock", "delete", "half", "-p", "team-a")
        served.until(lambda: len(bound_pods(served, "more")) == 2, "replicas are free again")
    finally:
        kubectl(admin, "label", "node", node, "nvidia.com/gpu.replicas-", "nvidia.com/gpu.sharing-strategy-")


def test_events_say_who_placed_the_pods(served: Cluster) -> None:
    served.run("rowlock", "project", "create", "team-a")
    submit(served, "ours", GPUS, "team-a")
    served.until(lambda: len(bound_pods(served, "ours")) == GPUS, "the gang is placed")
    served.until(lambda: len(scheduled_events(served)) == GPUS, "each pod has its event")
    assert {e["source"]["component"] for e in scheduled_events(served)} == {"rowlock-scheduler"}
    served.until(lambda: phases(served)["ours"] == "Running", "the gang runs")
    refusal = served.run("rowlock", "exec", "ours", "-p", "team-a", "--", "true", code=1)
    assert "Traceback" not in refusal and "Traceback" not in served.last_words(), "nobody runs programs on played nodes"


def scheduled_events(served: Cluster) -> list[dict[str, Any]]:
    events = served_list(served, "/api/v1/namespaces/runai-team-a/events")
    return [e for e in events if e["reason"] == "Scheduled" and e["involvedObject"]["kind"] == "Pod"]


def volume_objects(name: str, node: str, storage_class: str) -> list[dict[str, Any]]:
    """A claim of team-a and the only volume for it, a disk of this node."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    place = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {"accessModes": modes, "storageClassName": storage_class}
    reference = {"claimRef": {"namespace": "runai-team-a", "name": name}}
    disk = {
        "capacity": size,
        "hostPath": {"path": "/nothing"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}},
    }
    return [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "runai-team-a"},
         "spec": {**spec, "resources": {"requests": size}}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-{name}"}, "spec": {**spec, **reference, **disk}},
    ]  # fmt: skip


def reader(claim: str) -> dict[str, Any]:
    """A pod that our scheduler places, with this claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {
        "schedulerName": "rowlock-scheduler",
        "containers": [{"name": "main", "image": "nothing:1"}],
        "volumes": volumes,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"reads-{claim}", "namespace": "runai-team-a"},
        "spec": spec,
    }


def late_class(name: str, node: str) -> dict[str, Any]:
    """A storage class whose volumes are made on this node, once a pod asks for them; nobody makes them."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "example.com/nobody",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": [node]}]}],
    }


def makes_claim(storage_class: str) -> dict[str, Any]:
    """A pod that our scheduler places, with a claim that the controller manager makes for it."""
    size = {"requests": {"storage": "1Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": size}
    pod = reader("")
    pod["metadata"]["name"] = f"makes-{storage_class}"
    pod["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]
    return pod


@pytest.mark.parametrize("kubeconfig", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
def test_pods_go_where_their_volumes_are(served: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    admin = kubeconfig.with_name(ADMIN)

    def apply(*objects: dict[str, Any]) -> None:
        (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kubectl(admin, "apply", "-f", str(tmp_path / "objects.json"))

    def pod(name: str) -> dict[str, Any]:
        return next(p for p in pods(served) if p["metadata"]["name"] == name)

    def is_held(name: str) -> bool:
        conditions = pod(name)["status"].get("conditions") or ()
        return any(
            "PersistentVolumeClaim late-volume has no volume yet" in (c.get("message") or "") for c in conditions
        )

    served.run("rowlock", "project", "create", "team-a")
    late_claim, late_volume = volume_objects("late-volume", "pretend-0000", "early")
    early = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "early"},
        "provisioner": "example.com/nobody",
    }
    try:
        apply(early, late_claim, *volume_objects("data", "pretend-0001", ""))
        apply(reader("data"), reader("late-volume"))
        served.until(lambda: pod("reads-data")["spec"].get("nodeName") == "pretend-0001", "it is where its volume is")
        served.until(lambda: is_held("reads-late-volume"), "it is said what the other one waits for")
        apply(late_volume)
        served.until(lambda: pod("reads-late-volume")["spec"].get("nodeName") == "pretend-0000", "it has its volume")
        apply(late_class("late", "pretend-0001"), makes_claim("late"))
        served.until(lambda: pod("makes-late")["spec"].get("nodeName") == "pretend-0001", "its class allows this one")
        made = json.loads(kubectl(admin, "get", "pvc", "makes-late-scratch", "-n", "runai-team-a", "-o", "json"))
        assert made["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "pretend-0001"
    finally:
        all_pods = ("pod/reads-data", "pod/reads-late-volume", "pod/makes-late")
        kubectl(admin, "delete", "--ignore-not-found", "--now", "-n", "runai-team-a", *all_pods)
        kubectl(admin, "delete", "--wait=false", "-n", "runai-team-a", "pvc/data", "pvc/late-volume")
        classes = ("sc/early", "sc/late")
        kubectl(admin, "delete", "--ignore-not-found", "--wait=false", "pv/disk-data", "pv/disk-late-volume", *classes)


def test_a_share_of_a_gpu_is_refused(served: Cluster) -> None:
    served.run("rowlock", "project", "create", "team-a")
    refusal = served.run("runai", "submit-dist", "pytorch", "share", "-i", "x", "-g", "0.5", "-p", "team-a", code=None)
    assert "whole GPUs" in refusal and "share" not in phases(served)


@pytest.mark.real
def test_the_leader_is_killed_while_gangs_are_placed(served: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    """The other process goes on; no pod is bound twice (the API server would have to forget a bind), and no half gang stays."""
    (tmp_path / "other").mkdir()
    with lent(tmp_path / "other") as other:
        other.up("--kubeconfig", str(kubeconfig), "--scheduler", "own")
        served.run("rowlock", "project", "create", "team-a")
        sizes = {f"g{number}": 3 for number in range(6)}
        for name, size in sizes.items():
            submit(served, name, size, "team-a")
        os.kill(served.pid, signal.SIGKILL)

        def is_whole() -> bool:
            placed = {name: len(bound_pods(other, name)) for name in sizes}
            return sum(placed.values()) == 6 and set(placed.values()) == {0, 3}

        other.until(is_whole, "two whole gangs of three are placed, and no part of another")
        other.until(
            lambda: "does not schedule" not in other.run("rowlock", "scheduler", "snapshot", code=None), "it leads", 40
        )
        for name in [n for n in sizes if bound_pods(other, n)]:
            other.run("rowlock", "delete", name, "-p", "team-a")
        other.until(is_whole, "the next gangs are placed by the process that leads now")
        served.up("--kubeconfig", str(kubeconfig), "--scheduler", "own")
