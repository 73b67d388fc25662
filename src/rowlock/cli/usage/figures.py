"""Usage figures as text for columns: cores, bytes, percent; `-` for values that are not measured."""

from __future__ import annotations

from typing import Any

from rowlock.cli.client import ServerClient
from rowlock.cli.output import format_duration

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


def rate_pair(usage: dict[str, Any], one: str, other: str) -> str:
    """Two rates as `in/out`, in bytes per second."""
    if usage[one] is None and usage[other] is None:
        return "-"
    return f"{format_bytes(usage[one])}/{format_bytes(usage[other])}"


def read_idle_seconds(server: ServerClient) -> dict[str, int]:
    """Workload id → idle seconds, for jobs that have been idle for at least IDLE_AFTER."""
    jobs = server.get(USAGE)["workloads"]
    return {job["id"]: job["idleSeconds"] for job in jobs if (job["idleSeconds"] or 0) >= IDLE_AFTER}


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
