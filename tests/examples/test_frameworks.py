"""Every example trains for real, as pods of an embedded cluster, to a lower loss.

One that needs PyTorch alone and little time runs in `make test`; the others in `make test-examples`, which installs
their frameworks.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.end_to_end.cluster import BIN, REPO, Cluster, lent

EXAMPLES = REPO / "examples"
TF_MNIST = ("gcr.io/kubeflow-ci/tf-dist-mnist-test:1.0", "tf-dist-mnist")
TOGETHER = ("rowlock-examples/frameworks", "frameworks")
MPI = "frameworks/mpi-allreduce.yaml"
TRAINED = re.compile(r"trained .*: loss ([0-9.]+) to ([0-9.]+)")
heavy = pytest.mark.examples


@dataclass(frozen=True)
class Example:
    """A manifest, the image it needs, and what must be installed for it to run."""

    manifest: str
    image: tuple[str, str]
    needs: tuple[str, ...] = ("torch",)
    ranks: int = 2
    """How many lines say that somebody trained: 1 = only the chief's."""

    @property
    def path(self) -> Path:
        return EXAMPLES / self.manifest


LIGHT = (Example("frameworks/torch-elastic.yaml", TOGETHER, ("torch",), 1),)
HEAVY = (
    Example("frameworks/xgboost-tracker.yaml", TOGETHER, ("xgboost",), 1),
    Example("frameworks/torch-fsdp.yaml", TOGETHER, ("torch",), 1),
    Example("frameworks/torch-tensor-parallel.yaml", TOGETHER, ("torch",), 1),
    Example("frameworks/torch-pipeline.yaml", TOGETHER, ("torch",), 1),
    Example("frameworks/jax-data-parallel.yaml", TOGETHER, ("jax",), 1),
    Example("frameworks/tf-parameter-server.yaml", TOGETHER, ("tensorflow",), 1),
    Example("distributed-training-jobs/distributed-tensorflow-job.yaml", TF_MNIST, ("tensorflow",), 1),
    Example("tf-dist-mnist/sync.yaml", TF_MNIST, ("tensorflow",), 4),
    Example("tf-dist-mnist/in-graph.yaml", TF_MNIST, ("tensorflow",), 1),
)


def need(*names: str) -> None:
    for name in names:
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        found = shutil.which(name, path=path) if name == "mpirun" else importlib.util.find_spec(name)
        if not found:
            pytest.skip(f"{name} is not installed: `make test-examples` installs it")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("examples")) as made:
        made.env["OMP_NUM_THREADS"] = "1"
        made.up("--nodes", "2", "--simulated-gpus", "1")
        for image, directory in (TOGETHER, TF_MNIST):
            made.run("rowlock", "build", "-t", image, str(EXAMPLES / directory))
        yield made


def create(cluster: Cluster, path: Path) -> str:
    """As `kubectl create -f` does it; the job's name."""
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    plural = manifest["kind"].lower() + "s"
    cluster.api("POST", f"/apis/kubeflow.org/v1/namespaces/runai-default/{plural}", manifest)
    return str(manifest["metadata"]["name"])


def trained(cluster: Cluster, name: str, ranks: int = 1) -> str:
    """Follow the job to its end; its log. The loss that it tells must have fallen.

    The limit is longer than torchrun's exit barrier (300 s): torch 2.13 may abort a rank that has trained while its
    interpreter ends (Gloo's threads outlive `destroy_process_group` once DDP was used), its agent then starts it again
    alone, and the agents that had ended wait for it in that barrier.
    """
    log = cluster.run("rowlock", "logs", "-f", name, timeout=400)
    told = TRAINED.findall(log)
    phase = next(job["phase"] for job in cluster.json("rowlock", "list", "--json") if job["name"] == name)
    assert phase == "Completed", log[-3000:]
    assert len(told) >= ranks, log[-3000:]
    assert all(float(last) < 0.9 * float(first) for first, last in told[:1])
    cluster.run("rowlock", "delete", name, "--yes")
    return log


@pytest.mark.timeout(450)
@pytest.mark.parametrize("example", LIGHT, ids=lambda e: e.path.stem)
def test_example_trains(cluster: Cluster, example: Example) -> None:
    need(*example.needs)
    trained(cluster, create(cluster, example.path), example.ranks)


@heavy
@pytest.mark.timeout(450)
@pytest.mark.parametrize("example", HEAVY, ids=lambda e: e.path.stem)
def test_heavy_example_trains(cluster: Cluster, example: Example) -> None:
    need(*example.needs)
    trained(cluster, create(cluster, example.path), example.ranks)


@heavy
@pytest.mark.timeout(450)
def test_the_readmes_tensorflow_line_trains_on_two_workers(cluster: Cluster) -> None:
    need("tensorflow")
    image = "docker.io/YOUR-USER-NAME/distributed_training_tensorflow"
    cluster.run("rowlock", "build", "-t", image, str(EXAMPLES / "distributed_training_tensorflow"))
    line = f"runai submit-tf --name distributed-training-tf --workers=2 -g 1 -i {image} --no-master"
    said = cluster.run(*line.split())
    assert "The job 'distributed-training-tf' has been submitted successfully" in said
    log = trained(cluster, "distributed-training-tf")
    assert "[worker 1 of 2]" in log and "trained on 2 workers" in log


@heavy
@pytest.mark.timeout(450)
def test_mpi_ranks_run_in_the_workers_own_pods(cluster: Cluster) -> None:
    need("mpirun", "mpi4py", "numpy")
    log = trained(cluster, create(cluster, EXAMPLES / MPI))
    assert "on mpi-allreduce-worker-0" in log and "on mpi-allreduce-worker-1" in log


def test_every_example_of_the_directory_is_tested() -> None:
    listed = {example.manifest for example in (*LIGHT, *HEAVY)} | {MPI}
    there = {str(path.relative_to(EXAMPLES)) for path in (EXAMPLES / "frameworks").glob("*.yaml")}
    assert there <= listed
    programs = {path.name for path in (EXAMPLES / "frameworks").glob("*.py")}
    used = {
        word for path in (EXAMPLES / "frameworks").glob("*.yaml") for word in re.findall(r"\w+\.py", path.read_text())
    }
    assert programs == used


def test_the_operator_accepts_every_manifest(cluster: Cluster) -> None:
    for example in (*LIGHT, *HEAVY):
        manifest = yaml.safe_load(example.path.read_text())
        path = f"/apis/kubeflow.org/v1/namespaces/runai-default/{manifest['kind'].lower()}s?dryRun=All"
        assert cluster.api("POST", path, manifest)["metadata"]["name"]
