"""`make bench`: every measurement, written to docs/benchmarks.md with what made it.

Run it on a quiet machine: it says how busy the machine was. Ratios stand beside a floor or a peer of the same run.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import budgets, image_start, jobs, one_budget, pod_life, watching

REPO = Path(__file__).resolve().parents[1]
PAGE = REPO / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench` ({date}; {cpus} CPUs, {machine}, Python {python}; load before the start {load:.1f}). Median
(minimum–maximum). Seconds do not travel between machines; ratios do. GPUs were simulated: nothing here ran on one. Peers run without
limits of their clients; warm stands beside warm, cold beside cold, and the row says which. A budget that is missed is also held against
this machine's speed: so many times it as three bare torch processes take of the time that they took where the budgets were set.

## {title}

`python -m benchmarks.jobs`, `python -m benchmarks.budgets`, `python -m benchmarks.image_start`, `python -m benchmarks.pod_life`
and `python -m benchmarks.watching`. The embedded cluster over HTTPS, pods in network namespaces where the kernel allows it.

| what | rowlock | floor or peer in the same run | ratio | budget for the median |
|---|---|---|---|---|
"""


FIRST = "From submit to running ranks"
SECTIONS: dict[str, tuple[str, ...]] = {
    "The API server beside a real one": ("-m", "benchmarks.api"),
    "The API server beside a real one, up to 100,000 pods": (
        "-m", "benchmarks.api", "--large", "--rounds", "3", "--only", "growth,lists",
    ),
    "TrainJobs and Jobs": ("-m", "benchmarks.trainjobs"),
    "What a start costs, beside an older build": ("-m", "benchmarks.starts"),
    "The store": ("benchmarks/store.py",),
    "The archive": ("-m", "benchmarks.archive"),
    "The planner": ("benchmarks/planner.py",),
    "The scheduler, the whole system": ("-m", "benchmarks.scheduling_system"),
}  # fmt: skip
"""Programs of their own, whose output is shown as it is. Nothing else stands on the page: see tests/test_docs.py."""


def section(title: str) -> str:
    program = " ".join(SECTIONS[title])
    print(f"… {program}", file=sys.stderr, flush=True)
    busy = os.getloadavg()[0]
    done = subprocess.run([sys.executable, *SECTIONS[title]], cwd=REPO, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stdout}{done.stderr}")
    plain = re.sub(r"\033\[[0-9;]*m", "", done.stdout).strip("\n")
    when = f"{time.strftime('%Y-%m-%d')}, load before the start {busy:.1f}"
    return f"\n## {title}\n\n`python {program}` ({when})\n\n```text\n{plain}\n```\n"


def first() -> str:
    """The head of the page and its first section."""
    head = HEAD.format(
        title=FIRST,
        date=time.strftime("%Y-%m-%d"), cpus=os.cpu_count(), machine=platform.machine(),
        python=platform.python_version(), load=os.getloadavg()[0],
    )  # fmt: skip
    rows, began = [], time.monotonic()
    figures = (jobs.figures(), budgets.figures(), image_start.figures(), pod_life.figures(), watching.figures())
    for figure in itertools.chain(*figures):
        rows.append(figure.row())
        print(f"{time.monotonic() - began:5.0f} s {rows[-1]}", file=sys.stderr, flush=True)
    return head + "\n".join(rows) + "\n"


def whole() -> str:
    return first() + "".join(map(section, SECTIONS))


def renewed(page: str, title: str) -> str:
    """The page with one section measured anew."""
    if title == FIRST:
        return first() + "".join(re.findall(rf"\n## (?!{re.escape(FIRST)}).*?(?=\n## |\Z)", page, re.DOTALL))
    found = re.compile(rf"\n## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    made = section(title)
    return found.sub(lambda _: made, page) if found.search(page) else page + made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[FIRST, *SECTIONS], help="measure one section anew and keep the others")
    parser.add_argument(
        "budget", nargs="?", choices=one_budget.NAMES, help="measure this budget alone and write nothing"
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="REF",
        help="a commit: its build is measured in turn with this one (a budget alone)",
    )
    options = parser.parse_args()
    only = options.only
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the clusters end with us, however we end
    if options.budget:
        one_budget.measure(options.budget, options.against)
        return 0
    if options.against:
        parser.error("--against needs a budget: " + ", ".join(one_budget.COMPARED))
    page = renewed(PAGE.read_text(), only) if only else whole()
    PAGE.write_text(page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
