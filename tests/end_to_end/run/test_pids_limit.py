"""A program that starts processes without end, on a cluster with a limit of them; and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster

from rowlock.kubelet.shim import cgroups

FORKS = """
import subprocess
held = [subprocess.Popen(["sleep", "600"]) for _ in range(60)]
"""


def test_a_rank_that_starts_processes_without_end_fails_alone_and_why_says_so(cluster: Cluster, tmp_path: Path) -> None:
    backend = "watchdog" if os.geteuid() else cgroups.detect_backend()
    if problem := cgroups.probe_pids(backend):
        refusal = cluster.run("rowlock", "up", "-d", "--pids-limit", "20", code=1)
        assert "--pids-limit 20 cannot be kept here" in refusal, problem
        return
    cluster.up("--pids-limit", "20")
    (tmp_path / "forks.py").write_text(FORKS)
    (tmp_path / "other.py").write_text("import time; print('goes on', flush=True); time.sleep(600)")
    cluster.run("rowlock", "run", "--name", "other", "-d", "--", "python", str(tmp_path / "other.py"))
    cluster.run("rowlock", "run", "--name", "forks", "--", "python", str(tmp_path / "forks.py"), code=1)
    why = cluster.run("rowlock", "why", "forks")
    assert "BlockingIOError" in why and "had as many processes and threads as it may have (--pids-limit)" in why, why
    cluster.until(lambda: "goes on" in cluster.run("rowlock", "logs", "other", code=None), "the other job to work")

    def told() -> str:
        return cluster.run("rowlock", "describe", "forks")

    cluster.until(lambda: "ProcessLimitReached" in told() and "may have (20)" in told(), told, every=0.2)


@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_limit_of_nothing_is_refused(cluster: Cluster, value: str) -> None:
    refusal = cluster.run("rowlock", "up", "-d", f"--pids-limit={value}", code=2)
    assert f"--pids-limit must be at least 1, but is {value}" in refusal
