"""A clock that jumps: what is removed for its age stays until the jump has lasted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rowlock.kubelet.volumes.checkpoints import Checkpoints
from rowlock.kubelet.volumes.settled_clock import SETTLING_SECONDS, SettledClock

DAY = 86400.0


@dataclass
class Clocks:
    steady: float = 100.0
    ahead: float = 2_000_000_000.0
    settled: SettledClock = field(init=False)

    def __post_init__(self) -> None:
        self.settled = SettledClock(lambda: self.steady + self.ahead, lambda: self.steady)

    def sweep(self, kept: Checkpoints, seconds: float = 60.0) -> list[str]:
        self.steady += seconds
        return kept.remove_expired(set(), self.settled())


@pytest.mark.parametrize("jump", [8 * DAY, 20 * 365 * DAY])
def test_checkpoints_outlive_a_clock_that_is_set_forward_for_a_moment(tmp_path: Path, jump: float) -> None:
    (tmp_path / "checkpoints" / "j").mkdir(parents=True)
    kept, clocks = Checkpoints(tmp_path, 7 * DAY), Clocks()
    assert clocks.sweep(kept) == []
    clocks.ahead += jump
    for _ in range(30):
        assert clocks.sweep(kept) == []
    clocks.ahead -= jump
    assert clocks.sweep(kept) == [] and clocks.sweep(kept, SETTLING_SECONDS) == []
    assert clocks.sweep(kept, 7.1 * DAY) == ["j"]


def test_a_clock_that_was_put_right_is_believed_after_an_hour() -> None:
    clocks = Clocks()
    before = clocks.settled()
    clocks.ahead += DAY
    assert clocks.settled() == before
    clocks.steady += SETTLING_SECONDS
    assert clocks.settled() == before + DAY + SETTLING_SECONDS


def test_a_clock_that_is_set_back_or_corrected_is_believed_at_once() -> None:
    clocks = Clocks()
    before = clocks.settled()
    for step in (-3600.0, 30.0, 30.0):
        clocks.ahead += step
        before += step
        assert clocks.settled() == before
