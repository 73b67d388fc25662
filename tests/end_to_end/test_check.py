"""`rowlock check -f`: the operator's own words, what to do about them, and what will surprise; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import REPO, Cluster

import rowlock
from rowlock.sdk.submission_body import job_request

BAD = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: typo}
spec: {pytorchReplicaSpecs: {worker: {template: {spec: {containers: [{name: pytorch, image: x}]}}}}}
---
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: headless}
spec: {mpiReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [{name: mpi, image: x}]}}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: newer}
spec: {mpiReplicaSpecs: {Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi, image: x}]}}}}}
"""


def test_bad_manifests_are_refused_in_the_operators_words_with_a_hint(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up("--without", "kubelet,scheduler")
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    said = cluster.run("rowlock", "check", "-f", str(file), code=1)
    assert 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the request' in said
    assert 'what helps: Use one of the types "Master", "Worker", with a capital first letter' in said
    assert "MPIJob headless: refused: MPIJob failed validation because" in said
    assert 'Deployment web: refused: no matches for kind "Deployment"' in said
    assert 'MPIJob newer: refused: no matches for kind "MPIJob" in version "kubeflow.org/v2beta1"' in said
    assert "what helps: It is served as `kubeflow.org/v1`." in said
    job = str(REPO / "examples/distributed-training-jobs/distributed-tensorflow-job.yaml")
    said = cluster.run("rowlock", "check", "-f", job)
    assert "TFJob distributed-tensorflow-job: admitted" in said and "note: parameter servers never end" in said
    assert cluster.json("rowlock", "list", "--json") == []
    assert "needs the file" in cluster.run("rowlock", "check", code=2)


HOST = """
apiVersion: v1
kind: Pod
metadata: {name: board}
spec:
  hostNetwork: true
  runtimeClassName: gvisor
  containers: [{name: main, image: rowlock.dev/host, command: [sleep, "1"]}]
"""


def test_what_a_pod_asks_of_its_host_and_does_not_get_is_noted(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    file = tmp_path / "host.yaml"
    file.write_text(HOST)
    said = cluster.run("rowlock", "check", "-f", str(file))
    assert "Pod board: admitted" in said and "note: runtimeClassName is not applied on this machine" in said
    (node,) = json.loads(cluster.run("kubectl", "get", "nodes", "-o", "json"))["items"]
    has_namespaces = node["metadata"]["annotations"]["rowlock.dev/network"] == "namespaces"
    assert ("note: hostNetwork: the pod has a network of its own all the same." in said) == has_namespaces


OTHERS = """
apiVersion: v1
kind: Service
metadata: {name: stats}
spec: {selector: {app: stats}, ports: [{port: 8125, protocol: UDP}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: POD}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {schedule: "0 0 * * *", jobTemplate: {spec: {template: {spec: POD}}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set}
spec: {replicatedJobs: [{name: a, template: {spec: {template: {spec: POD}}}}]}
"""
POD = """{restartPolicy: Never, dnsConfig: {nameservers: [192.0.2.1]}, containers: [
  {name: c, image: rowlock.dev/host, command: [sh, -c, "python train.py; true"]}]}"""


def test_all_kinds_with_pods_and_services_are_told_what_they_do_not_get(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    file = tmp_path / "others.yaml"
    file.write_text(OTHERS.replace("POD", POD))
    service, *with_pods = _checked(cluster, file)
    (said,) = service["remarks"]
    assert said.startswith("ports over UDP of a Service with an address lead nowhere")
    for one in with_pods:
        shell, dns = one["remarks"]
        assert shell.startswith("sh of container c may not pass SIGTERM on"), one
        assert dns.startswith("dnsConfig"), one


IMAGES = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: nowhere}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: "team/model:1", command: [a]}]}}}
    Worker: {replicas: 9, template: {spec: {containers: [{name: pytorch, image: "team/model:1"}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: idle}
spec: {containers: [{name: main, image: host}, {name: side, image: rowlock.dev/host, command: [sleep]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: fine}
spec: {containers: [{name: main, image: rowlock.dev/host, command: [sleep, "1"]}]}
"""


def test_an_image_that_is_nowhere_here_is_told_with_what_makes_it_known(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up("--runtime", "process")
    file = tmp_path / "images.yaml"
    file.write_text(IMAGES)
    job, idle, fine = _checked(cluster, file)
    (said,) = job["remarks"]
    assert said.startswith('ErrImagePull: no image "team/model:1" on this node: images are not pulled')
    assert "`rowlock image add team/model:1 --host`" in said
    assert idle["remarks"] == [
        'CreateContainerError: no command: the image "host:latest" names none, so the pod must give `command` or `args`'
    ]
    assert fine["remarks"] == []
    cluster.run("rowlock", "image", "add", "team/model:1", "--host")
    (said,) = _checked(cluster, file)[0]["remarks"]
    assert said.startswith('CreateContainerError: no command: the image "team/model:1" names none'), (
        "the workers have none"
    )


def _checked(cluster: Cluster, file: Path) -> list[dict[str, Any]]:
    return list(json.loads(cluster.run("rowlock", "check", "-f", str(file), "--json"))["results"])


LOOKUP = ["sh", "-c", "exec sleep 600 http://tracking:8000"]


def test_every_submit_says_what_check_and_the_event_say(cluster: Cluster) -> None:
    cluster.up("--network", "rewrite")
    cluster.run("kubectl", "create", "service", "clusterip", "tracking", "--clusterip=None", "--tcp=8000")
    sentence = "http://tracking:8000: with --network rewrite programs cannot look up names of pods and services"
    ways = (
        ("rowlock", "run", "-d", "--name", "j0"),
        ("runai", "submit", "j1", "-i", "rowlock.dev/host", "-p", "default", "--command"),
        ("runai", "training", "standard", "submit", "j2", "-i", "rowlock.dev/host", "-p", "default", "--command"),
    )
    for words in ways:
        assert f"warning: {sentence}" in cluster.run(*words, "--", *LOOKUP), words
    for name in ("j0", "j1", "j2"):
        cluster.until(lambda: sentence in cluster.run("kubectl", "describe", "pod", f"{name}-master-0"), "no event")  # noqa: B023
    with rowlock.Client(data_dir=cluster.data) as client:
        with pytest.warns(rowlock.ServerWarning, match=sentence):
            client.submit("j3", LOOKUP)
        body = job_request(name="j4", command=LOOKUP).body("default")
        preview = client.request("POST", "/api/v1/workloads/distributed", query={"dryRun": True}, body=body)
        (remark,) = preview["remarks"]
        assert remark.startswith(sentence)
        manifest = preview["objects"][-1]
    file = cluster.data.parent / "job.yaml"
    file.write_text(json.dumps(manifest))
    assert f"note: {remark}" in cluster.run("rowlock", "check", "-f", str(file))
    said = cluster.run("runai", "workload", "submit", "-p", "default", "-f", str(file))
    assert f"warning: {remark}" in said
