"""The probe that looks at the ranks of a container from inside: here at a child of this test in the container's place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.diagnostics.test_spawned_ranks import started
from tests.waiting import until

from rowlock.diagnosis.rendezvous import Rendezvous, parse_rendezvous
from rowlock.diagnosis.stacks import parse_stack
from rowlock.diagnostics import rank_processes, stack_dumps
from rowlock.kube_evidence import rank_probe

LAUNCHER = """
import os, subprocess, sys
env = {**os.environ, "LOCAL_RANK": "0"}
code = "import time; print('up', flush=True)\\ndef stand_still(): time.sleep(600)\\nstand_still()"
ranks = [subprocess.Popen([sys.executable, "-c", code], env={**env, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in (4, 5)]
for rank in ranks: rank.wait()
"""
"""What `torchrun --nproc-per-node 2` is, as far as processes can tell."""


RESTS = "import time; print('up', flush=True); time.sleep(600)"


@contextmanager
def container(monkeypatch: pytest.MonkeyPatch, *command: str, lines: int = 0) -> Iterator[int]:
    """A child that is taken for the first process of a container, when it has written so many lines; its pid."""
    env = {**{n: v for n, v in os.environ.items() if n not in rank_probe.TORCH_VARIABLES}, "RANK": "0"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True) as made:
        assert made.stdout is not None
        for _ in range(lines):
            made.stdout.readline()
        whole = rank_probe.process_tree()[0]

        def below(pid: int) -> dict[int, list[int]]:
            return {pid: whole[pid]} | {one: kids for child in whole[pid] for one, kids in below(child).items()}

        monkeypatch.setattr(rank_probe, "process_tree", lambda: (below(made.pid), [made.pid]))
        try:
            yield made.pid
        finally:
            os.killpg(made.pid, signal.SIGKILL)


def probed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    rank_probe.main()
    ranks: list[dict[str, object]] = json.loads(capsys.readouterr().out)["ranks"]
    return ranks


def cpu_used(rank: dict[str, Any]) -> float:
    return float(rank["after"]["cpu"] - rank["before"]["cpu"])


@pytest.mark.skipif(not stack_dumps.find_py_spy(), reason="py-spy is not installed: stacks cannot be read")
def test_each_rank_below_a_launcher_is_seen_with_its_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(Path(stack_dumps.find_py_spy()).parent))
    with container(monkeypatch, sys.executable, "-c", LAUNCHER, lines=2):
        found = probed(capsys)
    assert [(rank["number"], rank["state"], rank["blind"]) for rank in found] == [("4", "S", ""), ("5", "S", "")]
    assert not any("meeting" in rank for rank in found)
    for rank in found:
        for look in ("first", "second"):
            stack = parse_stack(rank[look])
            assert stack is not None and [frame.function for frame in stack.frames] == ["stand_still", "<module>"]


JOINS = """
import time
def _create_c10d_store(hostname, port, rank, world_size, secret="hunter2"):
    print("up", flush=True)
    time.sleep(600)
def init_process_group():
    _create_c10d_store("j-master-0", 23456, 1, 3)
init_process_group()
"""


@pytest.mark.skipif(not stack_dumps.find_py_spy(), reason="py-spy is not installed: stacks cannot be read")
def test_of_a_rank_that_waits_for_others_to_come_what_it_expects_is_told_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(Path(stack_dumps.find_py_spy()).parent))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with container(monkeypatch, sys.executable, "-c", JOINS, lines=1):
        (seen,) = probed(capsys)
    assert parse_rendezvous(seen["meeting"]) == Rendezvous(3, 1, "j-master-0", 23456)
    assert seen["world_size"] == "2" and "hunter2" not in json.dumps(seen["meeting"])


@pytest.mark.parametrize(("lines", "first"), [([3, 3, 4], 3), ([3] * 5, 3), ([3, 4], 3)])
def test_who_has_moved_is_looked_at_no_more(
    lines: list[int], first: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who has not, five times."""

    def thread(line: int) -> dict[str, Any]:
        calls = [{"name": "step", "filename": "t.py", "line": line, "locals": None}]
        return {"thread_name": "MainThread", "frames": calls}

    left = [[{"thread_name": "other"}, thread(line)] for line in lines]
    monkeypatch.setattr(rank_probe, "find_py_spy", lambda pids: "spy")
    monkeypatch.setattr(rank_probe, "PAUSES_S", (0.0,) * 4)
    monkeypatch.setattr(rank_probe, "run_py_spy", lambda tool, pid: (left.pop(0), ""))
    with container(monkeypatch, sys.executable, "-c", RESTS, lines=1):
        (rank,) = probed(capsys)
    assert [each["thread_name"] for each in rank["second"]] == ["MainThread", "other"]  # type: ignore[attr-defined]
    assert (rank["first"][0]["frames"][0]["line"], rank["looks"]) == (first, len(lines))  # type: ignore[index]


def test_without_py_spy_that_is_the_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rank_probe, "find_py_spy", lambda pids: "")
    spin = "print('up', flush=True)\nwhile True: pass"
    with container(monkeypatch, sys.executable, "-c", spin, lines=1) as pid:
        (rank,) = probed(capsys)
    assert rank["pid"] == pid and rank["number"] == "" and rank["second"] == []
    assert str(rank["blind"]).startswith("py-spy is not in the image") and cpu_used(rank) > 0


def test_a_py_spy_that_fails_or_lies_is_only_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "py-spy"
    monkeypatch.setattr(rank_probe, "find_py_spy", lambda pids: str(tool))
    said = {
        "echo 'Error: Permission Denied' >&2; exit 1": "py-spy: Error: Permission Denied",
        "echo nonsense": "py-spy's answer cannot be read",
        "echo '{}'": "py-spy's answer is no list of threads",
        "exec sleep 600": "py-spy did not answer within 0 s",
        'echo \'[7, {"thread_name": "MainThread"}]\'': "",
    }
    with container(monkeypatch, sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)", lines=1):
        for body, blind in said.items():
            monkeypatch.setattr(rank_probe, "DUMP_S", 0.2 if "sleep" in body else 60.0)
            tool.write_text(f"#!/bin/sh\n{body}\n")
            tool.chmod(0o700)
            (rank,) = probed(capsys)
            assert rank["blind"] == blind
            assert parse_stack(rank["second"]) is None or not parse_stack(rank["second"]).frames  # type: ignore[union-attr]


def test_what_a_rank_wrote_into_its_error_file_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of it, and not that of an earlier program."""
    monkeypatch.setattr(rank_probe, "find_py_spy", lambda pids: "")
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    with container(monkeypatch, sys.executable, "-c", RESTS, lines=1):
        assert probed(capsys)[0]["error"] == ""
        path.write_text("x" * rank_probe.MAX_ERROR_BYTES + "its end")
        assert str(probed(capsys)[0]["error"]).endswith("xits end")
        assert len(str(probed(capsys)[0]["error"])) == rank_probe.MAX_ERROR_BYTES
        os.utime(path, (1, 1))
        assert probed(capsys)[0]["error"] == ""
        path.unlink()
        os.mkfifo(path)
        assert probed(capsys)[0]["error"] == ""
        path.unlink()
        path.mkdir()
        assert probed(capsys)[0]["error"] == ""


def test_an_error_file_that_several_ranks_share_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_probe, "find_py_spy", lambda pids: "")
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    with container(monkeypatch, sys.executable, "-c", LAUNCHER, lines=2):
        path.write_text("whose?")
        assert [rank["error"] for rank in probed(capsys)] == ["", ""]


def test_what_failed_before_torchrun_started_its_ranks_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of them, and told once in a pod."""
    monkeypatch.setattr(rank_probe, "find_py_spy", lambda pids: "")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "attempt_2" / "0" / "error.json"))
    for local, at in ((1, 20), (3, 10), (4, 30)):
        place = tmp_path / "attempt_1" / str(local) / "error.json"
        place.parent.mkdir(parents=True)
        place.write_text(f"of {local}")
        os.utime(place, (at, at))
    (tmp_path / "attempt_1" / "0").mkdir()
    os.mkfifo(tmp_path / "attempt_1" / "0" / "error.json")
    with container(monkeypatch, "env", "LOCAL_RANK=0", sys.executable, "-c", RESTS, lines=1):
        (rank,) = probed(capsys)
    assert (rank["restarts"], rank["earlier"], rank["earlier_rank"]) == (2, "of 3", 3)


