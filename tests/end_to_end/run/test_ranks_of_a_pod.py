"""Ranks that torchrun counts, and that want a terminal: in one pod, with real frameworks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.run.terminal import Terminal

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: `make .venv/.torch` installs it", allow_module_level=True)

GATHERED = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print(f"rank {dist.get_rank()} sees {int(one)}, local {os.environ['LOCAL_RANK']}", flush=True)
dist.destroy_process_group()
"""
STOPS = """
def step():
    import pdb; pdb.set_trace()
    return 1
step()
"""
PASSES = """
import os
def step():
    breakpoint()
    return "on"
print("rank", os.environ["RANK"], "goes", step())
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("ranks")) as made:
        made.up("--simulated-gpus", "2")
        yield made


def test_torchrun_starts_as_many_ranks_as_the_pod_has_gpus(running: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GATHERED)
    line = ("rowlock", "run", "--nproc-per-node", "gpu", "-g", "2", "--", sys.executable, "train.py")
    said = running.run(*line, cwd=tmp_path, timeout=240)
    assert "is completed" in said
    assert all(f"rank {n} sees 2, local {n}" in said for n in range(2)), said


SAVES = """
import os, signal, sys, time, torch

class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(0.05)
            yield 1

rank, stop = os.environ["RANK"], []
batches = iter(torch.utils.data.DataLoader(Data(), num_workers=1, worker_init_fn=lambda _: os.setsid()))
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
next(batches)
open("ready" + rank, "w").close()
while not stop:
    next(batches)
for _ in range(20):
    next(batches)
open("saved" + rank, "w").close()
"""


def test_ranks_of_a_torchrun_save_when_their_job_is_deleted(running: Cluster, tmp_path: Path) -> None:
    """torchrun signals the process group of each rank: workers live on in a session of their own, here and on a cluster."""
    (tmp_path / "train.py").write_text(SAVES)
    line = ("rowlock", "run", "-d", "--name", "saves", "--nproc-per-node", "2", "--", sys.executable, "train.py")
    running.run(*line, cwd=tmp_path)
    running.until(lambda: all((tmp_path / f"ready{rank}").exists() for rank in "01"), "both ranks are ready")
    running.run("rowlock", "delete", "saves")
    running.until(lambda: all((tmp_path / f"saved{rank}").exists() for rank in "01"), "both ranks save")


def test_a_breakpoint_of_a_rank_without_a_terminal_ends_no_job(running: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PASSES)
    said = running.run("rowlock", "run", "-n", "2", "--name", "passes", "--", sys.executable, "train.py", cwd=tmp_path)
    for rank in ("0", "1"):
        assert f"rank {rank} goes on" in said
        assert f'[rank {rank}]   File "{tmp_path}/train.py", line 4, in step' in said
    # an exec has a terminal or not, whatever the container has
    ask = "import os, sys; print(os.environ.get('PYTHONBREAKPOINT'))"
    running.run("rowlock", "run", "-d", "--name", "stays", "--", "sleep", "1000")
    running.run("rowlock", "wait", "stays", "--for", "running")
    assert "print_stack" in running.run("rowlock", "exec", "stays", "--", sys.executable, "-c", ask)
    terminal = Terminal(running, "rowlock", "exec", "-it", "stays", "--", sys.executable, "-c", ask)
    terminal.hear(b"None")
    assert terminal.end() == 0
    running.run("rowlock", "delete", "stays")


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (STOPS, "BdbQuit (train.py:4 in step); it came to a breakpoint and had no terminal: `rowlock run --tty` gives"),
        (
            "def ask():\n    print(input())\nask()",
            "EOF when reading a line (train.py:2 in ask); it read its standard input, and had none: pipe it into",
        ),
        (
            "input('lr? ')",
            "EOF when reading a line (train.py:1); it read its standard input, and had none: pipe it into `rowlock run`",
        ),
        ("import os; os.environ['LOCAL_RANK']", "`rowlock run --nproc-per-node 1` gives it one"),
    ],
)
def test_what_a_rank_without_a_terminal_asks_for_is_said(
    running: Cluster, tmp_path: Path, program: str, sentence: str
) -> None:
    (tmp_path / "train.py").write_text(program)
    name = tmp_path.name.replace("_", "-")
    said = running.run("rowlock", "run", "--name", name, "--", sys.executable, "train.py", cwd=tmp_path, code=1)
    assert sentence in said
    assert sentence in running.run("rowlock", "why", name)
