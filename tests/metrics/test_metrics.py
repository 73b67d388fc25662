"""`/metrics` of a live server: who may read it, that Prometheus understands it, and that its figures are right."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import openmetrics, parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from tests.end_to_end.cluster import REPO, Cluster, lent

JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs"
VIEWER, SCRAPER, NOBODY = ("v" * 40, "s" * 40, "n" * 40)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of eight GPUs that run nothing; a job of two pods that runs, and one of forty that cannot."""
    home = tmp_path_factory.mktemp("metrics")
    users = home / "users.csv"
    users.write_text(
        f"{VIEWER},bob,2,rowlock:viewers\n{SCRAPER},prometheus,3,system:monitoring\n{NOBODY},eve,4,strangers\n"
    )
    users.chmod(0o600)
    with lent(home) as made:
        made.up("--pretend-nodes", "2", "--simulated-gpus", "8", "--without", "kubelet", "--users", str(users))
        for name, workers in (("small", 1), ("large", 39)):
            made.api("POST", JOBS, job(name, workers))
        made.until(lambda: has_settled(made), lambda: str(scrape(made)))
        yield made


def has_settled(cluster: Cluster) -> bool:
    """Whether the small job runs, the large one waits with all its pods, and the scheduler has counted both."""
    told, found = phases(cluster), scrape(cluster)
    counts = {
        "rowlock_queue_requested_gpus": 42,
        "kai_queue_allocated_gpus": 2,
        "rowlock_node_gpus_allocated": 2,
        "scheduler_pending_pods": 40,
        "rowlock_pending_gangs": 1,
    }
    is_counted = all(value(found, name) >= count for name, count in counts.items())
    return is_counted and all(told.get(("PyTorchJob", phase)) == 1 for phase in ("Running", "Pending"))


