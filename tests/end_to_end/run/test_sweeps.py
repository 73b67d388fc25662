"""Sweeps as users see them: many runs of one command, which the server keeps going, whatever becomes of it."""

from __future__ import annotations

import json
import os
import random
import signal
import time
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


@pytest.mark.timeout(900)
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
    counts = {"total": 4, "begun": 4, "unfinished": 0, "completed": 4}
    assert shown["runs"] == {**counts, "failed": 0, "stopped": 0, "suspended": 0, "deleted": 0}
    assert "tune (lr=0.1, seed=1): `rowlock sweep show tune`" in cluster.run("rowlock", "describe", "tune-0")
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


@pytest.mark.timeout(900)
def test_a_stopped_sweep_makes_no_further_runs(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo step={{index}} loss={{x}}"
    cluster.up()
    cluster.run("rowlock", "sweep", "slow", "--param", "x=1..3", "--max-parallel", "1", "--", "sh", "-c", script)
    cluster.until(lambda: "slow-0" in cluster.run("rowlock", "list"), "the first run was made")
    cluster.run("rowlock", "sweep", "stop", "slow")
    gate.touch()
    cluster.run("rowlock", "wait", "slow-0", "--timeout", "200s")
    assert cluster.json("rowlock", "sweep", "list", "--json")[0]["runs"]["begun"] == 1
    assert "slow-1" not in cluster.run("rowlock", "list")
    cluster.run("rowlock", "sweep", "resume", "slow")
    cluster.until(lambda: all_ended(cluster, "slow"), "the rest has run")
    assert "cannot be stopped" in cluster.run("rowlock", "sweep", "stop", "slow", code=1)


IN_STEP = """
import os, sys, time
x = float(sys.argv[1])
for step in (1, 2):
    print(f"step={step} loss={x + 1 / step:.4f}", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
print(f"step=3 loss={x:.4f}", flush=True)
"""
"""None goes on before the gate is open, so that all are compared by the same number of values."""


@pytest.mark.timeout(900)
def test_runs_that_fall_behind_are_stopped_early(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IN_STEP)
    gate = tmp_path / "gate"
    cluster.up("--cpus-per-node", "64")
    stop = ("--stop", "asha", "--stop-after", "2", "--metric", "loss")
    flags = ("--param", "x=1..9", *stop, "--working-dir", str(tmp_path))
    cluster.run("rowlock", "sweep", "race", *flags, "--", "python", "train.py", "{x}", str(gate))

    def phases() -> dict[str, str]:
        shown = cluster.json("rowlock", "sweep", "show", "race", "--json")
        return {run["parameters"]["x"]: run["phase"] for run in shown["entries"]}

    behind = [str(x) for x in range(4, 10)]  # of nine runs the best three go on
    cluster.until(lambda: {phases()[x] for x in behind} == {"Stopped"}, lambda: f"six are stopped: {phases()}", 240)
    assert "Its sweep stopped it early: after" in cluster.run("rowlock", "explain", "race-8")
    gate.touch()
    assert "stopped early" in cluster.run("rowlock", "sweep", "wait", "race", "--timeout", "200s")
    shown = cluster.json("rowlock", "sweep", "show", "race", "--json")
    assert (shown["best"], shown["phase"], shown["entries"][0]["phase"]) == (0, "Completed", "Completed")
    assert "Best: race-0, loss" in cluster.run("rowlock", "sweep", "show", "race")
    cluster.run("rowlock", "resume", "race-8")
    cluster.run("rowlock", "wait", "race-8", "--timeout", "200s")  # who is resumed goes on to its end


@pytest.mark.timeout(900)
def test_a_search_that_learns_draws_the_same_after_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    from rowlock.rest.sweeps.learning import draw_point
    from rowlock.sweeps.parameters import parse_space

    cluster.up()
    search = ("--search", "tpe", "--samples", "13", "--seed", "5", "--metric", "loss", "--max-parallel", "1")
    program = "import sys; x = float(sys.argv[1]); print(f'step=1 loss={(x - 0.3) ** 2:.6f}')"
    cluster.run("rowlock", "sweep", "learn", "--param", "x=uniform(0,1)", *search, "--", "python", "-c", program, "{x}")

    def completed() -> int:
        return int(cluster.json("rowlock", "sweep", "list", "--json")[0]["runs"]["completed"])

    for runs in (10, 11, 12):
        cluster.until(lambda runs=runs: completed() >= runs, f"{runs} runs have completed")  # type: ignore[misc] # bound now
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up()
    cluster.until(lambda: all_ended(cluster, "learn"), "the sweep has completed")
    entries = cluster.json("rowlock", "sweep", "show", "learn", "--json")["entries"]
    runs_by_index = sorted(entries, key=lambda run: int(run["index"]))
    points = [(run["parameters"]["x"],) for run in runs_by_index]
    values = {run["index"]: run["metric"]["best"] for run in runs_by_index}
    space = parse_space({"x": "uniform(0,1)"})
    for index in (10, 11, 12):
        known = {number: values[number] for number in range(index)}
        assert points[index] == draw_point(space, 5, points[:index], known, (), is_max=False)


@pytest.mark.timeout(900)
def test_a_sweep_is_stopped_with_its_runs_and_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo {{x}}"
    cluster.up()
    cluster.run("rowlock", "sweep", "paused", "--param", "x=1..3", "--max-parallel", "2", "--", "sh", "-c", script)

    def shown() -> tuple[str, list[str]]:
        sweep = cluster.json("rowlock", "sweep", "show", "paused", "--json")
        return sweep["phase"], [run["phase"] for run in sweep["entries"]]

    cluster.until(lambda: shown() == ("Running", ["Running", "Running", "Waiting"]), lambda: f"two run: {shown()}")
    assert "are suspended until it is resumed" in cluster.run("rowlock", "sweep", "stop", "paused", "--now")
    cluster.until(lambda: shown() == ("Stopped", ["Stopped", "Stopped", "Waiting"]), lambda: f"none runs: {shown()}")
    assert "`rowlock sweep resume paused` starts it again" in cluster.run("rowlock", "explain", "paused-0")
    os.kill(cluster.pid, signal.SIGKILL)
    cluster.up()
    assert shown() == ("Stopped", ["Stopped", "Stopped", "Waiting"])
    gate.touch()
    cluster.run("rowlock", "sweep", "resume", "paused")
    cluster.until(lambda: all_ended(cluster, "paused"), lambda: f"all have completed: {shown()}")
    assert shown()[1] == ["Completed"] * 3


KILLS = int(os.environ.get("ROWLOCK_SWEEP_KILLS", "2"))
"""`ROWLOCK_SWEEP_KILLS=20`: for as many kills as the promise has; a minute or two."""
SEED = int(os.environ.get("ROWLOCK_SWEEP_SEED", "7"))


@pytest.mark.timeout(600 + 20 * KILLS)
def test_no_kill_loses_or_doubles_a_run(cluster: Cluster, tmp_path: Path) -> None:
    """The server dies at any moment: while runs are made, start, run and end."""
    chance = random.Random(SEED)
    done = tmp_path / "runs.txt"
    total = 10 * KILLS
    script = f"echo {{index}} >> {done}; sleep 0.{{index}}; echo step=1 loss={{x}}"
    cluster.up()
    space = ("--param", f"x=1..{total}", "--max-parallel", "4")
    cluster.run("rowlock", "sweep", "many", *space, "--", "sh", "-c", script)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0, 2))  # the moment of the kill, not a wait
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up()
    cluster.until(lambda: all_ended(cluster, "many"), "the sweep has completed", 60 + 5 * total)
    counts = cluster.json("rowlock", "sweep", "list", "--json")[0]["runs"]
    assert (counts["completed"], counts["failed"], counts["deleted"]) == (total, 0, 0), json.dumps(counts)
    assert sorted(map(int, done.read_text().split())) == list(range(total))


@pytest.mark.timeout(900)
def test_runs_of_a_sweep_keep_the_source_of_its_submit(cluster: Cluster, tmp_path: Path) -> None:
    place, gate = tmp_path / "source", tmp_path / "gate"
    place.mkdir()
    (place / "train.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)\nprint('old')"
    )
    cluster.up()
    flags = ("--param", "x=1..2", "--max-parallel", "1", "--source", str(place))
    said = cluster.run("rowlock", "sweep", "kept", *flags, "--", "python", "train.py", cwd=place)
    assert "copy of" in said
    (place / "train.py").write_text("print('new')")
    gate.touch()
    assert "new" in cluster.run("rowlock", "run", "--source", str(place), "--", "python", "train.py", cwd=place)
    cluster.until(
        lambda: all_ended(cluster, "kept"), "the sweep has completed"
    )  # the other run has tidied up: not this copy
    assert [cluster.run("rowlock", "logs", f"kept-{index}").split()[-1] for index in (0, 1)] == ["old", "old"]
