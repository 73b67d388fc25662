"""`rowlock doctor --kubeconfig`: each thing that a cluster can lack is a finding with a remedy, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server
from tests.end_to_end.cluster import Cluster, make

from rowlock import kinds
from rowlock.api import WRITE, Page, WriteOptions
from rowlock.errors import Forbidden, Internal, NotFound
from rowlock.gangs.dialects import BIND_REQUEST, INSTALLED
from rowlock.kinds import Kind
from rowlock.kube.doctor import ADMISSION_POLICY, POLICY_BINDING, RUNTIME_CLASS, ClusterFinding, diagnose
from rowlock.kube.install.installed_parts import DEPLOYMENT, ENDPOINT_SLICE, WEBHOOK_CONFIGURATIONS
from rowlock.kube.rights import ACCESS_REVIEW, RULES_REVIEW
from rowlock.objects import Object, timestamp
from rowlock.scheduling.volume_topology import STORAGE_CLASS

NOW = 1_800_000_000.0
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def node(*, gpus: int = 8, ready: str = "True", labels: Mapping[str, str] = {}) -> Object:
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": "n1", "labels": dict(labels)}, "status": status}


class Healthy:
    """A cluster that has everything but KAI; tests take something away."""

    def __init__(self) -> None:
        self.objects: dict[Kind, list[Object]] = {
            kinds.NODE: [node(labels={"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81559"})],
            STORAGE_CLASS: [{"metadata": {"name": "fast", "annotations": DEFAULT}, "volumeBindingMode": "Immediate"}],
        }
        releases = (release for dialect in INSTALLED for release in dialect.releases())
        self.unserved: set[Kind] = {release.proof for release in releases if release.proof}
        self.refused: set[str] = set()
        self.webhook_error = ""
        self.lease: Object = {
            "spec": {"holderIdentity": "m_1", "renewTime": timestamp(NOW - 3), "leaseDurationSeconds": 15}
        }
        self.server_time = NOW
        self.priority_classes = True
        self.created: list[tuple[Kind, bool]] = []

    async def list(self, kind: Kind, namespace: str = "", **_: Any) -> Page:
        if kind in self.unserved:
            raise NotFound("the server could not find the requested resource")
        return Page(self.objects.get(kind, []), 1, "", None)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        if kind is kinds.LEASE and self.lease:
            return self.lease
        for obj in self.objects.get(kind, ()):
            if obj["metadata"]["name"] == name:
                return obj
        if kind is kinds.PRIORITY_CLASS and self.priority_classes:
            return {}
        raise NotFound("no")

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        if kind is RULES_REVIEW:
            return {"status": {"resourceRules": []}}
        if kind is ACCESS_REVIEW:
            return {"status": {"allowed": obj["spec"]["resourceAttributes"]["verb"] not in self.refused}}
        self.created.append((kind, options.dry_run))
        if self.webhook_error:
            raise Internal(self.webhook_error)
        return {"metadata": {"creationTimestamp": timestamp(self.server_time)}}


def findings(cluster: Healthy, scheduler: str = "auto") -> dict[str, ClusterFinding]:
    found = asyncio.run(diagnose(cluster, scheduler, lambda: NOW))  # type: ignore[arg-type]
    assert len(found) == 13 and all(finding.fix for finding in found if finding.state != "ok")
    return {finding.what: finding for finding in found}


def test_a_healthy_cluster_is_well_and_nothing_is_made_there() -> None:
    cluster = Healthy()
    assert {finding.state for finding in findings(cluster, "own").values()} == {"ok"}
    assert cluster.created == [(kinds.PYTORCHJOB, True)]


def test_missing_kinds_are_bad_with_the_command_that_brings_them() -> None:
    cluster = Healthy()
    cluster.unserved |= {kinds.QUEUE, *kinds.JOBS}
    found = findings(cluster)
    assert found["kinds of jobs"].state == "bad" and "training-operator" in found["kinds of jobs"].fix
    assert found["kinds of queues"].state == "bad" and "rowlock manifests" in found["kinds of queues"].fix
    cluster.unserved = {BIND_REQUEST, kinds.JAXJOB}
    assert findings(cluster)["kinds of jobs"].state == "warn"


def test_a_webhook_that_is_down_is_heard() -> None:
    cluster = Healthy()
    cluster.webhook_error = 'failed calling webhook "validator.pytorchjob": connection refused'
    assert (found := findings(cluster)["training operator"]).state == "bad" and "kubectl get pods" in found.fix


def test_a_clock_that_differs_is_told() -> None:
    cluster = Healthy()
    cluster.server_time = NOW + 60
    assert (found := findings(cluster)["clock"]).state == "warn" and "+60 s" in found.found


def test_rights_that_lack_are_named() -> None:
    cluster = Healthy()
    cluster.refused = {"update"}
    found = findings(cluster)["rights"]
    assert (found.state, found.found) == ("warn", "no sweeps; not allowed: update leases.coordination.k8s.io")
    assert findings(cluster, "kueue")["rights"].state == "ok", "only a scheduler and sweeps update"
    assert (found := findings(cluster, "own")["rights"]).state == "bad" and "update pods/status" in found.found


@pytest.mark.parametrize(
    ("nodes", "state", "word"),
    [
        ([], "bad", "0 of 0 ready"),
        ([node(ready="Unknown")], "bad", "0 of 1 ready"),
        ([node(gpus=0)], "warn", "0 GPUs"),
        ([node()], "warn", "without labels of their GPUs: n1"),
    ],
)
def test_nodes_without_gpus_or_labels(nodes: list[Object], state: str, word: str) -> None:
    cluster = Healthy()
    cluster.objects[kinds.NODE] = nodes
    assert (found := findings(cluster)["nodes"]).state == state and word in found.found


def test_who_schedules() -> None:
    cluster = Healthy()
    assert "m_1" in findings(cluster)["scheduler"].found
    cluster.lease = {"spec": {**cluster.lease["spec"], "renewTime": timestamp(NOW - 60)}}
    assert findings(cluster)["scheduler"].state == "warn", "who led a minute ago leads no more"
    assert findings(cluster, "kai")["scheduler"].state == "bad"
    cluster.unserved = set()
    assert findings(cluster)["scheduler"].found == "KAI Scheduler"
    assert findings(cluster, "own")["scheduler"].state == "bad"


def test_kai_needs_its_runtime_class() -> None:
    cluster = Healthy()
    cluster.unserved = set()
    assert findings(cluster)["runtime class"].state == "bad"
    cluster.objects[RUNTIME_CLASS] = [{"metadata": {"name": "nvidia"}}]
    assert findings(cluster)["runtime class"].state == "ok"


def test_storage_and_priority_classes() -> None:
    cluster = Healthy()
    cluster.objects[STORAGE_CLASS][0]["volumeBindingMode"] = "WaitForFirstConsumer"
    assert findings(cluster)["storage"].state == "ok", "kube-scheduler and KAI choose nodes for volumes"
    assert findings(cluster, "own")["storage"].state == "warn"
    cluster.objects[STORAGE_CLASS], cluster.priority_classes = [], False
    found = findings(cluster)
    assert found["storage"].state == "warn" and "very-high" in found["priority classes"].found


def test_what_must_hold_queue_names_is_said() -> None:
    def project(name: str) -> Object:
        return {"metadata": {"name": f"runai-{name}", "labels": {"runai/queue": name}}}

    cluster = Healthy()
    cluster.objects[kinds.NAMESPACE] = [project("a"), {"metadata": {"name": "kube-system"}}]
    assert findings(cluster)["queue names"].state == "ok", "there is no other project"
    cluster.objects[kinds.NAMESPACE].append(project("b"))
    found = findings(cluster)["queue names"]
    assert (found.state, found.found) == ("warn", "2 projects, and no ValidatingAdmissionPolicy")
    assert "kai.scheduler/queue and runai/queue" in found.fix and "Kyverno" in found.fix
    expression = (
        "object.metadata.?labels['kai.scheduler/queue'].orValue('') == namespaceObject.metadata.labels['runai/queue']"
    )
    rules = [{"resources": ["pytorchjobs"]}, {"resources": ["pods"]}]
    spec = {"validations": [{"expression": expression}], "matchConstraints": {"resourceRules": rules}}
    cluster.objects[ADMISSION_POLICY] = [{"metadata": {"name": "queues"}, "spec": spec}]
    assert "no ValidatingAdmissionPolicy" in findings(cluster)["queue names"].found, "it is bound to nothing"
    bound: dict[str, Any] = {"policyName": "queues", "validationActions": ["Warn"]}
    cluster.objects[POLICY_BINDING] = [{"metadata": {"name": "queues"}, "spec": bound}]
    assert findings(cluster)["queue names"].state == "warn", "it only warns"
    bound["validationActions"] = ["Deny", "Audit"]
    assert findings(cluster)["queue names"].found == "2 projects, and none for podgroups"
    rules.append({"resources": ["podgroups"]})
    assert findings(cluster)["queue names"] == ClusterFinding("queue names", "ok", "held by queues")


def test_what_may_not_be_seen_is_a_finding() -> None:
    class Blind(Healthy):
        async def list(self, kind: Kind, namespace: str = "", **_: Any) -> Page:
            if kind is STORAGE_CLASS:
                raise Forbidden("storageclasses is forbidden")
            return await super().list(kind, namespace)

    assert findings(Blind())["storage"].found == "storageclasses is forbidden"


def command_line(tmp_path: Path) -> Cluster:
    return make(tmp_path / "data", tmp_path)


def test_the_command_shows_the_findings_of_a_cluster(tmp_path: Path) -> None:
    line = command_line(tmp_path)
    flags = ("--without", "scheduler,kubelet", "--pretend-nodes", "1", "--simulated-gpus", "2")
    (tmp_path / "cluster").mkdir()
    with embedded_server(tmp_path / "cluster", "rowlock.serve", *flags) as kubeconfig:
        shown = line.run("rowlock", "doctor", "--kubeconfig", str(kubeconfig))
        assert "1 of 1 ready, 2 GPUs" in shown and "no gang scheduler" in shown and "--scheduler own" in shown
        found = line.json("rowlock", "doctor", "--kubeconfig", str(kubeconfig), "--json")
        assert {"what", "state", "found", "fix"} == set(found[0])


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    nowhere = tmp_path / "config"
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]
    users = [{"name": "u", "user": {"token": "t"}}]
    nowhere.write_text(json.dumps({"current-context": "c", "contexts": contexts, "clusters": clusters, "users": users}))
    line = command_line(tmp_path)
    refusal = line.run("rowlock", "doctor", "--kubeconfig", str(nowhere), code=1)
    assert f"the cluster of {nowhere} cannot be used" in refusal and "Traceback" not in refusal
    assert "--context needs --kubeconfig" in line.run("rowlock", "doctor", "--context", "c", code=2)


def kai_deployment(image: str) -> Object:
    template = {"spec": {"containers": [{"name": "scheduler", "image": image}]}}
    return {"metadata": {"name": "kai-scheduler-default", "namespace": "kai-scheduler"}, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("image", "state"),
    [
        ("ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.14.3", "warn"),
        ("ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17.0", "ok"),
        ("ghcr.io/kai-scheduler/kai-scheduler/scheduler@sha256:00", "warn"),
    ],
)
def test_a_kai_that_panics_on_elastic_jobs_is_named(image: str, state: str) -> None:
    cluster = Healthy()
    cluster.objects[DEPLOYMENT] = [kai_deployment(image)]
    found = findings(cluster)["version of KAI"]
    assert found.state == state and ("1664" in found.fix) == (state == "warn")


def webhook(service: str, policy: str = "Fail", group: str = "kubeflow.org") -> Object:
    client = {"service": {"namespace": "kubeflow", "name": service}}
    rule = {"apiGroups": [group], "resources": ["pytorchjobs"], "operations": ["CREATE"]}
    hook = {"name": f"{service}.example", "failurePolicy": policy, "clientConfig": client, "rules": [rule]}
    return {"metadata": {"name": service}, "webhooks": [hook]}


def test_a_webhook_without_a_server_is_bad() -> None:
    cluster = Healthy()
    cluster.objects[WEBHOOK_CONFIGURATIONS[1]] = [
        webhook("operator"),
        webhook("lax", "Ignore"),
        webhook("other", group="x"),
    ]
    found = findings(cluster)["webhooks"]
    assert found.state == "bad" and "operator.example (kubeflow/operator)" in found.found
    assert "lax" not in found.found and "other" not in found.found
    selector = {"spec": {"selector": {"app": "operator"}}}
    cluster.objects[kinds.SERVICE] = [{"metadata": {"name": "operator", "namespace": "kubeflow"}, **selector}]
    assert findings(cluster)["webhooks"].state == "bad", "the Service has no pods"
    owner = {"labels": {"kubernetes.io/service-name": "operator"}, "name": "operator-1"}
    cluster.objects[ENDPOINT_SLICE] = [{"metadata": owner, "endpoints": [{"conditions": {"ready": False}}]}]
    assert findings(cluster)["webhooks"].state == "bad", "no pod is ready"
    cluster.objects[ENDPOINT_SLICE] = [{"metadata": owner, "endpoints": [{"conditions": {"ready": True}}]}]
    assert findings(cluster)["webhooks"].state == "ok"


def test_queues_and_pods_that_are_left_behind_are_named() -> None:
    cluster = Healthy()
    project = {"metadata": {"name": "runai-a", "labels": {"runai/queue": "a"}}}
    queues = [{"metadata": {"name": called, "labels": {"rowlock.dev/project": called}}} for called in ("a", "gone")]
    others: Object = {"metadata": {"name": "of-others"}}
    ended = {"metadata": {"uid": "j"}, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    cluster.objects |= {kinds.NAMESPACE: [project], kinds.QUEUE: [*queues, others], kinds.PYTORCHJOB: [ended]}

    def pod(called: str, phase: str, owner: str = "j", **spec: Any) -> Object:
        limits = {"limits": {"nvidia.com/gpu": "2"}}
        metadata = {"name": called, "namespace": "runai-a", "ownerReferences": [{"uid": owner, "controller": True}]}
        return {
            "metadata": metadata,
            "spec": {"containers": [{"name": "c", "resources": limits}], **spec},
            "status": {"phase": phase},
        }

    held = [pod("late", "Pending", nodeName="n1"), pod("ended", "Succeeded", nodeName="n1"), pod("waits", "Pending")]
    cluster.objects[kinds.POD] = [*held, pod("of-others", "Running", owner="k", nodeName="n1")]
    found = findings(cluster)["leftovers"]
    assert found.state == "warn" and found.found == (
        "queues of projects that have no namespace: gone; 1 pods of jobs that have ended run on and hold 2 GPUs: runai-a/late"
    )
    assert "kubectl delete queues.scheduling.run.ai gone" in found.fix and "cleanPodPolicy" in found.fix
