"""Each runtime that Kubeflow Trainer ships, with two nodes and its own framework, as far as that runs on a machine without GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import REPO, Cluster, lent
from tests.examples.test_frameworks import need

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/runai-default/trainjobs"
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
PROGRAMS = REPO / "examples" / "frameworks"
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TRAINED = re.compile(r"trained on 2 (?:ranks|processes): loss ([0-9.]+) to ([0-9.]+)")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("runtimes")) as made:
        made.up("--nodes", "2")
        for runtime in made.api("GET", RUNTIMES)["items"]:
            for image in set(images_of(runtime["spec"]["template"]["spec"]["replicatedJobs"])):
                made.run("rowlock", "image", "add", image, "--host")
        yield made


def images_of(jobs: list[dict[str, Any]]) -> Iterator[str]:
    for job in jobs:
        for container in job["template"]["spec"]["template"]["spec"]["containers"]:
            yield container["image"]


def train_job(name: str, runtime: str, *command: str, **trainer: Any) -> dict[str, Any]:
    """Of two nodes. Programs of MPI runtimes are user 1000's; here they are those of the user who runs the tests."""
    env = [{"name": key, "value": value} for key, value in {"OMP_NUM_THREADS": "1", **trainer.pop("env", {})}.items()]
    spec: dict[str, Any] = {
        "runtimeRef": {"name": runtime},
        "trainer": {"numNodes": 2, "command": list(command), "env": env, **trainer},
    }
    if runtime in ("deepspeed-distributed", "mlx-distributed"):
        security = {"containers": [{"name": "node", "securityContext": {"runAsUser": os.getuid()}}]}
        jobs = [{"name": job, "template": {"spec": {"template": {"spec": security}}}} for job in ("node", "launcher")]
        patch = {"template": {"spec": {"replicatedJobs": jobs}}}
        spec["runtimePatches"] = [{"manager": "example.com/test", "trainingRuntimeSpec": patch}]
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def completed(cluster: Cluster, job: dict[str, Any]) -> str:
    """Its log, when it has completed."""
    name = job["metadata"]["name"]
    cluster.api("POST", JOBS, job)
    cluster.until(
        lambda: phase(cluster, name) in ("Completed", "Failed"), lambda: cluster.run("rowlock", "why", name), 300
    )
    log = cluster.run("rowlock", "logs", name)
    assert phase(cluster, name) == "Completed", cluster.run("rowlock", "why", name) + log[-3000:]
    cluster.run("rowlock", "delete", name, "--yes")
    return log


def phase(cluster: Cluster, name: str) -> str:
    return str(next(row["phase"] for row in cluster.json("rowlock", "list", "--json") if row["name"] == name))


def assert_loss_fell(log: str) -> None:
    told = TRAINED.search(log)
    assert told is not None, log[-3000:]
    assert float(told[2]) < 0.9 * float(told[1])


@pytest.mark.examples
@pytest.mark.timeout(450)
@pytest.mark.parametrize("runtime", ["deepspeed-distributed", "mlx-distributed"])
def test_mpirun_starts_a_rank_on_each_node(cluster: Cluster, runtime: str) -> None:
    need("mpi4py", "mpirun")
    program = str(PROGRAMS / "mpi_allreduce.py")
    log = completed(cluster, train_job(f"mpi-{runtime[:3]}", runtime, "mpirun", "-n", "2", "python", program, env=ROOT))
    assert_loss_fell(log)
    assert len(set(re.findall(r"\[rank \d of 2\] on (\S+)", log))) == 2


@pytest.mark.examples
@pytest.mark.timeout(450)
def test_mpirun_runs_any_program_in_every_slot(cluster: Cluster) -> None:
    need("mpirun")
    log = completed(
        cluster, train_job("names", "deepspeed-distributed", "mpirun", "hostname", env=ROOT, numProcPerNode=2)
    )
    names = ["names-launcher-0-0", "names-node-0-0"]
    # whole lines end so; mpirun's own warnings begin with a name and a pid
    assert sorted(re.findall(r"(names-\S+-0-0)\r?$", log, re.MULTILINE)) == [name for name in names for _ in range(2)]


