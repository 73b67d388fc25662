"""`make hostile`: odd pods against a live server for HOSTILE_SECONDS (600), from HOSTILE_SEED (today's date).

Exit code 1 for a finding. A finding names the pods that ran at the time (`SEED:N`); `HOSTILE_ONLY=SEED:N` plays one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.end_to_end.cluster import lent
from tests.hostile.siege import Siege


def main() -> int:
    seconds = float(os.environ.get("HOSTILE_SECONDS", "600"))
    seed = os.environ.get("HOSTILE_SEED", time.strftime("%Y-%m-%d"))
    only = os.environ.get("HOSTILE_ONLY", "")
    with tempfile.TemporaryDirectory(prefix="rowlock-hostile-") as place, lent(Path(place)) as cluster:
        siege = Siege(cluster)
        if only:
            siege.play_only(only)
        else:
            print(f"{seconds:.0f} s of odd pods, seed {seed}", flush=True)
            siege.play(seed, seconds)
    print(siege.summary())
    return 1 if siege.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
