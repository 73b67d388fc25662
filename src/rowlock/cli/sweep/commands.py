"""`rowlock sweep list|show|stop|resume|delete`."""

from __future__ import annotations

import math
import shlex
import time
from typing import TYPE_CHECKING

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.lookups import SWEEPS, find_project
from rowlock.cli.output import ask, format_age, parse_duration, show, show_json, table, tell

if TYPE_CHECKING:
    from rowlock.answers.sweeps import Sweep, SweepDetailed, SweepRun

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
"""Between two looks at a sweep that is waited for."""


def index(line: CommandLine) -> None:
    server, project_name = client.connect(line), project(line)
    sweeps = _read(server, "" if line.all_projects else project_name)
    if line.json:
        show_json(sweeps)
        return
    if not sweeps:
        if not line.all_projects:
            find_project(server, project_name)
        show("No sweeps." if line.all_projects else f"No sweeps in project {project_name}.")
        return
    header = (
        "NAME",
        *(("PROJECT",) if line.all_projects else ()),
        "PHASE",
        "RUNS",
        "UNFINISHED",
        "COMPLETED",
        "FAILED",
        "AGE",
        "PARAMETERS",
    )
    show(table(header, [_row(sweep, with_project=line.all_projects) for sweep in sweeps]))


def _read(server: ServerClient, project_name: str = "", name: str = "") -> list[Sweep]:
    query = {key: value for key, value in (("project", project_name), ("name", name)) if value}
    sweeps: list[Sweep] = server.get(SWEEPS, **query)["sweeps"]
    return sweeps


def _row(sweep: Sweep, *, with_project: bool) -> tuple[str, ...]:
    runs = sweep["runs"]
    return (
        sweep["name"],
        *((sweep["projectName"],) if with_project else ()),
        sweep["phase"],
        f"{runs['begun']}/{runs['total']}",
        str(runs["unfinished"]),
        str(runs["completed"]),
        str(runs["failed"]),
        format_age(sweep["createdAt"]),
        ", ".join(sweep["parameters"]),
    )


def _find(server: ServerClient, line: CommandLine, name: str) -> Sweep:
    """The sweep of this name. Raises CommandError with the nearest one."""
    found = _read(server, project(line), name)
    if found:
        return found[0]
    find_project(server, project(line))
    names = [sweep["name"] for sweep in _read(server, project(line))]
    raise CommandError(
        f"There is no sweep {name} in project {project(line)}.{suggest_nearest(name, names)} `rowlock sweep list` shows them all."
    )


# ---------------------------------------------------------------- show


def show_sweep(line: CommandLine) -> None:
    if line.max and not line.metric:
        raise CommandError("--max says that the highest value of a metric is the best: add --metric NAME", 2)
    server = client.connect(line)
    found = _find(server, line, line.word("sweep"))
    metric_name = line.metric or found["metric"]
    is_max = line.max if line.metric else found["order"] == "max"
    query = {"metric": metric_name, "order": "max" if is_max else "min"} if metric_name else {}
    sweep = _read_sweep(server, found["id"], query)
    if line.json:
        show_json(sweep)
        return
    show(_describe_counts(sweep))
    if sweep["message"]:
        show(sweep["message"])
    if metric_name and sweep["entries"] and not any(run["metric"] for run in sweep["entries"]):
        show(_describe_missing(sweep, metric_name))
    metric = metric_name if any(run["metric"] for run in sweep["entries"]) else None
    columns = ("BEST", "LAST") if metric else ()
    header = ("RUN", "PHASE", *(name.upper() for name in sweep["parameters"]), *columns)
    show("")
    show(table(header, [_run_row(run, sweep["parameters"], with_metric=bool(metric)) for run in sweep["entries"]]))
    if sweep["best"] is not None:
        best = next(run for run in sweep["entries"] if run["index"] == sweep["best"])
        show(
            f"\nBest: {best['name']}, {metric} {_figure(best, 'best')}"
            + (f": {shlex.join(best['command'])}" if best["command"] else "")
        )


def _read_sweep(server: ServerClient, identity: str, query: dict[str, str]) -> SweepDetailed:
    """The sweep with the metrics of its runs. Each answer reads for a second: ask until all are read, or an answer has read none."""
    unread = math.inf
    while True:
        sweep: SweepDetailed = server.get(f"{SWEEPS}/{identity}", **query)
        if not sweep["unread"]:
            return sweep
        if sweep["unread"] >= unread:
            tell(f"The metrics of {sweep['unread']} runs are left out: their logs could not be read in time.")
            return sweep
        unread = sweep["unread"]


