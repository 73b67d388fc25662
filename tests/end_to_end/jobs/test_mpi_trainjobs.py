"""TrainJobs of the MPI runtimes on a machine without sshd: the launcher runs programs in the nodes. No mpirun is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

IMAGE = "ghcr.io/kubeflow/trainer/deepspeed-runtime"
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/runai-default/trainjobs"
PODS = "/api/v1/namespaces/runai-default/pods"
NODES = f"{PODS}?labelSelector=jobset.sigs.k8s.io/replicatedjob-name=node"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("mpi")) as made:
        made.up("--nodes", "2")
        made.run("rowlock", "image", "add", IMAGE, "--host")
        yield made


def mpi_job(name: str, script: str, nodes: int = 3) -> dict[str, Any]:
    """The programs of the runtime are user 1000's; here they are those of the user who runs the tests."""
    security = {"containers": [{"name": "node", "securityContext": {"runAsUser": os.getuid()}}]}
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": security}}}} for job in ("node", "launcher")]
    patch = {"manager": "example.com/test", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    trainer = {"numNodes": nodes, "command": ["sh", "-c", script]}
    spec = {"runtimeRef": {"name": "deepspeed-distributed"}, "trainer": trainer, "runtimePatches": [patch]}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def phase(machine: Cluster, name: str) -> str:
    return str(next(row["phase"] for row in machine.json("rowlock", "list", "--json") if row["name"] == name))


def test_a_launcher_runs_programs_in_its_nodes_and_they_end_with_it(machine: Cluster) -> None:
    hosts = "grep -v launcher $OMPI_MCA_orte_default_hostfile | cut -d' ' -f1"
    script = f"set -e; for host in $({hosts}); do ssh -x $host 'echo on $(hostname)'; done"
    machine.api("POST", JOBS, mpi_job("hosts", script))
    machine.until(lambda: phase(machine, "hosts") == "Completed", lambda: machine.run("rowlock", "why", "hosts"), 180)
    assert machine.run("rowlock", "logs", "hosts") == "[launcher-0] on hosts-node-0-0\n[launcher-0] on hosts-node-0-1\n"
    machine.until(lambda: not machine.api("GET", NODES)["items"], "the nodes to go", 120)


def test_a_launcher_that_fails_is_the_reason_and_no_node_is(machine: Cluster) -> None:
    machine.api("POST", JOBS, mpi_job("fails", "ssh -x fails-node-0-0.fails 'echo no rows >&2; exit 9'", nodes=2))
    machine.until(lambda: "exit code 9" in machine.run("rowlock", "why", "fails"), "the failure to be told", 180)
    told = machine.run("rowlock", "why", "fails")
    assert told.startswith("launcher-0 (pod fails-launcher-0-0-")
    assert "the last line of its log: no rows." in told
    assert "server.py" not in told
    machine.run("rowlock", "delete", "fails", "--yes")


def test_a_node_that_is_lost_fails_its_launcher_and_comes_back(machine: Cluster) -> None:
    """The launcher's ssh ends with 255 and a sentence; started again, it waits for the node's next pod."""
    script = "test $ROWLOCK_RESTART_COUNT = 0 || exec ssh -x lost-node-0-0.lost echo again; exec ssh -x lost-node-0-0.lost 'echo begun; exec sleep 1000'"
    machine.api("POST", JOBS, mpi_job("lost", script, nodes=2))
    machine.until(lambda: "begun" in machine.run("rowlock", "logs", "lost", code=None), "the command to begin", 180)
    (node,) = machine.api("GET", f"{NODES},jobset.sigs.k8s.io/jobset-name=lost")["items"]
    machine.api("DELETE", f"{PODS}/{node['metadata']['name']}?gracePeriodSeconds=0")
    machine.until(lambda: phase(machine, "lost") == "Completed", lambda: machine.run("rowlock", "why", "lost"), 180)
    assert "ended before the command did" in machine.run("rowlock", "logs", "lost", "--previous")
    assert "again" in machine.run("rowlock", "logs", "lost")