UP = f'{sys.executable} -c "{RESTS}"'


@pytest.mark.parametrize(
    ("command", "lines", "numbers"),
    [
        ((sys.executable, "-c", LAUNCHER), 2, ["4", "5"]),
        (("sh", "-c", f"{UP} & {UP} & wait"), 2, ["", ""]),
        (("sh", "-c", f"RANK=3 {UP} & wait"), 1, ["3"]),
        (("sh", "-c", f"OMPI_COMM_WORLD_RANK=6 {UP} & PMI_RANK=7 {UP} & wait"), 2, ["6", "7"]),
        ((sys.executable, "-c", f"import os; os.system({UP!r})"), 1, [""]),
        (("sh", "-c", "echo up; sleep 600 & wait"), 1, []),
    ],
)
def test_the_same_processes_are_ranks_as_on_one_machine(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], lines: int, numbers: list[str]
) -> None:
    with container(monkeypatch, *command, lines=lines) as pid:
        tree, _ = rank_probe.process_tree()
        found = rank_probe.ranks_below(pid, tree, rank_probe.read_environ(pid))
        assert sorted(found) == sorted(rank_processes.find_python_ranks(pid))
        assert sorted(number for _, number in found) == numbers


@pytest.mark.parametrize("how", ["connected", "inherited", "without a framework"])
def test_ranks_without_numbers_are_those_of_one_machine(tmp_path: Path, how: str) -> None:
    with started(how, tmp_path) as (program, children):
        expected = [(pid, "") for pid in (children if how == "connected" else [program])]
        until(lambda: rank_processes.find_python_ranks(program) == expected, "the program waits for them", 60)
        tree = {program: children, **{child: [] for child in children}}
        found = rank_probe.ranks_below(program, tree, rank_probe.read_environ(program))
        assert sorted(found) == sorted(expected), "in whichever order their processes were found"


