"""What becomes of programs whose shim was killed."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until
from tests.processes import running
from tests.waiting import PATIENCE

from rowlock.kubelet.pod.directory import WORK_DIRECTORY, PodDirectories
from rowlock.kubelet.runtime import processes
from rowlock.kubelet.runtime.container_runs import ContainerRuns
from rowlock.kubelet.shim.fact_files import ticks


def test_pods_whose_shims_were_killed_together_share_a_look_at_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[set[str]] = []
    may_end = threading.Event()

    def kill_strays(uids: Iterable[str], identity: str) -> int:
        assert threading.current_thread() is not threading.main_thread(), "others wait for the event loop"
        looks.append(set(uids))
        assert may_end.wait(PATIENCE)
        return 0

    async def body() -> None:
        runs = ContainerRuns(PodDirectories(tmp_path), lambda: 0.0)
        first = asyncio.create_task(runs.kill_strays("a"))
        await until(lambda: looks)
        others = [asyncio.create_task(runs.kill_strays(uid)) for uid in ("b", "c", "a")]
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(first, *others)
        assert looks == [{"a"}, {"a", "b", "c"}], "what began after the first look may be the second's"

    monkeypatch.setattr(processes, "kill_strays", kill_strays)
    asyncio.run(body())


def test_a_look_that_fails_is_taken_over_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[set[str]] = []

    def kill_strays(uids: Iterable[str], identity: str) -> int:
        looks.append(set(uids))
        if len(looks) == 2:
            raise OSError(24, "too many open files")
        return 0

    async def body() -> None:
        runs = ContainerRuns(PodDirectories(tmp_path), lambda: 0.0)
        ends = await asyncio.gather(*(runs.kill_strays(uid) for uid in "abc"), return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), OSError, type(None)]
        assert looks == [{"a"}, {"b", "c"}, {"b", "c"}]

    monkeypatch.setattr(processes, "kill_strays", kill_strays)
    asyncio.run(body())


def test_what_a_killed_shim_leaves_goes_before_the_container_starts_again(tmp_path: Path) -> None:
    mark = f"300.{os.getpid()}"
    script = f"setsid sleep {mark} & echo begun >> runs; sleep 300"
    names = [f"p-{number}" for number in range(4)]

    async def body(node: Node) -> None:
        await node.add(*(pod(name, script, "OnFailure") for name in names))
        for name in names:
            await node.phase(name, "Running")
        directories = [tmp_path / "pods" / node.pod(name)["metadata"]["uid"] for name in names]

        def has_begun(times: int) -> bool:
            texts = [(directory / WORK_DIRECTORY / "runs").read_text().split() for directory in directories]
            return all(len(text) == times for text in texts)

        await until(lambda: all((directory / WORK_DIRECTORY / "runs").exists() for directory in directories))
        await until(lambda: has_begun(1) and len(running("sleep", mark)) == len(names))
        left = running("sleep", mark)
        for directory in directories:
            run = processes.read_run(directory / "main", 0)
            assert run is not None
            os.kill(run.shim, signal.SIGKILL)
        await until(lambda: all(node.state(name, "restartCount") == 1 for name in names))
        assert not any(ticks(pid) for pid in left)
        await until(lambda: has_begun(2) and len(running("sleep", mark)) >= len(names), "what the new runs start")
        assert len(running("sleep", mark)) == len(names), "the new run is not taken for what was left"

    on_node(tmp_path, body)
