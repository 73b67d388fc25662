"""A program that needs a little of a processor again and again, and notes how long it had to wait for it.

It stands for any fair share of this machine: forty ranks that burn, another build, a neighbour of the virtual machine. What the
server's answers are held against is what the bystander got in the same seconds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

WORK = 0.004  # seconds of processor time, about what one answer costs
INTERVAL = 0.1


@dataclass
class Bystander:
    """The program, in a session of its own as the server is; and what it noted in `notes`."""

    notes: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__, str(self.notes)], start_new_session=True)

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def stretches(self) -> list[tuple[float, float, float]]:
        """(begin, end, stretch): monotonic seconds, and wall time per processor time, 1.0 where a processor was free."""
        lines = self.notes.read_text().splitlines(keepends=True) if self.notes.exists() else []
        rows = [[float(word) for word in line.split()] for line in lines if line.endswith("\n")]
        return [(begin, end, max(1.0, (end - begin) / work)) for begin, end, work in rows]


def longest_stretch(stretches: list[tuple[float, float, float]], begin: float, end: float) -> float:
    """The longest of those that overlap with a span; of a span between two looks, the longer of its neighbours."""
    near = [stretch for b, e, stretch in stretches if e >= begin - INTERVAL * 2 and b <= end + INTERVAL * 2]
    return max(near, default=1.0)


def main(notes: str) -> None:
    with open(notes, "w", encoding="ascii", buffering=1) as file:
        while True:
            begin, used = time.monotonic(), time.process_time()
            while time.process_time() - used < WORK:
                pass
            file.write(f"{begin} {time.monotonic()} {time.process_time() - used}\n")
            time.sleep(INTERVAL)


if __name__ == "__main__":
    main(sys.argv[1])
