"""The whole heap is collected at a quiet moment; young garbage as before."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from rowlock.controllers import heap_collector
from rowlock.controllers.heap_collector import ENOUGH, LATE, QUIET, SOON, TOO_MANY, HeapCollector, is_due
from rowlock.controllers.loop_watchdog import TurnClock

BUSY = QUIET + 0.01


@pytest.mark.parametrize(
    ("collections", "waited", "busy", "due"),
    [
        (0, 10 * LATE, 0.0, False),
        (ENOUGH, 0.0, QUIET, True),
        (ENOUGH - 1, SOON - 1, 0.0, False),
        (1, SOON, 0.0, True),
        (ENOUGH, SOON, BUSY, False),
        (TOO_MANY - 1, LATE - 1, 1.0, False),
        (TOO_MANY, 0.0, 1.0, True),
        (1, LATE, 1.0, True),
    ],
)
def test_when_a_full_collection_is_due(collections: int, waited: float, busy: float, due: bool) -> None:
    assert is_due(collections, waited, busy) is due


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_an_old_cycle_goes_when_the_loop_is_quiet_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_collector, "_LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(heap_collector, "ENOUGH", 1)
    monkeypatch.setattr(heap_collector, "QUIET", 0.5)
    gc.set_threshold(10_000, 10, 1_000_000)

    async def play(clock: TurnClock) -> None:
        cycle = Cycle()
        reference = weakref.ref(cycle)
        gc.collect(0), gc.collect(1)  # it is old now
        del cycle
        collector = asyncio.create_task(HeapCollector(clock).run())
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            await asyncio.sleep(0)  # a loop that is always busy
        assert reference() is not None, "nothing is quiet yet"
        while reference() is not None and time.monotonic() < end + 60:
            await asyncio.sleep(0.001)
        assert reference() is None
        collector.cancel()

    clock = TurnClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        runner.run(play(clock))
