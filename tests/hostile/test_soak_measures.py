"""What the soak calls too slow: late by itself, not late because nobody had a processor."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.hostile.soak.bystander import Bystander, longest_stretch
from tests.hostile.soak.measures import too_slow


def test_late_is_what_a_bystander_would_not_have_been() -> None:
    took = [(10.0, 2.5, "busy"), (20.0, 2.5, "alone"), (30.0, 1.9, "in time")]
    stretches = [(11.0, 11.2, 50.0), (15.0, 15.004, 1.0), (21.0, 21.004, 1.0), (30.0, 30.004, 1.0)]
    assert too_slow(took, 0.1, stretches) == ["2.5 s for alone, while others waited 1.0 times as long as they worked"]


def test_a_span_between_two_looks_has_its_neighbours() -> None:
    assert longest_stretch([(1.0, 1.5, 9.0), (1.7, 1.8, 2.0)], 1.55, 1.6) == 9.0
    assert longest_stretch([], 1.0, 2.0) == 1.0


def test_the_bystander_notes_how_long_it_waits(tmp_path: Path) -> None:
    bystander = Bystander(tmp_path / "notes")
    bystander.start()
    try:
        deadline = time.monotonic() + 60
        while len(bystander.stretches()) < 3:
            assert time.monotonic() < deadline, "the bystander notes nothing"
            os.sched_yield()
    finally:
        bystander.stop()
    assert all(begin < end and stretch >= 1.0 for begin, end, stretch in bystander.stretches())
