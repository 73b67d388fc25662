"""What the sampler says of real programs; GPUs are a driver that answers as NVML does."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.conftest import node, pod

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerFacts, Run
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.stats import gpu_usage, process_usage, usage_sampler
from rowlock.kubelet.stats.gpu_usage import GpuReading
from rowlock.kubelet.stats.process_usage import TreeRoot, TreeUsage, read_usage
from rowlock.kubelet.stats.usage_sampler import UsageSampler, _gpu_parts
from rowlock.objects import uid
from rowlock.workloads.figures.usage_series import UsageSeries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc, which is Linux's")

CHILD = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"
PROGRAM = f"""
import subprocess, sys, time
memory = bytearray(b"x" * (64 << 20))
subprocess.run([sys.executable, "-c", {CHILD!r}])
print("ready", flush=True)
time.sleep(600)
"""


def test_a_program_is_measured_with_its_children_also_those_that_are_gone(tmp_path: Path) -> None:
    async def play() -> None:
        async with node(tmp_path) as made:
            await made.add(
                pod("work", "", container={"command": [sys.executable, "-c", PROGRAM]}), pod("short", "exit 0")
            )
            await made.phase("work", "Running")
            await made.said("work", "ready")
            await made.ended("short")
            sampler = made.kubelet.usage
            await sampler.look()
            identity = uid(made.pod("work"))
            latest = sampler.latest(identity)
            assert latest is not None
            assert latest.cpu_seconds >= 0.3, "its dead child's time counts"
            assert 64 << 20 <= latest.sample.memory_bytes < 256 << 20
            assert math.isnan(latest.sample.gpu_utilization) and latest.gpus == {}
            assert math.isnan(latest.sample.net_receive), "it has no network of its own"
            await sampler.look()
            again = sampler.latest(identity)
            assert again is not None and again.idle_since is not None, "it sleeps"
            assert again.cpu_seconds >= latest.cpu_seconds
            assert [card.name for card, _ in sampler.pods()] == ["work"], "what has ended is not held"

    asyncio.run(play())


def test_what_a_pod_used_is_handed_over_when_it_ends_and_when_the_server_does(tmp_path: Path) -> None:
    kept: list[tuple[str, UsageSeries]] = []

    async def play() -> None:
        states: dict[str, PodState] = {}
        now = [time.time()]
        sampler = UsageSampler(states, {}, lambda: now[0], lambda card, series: kept.append((card.name, series)))
        states["u"] = state_of_this_process("ends")
        states["v"] = state_of_this_process("goes-on")
        for _ in range(2):
            now[0] += 5.0
            await sampler.look()
        states["u"].finished = True
        now[0] += 5.0
        await sampler.look()
        assert [name for name, _ in kept] == ["ends"] and sampler.series("u") is None
        now[0] += 301.0
        await sampler.look()
        assert [name for name, _ in kept] == ["ends", "goes-on"], "a long life is kept while it goes on"
        task = asyncio.create_task(sampler.run())
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert [name for name, _ in kept] == ["ends", "goes-on", "goes-on"]
        assert len({series.start for name, series in kept if name == "goes-on"}) == 1, "one series, whole each time"

    asyncio.run(play())


def state_of_this_process(name: str, *devices: str) -> PodState:
    """As if this process were the program of a pod that has begun just now."""
    card = PodCard("default", name, name, "node-1", "", time.time(), devices)
    run = Run(0, os.getpid(), ticks(os.getpid()), os.getpid(), time.time() + 1, container="docker://x")
    return PodState(card, {"main": ContainerFacts(run)})


def test_what_a_pod_used_before_the_server_began_is_no_sample() -> None:
    """A server that starts again begins a series of its own: it must not take the place of the one before."""

    async def play() -> None:
        now = [time.time() + 1000]
        states = {"u": state_of_this_process("old")}
        sampler = UsageSampler(states, {}, lambda: now[0])
        await sampler.look()
        series = sampler.series("u")
        assert series is not None and series.start == now[0] and series.last is None
        now[0] += 2
        await sampler.look()
        latest = sampler.latest("u")
        assert latest is not None and latest.sample.cpu_cores < 10, "only what it used since"
        assert latest.cpu_seconds > 0.1, "its total has all of it"

    asyncio.run(play())


def test_others_have_their_turns_while_many_series_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of one job begin together, so their series are full together."""
    monkeypatch.setattr(usage_sampler, "_TURN", 0.0)
    tree = TreeUsage(1.0, 1, 0, 0, 0, 0, (os.getpid(),), False)
    monkeypatch.setattr(usage_sampler, "read_usage", lambda roots: dict.fromkeys(roots, tree))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def play() -> None:
        now = [time.time()]
        states = {str(number): state_of_this_process(f"p-{number}") for number in range(50)}
        sampler = UsageSampler(states, {}, lambda: now[0])
        await sampler.look()
        counting = asyncio.create_task(count_turns())
        now[0] += 5
        await sampler.look()
        counting.cancel()
        assert turns >= 50 and all(sampler.series(uid) for uid in states)

    asyncio.run(play())


def test_a_clock_that_is_set_back_breaks_nothing() -> None:
    async def play() -> None:
        now = [time.time()]
        sampler = UsageSampler({"u": state_of_this_process("p")}, {}, lambda: now[0])
        for change in (5.0, 5.0, -3600.0, 5.0, 5.0):
            now[0] += change
            await sampler.look()
        latest = sampler.latest("u")
        assert latest is not None and 0 <= latest.sample.cpu_cores < 100

    asyncio.run(play())


