"""How many ranks a job's torchrun starts, by its command; and what its pods say of them."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.training.frameworks.torchrun import launched_ranks
from rowlock.workloads.pods import rank_fields


@pytest.mark.parametrize(
    ("typed", "ranks"),
    [
        ("torchrun --nproc-per-node 2 t.py", 2),
        ("torchrun --standalone --nproc_per_node=3 t.py --nproc-per-node 9", 3),
        ("python3 -m torch.distributed.run -m --nnodes 2 --nproc-per-node=4 pkg.train", 4),
        ("torchrun --nproc-per-node gpu t.py", None),
        ("torchrun t.py --nproc-per-node 9", None),
        ("torchrun --nproc-per-node", None),
        ("torchrun --nproc-per-node 0 t.py", None),
        (f"torchrun --nproc-per-node {'9' * 5000} t.py", None),
        ("python t.py --nproc-per-node 9", None),
        ("", None),
    ],
)
def test_how_many_ranks_a_torchrun_starts(typed: str, ranks: int | None) -> None:
    assert launched_ranks(typed.split()) == ranks


@pytest.mark.parametrize(
    ("script", "ranks"),
    [
        ("torchrun --nproc_per_node=2 train.py", 2),
        ("cd /srv && exec /opt/env/bin/torchrun --nproc_per_node 4 train.py --x", 4),
        (
            "set -e\n# torchrun --nproc-per-node 8 old.py\npython -m torch.distributed.run \\\n  --nproc_per_node=2 \\\n  t.py\n",
            2,
        ),
        ("torchrun --nproc-per-node '2' a.py; torchrun --nproc-per-node=2 b.py", 2),
        ("torchrun --nproc-per-node 2 a.py; torchrun --nproc-per-node 3 b.py", None),
        ("torchrun --nproc-per-node $GPUS a.py", None),
        ("pip install torchrun --nproc-per-node-tools", None),
        ("echo torch --nproc-per-node 2", None),
        ("\n" * 60_000 + "torchrun --nproc-per-node 2 a.py", 2),
        ("#" * 70_000 + "\ntorchrun --nproc-per-node 2 a.py", None),
    ],
)
def test_a_script_of_a_shell_is_read(script: str, ranks: int | None) -> None:
    assert launched_ranks(["bash", "-c", script]) == launched_ranks(["/bin/sh", "-ec", script]) == ranks


def job(master: list[str], worker: list[str], **spec: Any) -> dict[str, Any]:
    """A PyTorchJob of a master and one worker with these commands."""
    roles = {
        role: {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "pytorch", "command": command[:1], "args": command[1:]}]}},
        }
        for role, command in (("Master", master), ("Worker", worker))
    }
    return {"kind": "PyTorchJob", "metadata": {"name": "j"}, "spec": {**spec, "pytorchReplicaSpecs": roles}}


WORKER = {
    "metadata": {
        "name": "j-worker-0",
        "labels": {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"},
    }
}
TWO = ["torchrun", "--nproc-per-node=2", "t.py"]


@pytest.mark.parametrize(
    ("manifest", "rank", "launched"),
    [
        (job(["python", "t.py"], ["python", "t.py"]), "rank 1", None),
        (job(TWO, TWO, nprocPerNode="auto"), "worker-0", {"first": 2, "count": 2}),
        (job(["python", "t.py"], ["python", "t.py"], nprocPerNode="3"), "worker-0", {"first": 3, "count": 3}),
        (job(TWO, ["python", "t.py"]), "worker-0", None),
        (job(TWO, TWO, elasticPolicy={"maxReplicas": 3}), "worker-0", None),
    ],
)
def test_what_a_pod_says_of_its_ranks(manifest: dict[str, Any], rank: str, launched: dict[str, int] | None) -> None:
    assert rank_fields(manifest, WORKER) == {"rank": rank, "launchedRanks": launched}
