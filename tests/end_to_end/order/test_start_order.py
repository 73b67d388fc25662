"""`--after` and `--start-after` with real jobs, over a server that is killed meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.end_to_end.cluster import Cluster

UNTIL_TOLD = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"


def phase_of(cluster: Cluster, name: str) -> str:
    return str(cluster.json("rowlock", "describe", name, "--json")["phase"])


def test_jobs_start_when_others_have_ended(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    go = tmp_path / "go"
    cluster.run("rowlock", "run", "-d", "--name", "prep", "--", "python", "-c", UNTIL_TOLD, str(go))
    cluster.run("rowlock", "run", "--name", "bad", "--", "false", code=1)
    cluster.run("rowlock", "run", "-d", "--name", "train", "--after", "prep:succeeded", "--", "echo", "trained")
    cluster.run(
        "rowlock", "run", "-d", "--name", "late", "--after", "train", "--start-after", "1s", "--", "echo", "late"
    )
    cluster.run("rowlock", "run", "-d", "--name", "never", "--after", "bad:succeeded", "--", "echo", "anyway")
    waits = "It waits for prep to succeed; `rowlock resume train` starts it now."
    assert waits in cluster.run("rowlock", "explain", "train")
    assert "It waits for prep to succeed" in cluster.run("rowlock", "list")
    blocked = "It waits for bad to succeed, and bad has not succeeded: `rowlock resume never` starts it anyway."
    cluster.until(
        lambda: blocked in cluster.run("rowlock", "explain", "never"), "it says that it cannot start", every=0.2
    )
    os.kill(cluster.pid, signal.SIGKILL)
    cluster.up()
    assert waits in cluster.run("rowlock", "explain", "train")
    assert phase_of(cluster, "late") == "Pending"
    go.touch()
    for name in ("train", "late"):
        cluster.until(lambda name=name: phase_of(cluster, name) == "Completed", f"{name} runs", every=0.2)  # type: ignore[misc]
    assert phase_of(cluster, "never") == "Pending"
    cluster.run("rowlock", "resume", "never")
    cluster.until(lambda: phase_of(cluster, "never") == "Completed", "a person starts it", every=0.2)


def test_what_cannot_be_waited_for_is_refused(cluster: Cluster) -> None:
    cluster.up()
    cluster.run("rowlock", "run", "--name", "prep", "--", "true")
    run = ("rowlock", "run", "-d", "--name", "train")
    assert "there is no job 'perp' in project default. Did you mean" in cluster.run(
        *run, "--after", "perp", "--", "true", code=1
    )
    assert "there is no job 'train'" in cluster.run(*run, "--after", "train", "--", "true", code=1)
    assert "takes JOB, or JOB:succeeded" in cluster.run(*run, "--after", "prep:suceeded", "--", "true", code=2)
    assert "takes a time such as" in cluster.run(*run, "--start-after", "noon", "--", "true", code=2)
    cluster.run("rowlock", "run", "-d", "--name", "gone", "--after", "prep", "--", "sleep", "600")
    cluster.until(lambda: phase_of(cluster, "gone") == "Running", "what has ended already is not waited for")
