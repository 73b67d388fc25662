"""Figures of a simulation: utilisation, waiting times, fairness, evictions. The report says that they are simulated.

Fairness is the ratio of the GPU-hours that a project held to those that it deserved: the scheduler's fair share over time, at most what it
requested. Jain's index of these ratios is 1 when all are equal and 1/n when one project has everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.simulator.engine import JobRun, SimulationResult, UsagePoint, gpu_capacity

NOTE = "simulated: fake nodes and the real planner; pods start at once and run at full speed"


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` (0 to 1) of the values lie, by nearest rank; 0 without values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]


def jain_index(values: Sequence[float]) -> float:
    """Jain's fairness index of the values; 1 for an empty list."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def gpu_hours(points: Sequence[UsagePoint], end: float, field: str, at: int) -> float:
    """The integral of `field` (hundredths of GPUs) of the project with index `at` until `end`, in GPU-hours."""
    total = 0.0
    for i, p in enumerate(points):
        after = points[i + 1].at if i + 1 < len(points) else end
        total += getattr(p, field)[at] * max(0.0, min(after, end) - p.at)
    return total / WHOLE_GPU / 3600


def wait_percentiles(runs: Sequence[JobRun]) -> dict[str, float]:
    """Seconds from a job's arrival to its first start: p50, p90, p99, max, mean; jobs that never started are left out."""
    waits_seconds = [r.first_started - r.job.arrival for r in runs if r.first_started is not None]
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    percentiles = {name: round(percentile(waits_seconds, part), 1) for name, part in names.items()}
    mean = sum(waits_seconds) / len(waits_seconds) if waits_seconds else 0.0
    return {**percentiles, "max": round(max(waits_seconds, default=0.0), 1), "mean": round(mean, 1)}


def summarize(result: SimulationResult) -> dict[str, Any]:
    """Every figure of the report, as JSON: hours, seconds and fractions, under the names that `--json` prints."""
    runs = list(result.runs.values())
    begin = min((r.job.arrival for r in runs), default=0.0)
    span = max(result.end - begin, 1e-9)
    projects = [_project_summary(result, at) for at in range(len(result.projects))]
    held = sum(gpu_hours(result.points, result.end, "held", at) for at in range(len(result.projects)))
    ratios = [p["gotPerDeserved"] for p in projects if p["deservedGpuHours"] > 0]
    return {
        "simulated": NOTE,
        "cluster": {"nodes": result.nodes.nodes, "gpusPerNode": result.nodes.gpus},
        "jobs": {
            "submitted": len(runs),
            "completed": sum(r.ended_at is not None for r in runs),
            "neverStarted": sum(r.first_started is None for r in runs),
        },
        "makespanSeconds": round(span, 1),
        "utilisation": round(held * 3600 * WHOLE_GPU / (gpu_capacity(result.nodes) * span), 4),
        "waitSeconds": wait_percentiles(runs),
        "jain": round(jain_index(ratios), 4),
        "projects": projects,
        "taken": dict(sorted(result.evictions_by_action.items())),
        "lostGpuHours": round(sum(r.work_lost * _gpus_per_pod(r) for r in runs) / 3600, 2),
        "cycles": result.cycles,
        "stuck": dict(sorted(result.never_started.items())),
    }


def _gpus_per_pod(run: JobRun) -> float:
    return run.job.shape.gpus or run.job.shape.portion / WHOLE_GPU


def _project_summary(result: SimulationResult, at: int) -> dict[str, Any]:
    project = result.projects[at]
    project_runs = [r for r in result.runs.values() if r.job.project == project.name]
    received = gpu_hours(result.points, result.end, "held", at)
    deserved = gpu_hours(result.points, result.end, "fair", at)
    return {
        "name": project.name,
        "quota": project.quota / WHOLE_GPU if project.quota >= 0 else "unlimited",
        "jobs": len(project_runs),
        "gpuHours": round(received, 2),
        "deservedGpuHours": round(deserved, 2),
        "gotPerDeserved": round(received / deserved, 3) if deserved else 0.0,
        "evictions": sum(r.evictions for r in project_runs),
        "waitSeconds": wait_percentiles(project_runs),
    }


def format_seconds(seconds: float) -> str:
    """A duration as text: 42s, 12m, 3.4h, 2.1d."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}".removesuffix(".0") + unit
    return f"{seconds:.0f}s"


def format_summary(summary: dict[str, Any]) -> str:
    """The report as text, from what `summarize` returns."""
    jobs, wait, cluster = summary["jobs"], summary["waitSeconds"], summary["cluster"]
    taken = ", ".join(f"{n} by {act}" for act, n in summary["taken"].items()) or "none"
    lines = [
        f"{summary['simulated']}.",
        "",
        f"cluster      {cluster['nodes']} nodes × {cluster['gpusPerNode']} GPUs",
        f"jobs         {jobs['completed']} of {jobs['submitted']} completed",
        f"makespan     {format_seconds(summary['makespanSeconds'])}",
        f"utilisation  {summary['utilisation']:.1%} of all GPU time",
        f"waiting      p50 {format_seconds(wait['p50'])}, p90 {format_seconds(wait['p90'])}, p99 {format_seconds(wait['p99'])}, "
        f"longest {format_seconds(wait['max'])}",
        f"fairness     Jain {summary['jain']:.3f} (what projects got / what they deserved)",
        f"evicted      {taken}; {summary['lostGpuHours']:g} GPU-hours of work lost",
        "",
        *_project_rows(summary["projects"]),
    ]
    lines += [f"never ran    {name}: {why}" for name, why in list(summary["stuck"].items())[:5]]
    if len(summary["stuck"]) > 5:
        lines.append(f"             and {len(summary['stuck']) - 5} more")
    return "\n".join(lines)


def _project_rows(projects: Sequence[dict[str, Any]]) -> list[str]:
    header = ("PROJECT", "QUOTA", "JOBS", "GPU-HOURS", "DESERVED", "GOT/DESERVED", "WAIT P50", "WAIT P90", "EVICTED")
    rows = [header]
    for p in projects:
        quota = p["quota"] if isinstance(p["quota"], str) else f"{p['quota']:g}"
        wait = p["waitSeconds"]
        rows.append((
            p["name"], quota, str(p["jobs"]), f"{p['gpuHours']:.1f}", f"{p['deservedGpuHours']:.1f}",
            f"{p['gotPerDeserved']:.2f}", format_seconds(wait["p50"]), format_seconds(wait["p90"]), str(p["evictions"]),
        ))  # fmt: skip
    widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
    return ["  ".join(f"{c:{w}}" for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