@pytest.mark.examples
@pytest.mark.timeout(450)
def test_a_rank_of_mpi_that_fails_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """It has failed on the node, and what it wrote is in the launcher's log."""
    need("mpi4py", "mpirun")
    program = tmp_path / "divides.py"
    program.write_text("from mpi4py import MPI\nMPI.COMM_WORLD.rank == 1 and 1 / 0\nMPI.COMM_WORLD.barrier()\n")
    job = train_job(
        "divides", "deepspeed-distributed", "mpirun", "-n", "2", "python", "-m", "mpi4py", str(program), env=ROOT
    )
    cluster.api("POST", JOBS, job)
    cluster.until(
        lambda: "ZeroDivisionError" in cluster.run("rowlock", "why", "divides"), "the reason to be told", 300, every=1
    )
    told = cluster.run("rowlock", "why", "divides")
    assert "server.py" not in told
    assert "node-0 is at" not in told
    cluster.run("rowlock", "delete", "divides", "--yes")


def adapted(tmp_path: Path, program: str, *changes: tuple[str, str]) -> str:
    """An example that the training operator's variables start, as Trainer's start it: its path."""
    text = (PROGRAMS / program).read_text()
    for pattern, better in changes:
        text, count = re.subn(pattern, better, text, flags=re.DOTALL)
        assert count, f"{program} has no {pattern} any more"
    path = tmp_path / program
    path.write_text(text)
    return str(path)


@pytest.mark.examples
@pytest.mark.timeout(450)
def test_torchrun_trains_on_two_nodes_of_two_processes(cluster: Cluster) -> None:
    need("torch")
    program = str(PROGRAMS / "torch_fsdp.py")
    log = completed(cluster, train_job("fsdp", "torch-distributed", "torchrun", program, numProcPerNode=2))
    assert sorted(re.findall(r"\[rank (\d) of 4\] holds", log)) == ["0", "1", "2", "3"]
    assert "trained on 4 ranks: loss" in log


JAX_CALL = r"jax\.distributed\.initialize\(.*?\n\)"
JAX_NUMBERS = 'num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])'  # as docs/trainer.md has it


@pytest.mark.examples
@pytest.mark.timeout(450)
def test_jax_is_told_its_number(cluster: Cluster, tmp_path: Path) -> None:
    need("jax")
    program = adapted(tmp_path, "jax_data_parallel.py", (JAX_CALL, f"jax.distributed.initialize({JAX_NUMBERS})"))
    assert_loss_fell(completed(cluster, train_job("jax", "jax-distributed", "python", program)))


@pytest.mark.examples
@pytest.mark.timeout(450)
def test_jax_that_is_told_nothing_is_told_what_to_do(cluster: Cluster, tmp_path: Path) -> None:
    need("jax")
    program = adapted(tmp_path, "jax_data_parallel.py", (JAX_CALL, "jax.distributed.initialize()"))
    cluster.api("POST", JOBS, train_job("untold", "jax-distributed", "python", program))
    cluster.until(
        lambda: 'pass num_processes=int(os.environ["JAX_NUM_PROCESSES"])' in cluster.run("rowlock", "why", "untold"),
        lambda: cluster.run("rowlock", "why", "untold"),
        300,
        every=1,
    )
    cluster.run("rowlock", "delete", "untold", "--yes")


@pytest.mark.examples
@pytest.mark.timeout(450)
def test_xgboost_finds_its_tracker(cluster: Cluster, tmp_path: Path) -> None:
    need("xgboost")
    names = {
        "RANK": "DMLC_TASK_ID", "WORLD_SIZE": "DMLC_NUM_WORKER", "MASTER_ADDR": "DMLC_TRACKER_URI",
        "MASTER_PORT": "DMLC_TRACKER_PORT",
    }  # fmt: skip
    changes = [(f'environ\\["{theirs}"\\]', f'environ["{ours}"]') for theirs, ours in names.items()]
    program = adapted(tmp_path, "xgboost_tracker.py", *changes)
    assert_loss_fell(completed(cluster, train_job("xgboost", "xgboost-distributed", "python", program)))
