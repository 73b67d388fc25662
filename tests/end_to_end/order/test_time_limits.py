"""`--max-time` with real programs: the checkpoint is saved in the grace, the verdict says why, a restart of the server forgets nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import Cluster

SAVES = """
trap 'sleep 0.5; echo saved > "$0"; exit 0' TERM
echo runs
while :; do sleep 0.1; done
"""
"""A shell, because Python may need the three seconds to start on a busy machine, and a signal before its handler is set would end it."""
VERDICT = "It was stopped: it reached its --max-time of 3 s."


def test_a_job_that_reaches_its_max_time_is_stopped_and_says_so(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    saved = tmp_path / "saved"
    program = ("--", "sh", "-c", SAVES, str(saved))
    said = cluster.run("rowlock", "run", "--name", "long", "--max-time", "3s", "--grace", "40s", *program, code=None)
    assert VERDICT in said, said
    cluster.until(saved.exists, "the program saves its state in its grace")
    cluster.until(lambda: VERDICT in cluster.run("rowlock", "why", "long"), "why says it")
    assert VERDICT in cluster.run("rowlock", "describe", "long")
    cluster.run("rowlock", "run", "--name", "short", "--max-time", "1h", "--", "true")
    assert "--max-time must be at least 1s" in cluster.run("rowlock", "run", "--max-time", "0", "--", "true", code=2)
    assert "invalid argument" in cluster.run("rowlock", "run", "--max-time", "soon", "--", "true", code=2)
    cluster.run("rowlock", "delete", "--yes", "long")
    cluster.until(lambda: VERDICT in cluster.run("rowlock", "history"), "the archive keeps the verdict")


def test_a_limit_outlives_the_server(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    program = ("--", "sh", "-c", SAVES, str(tmp_path / "saved"))
    cluster.run("rowlock", "run", "-d", "--name", "long", "--max-time", "3s", *program)

    def phases() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.json("rowlock", "show", "long", "--json")["phases"]
        return found

    cluster.until(lambda: any(one["phase"] == "Running" for one in phases()), "it runs", every=0.2)
    os.kill(cluster.pid, signal.SIGKILL)
    cluster.up()
    cluster.until(lambda: VERDICT in cluster.run("rowlock", "why", "long"), "the next server stops it", every=0.2)
