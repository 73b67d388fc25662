"""Two servers over one cluster: any of them answers, whoever is known to the cluster is known to both, and one of them schedules."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "embedded":
            flags = ("--without", "scheduler,kubelet", "--pretend-nodes", "1", "--simulated-gpus", "4")
            yield stack.enter_context(embedded_server(directory, "rowlock.serve", *flags))
            return
        if missing := real_cluster_missing():
            pytest.skip(missing)
        yield stack.enter_context(real_cluster(directory, "--crds"))


@pytest.fixture(scope="module")
def replicas(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        made = [stack.enter_context(lent(tmp_path_factory.mktemp(name))) for name in ("first", "second")]
        for replica in made:
            replica.up("--kubeconfig", str(kubeconfig), "--scheduler", "own", "--install-crds")
        yield made


def names(replica: Cluster) -> set[str]:
    return {w["name"] for w in replica.json("rowlock", "list", "-p", "team-a", "--json")}


def test_what_one_made_the_other_shows_and_ends(replicas: list[Cluster]) -> None:
    first, second = replicas
    first.run("rowlock", "project", "create", "team-a")
    second.until(lambda: "team-a" in second.run("rowlock", "project", "list"), "the project is known to both")
    for number, replica in enumerate(replicas):
        replica.run("runai", "submit-dist", "pytorch", f"job-{number}", "-i", "x", "--workers=1", "-p", "team-a")
    for replica in replicas:
        replica.until(lambda r=replica: names(r) == {"job-0", "job-1"}, "both jobs are known to both")  # type: ignore[misc]
    assert "job-0" in second.run("rowlock", "describe", "job-0", "-p", "team-a")
    second.run("rowlock", "delete", "job-0", "-p", "team-a")
    first.until(lambda: names(first) == {"job-1"}, "what the second has deleted is gone at the first")
    refusal = first.run("runai", "submit-dist", "pytorch", "job-1", "-i", "x", "-p", "team-a", code=None)
    assert "job-1" in refusal and names(first) == {"job-1"}, "nothing is made twice"


def test_a_token_of_the_cluster_is_good_at_both(replicas: list[Cluster], kubeconfig: Path) -> None:
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    for replica in replicas:
        facts = json.loads((replica.data / "server.json").read_text())
        tls = ssl.create_default_context(cafile=str(replica.data / "ca.crt"))
        with httpx.Client(base_url=facts["url"], verify=tls, timeout=200) as client:
            good = client.get("/api/v1/workloads", headers={"Authorization": f"Bearer {token}"})
            assert good.status_code == 200, good.text
            assert client.get("/api/v1/workloads", headers={"Authorization": "Bearer no"}).status_code == 401


def test_one_of_them_schedules_and_the_other_says_who(replicas: list[Cluster]) -> None:
    def answers() -> list[str]:
        return [replica.run("rowlock", "scheduler", "snapshot", code=None) for replica in replicas]

    replicas[0].until(lambda: sum("does not schedule" in answer for answer in answers()) == 1, "one leads")
    leader, other = sorted(
        replicas, key=lambda r: "does not schedule" in r.run("rowlock", "scheduler", "snapshot", code=None)
    )
    assert f"_{leader.pid}_" in other.run("rowlock", "scheduler", "snapshot", code=1), "it names the process that leads"
