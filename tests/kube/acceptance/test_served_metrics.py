"""`/metrics` of a server over a cluster that is not ours: who may read it, and that its figures are right."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import parser
from tests.conformance.subjects import embedded_server
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.acceptance.real_plane import ACCOUNTS, RBAC, make_token, run
from tests.kube.played_nodes import played_nodes

from rowlock.kube.client import Kube
from rowlock.kube.connection import Request
from rowlock.kube.install.monitoring import metrics_role
from rowlock.kube.rate_limit import Limits

PROJECT = "figures"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The kubeconfig of a cluster with two nodes of four GPUs and without a scheduler, and flags of `rowlock up` for what else it
    lacks."""
    with ExitStack() as stack:
        if request.param == "embedded":
            flags = ("--without", "scheduler,kubelet", "--pretend-nodes", "2", "--simulated-gpus", "4")
            directory = tmp_path_factory.mktemp("other")
            yield stack.enter_context(embedded_server(directory, "rowlock.serve", *flags)), ()
            return
        plane = request.getfixturevalue("plane")
        stack.enter_context(played_nodes(plane.kubeconfig, 2, 4))
        yield plane.kubeconfig, ("--operator", "own")


@pytest.fixture(scope="module")
def kubeconfig(cluster: tuple[Path, tuple[str, ...]]) -> Path:
    return cluster[0]


@pytest.fixture(scope="module")
def served(cluster: tuple[Path, tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kubeconfig, lacking = cluster
    with lent(tmp_path_factory.mktemp("served")) as made:
        made.up("--kubeconfig", str(kubeconfig), "--scheduler", "own", *lacking, "--install-crds")
        made.run("rowlock", "project", "create", PROJECT, "--gpus", "4")
        image = ("-i", "nothing:1", "-g", "1", "-p", PROJECT)
        made.run("runai", "submit-dist", "pytorch", "small", "--workers=1", *image)
        made.run("runai", "submit-dist", "pytorch", "large", "--workers=99", *image)
        yield made


def fetch(served: Cluster, token: str = "") -> httpx.Response:
    facts = json.loads((served.data / "server.json").read_text())
    token = token or (served.data / "token").read_text().strip()
    tls = ssl.create_default_context(cafile=str(served.data / "ca.crt"))
    with httpx.Client(base_url=facts["url"], verify=tls, timeout=200) as client:
        return client.get("/metrics", headers={"Authorization": f"Bearer {token}"})


def value(served: Cluster, name: str, **labels: str) -> float:
    """The sum over all samples of this name that have these labels."""
    families = parser.text_string_to_metric_families(fetch(served).text)
    samples = [sample for family in families for sample in family.samples]
    return sum(one.value for one in samples if one.name == name and one.labels.items() >= labels.items())


def test_figures_of_the_cluster(served: Cluster) -> None:
    """As the next cycle of the scheduler has them."""
    space = f"runai-{PROJECT}"

    def figures() -> tuple[float, ...]:
        return (
            value(served, "rowlock_pods", namespace=space, phase="Running"),
            value(served, "rowlock_jobs", namespace=space),
            value(served, "rowlock_node_gpus_allocated"),
            value(served, "kai_queue_allocated_gpus", queue_name=PROJECT),
            value(served, "rowlock_pending_gangs", queue_name=PROJECT),
        )

    served.until(lambda: figures() == (2, 2, 2, 2, 1), "the small job runs, and the large one waits", 150)
    assert value(served, "kube_node_status_allocatable", resource="nvidia_com_gpu", unit="integer") == 8
    assert value(served, "rowlock_node_ready") == 2


def test_figures_of_the_server(served: Cluster) -> None:
    served.run("rowlock", "list", "-p", PROJECT)
    assert value(served, "rowlock_rest_requests_total", route="/api/v1/workloads", code="200") >= 1
    assert value(served, "rowlock_build_info") == 1 and value(served, "process_resident_memory_bytes") > 1 << 24
    assert value(served, "rowlock_cluster_silent_seconds") == 0
    assert "apiserver_storage_size_bytes" not in fetch(served).text, "the cluster's store is not ours"


def test_it_is_for_the_owner_and_for_those_whom_the_cluster_lets_read_it(served: Cluster, kubeconfig: Path) -> None:
    scraper, stranger = run(make_readers(kubeconfig))
    served.until(lambda: fetch(served, scraper).status_code == 200, "the role of the scraper is followed")
    refused = fetch(served, stranger)
    assert refused.status_code == 403 and 'cannot get path "/metrics"' in refused.json()["message"]
    assert fetch(served, "x" * 40).status_code == 401


async def make_readers(kubeconfig: Path) -> list[str]:
    """Tokens of an account with the role of `rowlock manifests --service-monitor`, and of one without any."""
    role = metrics_role()
    name = role["metadata"]["name"]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}
    binding: dict[str, Any] = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as kube:
        for path, body in ((f"{RBAC}/clusterroles", role), (f"{RBAC}/clusterrolebindings", binding)):
            await kube.connection.send(Request("POST", path, body=body))
        for account in ("scraper", "stranger"):
            await kube.connection.send(Request("POST", ACCOUNTS, body={"metadata": {"name": account}}))
        return [await make_token(kube, account) for account in ("scraper", "stranger")]
