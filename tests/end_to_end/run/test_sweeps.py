"""Sweeps as users see them: many runs of one command, which the server keeps going, whatever becomes of it."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster

PROGRAM = """
import os, sys, time
lr, seed = float(sys.argv[1]), int(sys.argv[2])
with open("runs.txt", "a") as file:
    file.write(f"{os.environ['ROWLOCK_SWEEP_INDEX']} {os.environ['ROWLOCK_SWEEP_LR']} {sys.argv[2]}\\n")
for step in range(3):
    time.sleep(0.5)
    print(f"step={step} val_loss={lr + seed:.3f} accuracy={1 - lr:.3f}", flush=True)
"""


def has_begun(done: Path, runs: int) -> bool:
    return done.exists() and len(done.read_text().splitlines()) >= runs


def all_ended(cluster: Cluster, name: str) -> bool:
    sweeps = cluster.json("rowlock", "sweep", "list", "--json")
    return [one["phase"] for one in sweeps if one["name"] == name] == ["Completed"]


@pytest.mark.timeout(400)
def test_a_sweep_goes_on_when_the_server_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = tmp_path / "runs.txt"
    cluster.up()
    flags = ("--param", "lr=0.1,0.2", "--param", "seed=1..2", "--max-parallel", "1", "--working-dir", str(tmp_path))
    said = cluster.run("rowlock", "sweep", "tune", *flags, "--", "python", "train.py", "{lr}", "{seed}")
    assert "Sweep tune submitted to project default: 4 runs, 1 at a time." in said
    for runs in (1, 2, 3):
        cluster.until(partial(has_begun, done, runs), f"run {runs} began")
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up()
    cluster.until(lambda: all_ended(cluster, "tune"), "the sweep has completed")
    assert done.read_text().splitlines() == ["0 0.1 1", "1 0.1 2", "2 0.2 1", "3 0.2 2"]

    shown = cluster.json("rowlock", "sweep", "show", "tune", "--metric", "val_loss", "--json")
    assert [run["name"] for run in shown["entries"]] == ["tune-0", "tune-2", "tune-1", "tune-3"]
    assert [run["metric"]["best"] for run in shown["entries"]] == [1.1, 1.2, 2.1, 2.2]
    assert (shown["best"], shown["entries"][0]["command"]) == (0, ["python", "train.py", "0.1", "1"])
    assert shown["runs"] == {"total": 4, "begun": 4, "unfinished": 0, "completed": 4, "failed": 0, "deleted": 0}
    text = cluster.run("rowlock", "sweep", "show", "tune", "--metric", "accuracy", "--max")
    assert "Best: tune-0, accuracy 0.9: python train.py 0.1 1" in text

    cluster.run("rowlock", "delete", "tune-3", "-y")
    cluster.until(lambda: "tune-3" not in cluster.run("rowlock", "list"), "the run is deleted")
    os.kill(cluster.pid, signal.SIGKILL)
    cluster.up()
    again = cluster.json("rowlock", "sweep", "show", "tune", "--metric", "val_loss", "--json")
    last = again["entries"][-1]
    assert (last["phase"], last["metric"], again["runs"]["deleted"]) == ("Deleted", {"best": 2.2, "last": 2.2}, 1)

    cluster.run("rowlock", "sweep", "delete", "tune", "-y")
    cluster.until(lambda: "No jobs" in cluster.run("rowlock", "list"), "the jobs go with their sweep")
    assert "tune-0" in cluster.run("rowlock", "history")
    assert len(done.read_text().splitlines()) == 4


@pytest.mark.timeout(300)
def test_a_stopped_sweep_makes_no_further_runs(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo step={{index}} loss={{x}}"
    cluster.up()
    cluster.run("rowlock", "sweep", "slow", "--param", "x=1..3", "--max-parallel", "1", "--", "sh", "-c", script)
    cluster.until(lambda: "slow-0" in cluster.run("rowlock", "list"), "the first run was made")
    cluster.run("rowlock", "sweep", "stop", "slow")
    gate.touch()
    cluster.run("rowlock", "wait", "slow-0", "--timeout", "100s")
    assert cluster.json("rowlock", "sweep", "list", "--json")[0]["runs"]["begun"] == 1
    assert "slow-1" not in cluster.run("rowlock", "list")
    cluster.run("rowlock", "sweep", "resume", "slow")
    cluster.until(lambda: all_ended(cluster, "slow"), "the rest has run")
    assert "cannot be stopped" in cluster.run("rowlock", "sweep", "stop", "slow", code=1)
