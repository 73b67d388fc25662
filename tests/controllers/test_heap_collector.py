"""The whole heap is collected at a quiet moment; what is old is not looked at before."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import cast

import pytest

from rowlock.controllers import heap_collector
from rowlock.controllers.heap_collector import INTERVAL, LATE, QUIET, TOO_MANY, HeapCollector, is_due
from rowlock.controllers.loop_watchdog import TurnClock

BUSY = QUIET + 0.01


@pytest.mark.parametrize(
    ("collections", "waited", "busy", "due"),
    [
        (0, 10 * LATE, 0.0, False),
        (TOO_MANY - 1, INTERVAL - 1, 0.0, False),
        (1, INTERVAL, QUIET, True),
        (1, INTERVAL, BUSY, False),
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what other tests of this process have left is not this one's
        gc.collect()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class PlayedClock:
    """The clock of a loop that is always busy, or never."""

    is_busy = True

    @property
    def busy_seconds(self) -> float:
        return time.monotonic() if self.is_busy else 0.0


@pytest.mark.usefixtures("thresholds")
def test_an_old_cycle_goes_when_the_loop_is_quiet_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_collector, "_LOOK_INTERVAL", 0.001)
    monkeypatch.setattr(heap_collector, "INTERVAL", 0.0)

    async def play() -> None:
        cycle, clock = Cycle(), PlayedClock()
        reference = weakref.ref(cycle)
        collector = asyncio.create_task(HeapCollector(cast(TurnClock, clock)).run())
        await asyncio.sleep(0)
        gc.collect(0), gc.collect(1)  # it is old now
        del cycle
        gc.collect()
        assert reference() is not None, "no collection looks at what is old"
        await asyncio.sleep(0.05)
        assert reference() is not None, "the loop is busy"
        clock.is_busy = False
        end = time.monotonic() + 60
        while reference() is not None and time.monotonic() < end:
            await asyncio.sleep(0.001)
        assert reference() is None
        collector.cancel()

    asyncio.run(play())


def test_a_server_that_has_grown_collects_when_it_is_quiet() -> None:
    """After 3,000 streams had ended, a gigabyte was held until the hour was over."""
    grown, waited = heap_collector.GROWN, heap_collector.GROWN_INTERVAL
    assert is_due(1, waited, 0.0, grown) and is_due(0, waited, 0.0, grown)
    assert not is_due(1, waited, 0.5, grown), "it is busy"
    assert not is_due(1, waited - 1, 0.0, grown) and not is_due(1, waited, 0.0, grown - 1)
