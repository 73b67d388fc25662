"""A rank that has failed and does not end: what it left in torch's error file is why the others wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.diagnostics.test_diagnostics import Job, hasty, needs_spy, on_job

from rowlock.diagnosis.tracebacks import LoggedError
from rowlock.diagnostics.rank_errors import read_logged_errors, read_rank_errors, read_restarts
from rowlock.diagnostics.rank_processes import RankProcess, RunningPod
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.shim.fact_files import ticks

__all__ = ["hasty"]
REPORT = json.dumps({"message": "ValueError: bad batch"})
RESTS = "import time; print('up', flush=True); time.sleep(600)"
FAILS = """
import json, os, threading
threading.Thread(target=threading.Event().wait).start()
print("here", flush=True)
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": "ValueError: bad batch"}, file)
raise ValueError("bad batch")
"""
"""As under `@record`: torch writes the file, and a thread that is not over keeps the program."""


@needs_spy
def test_a_rank_that_failed_and_does_not_end_is_found(tmp_path: Path, hasty: None) -> None:
    async def body(job: Job) -> None:
        (job.place / "rank.py").write_text(
            f"import sys\nif sys.argv[1] == 'keeps':\n    exec({FAILS!r})\n" + (job.place / "rank.py").read_text()
        )
        await job.start("wait", "keeps")
        said = await job.event("JobHangs")
        assert (
            said.startswith("rank 1 (pod j-worker-0") and "has failed and does not end: ValueError: bad batch" in said
        )
        assert "rank 0 waits in all_reduce at" in said
        found = await job.why()
        assert [one["error"] for one in found["ranks"]] == ["", "ValueError: bad batch"]
        assert found["verdict"]["kind"] == "failed" and not found["incidents"]

    on_job(tmp_path, body)


@contextmanager
def ranks(*paths: Path | str) -> Iterator[list[RankProcess]]:
    """Processes of one pod whose variable says so."""
    made: list[subprocess.Popen[str]] = []
    pod = RunningPod({}, {"metadata": {"uid": "p"}}, Run(0), Path("log"))
    try:
        for path in paths:
            env = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(path), "LOCAL_RANK": "0"}
            child = subprocess.Popen([sys.executable, "-c", RESTS], env=env, stdout=subprocess.PIPE, text=True)
            made.append(child)
            assert child.stdout is not None and child.stdout.readline() == "up\n"
        yield [RankProcess(f"rank {n}", child.pid, ticks(child.pid), pod) for n, child in enumerate(made)]
    finally:
        for child in made:
            child.kill()
            child.communicate()


def test_each_rank_has_its_own_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with ranks(one, two) as made:
        assert read_rank_errors(made) == {}
        two.write_text(REPORT)
        assert read_rank_errors(made) == {made[1].pid: LoggedError("ValueError", "bad batch")}
        os.utime(two, (1, 1))
        assert read_rank_errors(made) == {}, "it is that of an earlier program"
    with ranks(one, one) as made:
        one.write_text(REPORT)
        assert read_rank_errors(made) == {}, "nobody knows which of them wrote it"


def test_a_file_of_a_rank_is_an_enemys(tmp_path: Path) -> None:
    """No link is followed, nothing is waited for, and of a process that has gone nothing is read."""
    with ranks(
        *(tmp_path / word for word in ("file", "link", "fifo", "directory", "dir/file", "text", "huge")), "odd"
    ) as made:
        places: list[Any] = [tmp_path / word for word in ("link", "fifo", "directory", "dir")]
        (tmp_path / "file").write_text(REPORT)
        (tmp_path / "text").write_text("no JSON")
        (tmp_path / "huge").write_text(json.dumps({"message": "E: " + "x" * (1 << 20)}))
        places[0].symlink_to(tmp_path / "file")
        os.mkfifo(places[1])
        places[2].mkdir()
        places[3].symlink_to(tmp_path)
        assert list(read_rank_errors(made)) == [made[0].pid]
    assert read_rank_errors(made) == {}


@pytest.mark.parametrize("path", ["", "relative", "/", "/nowhere/error.json", "/dev/null"])
def test_a_path_that_leads_to_no_file(path: str) -> None:
    with ranks(path) as made:
        assert read_rank_errors(made) == {}


def test_what_failed_before_torchrun_started_its_ranks_again(tmp_path: Path) -> None:
    for local, at in ((0, 30), (1, 20), (2, 10)):
        place = tmp_path / "attempt_1" / str(local) / "error.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"message": f"ValueError: of {local}"}) if local < 2 else "no JSON")
        os.utime(place, (at, at))
    with ranks(*(tmp_path / f"attempt_{n}" / "0" / "error.json" for n in (2, 0, 9))) as made:
        assert read_restarts(made) == {
            made[0].pid: (2, LoggedError("ValueError", "of 1", rank=1)),
            made[2].pid: (9, None),
        }


def test_the_error_with_which_a_log_ends(tmp_path: Path) -> None:
    """Of a log of several ranks it is that of the rank that it names, and of all where it names none; a log that is still written tells nothing."""
    error = 'Traceback (most recent call last):\n  File "a.py", line 3, in load\nValueError: no data\n'
    logs = {
        "own": error,
        "named": "".join(f"[rank1]: {line}\n" for line in error.splitlines()),
        "none": error,
        "fine": "step 3\n",
        "new": error,
    }
    members: list[RankProcess] = []
    for number, (name, text) in enumerate(logs.items()):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (100, 108 if name == "new" else 100))
        pod = RunningPod({}, {"metadata": {"uid": name}}, Run(0), tmp_path / name)
        members += [
            RankProcess(f"rank {rank}", 10 * number + rank, 1, pod)
            for rank in range(1 if name in ("own", "new") else 2)
        ]
    found = read_logged_errors(members, 110.0)
    assert {pid: str(each) for pid, each in found.items()} == dict.fromkeys(
        (0, 11, 20, 21), "ValueError: no data (a.py:3 in load)"
    )
