"""`rowlock top [JOB]`: shows what nodes and jobs, or the ranks of one job, use now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import find_workload
from rowlock.cli.output import format_duration, format_number, show, show_json, table, tell

if TYPE_CHECKING:
    from rowlock.answers.workloads import Usage, UsageOfNode, UsageOfPod, UsageOfWorkload, Used, WorkloadUsage

_CLEAR = "\x1b[H\x1b[J"
_USED = ("CPU", "MEMORY", "GPU USE", "GPU MEMORY", "DISK R/W", "NET IN/OUT")
_NOT_MEASURED = (
    "Nothing here measures what pods of this cluster use; where it has a metrics server, `kubectl top pods` does."
)


def top(line: CommandLine) -> int:
    interval = line.interval
    if interval is not None and interval < 1:
        raise CommandError(f"--interval must be at least 1 second, but is {interval}", 2)
    if interval is not None and not line.watch:
        raise CommandError("--interval needs --watch", 2)
    if line.watch and line.json:
        raise CommandError("--watch draws a screen, --json prints once: choose one", 2)
    server, name = client.connect(line), line.words[0] if line.words else ""
    path = f"{USAGE}/{find_workload(server, project(line), name)['id']}" if name else USAGE
    query = {} if line.all_projects or name else {"project": project(line)}
    if line.watch:
        return _watch(server, path, query, interval or 2)
    answer = server.get(path, **query)
    if line.json:
        show_json(answer)
    else:
        for text in _draw(answer, query.get("project", "")):
            show(text)
        _tell_limits(answer)
    return 0


def _watch(server: ServerClient, path: str, query: dict[str, str], interval: int) -> int:
    """Print the tables every `interval` seconds until Ctrl-C: in place on a terminal, else one below the other."""
    is_terminal = sys.stdout.isatty()
    try:
        while True:
            text = "\n".join(_draw(server.get(path, **query), query.get("project", "")))
            sys.stdout.write(_CLEAR if is_terminal else "")
            show(text if is_terminal else f"{text}\n")
            sys.stdout.flush()
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0


def _draw(answer: Any, project_name: str) -> Iterator[str]:
    """The tables as text. `project_name` is "" for all projects: the table of jobs then has a column PROJECT."""
    with_project = not project_name
    if "pods" in answer:
        one: WorkloadUsage = answer
        yield _header_line(one)
        yield table(("RANK", "POD", "NODE", "GPUS", *_USED), [_pod_row(pod) for pod in one["pods"]])
        return
    whole: Usage = answer
    if whole["nodes"]:
        yield table(
            ("NODE", "PODS", "CPU", "CPU%", "MEMORY", "MEMORY%", "GPUS", "GPU USE"),
            list(map(_node_row, whole["nodes"])),
        )
        yield ""
    if not whole["workloads"]:
        others = f" This is project {project_name}; -A shows all projects." if project_name else ""
        yield f"No job runs or waits.{others}"
        return
    names = ("JOB", *(("PROJECT",) if with_project else ()), "PHASE", "PODS", "GPUS", *_USED, "IDLE")
    yield table(names, [_job_row(job, with_project=with_project) for job in whole["workloads"]])


def _header_line(job: WorkloadUsage) -> str:
    idle = f", idle for {format_duration(job['idleSeconds'])}" if job["idleSeconds"] is not None else ""
    pods = "1 pod" if job["podCount"] == 1 else f"{job['podCount']} pods"
    return f"{job['name']}: {job['phase']}, {pods}{idle}"


def _usage_columns(usage: Used) -> tuple[str, ...]:
    return (
        format_cores(usage["cpuCores"]),
        format_bytes(usage["memoryBytes"]),
        format_percent(usage["gpuUtilization"]),
        format_bytes(usage["gpuMemoryBytes"]),
        rate_pair(usage["diskReadBytes"], usage["diskWriteBytes"]),
        rate_pair(usage["netReceiveBytes"], usage["netTransmitBytes"]),
    )


def _pod_row(pod: UsageOfPod) -> tuple[str, ...]:
    return (pod["rank"], pod["name"], pod["node"] or "-", format_number(pod["gpus"]), *_usage_columns(pod["usage"]))


def _job_row(job: UsageOfWorkload, *, with_project: bool) -> tuple[str, ...]:
    idle = "-" if job["idleSeconds"] is None else format_duration(job["idleSeconds"])
    return (
        job["name"],
        *((job["projectName"],) if with_project else ()),
        job["phase"],
        str(job["podCount"]),
        format_number(job["gpus"]),
        *_usage_columns(job["usage"]),
        idle,
    )


def _node_row(node: UsageOfNode) -> tuple[str, ...]:
    usage = node["usage"]
    return (
        node["name"],
        str(node["pods"]),
        format_cores(usage["cpuCores"]),
        format_percent(part_of(usage["cpuCores"], node["cpuCores"])),
        format_bytes(usage["memoryBytes"]),
        format_percent(part_of(usage["memoryBytes"], node["memoryBytes"])),
        format_number(node["gpus"]),
        format_percent(usage["gpuUtilization"]),
    )


def _tell_limits(answer: dict[str, Any]) -> None:
    if not answer["measured"]:
        tell(_NOT_MEASURED)
    elif any(job["gpus"] and job["usage"]["gpuUtilization"] is None for job in answer.get("workloads", [answer])):
        tell("GPU use is - where GPUs are simulated, which do no work, or where the driver does not tell it.")


IDLE_AFTER = 300
"""Seconds without activity after which a job is called idle, as in Run:ai."""
_UNITS = ("B", "Ki", "Mi", "Gi", "Ti")
USAGE = "/api/v1/usage"


def format_bytes(value: float | None) -> str:
    """`1536` → `1.5Ki`."""
    if value is None:
        return "-"
    step = 0
    while value >= 1024 and step < len(_UNITS) - 1:
        value, step = value / 1024, step + 1
    return f"{value:.0f}{_UNITS[step]}" if step == 0 or value >= 100 else f"{value:.1f}{_UNITS[step]}"


def format_cores(value: float | None) -> str:
    """Cores with two decimals: `0.25`."""
    return "-" if value is None else f"{value:.2f}"


def format_percent(value: float | None) -> str:
    """A percentage; `-` when it is not known."""
    return "-" if value is None else f"{value:.0f}%"


def part_of(value: float | None, whole: float | None) -> float | None:
    """`value` in percent of `whole`; None when one of them is not known."""
    return None if value is None or not whole else 100 * value / whole


def rate_pair(one: float | None, other: float | None) -> str:
    """Two rates as `in/out`, in bytes per second."""
    if one is None and other is None:
        return "-"
    return f"{format_bytes(one)}/{format_bytes(other)}"


def read_idle_jobs(server: ServerClient) -> dict[str, str]:
    """Workload id → for how long it has been idle, and what it holds meanwhile; of jobs that have been idle for at least IDLE_AFTER."""
    jobs: list[UsageOfWorkload] = server.get(USAGE)["workloads"]
    return {job["id"]: _idle_words(job) for job in jobs if (job["idleSeconds"] or 0) >= IDLE_AFTER}


def _idle_words(job: UsageOfWorkload) -> str:
    held = f"holds {format_number(job['gpus'])} {'GPU' if job['gpus'] == 1 else 'GPUs'}, " if job["gpus"] else ""
    return f"{held}idle for {format_duration(job['idleSeconds'] or 0)}"


def describe_usage(server: ServerClient, identity: str) -> str:
    """One line about what a job uses now; "" when nothing is known."""
    job = server.get(f"{USAGE}/{identity}")
    usage, words = job["usage"], []
    if usage["cpuCores"] is None:
        return ""
    words += [f"{format_cores(usage['cpuCores'])} cores", f"{format_bytes(usage['memoryBytes'])} of memory"]
    if usage["gpuUtilization"] is not None:
        words.append(
            f"{format_percent(usage['gpuUtilization'])} of its GPUs, {format_bytes(usage['gpuMemoryBytes'])} on them"
        )
    if (job["idleSeconds"] or 0) >= IDLE_AFTER:
        words.append(f"idle for {format_duration(job['idleSeconds'])}")
    return ", ".join(words)
