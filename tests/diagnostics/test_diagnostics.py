"""Real processes that fail, stop, wait and dawdle, and what is said of them. No torch: what counts is where a stack stands."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.diagnosis.observation import RankObservation
from rowlock.diagnosis.stacks import NO_CALL, parse_stack
from rowlock.diagnostics import diagnostics, hang_detector, rank_processes, stack_dumps
from rowlock.diagnostics.diagnostics import Diagnostics
from rowlock.objects import Object

needs_spy = pytest.mark.skipif(not stack_dumps.find_py_spy(), reason="py-spy is not installed: stacks cannot be read")

COLLECTIVES = """
import os, time
def all_reduce(here, step="go"):
    while not os.path.exists(f"{here}/{step}"):
        time.sleep(0.05)
"""
"""Lies in `torch/distributed/`: a wait for other ranks, as far as a stack can tell."""

RANK = """
import itertools, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here + "/torch/distributed")
import fake
def load():
    while not os.path.exists(here + "/load"):
        time.sleep(0.01)
def spin():
    while not os.path.exists(here + "/load"):
        pass
def slow(step):
    time.sleep(0.05)
    open(f"{here}/{step}", "w").close()
def quick(step):
    time.sleep(0.005)
    fake.all_reduce(here, step)
print("step 1", flush=True)
how = sys.argv[1]
if how in ("load", "spin"):
    {"load": load, "spin": spin}[how]()
elif how in ("slow", "quick"):
    for step in itertools.count():
        {"slow": slow, "quick": quick}[how](step)
        print("a step", flush=True)
elif how == "fail":
    raise ValueError("bad batch")
elif how == "echo":
    while not os.path.exists(here + "/echo"):
        time.sleep(0.01)
    raise RuntimeError("Connection closed by peer [10.77.0.3]:1234")
