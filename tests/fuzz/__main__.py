"""`make fuzz`: requests at random for FUZZ_SECONDS (600), from FUZZ_SEED (today's date). Exit code 1 for a finding.

A finding names its request (`seed S:N`); `FUZZ_ONLY=S:N` sends only that one and prints the answer.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.fuzz.checks import attacked, fuzz
from tests.fuzz.jobs import play_at_random
from tests.fuzz.parsers import parse_at_random
from tests.fuzz.requests import made


def main() -> int:
    seconds = float(os.environ.get("FUZZ_SECONDS", "600"))
    seed = os.environ.get("FUZZ_SEED", time.strftime("%Y-%m-%d"))
    only = os.environ.get("FUZZ_ONLY", "")
    with tempfile.TemporaryDirectory() as place:
        if only:
            with attacked(Path(place)) as (_, attack):
                request = made(Random(only))
                print(request, *attack.ask(request), sep="\n")
            return 0
        print(f"{seconds:.0f} s of requests at random, seed {seed}", flush=True)
        found = fuzz(Path(place), seed, seconds * 0.8)
    wrong = [*found.wrong, *parse_at_random(seed, seconds * 0.1), *play_at_random(seed, seconds * 0.1)[1]]
    statuses = ", ".join(f"{n} × {code}" for code, n in sorted(found.statuses.items()))
    print(f"{found.asked} requests: {statuses}")
    print("\n".join(wrong) or "nothing found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