def _describe_missing(sweep: SweepDetailed, metric: str) -> str:
    if not sweep["metrics"]:
        return f"No run has printed a metric yet (`step=10 {metric}=0.31`, or a line of JSON)."
    return f"No run has a metric {metric}.{suggest_nearest(metric, sweep['metrics'])} They have {', '.join(sweep['metrics'])}."


def _run_row(run: SweepRun, names: list[str], *, with_metric: bool) -> tuple[str, ...]:
    figures = (_figure(run, "best"), _figure(run, "last")) if with_metric else ()
    return run["name"], run["phase"], *(str(run["parameters"][name]) for name in names), *figures


def _figure(run: SweepRun, which: str) -> str:
    """A value of the run's metric; - without one, NaN where it is no number."""
    if run["metric"] is None:
        return "-"
    value = run["metric"]["best"] if which == "best" else run["metric"]["last"]
    return "NaN" if value is None else f"{value:.6g}"


# ---------------------------------------------------------------- wait


def wait(line: CommandLine) -> int:
    limit = parse_duration(line.timeout, "--timeout") if line.timeout else math.inf
    server, name = client.connect(line), line.word("sweep")
    deadline, pause = time.monotonic() + limit, _FIRST_PAUSE_S
    while True:
        sweep = _find(server, line, name)
        if sweep["phase"] == "Completed":
            break
        if sweep["phase"] == "Refused":
            raise CommandError(f"sweep {name}: {sweep['message']}")
        if sweep["phase"] == "Stopped" and not sweep["runs"]["unfinished"]:
            raise CommandError(
                f"sweep {name} is stopped, and what was made of it has ended: `rowlock sweep resume {name}` makes the rest"
            )
        if (left := deadline - time.monotonic()) <= 0:
            raise CommandError(f"{_describe_counts(sweep)} after {line.timeout}")
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
    if line.json:
        show_json(sweep)
    else:
        tell(f"{_describe_counts(sweep)}.")
    return 0 if sweep["runs"]["completed"] + sweep["runs"]["stopped"] == sweep["runs"]["total"] else 1


def _describe_counts(sweep: Sweep) -> str:
    runs = sweep["runs"]
    further = {"stopped": "stopped early", "suspended": "suspended with it", "deleted": "deleted"}
    more = "".join(f", {runs[name]} {word}" for name, word in further.items() if runs[name])  # type: ignore[literal-required] # it has these
    return (
        f"{sweep['name']}: {sweep['phase'].lower()}; {runs['begun']} of {runs['total']} runs begun, {runs['unfinished']} unfinished,"
        f" {runs['completed']} completed, {runs['failed']} failed{more}"
    )


# ---------------------------------------------------------------- stop, resume, delete


def stop(line: CommandLine) -> None:
    if line.now:
        _change(
            line,
            "stop",
            "stopped: no further runs are made, and those that were made are suspended until it is resumed",
            now="true",
        )
    else:
        _change(line, "stop", "stopped: no further runs are made; those that were made go on")


def resume(line: CommandLine) -> None:
    _change(line, "resume", "resumed")


def _change(line: CommandLine, verb: str, done: str, **query: str) -> None:
    server = client.connect(line)
    sweeps = _find_all(server, line)
    for sweep in sweeps:
        server.post(f"{SWEEPS}/{sweep['id']}/{verb}", **query)
        if not line.json:
            tell(f"Sweep {sweep['name']} is {done}.")
    if line.json:
        show_json([_find(server, line, sweep["name"]) for sweep in sweeps])


def delete(line: CommandLine) -> None:
    server = client.connect(line)
    sweeps = _find_all(server, line)
    jobs = sum(sweep["runs"]["begun"] - sweep["runs"]["deleted"] for sweep in sweeps)
    running = sum(sweep["runs"]["unfinished"] for sweep in sweeps)
    if not line.yes and running:
        words = ", ".join(sweep["name"] for sweep in sweeps)
        if ask(f"Delete {words} with {jobs} jobs, of which {running} have not ended? [y/N] ") not in ("y", "yes"):
            raise CommandError("nothing was deleted; -y does not ask")
    for sweep in sweeps:
        server.delete(f"{SWEEPS}/{sweep['id']}")
        if not line.json:
            tell(f"Sweep {sweep['name']} deleted.")
    if line.json:
        show_json([sweep["name"] for sweep in sweeps])


def _find_all(server: ServerClient, line: CommandLine) -> list[Sweep]:
    """The sweeps that the command line names, each once. Raises CommandError before anything is changed if there is none of a name."""
    if not line.words:
        raise CommandError(f"`rowlock {line.verb}` needs the name of a sweep: `rowlock sweep list` shows them", 2)
    return [_find(server, line, name) for name in dict.fromkeys(line.words)]
