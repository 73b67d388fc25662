"""Real processes that end well, and what is wrong with their results all the same."""

import asyncio
import math
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.diagnostics.test_diagnostics import Job, hasty, on_job
from tests.kubelet.conftest import until

from rowlock.diagnosis import remarks
from rowlock.diagnostics import connection_counters, job_remarks, rank_connections
from rowlock.diagnostics.connection_counters import ConnectionCounters, TcpOpens, failed_attempts
from rowlock.diagnostics.job_records import JobRecords
from rowlock.diagnostics.job_remarks import JobRemarks
from rowlock.diagnostics.process_sockets import connected_processes
from rowlock.diagnostics.rank_connections import Meeting, MeetingLooks, are_connected
from rowlock.kubelet.pod.facts import Exit, Run
from rowlock.kubelet.shim.fact_files import ticks

__all__ = ["hasty"]

RANK = """
import os, socket, sys, time
here = os.path.dirname(os.path.abspath(__file__))
how, *more = sys.argv[1:]
if how == "serve":
    server = socket.create_server(("127.0.0.1", 0))
    with open(here + "/port.new", "w") as file:
        file.write(str(server.getsockname()[1]))
    os.rename(here + "/port.new", here + "/port")
    peer, _ = server.accept()
elif how == "call":
    while not os.path.exists(here + "/port"):
        time.sleep(0.01)
    peer = socket.create_connection(("127.0.0.1", int(open(here + "/port").read())))
if how == "mute":
    import glob, mmap
    for path in glob.glob(here + "/site-packages/*/native.so"):
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
if how == "nan":
    for step in range(40):
        print(f"step={step} loss={float('nan') if step > 29 else 1 / (step + 1)}", flush=True)
elif how in ("short", "long"):
    for step in range(20 if how == "short" else 40):
        print(f"step={step} loss={1 / (step + 1)}", flush=True)
else:
    step = 0
    while not os.path.exists(here + "/end"):
        if how != "mute":
            print(f"step={step} loss={1 / (step + 1)}", flush=True)
        step += 1
        began = time.process_time()
        while time.process_time() - began < 0.02:
            pass
"""


REFUSED = """
import fcntl, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))  # the interface goes up
for _ in range(5):
    socket.socket().connect_ex(("127.0.0.1", 9))
print(flush=True)
sys.stdin.read()
"""
ACCEPTED = """
import fcntl, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))  # the interface goes up
print(flush=True)
sys.stdin.read()
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname())
"""


@pytest.fixture
def impatient(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_connections, "MIN_SECONDS", 0.3)
    monkeypatch.setattr(rank_connections, "SHARE", 10.0)


def begin(job: Job) -> None:
    (job.place / "rank.py").write_text(RANK)


async def remarks_of(job: Job) -> list[str]:
    return [str(remark["kind"]) for remark in (await job.why())["remarks"]]


