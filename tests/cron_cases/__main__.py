"""Records what a real cluster does in the lives of CronJobs: `tests/data/cron-cases.json`.

python scripts/real_cluster up DIR
python -m tests.cron_cases record DIR/kubeconfig [NAME…]      writes all, or these
python -m tests.cron_cases check KUBECONFIG [NAME…]           compares, and prints what differs
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cron_cases.lives import LIVES
from tests.cron_cases.playing import Life, connected
from tests.evidence import DATA

FILE = DATA / "cron-cases.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="lives; all without any")
    args = parser.parse_args()
    known: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    names = args.names or list(LIVES)
    if args.what == "check":
        wrong = check(args.kubeconfig, known, names)
        print("\n".join(wrong) or f"{len(names)} lives as recorded")
        return 1 if wrong else 0
    with connected(args.kubeconfig) as http, ThreadPoolExecutor(8) as pool:
        known |= zip(names, pool.map(lambda called: Life(http).play(LIVES[called]), names), strict=True)
    FILE.write_text(
        json.dumps({called: known[called] for called in LIVES}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )
    return 0


def check(kubeconfig: Path, expected: dict[str, Any], names: Iterable[str], together: int = 16) -> list[str]:
    """What differs, a few lines for each life that does."""
    with connected(kubeconfig) as http, ThreadPoolExecutor(together) as pool:
        played = pool.map(lambda called: (called, Life(http).play(LIVES[called], expected[called])), names)
        return [line for called, states in played for line in differences(called, expected[called], states)]


def differences(called: str, expected: list[Any], found: list[Any]) -> list[str]:
    """Of the last step that was played: earlier ones are right."""
    number = len(found) - 1
    return [f"{called}, step {number + 1}{path}" for path in _unlike(expected[number], found[number])]


def _unlike(wanted: Any, found: Any, path: str = "") -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted({*wanted, *found})
            for line in _unlike(wanted.get(key), found.get(key), f"{path}.{key}")
        ]
    return [] if wanted == found else [f"{path}: recorded {json.dumps(wanted)}, found {json.dumps(found)}"]


if __name__ == "__main__":
    sys.exit(main())
