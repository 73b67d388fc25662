"""`rowlock logs -f`: when a follower is let go, and what it has read by then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest
from tests.rest.served import NOW, Served

from rowlock.rest.log_streams import logs

SUBMIT = "runai submit-dist pytorch t1 --workers=1 -i img"
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": NOW}}
RUNS = {"running": {"startedAt": NOW}}


def start_two_ranks(served: Served) -> None:
    """t1-master-0 and t1-worker-0 run."""
    served.node("a")
    served.ok(SUBMIT)
    served.bound(2)
    served.run_pods()


@contextmanager
def following(served: Served, job: str, stream: str = "stdout") -> Iterator[IO[str]]:
    """What a follower of the job says in that stream, from a program of its own."""
    program = "from rowlock.cli.main import rowlock; rowlock()"
    line = [sys.executable, "-c", program, "logs", "-f", job, "--data-dir", str(served.data)]
    pipes: dict[str, Any] = {stream: subprocess.PIPE}
    with subprocess.Popen(line, text=True, **pipes) as process:
        try:
            yield getattr(process, stream)
        finally:
            process.kill()


def test_who_follows_a_job_that_does_not_run_hears_why(served: Served) -> None:
    served.node("a", 1)
    served.ok("runai submit-dist pytorch big --workers=3 -g 1 -i host")
    served.until(lambda: "fit" in served.ok("rowlock list"))
    with following(served, "big", "stderr") as said:
        assert said.readline().startswith("Job big is pending: Each pod needs 1 GPU")
    served.ok("rowlock suspend big")
    served.until(lambda: "Stopped" in served.ok("rowlock list"))
    with following(served, "big", "stderr") as said:
        assert said.readline().startswith("Job big is suspended: `rowlock resume big")


def test_who_follows_is_let_go_when_the_grace_of_a_restarted_rank_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends while its log is followed, and then nothing more happens to it."""
    monkeypatch.setattr(logs, "_RESTARTED_RANK_GRACE", 2.0)
    monkeypatch.setattr(logs, "_DRAIN_TIMEOUT", 0.1)
    served.endless = {"t1-worker-0"}
    start_two_ranks(served)
    served.logs["t1-master-0"] = ["2026-01-01T00:00:00Z trained"]
    served.report("runai-default", "t1-worker-0", "Running", RUNS, restarts=1)
    with following(served, "t1") as said:
        assert said.readline() == "[rank 0] trained\n"
        served.report("runai-default", "t1-master-0", "Succeeded", ENDED)
        assert said.read().startswith("rowlock: t1 is over, but t1-worker-0 still runs: ")


def test_who_follows_is_not_kept_by_a_life_whose_log_goes_on_with_the_next(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank was started again before the log of its first life was asked for: the kubelet gives that of the second."""
    monkeypatch.setattr(logs, "_RESTARTED_RANK_GRACE", 0.0)
    monkeypatch.setattr(logs, "_DRAIN_TIMEOUT", 0.1)
    served.endless = {"t1-worker-0"}
    start_two_ranks(served)
    served.logs["t1-worker-0"] = ["2026-01-01T00:00:00Z again"]
    with following(served, "t1") as said:
        assert said.readline() == "[rank 1] again\n"
        served.report("runai-default", "t1-worker-0", "Running", RUNS, restarts=1)
        served.report("runai-default", "t1-master-0", "Succeeded", ENDED)
        assert "rowlock: t1 is over, but t1-worker-0 still runs: " in said.read()


def test_who_follows_is_not_kept_by_a_rank_that_waits_for_a_master_that_is_done(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that dies while it ends is started again, and then waits for a rendezvous that never comes."""
    monkeypatch.setattr(logs, "_RESTARTED_RANK_GRACE", 0.0)
    monkeypatch.setattr(logs, "_DRAIN_TIMEOUT", 0.1)
    served.endless = {"t1-worker-0"}
    start_two_ranks(served)
    served.logs["t1-master-0"] = ["2026-01-01T00:00:00Z trained"]
    served.report("runai-default", "t1-worker-0", "Running", RUNS, restarts=1)
    served.report("runai-default", "t1-master-0", "Succeeded", ENDED)
    first, last = served.ok("rowlock logs -f t1").splitlines()
    assert first == "[rank 0] trained"
    assert last.startswith("rowlock: t1 is over, but t1-worker-0 still runs: `rowlock logs -f t1 --pod t1-worker-0`")


def test_a_log_that_takes_longer_to_read_than_the_drain_is_followed_to_its_last_line(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is over long before its reader has taken 30,000 lines."""
    monkeypatch.setattr(logs, "_DRAIN_TIMEOUT", 0.0)
    start_two_ranks(served)
    for rank, pod in enumerate(("t1-master-0", "t1-worker-0")):
        served.logs[pod] = [f"2026-01-01T00:00:00Z {rank}:{line}" for line in range(15_000)]
    served.finish()
    followed = served.ok("rowlock logs -f t1").splitlines()
    for rank in (0, 1):
        assert [line for line in followed if line.startswith(f"[rank {rank}]")] == [
            f"[rank {rank}] {rank}:{line}" for line in range(15_000)
        ]


def test_a_rank_that_has_ended_is_not_said_to_run_because_its_status_is_late(served: Served) -> None:
    """Ranks of a job that fails end at the same moment: the job is over when the first is written down."""
    served.node("a")
    served.ok("rowlock run -d -n 2 --name t1 -- python train.py")
    served.bound(2)
    served.run_pods()
    served.logs["t1-worker-0"] = ["2026-01-01T00:00:00Z No module named 'nosuchmodule'"]
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": NOW}}
    served.report("runai-default", "t1-master-0", "Failed", ended)
    assert served.ok("rowlock logs -f t1").splitlines() == ["[rank 1] No module named 'nosuchmodule'"]


def test_run_folds_what_it_follows(served: Served) -> None:
    served.node("a")
    served.logs = {f"t-{pod}": ["2026-01-01T00:00:00Z epoch 1"] for pod in ("master-0", "worker-0")}
    program = "from rowlock.cli.main import rowlock; rowlock()"
    words = ["run", "--fold", "-n", "2", "--clean-env", "--name", "t", "--data-dir", str(served.data), "--", "true"]
    with subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            served.bound(2)
            served.run_pods()
            served.finish()
            assert process.communicate(timeout=served.patience)[0] == "[ranks 0-1] epoch 1\n"
        finally:
            process.kill()
