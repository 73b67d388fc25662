"""History and logs over a cluster that is not ours: what its pods wrote is there after they have gone, and after we have."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.subjects import embedded_server
from tests.end_to_end.cluster import Cluster, lent

LAST = "for n in 1 2 3; do echo $RANK says $n; done; "


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An embedded cluster stands for one somewhere else, whose pods really run."""
    with embedded_server(tmp_path_factory.mktemp("other"), "rowlock.serve", "--warm-start", "off") as kubeconfig:
        yield kubeconfig


@pytest.fixture
def served(tmp_path: Path, other_cluster: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(other_cluster))
        made.run("rowlock", "project", "create", "team-a", code=None)
        yield made


def submit(served: Cluster, name: str, script: str, workers: int = 2) -> None:
    image = ("-i", "rowlock.dev/host", f"--workers={workers}", "-p", "team-a")
    served.run("runai", "submit-dist", "pytorch", name, *image, "--", "sh", "-c", script)


def logs(served: Cluster, name: str, *flags: str) -> str:
    return served.run("rowlock", "logs", name, "-p", "team-a", *flags, code=None)


def lines(workers: int) -> set[str]:
    return {f"{rank} says {n}" for rank in range(workers + 1) for n in (1, 2, 3)}


def has_all(text: str, workers: int) -> bool:
    return lines(workers) <= {line.partition("] ")[2] for line in text.splitlines()}


def test_logs_of_workers_that_went_with_the_master_are_kept(served: Cluster) -> None:
    """`cleanPodPolicy: Running` is runai's default: the operator deletes workers when the master has ended."""
    submit(served, "keeps", LAST + "[ $RANK = 0 ] || sleep 600; sleep 1")
    served.run("rowlock", "wait", "keeps", "-p", "team-a", "--timeout", "200s")
    pods = "/api/v1/namespaces/runai-team-a/pods"
    served.until(lambda: len(served.api("GET", pods)["items"]) == 1, "the workers are gone")
    served.until(lambda: has_all(logs(served, "keeps"), 2), "every log is whole")
    served.run("rowlock", "delete", "keeps", "-p", "team-a")
    served.until(lambda: not served.api("GET", pods)["items"], "all pods are gone")
    served.until(lambda: has_all(logs(served, "keeps"), 2), "the archive answers for a job that is gone")
    shown = served.run("rowlock", "show", "keeps", "-p", "team-a")
    assert "worker" in shown or "rank 1" in shown


def test_who_is_killed_while_pods_go_finds_their_logs_again(served: Cluster, other_cluster: Path) -> None:
    submit(served, "killed", LAST + "[ $RANK = 0 ] || sleep 600; sleep 1")
    following = served.data / "archive" / "following"
    served.until(lambda: len(list(following.glob("*/*.log"))) == 3, "all three are followed")
    served.until(lambda: all(p.read_text().count("says") == 3 for p in following.glob("*/*.log")), "all have spoken")
    os.kill(served.pid, signal.SIGKILL)
    served.up("--kubeconfig", str(other_cluster))
    served.run("rowlock", "wait", "killed", "-p", "team-a", "--timeout", "200s")
    served.run("rowlock", "delete", "killed", "-p", "team-a")
    served.until(lambda: has_all(logs(served, "killed"), 2), "every log is whole")
    text = logs(served, "killed")
    assert all(text.count(line) == 1 for line in lines(2)), "nothing is doubled"
    served.until(lambda: not list(following.glob("*/*.log")), "the files are in the archive")


def test_a_program_that_was_started_again_has_an_attempt_for_each_start(served: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "began"  # each start lasts: whose log goes with a shorter one is in test_log_collector.py
    script = f"[ $RANK = 1 ] || [ -e {mark} ] && {{ echo second; sleep 2; }} || {{ echo first; touch {mark}; sleep 2; exit 1; }}"
    command = ("--command", "--", "sh", "-c", script)
    served.run(
        "runai", "training", "pytorch", "submit", "again", "-p", "team-a", "-i", "rowlock.dev/host", "--workers", "1",
        "--restart-policy", "OnFailure", "--master-restart-policy", "OnFailure", *command,
    )  # fmt: skip
    served.run("rowlock", "wait", "again", "-p", "team-a", "--timeout", "200s")
    following = served.data / "archive" / "following"
    served.until(lambda: not list(following.glob("*/*.log")), "what was followed is in the archive")
    served.run("rowlock", "delete", "again", "-p", "team-a")
    served.until(lambda: "first" in logs(served, "again", "--attempt", "1"), "the first attempt is kept")
    served.until(lambda: "second" in logs(served, "again", "--attempt", "2"), "and the second")


def test_why_names_the_rank_that_failed_and_its_error(served: Cluster) -> None:
    program = "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('no data')\ntime.sleep(600)"
    command = ("--", "python", "-c", program)
    image = ("-i", "rowlock.dev/host", "--workers=1", "-p", "team-a")
    served.run("runai", "submit-dist", "pytorch", "fails", *image, *command)
    served.until(lambda: "ValueError: no data" in why(served), "the error is found in the log")
    assert "rank 1" in why(served) and "fails-worker-0" in why(served)
    served.run("rowlock", "delete", "fails", "-p", "team-a")
    served.until(lambda: "ValueError" in served.run("rowlock", "show", "fails", "-p", "team-a"), "the archive keeps it")


def why(served: Cluster) -> str:
    return served.run("rowlock", "why", "fails", "-p", "team-a", code=None)
