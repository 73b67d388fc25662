"""Valid objects near every limit: each shape that was dear once, and some that a seed draws; `python -m tests.hostile.limits` goes on.

What one of them cost before it was mended was seconds to minutes of the loop. The bounds here are generous: a machine may be ten
times as slow as those that the limits were chosen on. What is compared is processor time of the server's own thread.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from tests.hostile.limits.barrage import Barrage, Neighbour
from tests.hostile.limits.draws import drawn
from tests.hostile.limits.known import KNOWN

LONGEST_TURN = 2.0  # seconds of its processor
LONGEST_ANSWER = 60.0  # seconds, while other tests have the machine, too
MOST_GROWTH = 600 << 20  # bytes of memory that one of them may leave behind
MOST_THREADS = 64  # the pool of asyncio has 32; what grows with requests or pods would have hundreds by then
DRAWN = 30


@pytest.mark.timeout(900)
def test_valid_objects_near_every_limit_stop_nobody(tmp_path: Path) -> None:
    barrage = Barrage(tmp_path)
    with barrage.server():
        neighbour = Neighbour(barrage.ask)
        neighbour.start()
        try:
            for number, known in enumerate(KNOWN):
                for shot in known(Random(f"known:{number}"), f"known-{number}"):
                    barrage.fire(shot)
                barrage.clear()
            for shot in islice(drawn("first"), DRAWN):
                barrage.fire(shot)
            barrage.take_late_turns()
            assert barrage.threads() <= MOST_THREADS
        finally:
            neighbour.stop()
    findings = [str(i) for i in barrage.impacts if i.turn > LONGEST_TURN or i.growth > MOST_GROWTH or i.failure]
    assert not findings, "\n".join(findings)
    assert len(barrage.impacts) > DRAWN + len(KNOWN) and barrage.codes[201] > len(KNOWN), barrage.codes
    longest = max(took for _, took in neighbour.answers)
    assert longest < LONGEST_ANSWER, f"a neighbour waited {longest:.1f} s"
