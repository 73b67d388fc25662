"""`make bench`: every measurement, written to docs/benchmarks.md with what made it.

Run it on a quiet machine: it says how busy the machine was. Ratios stand beside a floor or a peer of the same run.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import jobs

REPO = Path(__file__).resolve().parents[1]
PAGE = REPO / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench` ({date}; {cpus} CPUs, {machine}, Python {python}; load before the start {load:.1f}). Median
(minimum–maximum). Seconds do not travel between machines; ratios do. GPUs were simulated: nothing here ran on one.

## From submit to running ranks

`python -m benchmarks.jobs`. The embedded cluster over HTTPS, pods in network namespaces where the kernel allows it.

| what | rowlock | floor or peer in the same run | ratio |
|---|---|---|---|
"""


def section(title: str, program: str, *argv: str) -> str:
    """A program of its own whose output is shown as it is."""
    print(f"… {program}", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, program, *argv], cwd=REPO, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stdout}{done.stderr}")
    plain = re.sub(r"\033\[[0-9;]*m", "", done.stdout).strip()
    return f"\n## {title}\n\n`python {program}`\n\n```text\n{plain}\n```\n"


def main() -> int:
    head = HEAD.format(
        date=time.strftime("%Y-%m-%d"), cpus=os.cpu_count(), machine=platform.machine(),
        python=platform.python_version(), load=os.getloadavg()[0],
    )  # fmt: skip
    page = head + "\n".join(figure.row() for figure in jobs.figures()) + "\n"
    page += section("The store", "benchmarks/store.py")
    page += section("The planner", "benchmarks/planner.py")
    PAGE.write_text(page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
