"""Shots for HOSTILE_SECONDS (600) from HOSTILE_SEED (today's date); exit code 1 for a turn or an answer that took too long.

`HOSTILE_SHAPES=owners,role` plays shapes of `known.KNOWN` alone, and prints what each costs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.hostile.limits.barrage import Barrage, Neighbour
from tests.hostile.limits.draws import drawn
from tests.hostile.limits.known import KNOWN

LONGEST_TURN, LONGEST_ANSWER = 0.1, 2.0  # seconds
MOST_KEPT = 300 << 20  # bytes of memory more than before, once nothing of the shots is left
CLEAR_EVERY = 40


def main() -> int:
    seconds = float(os.environ.get("HOSTILE_SECONDS", "600"))
    seed = os.environ.get("HOSTILE_SEED", time.strftime("%Y-%m-%d"))
    only = os.environ.get("HOSTILE_SHAPES", "")
    with tempfile.TemporaryDirectory(prefix="rowlock-limits-") as place:
        barrage = Barrage(Path(place))
        with barrage.server():
            before = barrage.resident()
            neighbour = Neighbour(barrage.ask)
            neighbour.start()
            shots = drawn(seed)
            if only:
                shots = iter(
                    [
                        shot
                        for n, known in enumerate(KNOWN)
                        if known.__name__ in only.split(",")
                        for shot in known(Random(seed), f"o{n}")
                    ]
                )
            end = time.monotonic() + seconds
            for number, shot in enumerate(shots, 1):
                barrage.fire(shot)
                if number % CLEAR_EVERY == 0:
                    barrage.clear()
                if time.monotonic() > end:
                    break
            neighbour.stop()
            barrage.take_late_turns()
            peak, after = max((i.resident for i in barrage.impacts), default=before), barrage.settle()
    for impact in barrage.impacts:
        if impact.turn > LONGEST_TURN or impact.failure or only:
            print(impact)
    slow = [i for i in barrage.impacts if i.turn > LONGEST_TURN or i.failure]
    longest = max((took for _, took in neighbour.answers), default=0.0)
    print(
        f"{len(barrage.impacts)} shots of seed {seed}: {len(slow)} findings; codes {dict(barrage.codes)}; a neighbour waited {longest:.2f} s;"
        f" resident {before >> 20} MiB at the start, {peak >> 20} at most, {after >> 20} when it was quiet again"
    )
    return 1 if slow or longest > LONGEST_ANSWER or after - before > MOST_KEPT else 0


if __name__ == "__main__":
    sys.exit(main())