fake.all_reduce(here)
"""


LAUNCHER = """
import os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
made = [
    subprocess.Popen([sys.executable, here + "/rank.py", how], env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n)})
    for n, how in enumerate(sys.argv[1:])
]
sys.exit(max(child.wait() for child in made))
"""
"""What `torchrun --nproc-per-node` is, as far as processes can tell."""


class Job:
    """A PyTorchJob whose pods the test makes itself."""

    def __init__(self, node: Node, place: Path) -> None:
        self.node, self.place = node, place
        self.object: Object = {}
        self.attached: Diagnostics
        self.detector: hang_detector.HangDetector
        (place / "torch" / "distributed").mkdir(parents=True, exist_ok=True)
        (place / "torch" / "distributed" / "fake.py").write_text(COLLECTIVES)
        (place / "rank.py").write_text(RANK)
        (place / "launcher.py").write_text(LAUNCHER)

    @contextlib.asynccontextmanager
    async def attach(self) -> AsyncIterator[Diagnostics]:
        """Attached to the kubelet of now, its watch at work."""
        self.attached = diagnostics.attach_diagnostics(self.node.kubelet, self.node.store.view, self.node.data)
        self.detector = hang_detector.HangDetector(self.attached)
        watching = asyncio.create_task(self.detector.run())
        yield self.attached
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    async def start(self, *ways: str, policy: str = "Never") -> None:
        spec: Object = {"pytorchReplicaSpecs": {"Master": {}, "Worker": {}}}
        meta = {"name": "j", "namespace": "default"}
        plain = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
        self.object = await self.node.store.create(kinds.PYTORCHJOB, plain)
        for number, how in enumerate(ways):
            role, index = ("master", 0) if number == 0 else ("worker", number - 1)
            labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}
            owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "controller": True}
            owned = [{**owner, "uid": self.object["metadata"]["uid"]}]
            script = self.place / ("launcher.py" if " " in how else "rank.py")
            command = {"command": [sys.executable, str(script), *how.split()]}
            await self.node.add(
                pod(f"j-{role}-{index}", "", policy, container=command, labels=labels, ownerReferences=owned)
            )

    async def event(self, *reasons: str) -> str:
        def said() -> list[str]:
            return [m for _, r, m in self.node.events("j") if r in reasons]

        await until(said, f"an event {reasons}; there are {self.node.events('j')}")
        return said()[-1]

    async def why(self) -> dict[str, Any]:
        return await self.attached.diagnose_job(self.object)

    async def spoken(self, *names: str) -> None:
        for name in names:
            await self.node.phase(name, "Running")
            await self.node.said(name, "step 1")

    async def search(self, ranks: int) -> None:
        """Have the watch search for a straggler, now that so many ranks have begun: that may take long on a busy machine."""
        logs = self.node.data / "pods"

        def begun() -> int:
            return sum(log.read_bytes().count(b"step 1\n") for log in logs.glob("*/main/log.0"))

        watched = self.detector._jobs
        await until(lambda: watched and begun() == ranks, f"{ranks} ranks that have begun, and are watched")
        watched[self.object["metadata"]["uid"]].next_search = 0.0

    def below(self, name: str) -> dict[str, int]:
        """The ranks of a pod: pid by number."""
        return {number: pid for pid, number in rank_processes.find_python_ranks(self.pid(name))}

    def pid(self, name: str) -> int:
        uid = self.node.pod(name)["metadata"]["uid"]
        return int(json.loads((self.node.data / "pods" / uid / "main" / "start.0").read_bytes())["pid"])


def on_job(tmp_path: Path, body: Callable[[Job], Awaitable[None]]) -> None:
    (tmp_path / "ranks").mkdir()

    async def whole(node: Node) -> None:
        job = Job(node, tmp_path / "ranks")
        async with job.attach():
            await body(job)

    on_node(tmp_path, whole)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that need not be patient with a test."""
    monkeypatch.setattr(hang_detector, "SAMPLE_INTERVAL", 0.1)
    monkeypatch.setattr(hang_detector, "STILL", 0.5)
    monkeypatch.setattr(hang_detector, "HALTED", 0.3)
    monkeypatch.setattr(hang_detector, "SLOW", 0.5)
    monkeypatch.setattr(hang_detector, "_AGAIN", 0.5)
    monkeypatch.setattr(hang_detector, "_COST", 10.0)
    monkeypatch.setattr(hang_detector, "_CONFIRM", 0.2)


