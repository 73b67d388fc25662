"""Jobs for Kueue, Volcano and coscheduling: what `rowlock up --kubeconfig` makes where their kinds are. They themselves do not run.

The schemas hold the fields of their API that a job needs, and prune every other; coscheduling's own CRD is taken where Go has
its module.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.test_served_cluster import kubectl

from rowlock.gangs.dialects import COSCHEDULING_GROUP, LOCAL_QUEUE, VOLCANO_GROUP, VOLCANO_QUEUE
from rowlock.kinds import Kind

pytestmark = pytest.mark.real
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "format": "int32"}
OTHERS: dict[str, tuple[tuple[Kind, dict[str, Any]], ...]] = {
    "kueue": ((LOCAL_QUEUE, {"clusterQueue": TEXT}),),
    "volcano": (
        (VOLCANO_GROUP, {"minMember": NUMBER, "queue": TEXT, "priorityClassName": TEXT}),
        (VOLCANO_QUEUE, {"weight": NUMBER}),
    ),
    "coscheduling": ((COSCHEDULING_GROUP, {"minMember": NUMBER, "scheduleTimeoutSeconds": NUMBER}),),
}


def crd(kind: Kind, properties: dict[str, Any]) -> dict[str, Any]:
    spec = {"type": "object", "properties": properties}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}}
    version = {"name": kind.version, "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"kind": kind.name, "plural": kind.plural},
            "versions": [version],
        },
    }


def coscheduling_crd() -> dict[str, Any]:
    """The project's own, from Go's cache of modules, else ours."""
    said = subprocess.run("go env GOMODCACHE", shell=True, capture_output=True, text=True).stdout.strip()
    found = sorted(Path(said or "/nowhere").glob("sigs.k8s.io/scheduler-plugins@*/config/crd/bases/*_podgroups.yaml"))
    if not found:
        return crd(*OTHERS["coscheduling"][0])
    made: dict[str, Any] = yaml.safe_load(found[-1].read_text())
    return made


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    with real_cluster(tmp_path_factory.mktemp("dialects"), "--operator") as path:
        yield path


@pytest.fixture
def served(tmp_path: Path, kubeconfig: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        yield made
        for name in OTHERS:
            for kind, _ in OTHERS[name]:
                kubectl(kubeconfig, "delete", "crd", kind.resource, "--ignore-not-found")


def apply(kubeconfig: Path, tmp_path: Path, *objects: dict[str, Any]) -> None:
    (tmp_path / "made.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    kubectl(kubeconfig, "apply", "-f", str(tmp_path / "made.json"))


def install(kubeconfig: Path, tmp_path: Path, name: str) -> None:
    made = [coscheduling_crd()] if name == "coscheduling" else [crd(*row) for row in OTHERS[name]]
    apply(kubeconfig, tmp_path, *made)
    for obj in made:
        kubectl(kubeconfig, "wait", "--for=condition=Established", f"crd/{obj['metadata']['name']}", "--timeout=30s")


def get(kubeconfig: Path, *argv: str) -> Any:
    return json.loads(kubectl(kubeconfig, "get", *argv, "-n", "runai-team-a", "-o", "json"))


def start(served: Cluster, kubeconfig: Path) -> str:
    said = served.run("rowlock", "up", "-d", "--kubeconfig", str(kubeconfig), "--install-crds")
    served.run("rowlock", "project", "create", "team-a", code=None)
    return said


SUBMIT = ("runai", "submit-dist", "pytorch", "-i", "nothing:1", "--workers=2", "-p", "team-a")


def queue_object(kind: Kind, namespace: str, **spec: Any) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "team-a", **place}, "spec": spec}


def test_volcano_gets_a_pod_group_and_its_queue_must_be_there(
    served: Cluster, kubeconfig: Path, tmp_path: Path
) -> None:
    install(kubeconfig, tmp_path, "volcano")
    assert "Volcano's queues" in start(served, kubeconfig)
    assert "Volcano has no Queue 'team-a'" in served.run(*SUBMIT, "--name", "vol", code=None)
    assert get(kubeconfig, "pytorchjobs")["items"] == []
    apply(kubeconfig, tmp_path, queue_object(VOLCANO_QUEUE, "", weight=1))
    served.run(*SUBMIT, "--name", "vol")
    group = get(kubeconfig, "podgroups.scheduling.volcano.sh", "vol")
    assert group["spec"] == {"minMember": 3, "queue": "team-a"}
    served.until(lambda: len(get(kubeconfig, "pods")["items"]) == 3, "the operator makes the pods")
    for pod in get(kubeconfig, "pods")["items"]:
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "vol"
    served.run("rowlock", "delete", "vol", "-p", "team-a")
    served.until(lambda: not get(kubeconfig, "podgroups.scheduling.volcano.sh")["items"], "its gang goes with it")


def test_coscheduling_gets_a_pod_group(served: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    install(kubeconfig, tmp_path, "coscheduling")
    assert "no quota is enforced" in start(served, kubeconfig)
    served.run(*SUBMIT, "--name", "cos")
    assert get(kubeconfig, "podgroups.scheduling.x-k8s.io", "cos")["spec"]["minMember"] == 3
    served.until(lambda: len(get(kubeconfig, "pods")["items"]) == 3, "the operator makes the pods")
    for pod in get(kubeconfig, "pods")["items"]:
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "cos"
    served.run("rowlock", "delete", "cos", "-p", "team-a")
    served.until(lambda: not get(kubeconfig, "pods")["items"], "its pods are gone")


def test_kueue_gets_a_suspended_job_and_starts_it(served: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    install(kubeconfig, tmp_path, "kueue")
    assert "Kueue's queues" in start(served, kubeconfig)
    assert "Kueue has no LocalQueue 'team-a'" in served.run(*SUBMIT, "--name", "kue", code=None)
    apply(kubeconfig, tmp_path, queue_object(LOCAL_QUEUE, "runai-team-a", clusterQueue="all"))
    served.run(*SUBMIT, "--name", "kue")
    job = get(kubeconfig, "pytorchjob", "kue")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a" and job["spec"]["runPolicy"]["suspend"]
    assert "Pending" in served.run("rowlock", "list", "-p", "team-a")
    assert "waits for Kueue" in served.run("rowlock", "explain", "kue", "-p", "team-a", code=None)
    assert "Kueue starts and suspends kue" in served.run("rowlock", "resume", "kue", "-p", "team-a", code=1)
    start_it = '{"spec":{"runPolicy":{"suspend":false}}}'
    kubectl(kubeconfig, "patch", "pytorchjob", "kue", "-n", "runai-team-a", "--type=merge", "-p", start_it)
    served.until(lambda: len(get(kubeconfig, "pods")["items"]) == 3, "its pods come when Kueue lets them")
    served.run("rowlock", "delete", "kue", "-p", "team-a")
    served.until(lambda: not get(kubeconfig, "pods")["items"], "its pods are gone")


def test_a_scheduler_that_is_not_there_or_unknown_is_refused(served: Cluster, kubeconfig: Path) -> None:
    start(served, kubeconfig)
    served.run("rowlock", "down")
    asked = ("rowlock", "up", "-d", "--kubeconfig", str(kubeconfig), "--scheduler")
    for name, title in (("volcano", "Volcano"), ("kueue", "Kueue"), ("coscheduling", "the coscheduling plugin")):
        assert f"{title} is not installed" in served.run(*asked, name, code=1)
    assert "quotas are not enforced" in served.run(*asked, "kube")
