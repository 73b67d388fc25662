"""Plays random histories on a real cluster with the real training operator and on ours, and compares.

    python -m tests.differential [-n 1000] [--seed 0] [--together 24]     make both clusters, play, compare
    python -m tests.differential --real KUBECONFIG --ours KUBECONFIG       use clusters that run already
    python -m tests.differential --only SEED   |   --replay FILE.json      one history

Exit status 1 when something differs; each difference is shrunk and printed with its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.differential.histories import History, history
from tests.differential.playing import Result, Theatre
from tests.differential.side import opened

CUT_SHARE = 0.02
"""Of the histories, how many may be cut short."""

FEW = 3
"""Histories that are judged again with nothing beside them."""


@dataclass
class Report:
    """What came out of it."""

    played: int = 0
    again: int = 0
    """Histories in which ours and the real operator differed at first, and which were played again."""
    cut: int = 0
    """Histories of which only the beginning was compared."""
    wrong: list[Result] = field(default_factory=list)

    @property
    def cut_allowed(self) -> int:
        """More would mean that much is played and little compared."""
        return max(2, round(CUT_SHARE * self.played))

    def text(self) -> str:
        cut = f"{self.cut} were cut short by a race of the real operator ({self.cut_allowed} may be)"
        return f"{self.played} histories, {self.again} played again; {cut}"


async def play(real: Path, ours: Path, histories: Iterable[History], together: int, shrink: int = 3) -> Report:
    """All histories, so many at a time. The first few that differ are made small: they tell most."""
    report, room = Report(), asyncio.Semaphore(together)

    async def one(theatre: Theatre, found: History) -> None:
        async with room:
            result = await theatre.judged(found)
            report.played += 1
            report.again += result.tries > 1
            report.cut += result.cut
            if result.tries > 1 and not result.wrong:
                print(f"not always alike: seed {found.seed} {found.kind}, right after {result.tries} plays", flush=True)
            if result.wrong:
                print(f"differs: seed {found.seed} {found.kind}, {result.text()}", flush=True)
                report.wrong.append(result)
            elif report.played % 50 == 0:
                print(f"{report.played} played, {len(report.wrong)} differ", flush=True)

    async with opened("real", real) as first, opened("ours", ours) as second:
        theatre = Theatre(first, second)
        async with asyncio.TaskGroup() as tasks:
            for found in histories:
                tasks.create_task(one(theatre, found))
        report.wrong = await _judged_alone(theatre, report.wrong)
        report.wrong = [await theatre.shrunk(result) for result in report.wrong[:shrink]] + report.wrong[shrink:]
    return report


async def _judged_alone(theatre: Theatre, wrong: list[Result]) -> list[Result]:
    """Those that differ also when nothing else is played: with many at a time, on a busy machine, the real operator may be so
    late that its picture is taken before it has come to an end. A few only: many are no accident."""
    if len(wrong) > FEW:
        return wrong
    alone = []
    for result in wrong:
        print(f"seed {result.history.seed} differed while others were played; once more, alone", flush=True)
        alone.append(await theatre.judged(result.history))
    return [result for result in alone if result.wrong]


def main() -> int:
    options = _arguments()
    if options.replay:
        histories = [History.read(json.loads(Path(options.replay).read_text()))]
    elif options.only is not None:
        histories = [history(options.only)]
    else:
        histories = [history(options.seed + i) for i in range(options.histories)]
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the clusters end with us, however we end
    with ExitStack() as stack:
        real, ours = _clusters(stack, options)
        report = asyncio.run(play(real, ours, histories, options.together, options.shrink))
    for result in report.wrong:
        print(f"\n{json.dumps(result.history.json())}\n{result.text()}")
    spent = time.monotonic() - began
    print(f"{report.text()}; {spent:.0f} s")
    print(f"{report.played - len(report.wrong)} passed, {len(report.wrong)} failed")
    return 1 if report.wrong or report.cut > report.cut_allowed else 0


def _clusters(stack: ExitStack, options: argparse.Namespace) -> tuple[Path, Path]:
    """Kubeconfigs of the real cluster and of ours."""
    if options.real and options.ours:
        return options.real, options.ours
    if missing := real_cluster_missing():
        raise SystemExit(missing)
    where = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for part in ("real", "ours"):
        (where / part).mkdir()
    real = options.real or stack.enter_context(real_cluster(where / "real", "--operator"))
    ours = stack.enter_context(embedded_server(where / "ours", "rowlock.serve", "--without", "kubelet,scheduler"))
    return real, ours


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="differential", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--together", type=int, default=24, help="histories at a time")
    parser.add_argument("--shrink", type=int, default=3, help="how many that differ are made small (3)")
    parser.add_argument("--only", type=int, help="one seed")
    parser.add_argument("--replay", help="a history as JSON, as this program prints it")
    parser.add_argument("--real", type=Path, help="kubeconfig of a real cluster with the operator, without kubelets")
    parser.add_argument("--ours", type=Path, help="kubeconfig of `rowlock up --without kubelet,scheduler`")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