def test_a_process_whose_name_has_blanks_and_brackets_is_read() -> None:
    text = b"12 (a) b (c) S 7 1 1 0 -1 4 0 0 0 0 150 50 30 20 20 0 1 0"
    process = process_usage._parse_stat(text)
    assert process.parent == 7 and process.own_seconds == 200 / process_usage._TICKS
    assert process.children_seconds == 50 / process_usage._TICKS


def test_a_root_that_has_ended_is_left_out() -> None:
    usage = read_usage({"me": TreeRoot(os.getpid(), False, 0), "gone": TreeRoot(1 << 30, True, 0)})
    assert set(usage) == {"me"} and os.getpid() in usage["me"].pids


# ---------------------------------------------------------------- GPUs


class FakeDriver:
    """As pynvml: three cards, of which one does not tell what processes compute, and one is lost."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.windows: list[float] = []
        self.is_loaded = True

    def nvmlInit(self) -> None:
        if not self.is_loaded:
            raise self.NVMLError("the driver is not loaded")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 2:
            raise self.NVMLError("this card has fallen off the bus")
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if not self.is_loaded:
            raise self.NVMLError("the driver is not loaded")
        return SimpleNamespace(gpu=80)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        return [SimpleNamespace(pid=11, usedGpuMemory=1 << 30), SimpleNamespace(pid=22, usedGpuMemory=None)]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> Any:
        if handle == 1:
            raise self.NVMLError("not supported")
        self.windows.append(time.time() - since / 1e6)
        return [SimpleNamespace(pid=11, smUtil=60), SimpleNamespace(pid=99, smUtil=5)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_cards_are_read_one_by_one(driver: FakeDriver) -> None:
    reader = gpu_usage.GpuReader()
    readings = reader.read()
    assert set(readings) == {"GPU-0", "GPU-1"}, "a card that is lost takes no other with it"
    assert readings["GPU-0"].utilization_by_pid == {11: 60.0} and readings["GPU-1"].utilization_by_pid == {}
    assert reader.read() == readings
    assert all(window >= gpu_usage.WINDOW - 0.001 for window in driver.windows), "also of the second look"


def test_the_driver_is_opened_once_and_closed_when_no_pod_holds_a_card(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        states = {"cpu": state_of_this_process("cpu")}
        nodes: Any = {"node-1": SimpleNamespace(gpus=(1,), simulated=False)}
        sampler = UsageSampler(states, nodes, time.time)
        await sampler.look()
        assert driver.opened == 0, "nobody has a card to look at"
        states["gpu"] = state_of_this_process("gpu", "GPU-0")
        for _ in range(3):
            await sampler.look()
        latest = sampler.latest("gpu")
        assert latest is not None and latest.gpus == {"GPU-0": (80.0, 0.0)}
        assert (driver.opened, driver.closed) == (1, 0)
        del states["gpu"]
        await sampler.look()
        assert (driver.opened, driver.closed) == (1, 1)
        states["gpu"] = state_of_this_process("gpu", "GPU-0")
        await sampler.look()
        states.clear()
        await sampler.look()
        assert (driver.opened, driver.closed) == (2, 2), "also when nothing runs any more"

    asyncio.run(play())


def test_a_driver_that_was_away_is_found_again(driver: FakeDriver) -> None:
    reader = gpu_usage.GpuReader()
    assert reader.read()
    driver.is_loaded = False
    assert reader.read() == {} and not reader.is_open
    assert reader.read() == {} and not reader.is_open
    driver.is_loaded = True
    assert set(reader.read()) == {"GPU-0", "GPU-1"}
    assert (driver.opened, driver.closed) == (2, 1)


def test_each_pod_has_its_part_of_a_card() -> None:
    shared = GpuReading(80.0, {11: 100, 22: 300}, {11: 60.0, 22: 20.0})
    silent = GpuReading(80.0, {11: 100, 22: 300}, {})
    mine = frozenset({11})
    assert _gpu_parts(["A"], mine, {"A": shared}, Counter({"A": 1})) == {"A": (80.0, 100.0)}, "alone: all of it"
    assert _gpu_parts(["A"], mine, {"A": shared}, Counter({"A": 2})) == {"A": (60.0, 100.0)}
    part = _gpu_parts(["A"], mine, {"A": silent}, Counter({"A": 2}))["A"]
    assert math.isnan(part[0]) and part[1] == 100.0, "nobody guesses"
    assert _gpu_parts(["simulated-0"], mine, {"A": shared}, Counter()) == {}


def test_each_gpu_is_idle_since_it_did_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two works on, and then works again."""
    busy = {"A": 50.0, "B": 0.0}

    async def play() -> None:
        now = [time.time()]
        sampler = UsageSampler({"u": state_of_this_process("u", "A", "B")}, {}, lambda: now[0])
        monkeypatch.setattr(
            usage_sampler,
            "read_usage",
            lambda roots: {name: TreeUsage(1, 1, 0, 0, 0, 0, (1,), False) for name in roots},
        )
        plan = SimpleNamespace(gpus=(1, 2), simulated=False)
        monkeypatch.setattr(sampler, "_nodes", {"node-1": plan})
        reader = SimpleNamespace(read=lambda: {name: GpuReading(part, {}, {}) for name, part in busy.items()})
        monkeypatch.setattr(sampler, "_gpu_reader", reader)

        async def look() -> dict[str, float]:
            now[0] += 10.0
            await sampler.look()
            latest = sampler.latest("u")
            assert latest is not None
            return {name: now[0] - since for name, since in latest.gpu_idle_since.items()}

        await look()
        assert await look() == {"B": pytest.approx(20.0, abs=2.0)}
        assert await look() == {"B": pytest.approx(30.0, abs=2.0)}
        busy["B"] = 3.0
        assert await look() == {}
        busy["A"] = 0.0
        assert await look() == {"A": 10.0}

    asyncio.run(play())
