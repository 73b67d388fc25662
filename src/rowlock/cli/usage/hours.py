"""`rowlock usage`: who held, used, wasted and waited for GPUs, from `GET /api/v1/hours`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rowlock.cli import client
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import format_duration, parse_duration, show, show_json, table, tell, visible

if TYPE_CHECKING:
    from rowlock.answers.workloads import HoursRow, UsageHours

HOURS = "/api/v1/hours"
_NAMES = {"project": ("PROJECT",), "user": ("USER",), "job": ("JOB", "ID", "PROJECT", "USER")}
_FIGURES = ("RUNS", "FAILED", "HELD", "USED", "IDLE", "WASTED", "WAITED")
_SHORT_ID = 8


def usage(line: CommandLine) -> int:
    if line.csv and line.json:
        raise CommandError("--csv and --json print the same figures in two ways: choose one", 2)
    if line.limit < 1:
        raise CommandError(f"--limit must be at least 1, but is {line.limit}", 2)
    since = line.since
    if since.replace(".", "").isascii() and since.replace(".", "").isdigit():
        raise CommandError(f'invalid argument "{since}" for --since: say the unit, for example 7d, 12h or 30m', 2)
    query = {"by": line.by, "since": parse_duration(since, "--since"), "limit": line.limit}
    if line.project:
        query["project"] = line.project
    answer: UsageHours = client.connect(line).get(HOURS, **query)
    if line.json:
        show_json(answer)
    elif line.csv:
        _print_csv(answer)
    else:
        _print_table(answer, since)
    if not line.json and (more := answer["rowsInAll"] - len(answer["rows"])):
        tell(f"{more} {'row is' if more == 1 else 'rows are'} left out, which held less: --limit N shows them.")
    return 0


def _print_table(answer: UsageHours, since: str) -> None:
    rows, total = answer["rows"], answer["total"]
    if not rows:
        show(f"Nothing ran in the last {since}.")
        return
    names = _NAMES[answer["by"]]
    lines = [(*_names(answer["by"], row), *_figures(row)) for row in rows]
    if len(rows) > 1:
        lines.append(("all", *[""] * (len(names) - 1), *_figures(total)))
    show(table((*names, *_FIGURES), lines))
    show(f"\nGPU hours of the last {since}; WAITED is the time that jobs waited to start, added up.")
    if total["gpusSimulated"]:
        show("GPUs are simulated: they do no work, so USED is -, and a pod counts as IDLE when its CPUs did nothing.")
    elif total["gpuHoursNotMeasured"] >= 0.01:
        show(f"Of these GPU hours {_hours(total['gpuHoursNotMeasured'])} were not measured: USED and IDLE lack them.")
    if answer["cut"]:
        tell(f"The archive removed its oldest runs to keep its limits, last at {answer['cut']}.")
    if answer["problem"]:
        tell(f"warning: {answer['problem']}")


def _names(by: str, row: HoursRow) -> tuple[str, ...]:
    if by == "project":
        return (row["projectName"],)
    user = row["userName"] or "-"
    return (user,) if by == "user" else (row["workloadName"], row["workloadId"][:_SHORT_ID], row["projectName"], user)


def _figures(row: HoursRow) -> tuple[str, ...]:
    return (
        str(row["runs"]),
        str(row["failedRuns"]),
        _hours(row["gpuHoursHeld"]),
        _hours(row["gpuHoursUsed"]),
        _hours(row["gpuHoursIdle"]),
        _hours(row["gpuHoursWasted"]),
        format_duration(row["hoursWaited"] * 3600),
    )


def _hours(value: float | None) -> str:
    """`12.3`, `0.04`, `<0.01`; `-` for what was not measured."""
    if value is None:
        return "-"
    return "0" if not value else "<0.01" if value < 0.01 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _print_csv(answer: UsageHours) -> None:
    """The rows with the names of their JSON as header. Names that a spreadsheet would compute are quoted with an apostrophe."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer["total"])
    for row in answer["rows"]:
        writer.writerow(_cell(value) for value in row.values())


def _cell(value: object) -> object:
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value
