"""Files that programs write where the server looks for its own: nothing waits, nothing raises, nothing is believed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, remove_pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions, LogOptions
from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.log_lines import last_line
from rowlock.diagnosis.stacks import parse_stack
from rowlock.diagnostics.rank_failures import find_run_error, read_error_file
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.files.names import NotAName, is_name, path_component
from rowlock.kubelet.pod.directory import OWNER_FACT, PodCard, PodDirectories
from rowlock.kubelet.pod.facts import ContainerConfigError, Run
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.runtime import processes
from rowlock.kubelet.shim.fact_files import write_fact
from rowlock.kubelet.streams import logs
from rowlock.kubelet.streams.logs import LogWatcher
from rowlock.kubelet.volumes.checkpoints import Checkpoints
from rowlock.kubelet.warm.eligibility import plan_warm_start
from rowlock.objects import timestamp

Put = Callable[[Path], object]
TEXTS = {
    "empty": b"",
    "no JSON": b"{",
    "NUL": b"\0" * 100,
    "not UTF-8": b'{"code": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "a list": b"[1, 2]",
    "a text": b'"code"',
    "null": b"null",
    "NaN": b'{"code": NaN, "started": NaN, "finished": NaN, "shim": NaN, "pid": NaN, "begun": NaN}',
    "infinite": b'{"code": 1, "started": Infinity, "finished": -Infinity, "shim": 1e999, "begun": 1e999}',
    "huge": b'{"code": 1' + b"0" * 400 + b', "started": 1' + b"0" * 400 + b', "finished": 1e300, "pid": 1e300}',
    "5,000 digits": b'{"code": 1' + b"0" * 5000 + b"}",
    "negative": b'{"code": -1, "started": -5, "finished": -5, "shim": -1, "pid": -7, "backoff": -9, "begun": -1}',
    "lists": b'{"code": [], "started": [], "finished": [], "shim": [], "pid": [], "message": [1], "begun": []}',
    "objects": b'{"code": {}, "started": {}, "finished": {}, "shim": {}, "message": {"message": {}}, "begun": {}}',
    "texts": b'{"code": "a", "started": "b", "finished": "c", "shim": "d", "pid": "e", "begun": "f", "backoff": "g"}',
    "truths": b'{"code": true, "started": true, "finished": true, "shim": true, "pid": true, "begun": true}',
    "nulls": b'{"code": null, "started": null, "finished": null, "shim": null, "message": null, "begun": null}',
    "half a pair": b'{"code": 1, "started": 1, "finished": 2, "message": "\\ud800", "reason": "\\udfff"}',
    "too much": b" " * (1 << 21) + b"{}",
}
"""What may stand in a fact."""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 << 30)


PUTS: dict[str, Put] = {name: lambda path, text=text: path.write_bytes(text) for name, text in TEXTS.items()} | {
    "a FIFO": fifo,
    "a directory": lambda path: path.mkdir(),
    "a full directory": lambda path: (path / "deep" / "er").mkdir(parents=True),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to a file": lambda path: path.symlink_to("/etc/hostname"),
    "200 GB": sparse,
}
EVERY_PUT = pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)


@EVERY_PUT
def test_an_odd_fact_is_read_as_nothing_and_replaced(tmp_path: Path, put: Put) -> None:
    path = tmp_path / "fact"
    put(path)
    found = untrusted.read_object(str(path))
    assert found is None or isinstance(found, dict)
    write_fact(str(path), {"code": 3})
    assert json.loads(path.read_bytes()) == {"code": 3} and [p.name for p in tmp_path.iterdir()] == ["fact"]


@EVERY_PUT
@pytest.mark.parametrize("name", ["start.0", "exit.0"])
def test_an_odd_fact_of_a_run_can_be_published(tmp_path: Path, put: Put, name: str) -> None:
    write_fact(str(tmp_path / "start.0"), {"shim": 1, "shim_ticks": 1, "pid": 2, "started": 5.0})
    (tmp_path / name).unlink(missing_ok=True)
    put(tmp_path / name)
    assert processes.newest_run(tmp_path) == 0
    run = processes.read_run(tmp_path, 0) or Run(0)
    run = run if run.exit else processes.record_lost_run(tmp_path, run, 7.0)
    assert run.exit is not None and 0 <= run.exit.code <= 255
    assert timestamp(run.exit.started) and timestamp(run.exit.finished)
    json.dumps([run.exit.message, run.exit.reason], ensure_ascii=False).encode()


@pytest.mark.parametrize("name", ["start.²", "start." + "9" * 200, "start.0.new", "start.", "start.-1"])
def test_a_name_that_is_no_number_is_no_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert processes.newest_run(tmp_path) is None


@EVERY_PUT
def test_an_odd_card_is_no_pod(tmp_path: Path, put: Put) -> None:
    directories = PodDirectories(tmp_path)
    (directories.pods / "uid").mkdir()
    put(directories.pods / "uid" / "pod.json")
    assert directories.read_cards() == []
    card = PodCard("default", "a", "uid", "node", "10.77.1.1", 5.0, ("gpu",))
    directories.write_card(card)
    assert directories.read_cards() == [card]


ERROR_TEXTS: dict[str, Any] = {
    "a list": {"message": [1]},
    "a number": {"message": 7},
    "nothing": {"message": {}},
    "lists inside": {"message": {"message": [], "extraInfo": []}},
    "odd extra": {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": [], "timestamp": {}}}},
    "digits": {"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1" * 5000}}},
    "²": {"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "²"}}},
    "surrogates": {"message": {"message": "ValueError: \ud800", "extraInfo": {"py_callstack": "\udfff"}}},
    "times": {"message": {"message": "E: x", "extraInfo": {"py_callstack": "2024-99-99T99:99:99.9Z Traceback"}}},
}


@EVERY_PUT
def test_an_odd_error_file_says_nothing(tmp_path: Path, put: Put) -> None:
    put(tmp_path / "error.0.json")
    put(tmp_path / "log.0")
    error = find_run_error(tmp_path, 0)
    str(error).encode()


@pytest.mark.parametrize("report", ERROR_TEXTS.values(), ids=ERROR_TEXTS)
def test_an_error_file_may_say_anything(tmp_path: Path, report: Any) -> None:
    (tmp_path / "error.json").write_text(json.dumps(report))
    str(read_error_file(tmp_path / "error.json")).encode()


@pytest.mark.parametrize(
    "log",
    [
        "2024-99-99T99:99:99.999999999Z hello\n",
        "2024-xxxxxxxxxxxxxxxxxxxxxxxxZ hello\n",
        "x\x1c2024-01-01T00:00:00.1.2.3456789Z hello\n",
        "[rank" + "9" * 5000 + "]: Traceback (most recent call last):\nValueError: x\n",
        "Traceback (most recent call last):\nValueError: " + "NCCL " * 13000,
        "Root Cause (first observed failure)\n rank : 1 (local_rank: 0)\n exitcode : -" + "9" * 1500,
        "".join(f"[rank{n}]: Traceback (most recent call last):\n" for n in range(1500)),
    ],
)
def test_a_log_may_say_anything(log: str) -> None:
    str(find_error(log)).encode()
    last_line(log)


@pytest.mark.parametrize(
    "threads",
    [
        None, 5, "x", {}, [1], [{}], [{"frames": 5}], [{"frames": [None, 7]}], [{"thread_name": [], "frames": [{}]}],
        [{"frames": [{"name": [], "filename": {}, "line": "²"}]}], [{"frames": [{"name": "\ud800", "line": 1e300}] * 9000}],
    ],
)  # fmt: skip
def test_a_stack_may_be_anything(threads: Any) -> None:
    stack = parse_stack(threads)
    "".join(stack.format_frames() if stack else ()).encode()


@EVERY_PUT
def test_an_odd_script_is_no_torch_program(tmp_path: Path, put: Put) -> None:
    put(tmp_path / "train.py")
    script = str(tmp_path / "train.py")
    assert plan_warm_start(["python", script], {"PATH": os.defpath}, str(tmp_path), lambda path: path) is None
    assert plan_warm_start([script], {"PATH": os.defpath}, str(tmp_path), lambda path: path) is None


@pytest.mark.parametrize(
    "options",
    [{"tail": 5}, {"since": 1.8e9}, {"tail": 5, "since": 1.8e9}, {"limit_bytes": 10}, {"since": -1.0, "tail": 1}],
)
@EVERY_PUT
def test_an_odd_log_is_read_in_no_time(tmp_path: Path, put: Put, options: dict[str, Any]) -> None:
    put(tmp_path / "log.0")

    async def read() -> int:
        watcher, size = LogWatcher(), 0
        async with asyncio.timeout(200):
            log = logs.read(tmp_path / "log.0", LogOptions(**options), lambda: True, asyncio.Event(), watcher)
            async for piece in log:
                size += len(piece)
                if size > 1 << 22:
                    break
            await log.aclose()  # type: ignore[attr-defined] # it is a generator
        watcher.close()
        return size

    assert asyncio.run(read()) <= 1 << 23


# ---------------------------------------------------------------- names

NO_NAMES = [
    "",
    ".",
    "..",
    "../..",
    "a/b",
    "/etc",
    "*",
    "**",
    "a*",
    "[a]",
    "?",
    "a\0",
    "a\n",
    "-a",
    ".a",
    "a" * 300,
    "²",
    "é",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_becomes_no_path(tmp_path: Path, name: str) -> None:
    directories = PodDirectories(tmp_path)
    assert not is_name(name)
    with pytest.raises(NotAName):
        path_component(name, "it")
    with pytest.raises(NotAName):
        directories.container_directory("uid", name)
    with pytest.raises(NotAName):
        directories.pod_directory(name)
    owner = {"uid": name or "/", "controller": True, "apiVersion": "v1", "kind": "X", "name": "x"}
    odd: Any = {"metadata": {"name": "a", "uid": "uid", "ownerReferences": [owner]}}
    with pytest.raises(ContainerConfigError):
        Checkpoints(tmp_path).directory_for(parse_pod_spec(odd))
    assert not (tmp_path / "checkpoints").exists()


def test_a_deleted_pods_log_is_found_by_whole_names_only(tmp_path: Path) -> None:
    directories = PodDirectories(tmp_path / "data")
    logs = directories.logs / "default_a_uid"
    logs.mkdir()
    (logs / "main.0.log").write_text("mine")
    (tmp_path / "data" / "secret.0.log").write_text("secret")
    assert directories.find_deleted_pod_log("default", "a", "main") == logs / "main.0.log"
    assert directories.find_deleted_pod_log("default", "a", "") == logs / "main.0.log"
    for container in ("*", "../../secret", "m*", "[m]ain", "**", "main.0"):
        assert directories.find_deleted_pod_log("default", "a", container) is None
    for name in ("*", "?", "[a]", "..", "a_u"):
        assert directories.find_deleted_pod_log("default", name, "main") is None
        assert directories.find_deleted_pod_log(name, "a", "main") is None


def test_a_deleted_pods_log_is_its_own_jobs(tmp_path: Path) -> None:
    """Two jobs of one name, one after the other: each one's log is found by the job's uid, and a hostile fact by none."""
    directories = PodDirectories(tmp_path)
    for uid, owner in (("u1", "job-1"), ("u2", "job-2"), ("u3", "")):
        card = PodCard("default", "a", uid, "node", "", 5.0, owner=owner)
        directories.write_card(card)
        assert [c.owner for c in directories.read_cards()] == [owner]
        container = directories.container_directory(uid, "main")
        container.mkdir()
        (container / "log.0").write_text(owner)
        remove_pod(directories, card)
    logs = directories.logs
    assert directories.find_deleted_pod_log("default", "a", "", "job-1") == logs / "default_a_u1" / "main.0.log"
    assert directories.find_deleted_pod_log("default", "a", "", "job-2") == logs / "default_a_u2" / "main.0.log"
    fact = logs / "default_a_u1" / OWNER_FACT
    others = logs / "default_a_u2" / OWNER_FACT
    odd: list[Callable[[], None]] = [lambda: os.mkfifo(fact), lambda: fact.symlink_to(others), lambda: fact.mkdir()]
    for make_odd in odd:
        fact.unlink(missing_ok=True)
        make_odd()
        assert directories.find_deleted_pod_log("default", "a", "", "job-1") is None
        assert directories.find_deleted_pod_log("default", "a", "", "job-2") == logs / "default_a_u2" / "main.0.log"


# ---------------------------------------------------------------- against a node


def test_a_node_starts_and_works_whatever_programs_left_in_its_directories(tmp_path: Path) -> None:
    """One pod for each odd file, in the place of each of its facts in turn; all while a healthy one runs."""

    async def body(node: Node) -> None:
        await node.add(pod("healthy", "sleep 600"), *(pod(f"p{n}", "sleep 600") for n in range(len(PUTS))))
        for n in range(len(PUTS)):
            await node.phase(f"p{n}", "Running")
        await node.stop()
        for n, put in enumerate(PUTS.values()):
            directory = tmp_path / "pods" / node.pod(f"p{n}")["metadata"]["uid"]
            for name in ("exit.0", "message.0", "stop", "error.0.json", "start.5"):
                put(directory / "main" / name)
            if n % 2:
                (directory / "main" / "start.0").unlink()
                put(directory / "main" / "start.0")
            put(directory / ".volumes")
        await node.start()
        await node.add(pod("later", "echo works"))
        await node.ended("later")
        assert node.state("healthy", "state.running")
        for n in range(len(PUTS)):
            await node.store.delete(kinds.POD, "default", f"p{n}", options=DeleteOptions(grace=0))
        await until(lambda: not any(node.pod(f"p{n}") for n in range(len(PUTS))), "the pods to go")
        await node.phase("healthy", "Running")

    on_node(tmp_path, body)


def test_a_container_named_work_is_known_after_a_restart(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "pwd; sleep 600", container={"name": "work"}))
        await node.phase("a", "Running")
        pid = processes.read_run(tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "work", 0)
        await node.stop()
        await node.start()
        await node.add(pod("b", "true"))
        await node.ended("b")
        again = processes.read_run(tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "work", 0)
        assert pid == again and node.state("a", "state.running") and node.state("a", "restartCount") == 0
        assert "work" in node.kubelet.pod_states[node.pod("a")["metadata"]["uid"]].containers

    on_node(tmp_path, body)