@pytest.fixture
def searching(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that searches for a straggler when it is told to, and then again and again."""
    for name, value in {"_FIRST": 1e9, "_APART": 0.05, "_SEARCH_INTERVAL": 0.0, "_SEARCH_SHARE": 1.0}.items():
        monkeypatch.setattr(hang_detector, name, value)


def test_the_first_failure_is_told_and_its_echoes_are_marked(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.start("echo", "load", "fail")
        await job.node.ended("j-worker-1")
        (job.place / "echo").touch()
        await job.node.ended("j-master-0")
        said = await job.event("RankFailed")
        assert said.startswith("rank 2 (pod j-worker-1, node ") and "ValueError: bad batch (rank.py:27)" in said
        assert said.endswith("; rank 0 then lost it and ended too.")
        found = await job.why()
        (incident,) = found["incidents"]
        assert incident["sentence"] == said
        whose = job.object["metadata"]["uid"]
        assert (job.attached.status_message(whose, "Failed"), job.attached.status_message(whose, "Running")) == (
            said,
            "",
        )
        assert [(d["rank"], d["trouble"]["secondary"]) for d in incident["deaths"]] == [
            ("rank 2", False),
            ("rank 0", True),
        ]
        assert [r["rank"] for r in found["ranks"]] == ["rank 1"]

    on_job(tmp_path, body)


def test_a_killed_rank_is_told_from_a_stopped_one_also_by_the_next_server(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.start("load", "load", "load")
        await job.spoken("j-master-0", "j-worker-0", "j-worker-1")
        os.kill(job.pid("j-worker-0"), signal.SIGKILL)
        await job.node.ended("j-worker-0")
        said = await job.event("RankFailed")
        assert said.startswith("rank 1 (pod j-worker-0") and "was killed with SIGKILL (exit code 137)" in said
        assert "not by rowlock" in said
        await job.node.stop()
        await job.node.delete("j-worker-0", DeleteOptions(grace=0))
        await job.node.start()
        diagnostics.attach_diagnostics(job.node.kubelet, job.node.store.view, job.node.data)
        (incident,) = (await job.why())["incidents"]
        assert [d["rank"] for d in incident["deaths"]] == ["rank 1"]
        await job.node.delete("j-worker-1", DeleteOptions(grace=1))
        assert sum(reason == "RankFailed" for _, reason, _ in job.node.events("j")) == 1, "we stopped it ourselves"

    on_job(tmp_path, body)


def test_a_container_beside_a_rank_is_not_taken_for_it(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.start()
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "controller": True}
        owned = [{**owner, "uid": job.object["metadata"]["uid"]}]
        made = pod("j-master-0", "sleep 600", ownerReferences=owned)
        made["spec"]["containers"].append(
            {**made["spec"]["containers"][0], "name": "board", "command": ["sh", "-c", "exit 3"]}
        )
        await job.node.add(made)
        said = await job.event("RankFailed")
        assert said.startswith("container board of rank 0 (pod j-master-0, node ") and "ended with exit code 3" in said

    on_job(tmp_path, body)


def test_why_the_kubelet_ended_a_pod_is_told_in_its_own_words(tmp_path: Path) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}

    async def body(job: Job) -> None:
        await job.start()
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "controller": True}
        owned = [{**owner, "uid": job.object["metadata"]["uid"]}]
        ill: dict[str, Any] = {"container": {"livenessProbe": probe}, "spec": {"terminationGracePeriodSeconds": 1}}
        late: dict[str, Any] = {"spec": {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}}
        await job.node.add(pod("j-master-0", "exec sleep 600", ownerReferences=owned, **ill))
        await job.node.ended("j-master-0")
        said = await job.event("RankFailed")
        assert "was stopped by the kubelet" in said
        assert said.endswith(": Unhealthy: Container main failed liveness probe.")
        await job.node.add(pod("j-worker-0", "exec sleep 600", ownerReferences=owned, **late))
        await until(lambda: len(job.attached.failures.failures_of(job.object["metadata"]["uid"])) == 2, "a second end")
        failed = (await job.why())["incidents"][-1]["deaths"]
        assert {d["reason"]: d["message"] for d in failed}["DeadlineExceeded"] == (
            "Pod was active on the node longer than the specified deadline"
        )

    on_job(tmp_path, body)


def test_a_program_that_does_not_start_and_the_error_file_of_torch(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.start("load")
        writes = (
            "import json, os; json.dump({'message': {'message': 'KeyError: \\'labels\\'', 'extraInfo': {'timestamp': '12', "
            "'py_callstack': 'Traceback (most recent call last):\\n  File \"/w/a.py\", line 7, in get\\nKeyError: \\'labels\\'\\n'"
            "}}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); raise SystemExit(1)"
        )
        owned = job.node.pod("j-master-0")["metadata"]["ownerReferences"]
        for number, command in enumerate((["pyhton", "x"], [sys.executable, "-c", writes])):
            labels = {
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": str(number),
            }
            made = pod(f"j-worker-{number}", "", container={"command": command}, labels=labels, ownerReferences=owned)
            await job.node.add(made)
            await job.node.ended(f"j-worker-{number}")
        (incident,) = (await job.why())["incidents"]
        said = {d["rank"]: d for d in incident["deaths"]}
        assert said["rank 1"]["reason"] == "StartError" and "pyhton" in said["rank 1"]["message"]
        assert said["rank 2"]["trouble"]["place"] == "a.py:7 in get" and said["rank 2"]["trouble"]["at"] == 12.0

    on_job(tmp_path, body)


@needs_spy
def test_who_keeps_the_others_waiting_on_request(tmp_path: Path) -> None:
    async def body(job: Job) -> None:
        await job.start("wait", "load", "wait")
        await job.spoken("j-master-0", "j-worker-0", "j-worker-1")
        verdict: dict[str, Any] = {}
        while "both other ranks wait" not in verdict.get("sentence", ""):  # they have spoken, but are all there yet?
            verdict = (await job.why())["verdict"] or {}
        assert (verdict["kind"], verdict["culprits"]) == ("behind", ["rank 1"])
        assert "it is at load (rank.py:8)" in verdict["sentence"]
        assert "both other ranks wait in all_reduce" in verdict["sentence"]
        found = await job.why()
        assert [(r["rank"], r["waits"]) for r in found["ranks"]] == [
            ("rank 0", "all_reduce"), ("rank 1", ""), ("rank 2", "all_reduce")
        ]  # fmt: skip
        assert any(line.startswith("load (") for line in found["ranks"][1]["stack"])

    on_job(tmp_path, body)


@needs_spy
@pytest.mark.parametrize("how", ["load", "spin"])
def test_a_rank_that_keeps_the_others_waiting_is_found(tmp_path: Path, hasty: None, how: str) -> None:
    """One that spins is seen at one line, or at several: it hangs, or it is slow; who and where is the same."""

    async def body(job: Job) -> None:
        await job.start("wait", how)
        said = await job.event("JobHangs", "RankSlow" if how == "spin" else "JobHangs")
        assert said.startswith("rank 1 (pod j-worker-0") and f"it is at {how} (rank.py:" in said
        (job.place / "load").touch()
        (job.place / "go").touch()
        await job.node.ended("j-master-0", "j-worker-0")

    on_job(tmp_path, body)


def test_silence_is_told_as_long_as_it_is_when_somebody_asks(tmp_path: Path) -> None:
    now = 1_000.0
    around: Any = SimpleNamespace(clock=lambda: now)
    found = Diagnostics(around, tmp_path)
    frames = [{"name": "all_reduce", "filename": "/torch/distributed/fake.py", "line": 4}]
    seen = parse_stack([{"thread_name": "MainThread", "frames": frames}])
    found.set_hang(
        "job", [RankObservation(f"rank {i}", f"j-{i}", "n1", silent=6.0, stack=seen, moved=False) for i in range(3)]
    )
    assert "silent for 6.0 s" in found.status_message("job", "Running")
    now = 1_054.0
    assert "silent for 60 s" in found.status_message("job", "Running")
    now = 999.0
    assert "silent for 6.0 s" in found.status_message("job", "Running"), "a clock that was set back"
    assert found.status_message("job", "Completed") == found.status_message("other", "Running") == ""
    found.set_hang("job", [])
    assert found.status_message("job", "Running") == ""


@needs_spy
def test_a_stopped_rank_is_named_and_goes_on(tmp_path: Path, hasty: None) -> None:
    async def body(job: Job) -> None:
        await job.start("quick", "slow")
        await job.spoken("j-master-0", "j-worker-0")
        os.kill(job.pid("j-worker-0"), signal.SIGSTOP)
        said = await job.event("JobHangs")
        assert said.startswith("rank 1 is stopped by a signal") and f"`kill -CONT {job.pid('j-worker-0')}`" in said
        whose = job.object["metadata"]["uid"]
        assert (job.attached.status_message(whose, "Running"), job.attached.status_message(whose, "Failed")) == (
            said,
            "",
        )
        os.kill(job.pid("j-worker-0"), signal.SIGCONT)
        assert "The ranks make progress again" in await job.event("JobMovesAgain")
        assert job.attached.status_message(whose, "Running") == ""

    on_job(tmp_path, body)


@needs_spy
def test_of_several_ranks_in_one_pod_the_stopped_one_is_named(tmp_path: Path, hasty: None) -> None:
    """`torchrun --nproc-per-node 3` in a single pod: ranks are processes, not pods."""

    async def body(job: Job) -> None:
        await job.start("quick slow quick")
        await job.spoken("j-master-0")
        await until(lambda: len(job.below("j-master-0")) == 3, "three ranks")
        pid = job.below("j-master-0")["1"]
        os.kill(pid, signal.SIGSTOP)
        said = await job.event("JobHangs")
        assert said.startswith(
            f"rank 1 is stopped by a signal (SIGSTOP or a debugger) (pod j-master-0, node {job.node.name}, pid {pid})"
        )
        assert "2 ranks wait for it in all_reduce" in said or "both other ranks wait for it in all_reduce" in said
        os.kill(pid, signal.SIGCONT)
        assert "The ranks make progress again" in await job.event("JobMovesAgain")

    on_job(tmp_path, body)


@needs_spy
def test_of_several_ranks_in_one_pod_the_one_that_keeps_the_others_waiting_is_named(
    tmp_path: Path, hasty: None
) -> None:
    async def body(job: Job) -> None:
        await job.start("wait load wait")
        said = await job.event("JobHangs")
        assert said.startswith("rank 1 (pod j-master-0") and "it is at load (rank.py:8)" in said
        (job.place / "load").touch()
        (job.place / "go").touch()
        await job.node.ended("j-master-0")

    on_job(tmp_path, body)


@needs_spy
def test_of_several_ranks_in_one_pod_the_slow_one_is_named(tmp_path: Path, searching: None) -> None:
    async def body(job: Job) -> None:
        await job.start("quick quick slow")
        await job.search(ranks=3)
        said = await job.event("RankSlow")
        assert said.startswith("rank 2 is slower than its peers: it waits 0% of the time, the 2 others ")

    on_job(tmp_path, body)


def test_ranks_of_a_script_have_names_of_their_own(tmp_path: Path) -> None:
    """Started by a shell, without numbers: whoever is named can be told from the others."""

    async def body(job: Job) -> None:
        rank = f"{sys.executable} {job.place / 'rank.py'} load"
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "controller": True}
        await job.start()
        owned = [{**owner, "uid": job.object["metadata"]["uid"]}]
        await job.node.add(pod("j-master-0", f"{rank} & RANK=7 {rank} & {rank}; wait", ownerReferences=owned))
        await job.node.phase("j-master-0", "Running")

        def names() -> list[str]:
            return [rank.name for rank in rank_processes.find_ranks(job.attached.running_pods())]

        await until(lambda: len(names()) == 3, "three ranks")
        found, root = sorted(names()), job.pid("j-master-0")
        pids = sorted(pid for pid, number in rank_processes.find_python_ranks(root) if not number)
        assert found == sorted([*(f"rank 0 (pid {pid})" for pid in pids), "rank 7"])

    on_job(tmp_path, body)


@needs_spy
def test_where_nobody_can_be_named_that_is_said(tmp_path: Path, hasty: None) -> None:
    async def body(job: Job) -> None:
        await job.start()
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "controller": True}
        owned = [{**owner, "uid": job.object["metadata"]["uid"]}]
        for name in ("j-master-0", "j-worker-0"):
            await job.node.add(pod(name, "echo step 1; sleep 600", ownerReferences=owned))
        said = await job.event("JobStill")
        assert said.startswith("No rank has written a line for ") and said.endswith(
            "and at least one of them uses no CPU. The ranks' stacks cannot be read: they are not Python programs."
        )

    on_job(tmp_path, body)


ENDS_IN_C = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.pause, None, None)
print("step 1", flush=True)
"""
"""Its Python is over, and a library (as MPI's) keeps the process."""


@needs_spy
def test_of_python_that_is_over_it_is_not_said_at_once_that_it_stands_still(
    tmp_path: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes its time to end on a busy machine; two minutes of silence are told (1,000 looks at healthy programs had one such)."""
    monkeypatch.setattr(hang_detector, "_ENDING", 1e9)
    monkeypatch.setenv("RUST_BACKTRACE", "1")  # as people have it who write Rust: py-spy says more then

    async def body(job: Job) -> None:
        (job.place / "rank.py").write_text(ENDS_IN_C)
        looks = list[list[RankObservation]]()
        judge = job.attached.judge_job

        async def judge_and_count(uid: str) -> Any:
            judged = await judge(uid)
            looks.append(judged[1])
            return judged

        monkeypatch.setattr(job.attached, "judge_job", judge_and_count)
        await job.start("ends", "ends")
        await until(lambda: sum(map(_are_over, looks)) >= 4, "four looks at programs that are over")
        assert not [event for event in job.node.events("j") if event[1] == "JobStill"]
        monkeypatch.setattr(hang_detector, "_ENDING", 0.0)
        assert "No rank has written a line for " in await job.event("JobStill")

    on_job(tmp_path, body)


def _are_over(ranks: list[RankObservation]) -> bool:
    return len(ranks) == 2 and all(rank.blind == NO_CALL for rank in ranks)


@needs_spy
def test_a_straggler_is_named(tmp_path: Path, searching: None) -> None:
    async def body(job: Job) -> None:
        await job.start("quick", "slow", "quick")
        await job.search(ranks=3)
        said = await job.event("RankSlow")
        assert said.startswith("rank 1 is slower than its peers: it waits 0% of the time, the 2 others ")

    on_job(tmp_path, body)


def test_ranks_below_a_launcher(tmp_path: Path) -> None:
    """Of torchrun's children each is a rank; what a rank starts is not."""
    loader = "import time; time.sleep(60)"
    rank = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{loader}'])"
    agent = (
        f"import os, subprocess, sys\nfor i in range(2):\n    env = {{**os.environ, 'LOCAL_RANK': str(i), 'RANK': str(4 + i)}}\n"
        f"    made = subprocess.Popen([sys.executable, '-c', {rank!r}], env=env)\nmade.wait()"
    )

    async def body(node: Node) -> None:
        await node.add(pod("a", "", container={"command": ["sh", "-c", '"$0" -c "$1"; true', sys.executable, agent]}))
        await node.phase("a", "Running")
        uid = node.pod("a")["metadata"]["uid"]
        root = json.loads((node.data / "pods" / uid / "main" / "start.0").read_bytes())["pid"]
        await until(lambda: sorted(r for _, r in rank_processes.find_python_ranks(root)) == ["4", "5"], "two ranks")

    on_node(tmp_path, body)


def test_without_py_spy_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_dumps, "find_py_spy", lambda: "")
    assert "py-spy is not installed" in asyncio.run(stack_dumps.dump_stack(1)).blind
    monkeypatch.setattr(stack_dumps, "find_py_spy", lambda: shutil.which("false") or "/bin/false")
    assert asyncio.run(stack_dumps.dump_stack(os.getpid())).blind.startswith("py-spy: ")


INTERRUPTIBLE = """
import ctypes, os, socket, struct, sys
ours, theirs = socket.socketpair()
ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 20, 0))
libc = ctypes.CDLL(None, use_errno=True)
sys.stdout.write("ready\\n")
sys.stdout.flush()
if os.fork() == 0:
    sys.stdin.read(1)
    theirs.send(b"x")
    os._exit(0)
print(libc.recv(ours.fileno(), ctypes.create_string_buffer(1), 1, 0), os.strerror(ctypes.get_errno()))
"""


@needs_spy
def test_looking_at_a_process_does_not_end_its_system_calls() -> None:
    """A library that waits with SO_RCVTIMEO and takes EINTR for the end: XGBoost's tracker failed for a look of ours."""
    words = [sys.executable, "-c", INTERRUPTIBLE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
        for _ in range(5):
            found = asyncio.run(stack_dumps.dump_stack(process.pid))
            assert found.stack and found.stack.frames, found.blind
        process.stdin.write("g")
        process.stdin.close()
        assert process.stdout.read() == "1 Success\n"
