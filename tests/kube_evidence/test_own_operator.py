"""Evictions where rowlock's operators run the jobs of a real node: they know an evicted pod from one that failed, whatever its policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kube_evidence.test_real_node import LENDER, conditions, evict_and_resume, job_of, real_node, run_on_half

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("own")
    with real_node(directory) as kubeconfig, lent(directory / "served") as made:
        own = ("--scheduler", "own", "--operator", "own", "--install-crds")
        made.up("--kubeconfig", str(kubeconfig), *own)
        yield made


def policies(served: Cluster, name: str) -> set[str]:
    replicas = job_of(served, LENDER, name)["spec"]["pytorchReplicaSpecs"].values()
    return {replica["restartPolicy"] for replica in replicas}


@pytest.mark.parametrize("code", [1, 143])
def test_an_evicted_job_with_never_begins_again_and_succeeds(served: Cluster, code: int) -> None:
    evict_and_resume(served, code)


def test_a_program_that_fails_runs_once(served: Cluster) -> None:
    served.run("rowlock", "project", "create", LENDER, code=None)
    assert "warning" not in run_on_half(served, LENDER, "fails", "echo began; exit 7")
    served.until(lambda: conditions(served, LENDER, "fails").get("Failed") == "True", "the job is Failed", 60)
    assert policies(served, "fails") == {"Never"}
    assert served.run("rowlock", "logs", "fails", "-p", LENDER, "--rank", "0").count("began") == 1