def has_namespaces() -> bool:
    made = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "true")
    return bool(shutil.which("nsenter")) and not subprocess.run(made, capture_output=True).returncode


SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
OWN_ROOT = ("unshare", "--mount", "--mount-proc", "--")


@pytest.mark.skipif(not has_namespaces(), reason="only root makes the namespaces of containers")
@pytest.mark.skipif(not stack_dumps.find_py_spy(), reason="py-spy is not installed: stacks cannot be read")
def test_from_a_debug_container_the_first_containers_processes_are_seen_and_no_others() -> None:
    """As in a pod: one set of processes, and files of its own for each container; a third one sleeps as debug containers do."""
    code = "import time; print('up', flush=True)\ndef stand_still(): time.sleep(600)\nstand_still()"
    env = {name: value for name, value in os.environ.items() if name not in rank_probe.TORCH_VARIABLES}
    program = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", code)
    with ExitStack() as ended:
        launcher = begin(ended, program, env)
        (first,) = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        beside = ("nsenter", "--target", first, "--pid", "--", *OWN_ROOT)
        begin(ended, (*beside, sys.executable, "-c", code), env)
        script = (sys.executable, "-I", "-S", rank_probe.__file__)
        spied = {**env, "PATH": f"{Path(stack_dumps.find_py_spy()).parent}:{SYSTEM_PATH}"}
        outside = probed_by((*beside, *script, rank_probe.FROM_OUTSIDE), spied)
        bare = probed_by((*beside, *script, rank_probe.FROM_OUTSIDE), {**env, "PATH": SYSTEM_PATH})
        inside = probed_by((*beside, *script), spied)
    assert [(rank["pid"], rank["blind"]) for rank in outside] == [(1, "")] and inside == []
    stack = parse_stack(outside[0]["second"])
    assert stack is not None and [frame.function for frame in stack.frames] == ["stand_still", "<module>"]
    assert bare[0]["blind"].startswith("py-spy is not in the image")


def test_from_outside_py_spy_is_that_of_our_own_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And never a program of the container that is looked at, nor are our own processes taken for its."""
    tool = tmp_path / "py-spy"
    tool.write_text("")
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rank_probe, "read_environ", lambda pid: {"PATH": str(tmp_path)})
    monkeypatch.setattr(sys, "argv", ["-c", rank_probe.FROM_OUTSIDE])
    assert rank_probe.find_py_spy([os.getpid()]) == str(tool)
    monkeypatch.setenv("PATH", "")
    assert rank_probe.find_py_spy([os.getpid()]) == ""
    monkeypatch.setattr(rank_probe, "read_link", lambda pid, name: "mnt:[1]")
    assert rank_probe.process_tree() == ({}, []), "process 1 is our own where no processes are shared"


def begin(ended: ExitStack, command: tuple[str, ...], env: dict[str, str]) -> int:
    """A program that has written its first line, until `ended`; its pid."""
    made = ended.enter_context(subprocess.Popen(command, env=env, stdout=subprocess.PIPE))
    ended.callback(made.kill)
    assert made.stdout is not None and made.stdout.readline() == b"up\n"
    return made.pid


def probed_by(command: tuple[str, ...], env: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["ranks"]
    return found


@pytest.mark.parametrize(
    ("near", "far", "alone"), [("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "127.0.0.2", False)]
)
def test_a_rank_is_alone_without_a_connection_that_leaves_its_pod(near: str, far: str, alone: bool) -> None:
    program = (
        "import socket, sys; s = socket.create_server((sys.argv[2], 0));"
        " c = socket.create_connection(s.getsockname(), source_address=(sys.argv[1], 0)); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, near, far]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert rank_probe.is_alone(child.pid, {child.pid: []}) is alone
        child.communicate(timeout=200)
