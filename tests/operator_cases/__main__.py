"""Plays the operator cases: compares a cluster with the record, or records what the real training operator does.

    python -m tests.operator_cases record NAME… --kubeconfig FILE [--repeat 12] [--quiet 1]
    python -m tests.operator_cases check [NAME…|FILE…] --kubeconfig FILE [--only TEXT] [--together 8]

The cluster needs an API server, the operator and a garbage collector, and nothing that schedules or runs pods: this
program does. `record` reads tests/data/operator-cases/NAME.yaml and writes NAME.json. Exit status 1 when a case differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.evidence import OPERATOR_CASES, operator_case_files
from tests.operator_cases.cases import Case, load
from tests.operator_cases.playing import Pace, Stage, stage


async def check(
    kubeconfig: Path, cases: Sequence[Case], together: int, tell: Callable[[Case, list[str]], None] = lambda *_: None
) -> dict[str, list[str]]:
    """By the title of each case: what differs. So many are played at a time; `tell` hears of each as it ends."""
    room, found = asyncio.Semaphore(together), dict[str, list[str]]()

    async def one(where: Stage, case: Case) -> None:
        async with room:
            found[case.title] = await where.checked(case)
            tell(case, found[case.title])

    async with stage(kubeconfig) as where, asyncio.TaskGroup() as tasks:
        for case in cases:
            tasks.create_task(one(where, case))
    return found


async def record(found: Stage, cases: Sequence[Case], together: int, times: int) -> list[Case]:
    room = asyncio.Semaphore(max(1, together // times))

    async def one(case: Case) -> Case:
        async with room:
            made = await found.recorded(case, times)
        for number, step in enumerate(made.steps, 1):
            if len(step.variants) > 1:
                print(f"{len(step.variants)} variants: {case.title}, step {number}", file=sys.stderr)
        return made

    return list(await asyncio.gather(*(one(case) for case in cases)))


def written(cases: Sequence[Case]) -> str:
    """A file of recorded cases, one a line."""
    lines = ",\n".join(json.dumps(case.json(), separators=(",", ":")) for case in cases)
    about = "recorded by `python -m tests.operator_cases record`; see tests/data/README.md"
    return f'{{"about": "{about}", "cases": [\n{lines}\n]}}\n'


async def _record(options: argparse.Namespace) -> int:
    async with stage(options.kubeconfig, Pace(quiet=options.quiet)) as found:
        for name in options.names:
            cases = _chosen(load(OPERATOR_CASES / f"{name}.yaml"), "")
            made = await record(found, cases, options.together, options.repeat)
            (OPERATOR_CASES / f"{name}.json").write_text(written(made), encoding="utf-8")
            print(f"{name}: {len(made)} cases, each {options.repeat} times", file=sys.stderr)
    return 0


async def _check(options: argparse.Namespace) -> int:
    files = [Path(n) if n.endswith(".json") else OPERATOR_CASES / f"{n}.json" for n in options.names]
    cases = _chosen([case for file in files or operator_case_files() for case in load(file)], options.only)

    def tell(case: Case, lines: list[str]) -> None:
        print("\n    ".join([f"differs: {case.title}", *lines]) if lines else case.title, flush=True)

    found = await check(options.kubeconfig, cases, options.together, tell)
    wrong = sum(map(bool, found.values()))
    print(f"{len(cases) - wrong} cases as recorded, {wrong} differ")
    return wrong


def _chosen(cases: list[Case], only: str) -> list[Case]:
    found = [case for case in cases if only.lower() in case.title.lower()]
    if not found:
        raise SystemExit(f"no case has a title that contains {only!r}")
    return found


def main() -> int:
    options = _arguments()
    if options.verb == "record" and not options.names:
        raise SystemExit("say which files are to be recorded: kinds, lifecycle, …")
    began = time.monotonic()
    wrong = asyncio.run(_record(options) if options.verb == "record" else _check(options))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.operator_cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=("record", "check"))
    parser.add_argument("names", nargs="*", help="files of tests/data/operator-cases (check: all), or recorded files")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--together", type=int, default=8, help="namespaces at a time (8)")
    parser.add_argument("--only", default="", help="check: cases whose 'family / kind / name' contains this")
    parser.add_argument("--repeat", type=int, default=12, help="record: runs of each case (12)")
    parser.add_argument("--quiet", type=float, default=1.0, help="record: seconds without change that end a step (1)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
