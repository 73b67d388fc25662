"""`rowlock run --rerun-on-save` with real programs: a save stops the ranks, and they run again with it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.end_to_end.cluster import Cluster

TRAIN = """
import time
from model import RATE
print("rate", RATE, flush=True)
while RATE < 3:
    time.sleep(0.05)
"""


def test_a_save_runs_the_job_again(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "model.py").write_text("RATE = 1\n")
    argv = ["rowlock", "run", "--rerun-on-save", "--nnodes", "2", "--name", "fit", "--", "python", "train.py"]
    with subprocess.Popen(
        argv, cwd=project, env=cluster.env, stdin=subprocess.DEVNULL, stdout=-1, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        seen = dict[str, set[str]]()
        for line in process.stdout:
            if line.startswith("[rank "):
                rank, _, rate = line.rstrip().partition("] rate ")
                ranks = seen.setdefault(rate, set())
                ranks.add(rank)
                if len(ranks) == 2 and int(rate) < 3:  # both ranks read the last save: the next one comes
                    (project / "model.py").write_text(f"RATE = {int(rate) + 1}\n")
            elif line.startswith("Waiting until one of 2 source files"):
                process.send_signal(signal.SIGINT)
                break
        rest = process.communicate(timeout=200)[0]
    assert (process.returncode, rest) == (0, "")
    assert seen == {rate: {"[rank 0", "[rank 1"} for rate in "123"}
    runs = cluster.json("rowlock", "history", "--json")
    assert [(run["name"], run["phase"]) for run in runs] == [
        ("fit", "Completed"),
        ("fit", "Deleted"),
        ("fit", "Deleted"),
    ]