def test_a_loss_that_is_nan_at_the_end_is_told(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        begin(job)
        await job.start("nan", "nan")
        said = await job.event("LossNotFinite")
        assert said == "Loss of rank 0 is nan from step 30 on."
        uid = job.object["metadata"]["uid"]
        assert (
            job.attached.status_message(uid, "Completed") == "It completed, but loss of rank 0 is nan from step 30 on."
        )
        assert job.attached.status_message(uid, "Failed") == ""
        again: Any = JobRecords(job.node.data / "remarks", remarks.remark_from_dict)
        assert [remark.kind for remark in again.of(uid)] == [remarks.NOT_FINITE]

    on_job(tmp_path, body)


def test_ranks_that_end_at_different_steps_are_told(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        begin(job)
        await job.start("long", "short")
        assert (await job.event("RanksDiffer")).endswith("rank 1 at step 19, the others at step 39.")

    on_job(tmp_path, body)


def test_ranks_that_train_without_each_other_are_told_while_they_run(tmp_path: Path, impatient: None) -> None:
    async def body(job: Job) -> None:
        begin(job)
        await job.start("alone", "alone")
        said = await job.event("RanksNeverMet")
        assert said.startswith("Rank 0 and rank 1 never connected to each other (")
        assert job.attached.status_message(job.object["metadata"]["uid"], "Running") == said
        (job.place / "end").touch()
        await job.node.ended("j-master-0")
        await job.node.ended("j-worker-0")
        assert await remarks_of(job) == ["alone"]

    on_job(tmp_path, body)


def test_connected_ranks_are_left_alone(tmp_path: Path, impatient: None) -> None:
    async def body(job: Job) -> None:
        begin(job)
        await job.start("serve", "call")
        uid = job.object["metadata"]["uid"]

        def met() -> bool:
            meeting = job.attached.remarks.meetings.get(uid)
            return meeting is not None and meeting.has_met

        await until(met, "a look that has seen the connection")
        (job.place / "end").touch()
        await job.node.ended("j-master-0")
        await job.node.ended("j-worker-0")
        assert "alone" not in await remarks_of(job)

    on_job(tmp_path, body)


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_ranks_without_figures_are_judged_at_their_end(tmp_path: Path, impatient: None, package: str) -> None:
    """By what they have loaded: native code of a framework, here a file that is mapped from where it would lie."""

    async def body(job: Job) -> None:
        begin(job)
        place = job.place / "site-packages" / package
        place.mkdir(parents=True)
        (place / "native.so").write_bytes(b"x")
        await job.start("mute", "mute")
        meetings, uid = job.attached.remarks.meetings, job.object["metadata"]["uid"]
        await until(lambda: uid in meetings and meetings[uid].looks > 5 * rank_connections.MIN_LOOKS, "enough looks")
        assert (await job.why())["remarks"] == []
        (job.place / "end").touch()
        await job.node.ended("j-master-0")
        await job.node.ended("j-worker-0")
        if package == "torch":
            assert "never connected" in await job.event("RanksNeverMet")
        assert await remarks_of(job) == (["alone"] if package == "torch" else [])

    on_job(tmp_path, body)


def test_a_rank_that_tries_to_reach_another_does_not_train_alone(
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may meet at the end, and for less time than is between two looks."""
    attempts: list[int] = []

    def failed(pid: int) -> int:
        attempts.append(pid)
        return rank_connections.MIN_ATTEMPTS

    monkeypatch.setattr(rank_connections, "failed_attempts", failed)

    async def body(job: Job) -> None:
        begin(job)
        place = job.place / "site-packages" / "torch"
        place.mkdir(parents=True)
        (place / "native.so").write_bytes(b"x")
        await job.start("mute", "mute")
        await until(lambda: len(attempts) > 5 * rank_connections.MIN_LOOKS, "looks at both")
        (job.place / "end").touch()
        await job.node.ended("j-master-0")
        await job.node.ended("j-worker-0")
        assert await remarks_of(job) == []

    on_job(tmp_path, body)


def test_looks_take_a_small_share_of_a_cpu_and_each_job_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_connections, "SHARE", 0.0)
    looked: list[str] = []

    class Costly(Meeting):
        def look(self, ranks: Any) -> None:
            looked.append(ranks[0])
            end = time.thread_time() + 0.03
            while time.thread_time() < end:
                pass

    looks, jobs = MeetingLooks(), [(Costly(), (name, name)) for name in "abc"]
    for _ in range(5):
        looks.look(jobs)  # type: ignore[arg-type] # names stand for ranks
    assert looked == ["a", "b", "c", "a"], "a tenth of a second is saved up, and no more comes"
    monkeypatch.setattr(rank_connections, "SHARE", 1e6)
    looks.look(jobs)  # type: ignore[arg-type]
    assert looked[4] == "b", "whose turn it is"


def test_the_pods_of_a_job_of_many_are_not_gone_through_at_each_end(tmp_path: Path) -> None:
    def refuse(*_: object) -> Any:
        pytest.fail("all pods of the job were looked up")

    context: Any = SimpleNamespace(view=SimpleNamespace(by_owner=refuse), pods={}, directory=refuse)
    told: list[object] = []
    kept = JobRemarks(context, tmp_path, lambda *said: told.append(said))
    job = {
        "kind": "PyTorchJob",
        "metadata": {"uid": "j"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1000}}},
    }
    for index in ("0", "7"):
        labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": index}
        worker: Any = {"metadata": {"uid": index, "labels": labels}, "spec": {"containers": [{"name": "main"}]}}
        kept.handle_good_exit(job, worker, "main", Run(0, exit=Exit(0, 1.0, 2.0)))
    assert told == []


def test_logs_of_jobs_that_end_together_are_read_in_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def read(ended: list[Any]) -> list[Any]:
        turns.append(len(ended))
        return remarks_of_jobs(ended)

    def fail_on_b(logs: list[tuple[str, Path]]) -> list[remarks.Remark]:
        if logs[0][1].name == "b":
            raise ValueError("a log that nobody can read")
        return [remarks.non_finite_loss("Master", "loss", "step 3", math.nan)]

    remarks_of_jobs = job_remarks._remarks_of_jobs
    monkeypatch.setattr(job_remarks, "_remarks_of_jobs", read)
    monkeypatch.setattr(job_remarks, "remarks_of_logs", fail_on_b)
    told: list[str] = []
    kept = JobRemarks(
        cast("Any", SimpleNamespace(clock=time.time)), tmp_path, lambda job, *_: told.append(job["metadata"]["uid"])
    )
    monkeypatch.setattr(kept, "_logs_to_read", lambda job, _: [("Master", Path(job["metadata"]["uid"]))])
    pod = {"spec": {"containers": [{"name": "main"}]}}

    async def end_three_jobs() -> None:
        for uid in ("a", "b", "c"):
            kept.handle_good_exit({"metadata": {"uid": uid}}, pod, "main", Run(0, exit=Exit(0, 1.0, 2.0)))
        await kept.settle("c")
        assert turns == [3]
        assert told == ["a", "c"]
        await kept.settle("c")
        assert turns == [3], "nothing is left to wait for"

    asyncio.run(end_three_jobs())


def test_sockets_of_two_programs_are_told_apart_from_those_of_one() -> None:
    hold = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); print(flush=True); sys.stdin.read()"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            programs = [
                subprocess.Popen(
                    [sys.executable, "-c", hold, str(end.fileno())],
                    pass_fds=[end.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                for end in (near, far)
            ]
            for program in programs:
                assert program.stdout is not None
                program.stdout.readline()
            assert are_connected([rank(programs[0].pid, "a"), rank(programs[1].pid, "b")])
            assert are_connected([rank(programs[0].pid, "a"), rank(programs[1].pid, "a")]) is False
            pids = [program.pid for program in programs]
            assert connected_processes(pids) == connected_processes([*pids, os.getpid()]) - {os.getpid()} == set(pids)
            assert connected_processes(pids[:1]) == set()
    for program in programs:
        program.communicate(timeout=200)
    assert are_connected([rank(programs[0].pid, "a"), rank(programs[1].pid, "b")]) is None, "they have ended"
    assert connected_processes(pids) == set(pids), "unknown"


def test_attempts_that_fail_are_counted_in_a_network_namespace_of_its_own() -> None:
    """Needs root, or user namespaces that an ordinary user may make."""
    apart = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net"]
    command = [*apart, sys.executable, "-c", REFUSED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert failed_attempts(program.pid) == 5
        program.communicate(timeout=200)
    assert failed_attempts(program.pid) == failed_attempts(os.getpid()) == 0


@pytest.mark.parametrize(
    ("before", "now", "at_end", "alone"),
    [
        (TcpOpens(3, 3), TcpOpens(5, 5), False, True),  # a store of its own, and a client of it
        (TcpOpens(3, 3), TcpOpens(9, 3, 6), True, True),  # it tries, and nobody is there
        (TcpOpens(3, 3), TcpOpens(9, 4, 6), False, False),  # somebody came between two looks
        (TcpOpens(7, 0), TcpOpens(7, 1), False, False),
        (TcpOpens(7, 0), TcpOpens(8, 1), True, False),  # at the end it cannot be told from a connection to itself
        (TcpOpens(7, 0), TcpOpens(8, 0), True, True),
    ],
)
def test_what_the_kernel_counted_tells_whether_ranks_may_have_met(
    monkeypatch: pytest.MonkeyPatch, before: TcpOpens, now: TcpOpens, at_end: bool, alone: bool
) -> None:
    counted = iter([before, now])
    monkeypatch.setattr(connection_counters, "read_opens", lambda _: next(counted))
    counters = ConnectionCounters(files={"pod": -1})
    counters.are_surely_alone()
    assert counters.are_surely_alone(at_end) is alone


@pytest.mark.parametrize(
    ("first", "second", "alone"),
    [
        (
            TcpOpens(3, 2),
            TcpOpens(4, 0),
            False,
        ),  # JAX's coordinator and its client, each of which asks the API server, too
        (TcpOpens(1, 1), TcpOpens(1, 1), True),  # a store of its own in each
        (TcpOpens(2, 2), TcpOpens(2, 0), False),  # the coordinator is its own client, too
        (TcpOpens(2, 1), TcpOpens(1, 1), False),  # one downloads something, or joins the other, which does
        (TcpOpens(2, 1), TcpOpens(0, 0), True),  # nobody else accepted anything, and nobody else left
        (TcpOpens(3, 0), TcpOpens(4, 0), True),  # both download something, and nobody came
        (TcpOpens(3, 2, 1), TcpOpens(2, 1, 1), True),  # attempts that failed led nowhere
    ],
)
def test_connections_to_a_third_one_hide_none_between_ranks(
    monkeypatch: pytest.MonkeyPatch, first: TcpOpens, second: TcpOpens, alone: bool
) -> None:
    """Two JAX processes that had met were told that each works alone: their questions to the API server outnumbered what was accepted."""
    monkeypatch.setattr(connection_counters, "read_opens", {-1: first, -2: second}.get)
    assert ConnectionCounters(files={"a": -1, "b": -2}).are_surely_alone() is alone


def test_a_connection_is_counted_after_the_end_of_its_process() -> None:
    """Needs root, or user namespaces that an ordinary user may make."""
    apart = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net"]
    counters = ConnectionCounters()
    with subprocess.Popen(
        [*apart, sys.executable, "-c", ACCEPTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        counters.hold([("pod", program.pid), ("ours", os.getpid())])
        assert list(counters.files) == ["pod"]
        assert counters.are_surely_alone()
        program.communicate(timeout=200)
    assert not counters.are_surely_alone(at_end=True)
    counters.close()
    assert counters.are_surely_alone(at_end=True)


def test_ranks_without_sockets_cost_no_search_through_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel goes through its whole table for each namespace: 5 ms and more, where a look shall cost a part of that."""

    def refuse(pid: int) -> Any:
        raise AssertionError(f"the connections of {pid} are read")

    monkeypatch.setattr(rank_connections, "read_connections", refuse)
    sleeper = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert are_connected([rank(program.pid, "a"), rank(program.pid, "b")]) is False
        program.communicate()


def rank(pid: int, pod: str) -> Any:
    return SimpleNamespace(pid=pid, start_ticks=ticks(pid), running_pod=SimpleNamespace(pod={"metadata": {"uid": pod}}))