def job(name: str, workers: int) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "host", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    replicas = {"restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    roles = {"Master": {"replicas": 1, **replicas}, "Worker": {"replicas": workers, **replicas}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def fetch(cluster: Cluster, token: str = "", **headers: str) -> tuple[int, str, str]:
    """The code, the media type and the text of `/metrics`. Without `token` it is the owner's."""
    url = json.loads((cluster.data / "server.json").read_text())["url"]
    token = token or (cluster.data / "token").read_text().strip()
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": f"Bearer {token}", **headers})
    tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
    try:
        with urllib.request.urlopen(request, context=tls, timeout=200) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def scrape(cluster: Cluster) -> Samples:
    text = fetch(cluster)[2]
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """The sum over all samples of this name that have these labels."""
    return sum(v for (n, has), v in samples.items() if n == name and has >= labels.items())


def phases(cluster: Cluster) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for (name, labels), count in scrape(cluster).items():
        if name == "rowlock_jobs":
            told = dict(labels)
            found[told["kind"], told["phase"]] = count
    return found


def test_it_is_for_those_who_may_read_the_cluster_or_monitor_it(cluster: Cluster) -> None:
    assert [fetch(cluster, token)[0] for token in ("", VIEWER, SCRAPER)] == [200, 200, 200]
    code, _, text = fetch(cluster, NOBODY)
    assert code == 403 and json.loads(text)["message"] == 'forbidden: User "eve" cannot get path "/metrics"'
    assert fetch(cluster, "x" * 40)[0] == 401


@pytest.mark.parametrize(("token", "allowed"), [(SCRAPER, True), (NOBODY, False)])
def test_can_i_says_the_same(cluster: Cluster, token: str, *, allowed: bool) -> None:
    url = json.loads((cluster.data / "server.json").read_text())["url"]
    spec = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    request = urllib.request.Request(
        f"{url}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
    with urllib.request.urlopen(request, context=tls, timeout=200) as answer:
        assert json.load(answer)["status"]["allowed"] is allowed


def test_openmetrics_is_spoken_to_those_who_ask_for_it(cluster: Cluster) -> None:
    assert fetch(cluster)[1].startswith("text/plain; version=")
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    code, media, text = fetch(cluster, Accept=accept)
    assert code == 200 and media.startswith(openmetrics.exposition.CONTENT_TYPE_LATEST.partition(";")[0])
    names = {f.name for f in openmetrics_parser.text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert {"apiserver_request", "rowlock_jobs", "process_resident_memory_bytes"} <= names


def test_figures_of_the_cluster(cluster: Cluster) -> None:
    samples = scrape(cluster)
    assert value(samples, "rowlock_jobs", kind="PyTorchJob", namespace="runai-default") == 2
    assert value(samples, "rowlock_jobs", phase="Running") == value(samples, "rowlock_jobs", phase="Pending") == 1
    assert (
        value(samples, "rowlock_pods", phase="Running") == 2 and value(samples, "rowlock_pods", phase="Pending") == 40
    )
    assert value(samples, "kube_node_status_allocatable", resource="nvidia_com_gpu", unit="integer") == 16
    assert value(samples, "rowlock_node_gpus_allocated") == 2 and value(samples, "rowlock_node_ready") == 2
    assert value(samples, "kai_queue_allocated_gpus", queue_name="default") == 2
    assert value(samples, "rowlock_queue_requested_gpus", queue_name="default") == 42
    assert value(samples, "kai_queue_fair_share_gpu", queue_name="default") > 0
    assert value(samples, "rowlock_pending_gangs", queue_name="default") == 1
    assert value(samples, "scheduler_pending_pods", queue="default") == 40
    assert value(samples, "rowlock_scheduler_cycles_total") >= 1


def test_running_jobs_have_the_names_of_dstack(cluster: Cluster) -> None:
    samples = scrape(cluster)
    labels = {"rowlock_project_name": "default", "rowlock_run_name": "small"}
    assert value(samples, "rowlock_job_gpu_count", **labels) == 2
    assert value(samples, "rowlock_job_duration_seconds_total", **labels) >= 0
    assert not value(samples, "rowlock_job_gpu_count", rowlock_run_name="large"), "it waits"
    assert not [name for name, _ in samples if name == "rowlock_job_gpu_usage_ratio"], "simulated GPUs do nothing"


def test_figures_of_the_server(cluster: Cluster) -> None:
    samples = scrape(cluster)
    labels = {"resource": "pytorchjobs", "group": "kubeflow.org", "version": "v1", "scope": "namespace"}
    assert value(samples, "apiserver_request_total", verb="CREATE", code="201", **labels) == 2
    assert value(samples, "apiserver_request_duration_seconds_count", verb="CREATE", **labels) == 2
    assert value(samples, "apiserver_request_duration_seconds_bucket", verb="CREATE", le="+Inf", **labels) == 2
    assert value(samples, "apiserver_resource_objects", group="", resource="pods") == 42
    assert value(samples, "controller_runtime_reconcile_total", controller="scheduler") >= 1
    assert 0 < value(samples, "process_resident_memory_bytes") and 0 < value(samples, "rowlock_store_revision")
    assert 0 < value(samples, "apiserver_storage_size_bytes") and 0 < value(samples, "rowlock_store_commits_total")
    cluster.run("rowlock", "list")
    assert value(scrape(cluster), "rowlock_rest_requests_total", route="/api/v1/workloads", code="200") >= 1


def test_a_client_cannot_make_series_without_end(cluster: Cluster) -> None:
    def series() -> set[Any]:
        return {key for key in scrape(cluster) if key[0] == "apiserver_request_total"}

    url = json.loads((cluster.data / "server.json").read_text())["url"]
    tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
    for number in range(20):
        request = urllib.request.Request(f"{url}/apis/group{number}/v{number}/things{number}/x", method="GET")
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, context=tls, timeout=200)
        refusal.value.close()
    seen = {dict(labels)["resource"] for _, labels in series()}
    assert not any("things" in resource for resource in seen) and len(series()) < 40


def test_the_dashboard_and_the_page_name_what_there_is(cluster: Cluster) -> None:
    """And the page leaves nothing of ours out."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)", fetch(cluster)[2], re.MULTILINE))
    ends = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
    told = {name + end for name, kind in types.items() for end in ("", *ends.get(kind, ()))}
    ours = re.compile(
        r"\b(?:rowlock|kai|apiserver|kube_node|scheduler_pending|controller_runtime|process)_[a-z0-9_]+\b"
    )
    dashboard = json.loads((REPO / "docs" / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    page = (REPO / "docs" / "metrics.md").read_text().partition("## Over a real cluster")[0]
    for place, names in (("dashboard", ours.findall(" ".join(expressions))), ("page", ours.findall(page))):
        assert names, f"the {place} names no figure"
        for name in names:
            assert name in told, f"the {place} names {name}, which nobody tells"
    missing = {name for name in types if ours.fullmatch(name) and not name.startswith("process_")} - {
        *ours.findall(page)
    }
    assert not missing, "the page leaves them out"
