"""Record again what the cron library of kube-controller-manager says of each schedule in `tests/data/cron-schedules.json`.

    python scripts/record_schedules.py            # writes the file
    python scripts/record_schedules.py --check    # only says which rows differ

A row is the schedule, the zone of the clock, the second from which it is asked, and the answer: the refusal, or the next five seconds at which
the schedule is due. It needs Go and the modules that `make real-cluster` has fetched.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "real_cluster"))

from recipe import run_program

FILE = Path(__file__).resolve().parents[1] / "tests" / "data" / "cron-schedules.json"
PROGRAM = Path(__file__).parent / "cron_facts" / "main.go"
REFUSED = (
    "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *", "* * * * 7",
    "5-1 * * * *", "1-2-3 * * * *", "1/2/3 * * * *", "*/0 * * * *", "*/-1 * * * *", "-1 * * * *", "a * * * *", "1.5 * * * *",
    "99999999999999999999 * * * *", "0x1 * * * *", "1_0 * * * *", "* * * mo *", "* * * * monday", "@", "@minutely", "@Hourly",
    "@every", "@every ", "@every 5", "@every 5d", "@every 1h 5m", "@every x", "@every -", "@every .s", "@every 3000000h",
    "@every 1e3s", '@every "1s"', "@every 5 s", "@hourly ", " @hourly", " ", "\t", "* * * * * ", "", "TZ=Nowhere/Land * * * * *",
    "TZ=../etc * * * * *", "TZ=/etc * * * * *", "TZ=UTC @nope", "L * * * *", "* * * * 5#2", "* * 15W * *", "٣ * * * *", '" * * * *',
    "1- * * * *", "*/ * * * *", "/5 * * * *", "*-70/61 * * * *", "0-59/60 * * * *", "60/2 * * * *", "* * * jan-mar-may *", "*/+2 * * * *",
)  # fmt: skip
USUAL = (
    "* * * * *", "*/5 * * * *", "0 3 * * *", "30 6-16/4 * * 1-5", "0 0 1,15 * 5", "0 0 */2 * 5", "0 0 13 * FRI", "5/7 * * * *", "? ? ? ? ?",
    "15 10 ? * mon-fri", "0 0 29 2 *", "0 0 31 * *", "0 0 31 2 *", "0 0 30 2 1", "0 12 * JAN-MAR,dec sun,6", "59 23 31 12 *", "*/1 * * * *",
    "*/59 */23 * * *", "1,2,,3 4 * * *", "0 2 * * *", "30 1 * * *", "30 2 * * 0", "0 0 * * *", "0 1-3 * * *", "*/30 0-4 * * *", "0\t0\u2003* *  *",
    "*-5 * * * *", "+5 * * * *", "007 * * * *", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@every 90s",
    "@every 1h30m", "@every 1.5h", "@every 500ms", "@every -5m", "@every 0", "@every 1h0m0.9s", "@every 2562047h", "@every 1µs",
    "TZ=Asia/Tokyo 0 9 * * *", "CRON_TZ=America/New_York 30 2 * * *", "TZ=Europe/Berlin @daily", "CRON_TZ=UTC @every 10m",
)  # fmt: skip
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Africa/Cairo", "Asia/Kolkata", "Australia/Lord_Howe",
    "Pacific/Apia", "America/Havana", "Asia/Amman", "Antarctica/Troll",
)  # fmt: skip
MOMENTS = (
    1_577_836_799, 1_582_934_400, 1_616_889_500, 1_635_641_000, 1_616_796_000, 1_541_300_000, 1_711_843_199, 1_729_990_800,
    1_767_225_600, 1_800_000_001, 951_782_399, 4_102_444_799, 0,
)  # fmt: skip
"""None of them near a day that one of the zones skipped: there the search of the library may not end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a row differs")
    args = parser.parse_args()
    asked = [row[:3] for row in json.loads(FILE.read_text())] if args.check else list(questions())
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "cases.json"
        given.write_text(json.dumps(asked))
        answers = json.loads(run_program(PROGRAM, str(given)))
    rows = [[*question, answer] for question, answer in zip(asked, answers, strict=True)]
    if not args.check:
        FILE.write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")
        return 0
    different = [pair for pair in zip(json.loads(FILE.read_text()), rows, strict=True) if pair[0] != pair[1]]
    for old, new in different:
        print(f"recorded {old}\nnow      {new}")
    print(f"{len(rows) - len(different)} rows as recorded, {len(different)} differ")
    return 1 if different else 0


def questions() -> Iterator[list[Any]]:
    """Every refusal once, every usual schedule at some moments of some zones, and as many that a die made."""
    dice = Random(45)
    for text in REFUSED:
        yield [text, "UTC", MOMENTS[0]]
    for number, text in enumerate(USUAL * 8):
        yield [text, ZONES[(number + number // len(USUAL)) % len(ZONES)], MOMENTS[number % len(MOMENTS)]]
    for _ in range(600):
        text = " ".join(_field(dice, *bounds) for bounds in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)))
        yield [text, dice.choice(ZONES), dice.choice(MOMENTS) + dice.randrange(-90_000, 90_000)]


def _field(dice: Random, low: int, high: int) -> str:
    def number() -> int:
        return dice.randint(low, high)

    shapes = (
        lambda: "*", lambda: "*", lambda: "?", lambda: str(number()), lambda: f"*/{dice.randint(1, high)}",
        lambda: "{}-{}".format(*sorted((number(), number()))), lambda: f"{number()}/{dice.randint(1, high)}",
        lambda: "{}-{}/{}".format(*sorted((number(), number())), dice.randint(1, 9)), lambda: f"{number()},{number()}",
    )  # fmt: skip
    return dice.choice(shapes)()


if __name__ == "__main__":
    sys.exit(main())
