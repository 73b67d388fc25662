"""`rowlock simulate TRACE --nodes 500 --gpus 8`: capacity and policy questions, answered on a laptop.

A discrete-event simulation with the real planner (`engine.py`). The result is figures (`metrics.py`) and, on request,
a picture (`chart.py`); progress goes to stderr, and only when a person watches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from rowlock.scheduling.model.snapshot import SchedulerSettings
from rowlock.simulator import chart, metrics, trace_generator
from rowlock.simulator.engine import ProgressCallback, SimulatedNodes, Simulation
from rowlock.simulator.trace import Trace, TraceError, parse_duration, parse_trace


def progress_bar(width: int = 30, every: float = 0.1) -> ProgressCallback:
    """A callback that redraws one line of stderr at most once per `every` seconds; it draws nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return lambda done, of, now: None
    last = 0.0

    def draw(done: int, total: int, now: float) -> None:
        nonlocal last
        moment = time.monotonic()
        if moment - last < every and done < total:
            return
        last = moment
        filled = width * done // total
        text = (
            f"\r[{'█' * filled}{'·' * (width - filled)}] {done}/{total} jobs, {metrics.format_seconds(now)} simulated"
        )
        sys.stderr.write(text + "\x1b[K" + ("\r\x1b[K" if done == total else ""))
        sys.stderr.flush()

    return draw


def load_trace(path: str) -> Trace:
    """Read a trace in YAML or JSON from a file, or from stdin for `-`. Raises TraceError."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not text") from None
    try:
        return parse_trace(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise TraceError(f"{path} is not YAML{f' in line {mark.line + 1}' if mark else ''}") from None


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line of `rowlock simulate`; exits with code 2 and one sentence where it is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="simulate", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--grace", default="10s")
    parser.add_argument("--half-life", default="")
    parser.add_argument("--reserve-after", default="5m")
    parser.add_argument("--generate", default="")
    parser.add_argument("--svg", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("file", nargs="?", default="")
    return parser.parse_args(argv)


def parse_inputs(options: argparse.Namespace) -> tuple[Trace, SimulatedNodes, float]:
    """The trace, the simulated nodes, and how long an evicted pod takes to end, in seconds. Raises TraceError."""
    for flag in ("nodes", "gpus"):
        if not 1 <= getattr(options, flag) <= (20_000 if flag == "nodes" else 64):
            most = 20_000 if flag == "nodes" else 64
            raise TraceError(f"--{flag} must lie between 1 and {most}, not {getattr(options, flag)}")
    if options.generate and options.file:
        raise TraceError(f"a trace file ({options.file}) and --generate exclude each other; keep one")
    if not options.generate and not options.file:
        raise TraceError("say what to simulate: a trace file, or --generate jobs=1000,seed=1")
    machines = SimulatedNodes(options.nodes, options.gpus)
    if options.generate:
        trace = trace_generator.generate_trace(
            trace_generator.parse_options(options.generate), options.nodes, options.gpus
        )
    else:
        trace = load_trace(options.file)
    return trace, machines, parse_duration(options.grace, "--grace")


def parse_settings(options: argparse.Namespace) -> SchedulerSettings:
    """The planner's settings that flags choose; durations in seconds. Raises TraceError."""
    half_life = parse_duration(options.half_life, "--half-life") if options.half_life else 0.0
    return SchedulerSettings(
        half_life=half_life, reserve_after=parse_duration(options.reserve_after, "--reserve-after")
    )


def main(argv: list[str] | None = None) -> int:
    """Run a simulation and print its report. Exit code 0; 1 with a message when the trace is wrong or a file cannot be written."""
    options = parse_arguments(argv)
    try:
        trace, machines, grace = parse_inputs(options)
        if options.svg:
            Path(options.svg).write_text("")  # fails now rather than after an hour
        result = Simulation(trace, machines, grace=grace, settings=parse_settings(options)).run(progress_bar())
        summary: dict[str, Any] = metrics.summarize(result)
        title = f"{len(trace.jobs)} jobs on {machines.nodes} nodes × {machines.gpus} GPUs"
        if options.svg:
            Path(options.svg).write_text(chart.render_svg(result, title), encoding="utf-8")
    except TraceError as error:
        print(f"{options.program}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{options.program}: {error.filename} cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    print(json.dumps(summary, indent=2, ensure_ascii=False) if options.json else metrics.format_summary(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
