"""`rowlock top`, `runai top`, and what `list` and `describe` say of it."""

from __future__ import annotations

import json
import time

import pytest
from tests.rest.served import EmbeddedServed

from rowlock import kinds, objects
from rowlock.cli.usage import command
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample


def run_measured_job(served: EmbeddedServed, *, idle: float | None = None, gpu: float = float("nan")) -> None:
    """The job t1: two ranks that run and use something."""
    served.node("a", 2)
    served.ok("rowlock run -d -n 2 -g 1 --clean-env --name t1 -- python")
    served.bound(2)
    served.run_pods()
    served.until(lambda: "2/2" in served.ok("rowlock list"))
    sample = UsageSample(
        0.5, 3 << 29, 0.0, 2048.0, gpu_utilization=gpu, gpu_memory_bytes=1 << 30 if gpu == gpu else gpu
    )
    since = None if idle is None else time.time() - idle
    for pod in served.store.view.all(kinds.POD):
        gpus = {"GPU-1": (gpu, float(1 << 30))} if gpu == gpu else {}
        served.usage[objects.uid(pod)] = LatestUsage(time.time(), sample, since, 1.0, 0.0, 0.0, 0.0, 0.0, gpus)


def test_top_shows_nodes_jobs_and_ranks(served: EmbeddedServed) -> None:
    assert "No job runs or waits. This is project default; -A shows all projects.\n" in served.ok("rowlock top")
    assert "No job runs or waits.\n" in served.ok("rowlock top -A")
    run_measured_job(served, gpu=40.0)
    text = served.ok("rowlock top")
    node, job = text.splitlines()[1].split(), text.splitlines()[-1].split()
    assert node[:3] == ["a", "2", "1.00"] and node[-1] == "40%"
    assert job == ["t1", "Running", "2", "2", "1.00", "3.0Gi", "40%", "2.0Gi", "0B/4.0Ki", "-", "-"]
    assert "PROJECT" in served.ok("rowlock top -A")
    ranks = served.ok("rowlock top t1").splitlines()
    assert ranks[0] == "t1: Running, 2 pods" and ranks[2].split()[:2] == ["rank", "0"] and "1.5Gi" in ranks[3]
    assert json.loads(served.ok("rowlock top --json"))["workloads"][0]["usage"]["cpuCores"] == 1.0
    jobs = served.ok("runai top jobs").splitlines()[1].split()
    assert jobs[-4:] == ["40%", "2.0Gi", "1.00", "3.0Gi"]
    assert "40%" in served.ok("runai top nodes")


def test_simulated_gpus_have_no_figures_and_that_is_said(served: EmbeddedServed) -> None:
    run_measured_job(served)
    for line in ("rowlock top", "rowlock top t1", "runai top jobs"):
        code, out, err = served.run(line)
        assert code == 0 and "-" in out and "GPUs are simulated" in err, line


def test_who_does_nothing_is_said_to_be_idle(served: EmbeddedServed) -> None:
    run_measured_job(served, idle=661)  # 11 minutes for as long as the test may take
    assert served.ok("rowlock list").rstrip().endswith("holds 2 GPUs, idle for 11m")
    assert "1.00 cores, 3.0Gi of memory, idle for 11m" in served.ok("rowlock describe t1")
    assert served.ok("rowlock top").rstrip().endswith("11m")
    assert served.ok("rowlock top t1").startswith("t1: Running, 2 pods, idle for 11m")


def test_a_short_rest_is_not_idle(served: EmbeddedServed) -> None:
    run_measured_job(served, idle=100)
    assert "idle" not in served.ok("rowlock list") + served.ok("rowlock describe t1")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rowlock top nothing", "The job nothing does not exist"),
        ("rowlock top --interval 5", "--interval needs --watch"),
        ("rowlock top --watch --interval 0", "--interval must be at least 1 second, but is 0"),
        ("rowlock top --watch --json", "choose one"),
        ("rowlock top -p nothing", "there is no project 'nothing'"),
        ("rowlock stats", "`rowlock top` shows"),
    ],
)
def test_a_question_that_is_none(served: EmbeddedServed, line: str, words: str) -> None:
    code, _, err = served.run(line)
    assert code != 0 and words in err


def test_watching_ends_with_ctrl_c(served: EmbeddedServed, monkeypatch: pytest.MonkeyPatch) -> None:
    run_measured_job(served)
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("rowlock.cli.usage.command.time.sleep", sleep)
    code, out, _ = served.run("rowlock top --watch --interval 3")
    assert code == 0 and looks == [3, 3] and out.count("t1") == 2 and "\x1b" not in out, "no terminal: no control codes"


def test_amounts_are_short() -> None:
    texts = [command.format_bytes(value) for value in (None, 0, 1023, 1024, 150 * 1024, 1536 * 2**20, 2**60)]
    assert texts == ["-", "0B", "1023B", "1.0Ki", "150Ki", "1.5Gi", "1048576Ti"]
    assert command.part_of(1.0, 0) is None and command.format_percent(command.part_of(1.0, 2.0)) == "50%"
