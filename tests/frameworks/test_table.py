"""The table of docs/frameworks.md, "which variables a framework reads", held against the frameworks themselves (`make frameworks`).

Two processes stand for two pods. They get the variables of Kubeflow's operator, or torchrun's beside them, and print who they believe to be.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN, REPO

pytestmark = [pytest.mark.examples, pytest.mark.timeout(600)]
PAGE = REPO / "docs" / "frameworks.md"
ALONE, GROUP = r"rank 0 of 1\b", r"rank {rank} of 2\b"
END = 240
"""Seconds within which both have ended, on a machine that others keep busy."""


@dataclass(frozen=True)
class Row:
    """`name` stands in the table. `operator`, `torchrun`: what each process prints with these variables, as a pattern with its `{rank}`;
    "" = not tried, for it would wait. `install`: what is fetched for it, where it is not among the frameworks of `make test-examples`."""

    name: str
    module: str
    program: str
    operator: str
    torchrun: str = ""
    install: str = ""


FABRIC = """
import lightning
fabric = lightning.Fabric(accelerator="cpu", {how})
fabric.launch()
print("rank", fabric.global_rank, "of", fabric.world_size)
"""
METRIC = """
import os, torch, torchmetrics
metric = torchmetrics.SumMetric()
metric.update(torch.tensor(1.0 + int(os.environ["RANK"])))
print("sum", metric.compute().item())
"""
ACCELERATE = """
import accelerate
state = accelerate.Accelerator(cpu=True)
print("rank", state.process_index, "of", state.num_processes)
"""
MPI = "from mpi4py import MPI\nprint('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size)"
JAX = "import jax\njax.distributed.initialize()"
KERAS = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import jax, keras
keras.distribution.DataParallel()
print("rank", jax.process_index(), "of", jax.process_count())
"""
TENSORFLOW = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("rank 0 of", strategy.num_replicas_in_sync)
"""
IGNITE = """
import ignite.distributed as idist
with idist.Parallel(backend="gloo") as parallel:
    parallel.run(lambda local: print("rank", idist.get_rank(), "of", idist.get_world_size()))
"""
WEBDATASET = """
import webdataset
print("data", list(webdataset.split_by_node(range(6))))
"""
TRANSFORMERS = """
import transformers
arguments = transformers.TrainingArguments(use_cpu=True, output_dir="/tmp")
print("rank", arguments.process_index, "of", arguments.world_size)
"""
ROWS = (
    Row("Lightning and Fabric 2.6.6, defaults", "lightning", FABRIC.format(how=""), ALONE, ALONE),
    Row("Lightning and Fabric, `num_nodes=2`", "lightning", FABRIC.format(how="num_nodes=2, strategy='ddp'"), "", GROUP),
    Row("torchmetrics 1.9.0", "torchmetrics", METRIC, r"sum {rank_plus_one}\.0", r"sum {rank_plus_one}\.0"),
    Row("accelerate 1.15.0", "accelerate", ACCELERATE, GROUP, GROUP),
    Row("accelerate 1.15.0", "transformers", TRANSFORMERS, GROUP, GROUP),
    Row("mpi4py 4.1.2", "mpi4py", MPI, ALONE, ALONE),
    Row("JAX 0.10.2", "jax", JAX, r"ValueError: coordinator_address", r"ValueError: coordinator_address"),
    Row("Keras 3.15.1 on JAX", "keras", KERAS, ALONE, ALONE),
    Row("TensorFlow 2.21", "tensorflow", TENSORFLOW, ALONE, ALONE),
    Row("pytorch-ignite 0.5.5", "ignite", IGNITE, r"RuntimeError: .*LOCAL_RANK", GROUP, "pytorch-ignite==0.5.5"),
    Row("webdataset 1.0.2", "webdataset", WEBDATASET, r"data {odd_or_even}", r"data {odd_or_even}", "webdataset==1.0.2 braceexpand==0.1.7"),
)  # fmt: skip


def variables(rank: int, port: int, torchrun: bool) -> dict[str, str]:
    base = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    operator = {"PET_NNODES": "2", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "auto"}
    launched = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": "2"}
    launched |= {"ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    return base | (launched if torchrun else operator)


def run_both(program: str, torchrun: bool, paths: Mapping[str, str]) -> list[str]:
    """What each of two processes wrote."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1", **paths}
    made = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=env | variables(rank, port, torchrun),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        return [each.communicate(timeout=END)[0] for each in made]
    finally:
        for each in made:
            each.kill()
            each.wait()


def fetch(row: Row, place: Path) -> dict[str, str]:
    """Where Python finds it."""
    if not row.install:
        assert importlib.util.find_spec(row.module) is not None, (
            f"{row.module} is not installed: `make frameworks` installs it"
        )
        return {}
    command = [str(BIN / "uv"), "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    subprocess.run([*command, "--target", str(place), *row.install.split()], check=True, timeout=END)
    return {"PYTHONPATH": str(place)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.module}: {row.name}")
def test_a_row_of_the_table_is_right(row: Row, tmp_path: Path) -> None:
    assert f"| {row.name}" in PAGE.read_text(), "the table has this row"
    paths = fetch(row, tmp_path)
    for torchrun, pattern in ((False, row.operator), (True, row.torchrun)):
        for rank, said in enumerate(run_both(row.program, torchrun, paths) if pattern else ()):
            own = {
                "rank": rank,
                "rank_plus_one": rank + 1,
                "odd_or_even": re.escape(str([n for n in range(6) if n % 2 == rank])),
            }
            assert re.search(pattern.format(**own), said), (
                f"{'torchrun' if torchrun else 'operator'}, rank {rank}: {said[-2000:]}"
            )
