"""A story in figures: utilisation, waiting times, fairness, what was taken back. All of it simulated, and said so.

Fairness: what a project got (GPU-hours) against what it deserved, its fair share at every moment, as the scheduler
worked it out, never more than it asked for. Jain's index over these ratios: 1 = all alike, 1/n = one has everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.rehearsal.engine import Point, Run, Story, capacity
from rowlock.scheduling.amounts import WHOLE

NOTE = "simulated: pretend nodes and the real planner; pods start at once and run at full speed"


def percentile(values: Sequence[float], part: float) -> float:
    """Nearest rank; 0 for nothing."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index of some ratios; 1 for none."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def integral(points: Sequence[Point], end: float, field: str, at: int) -> float:
    """GPU-hours of one project."""
    total = 0.0
    for i, p in enumerate(points):
        after = points[i + 1].at if i + 1 < len(points) else end
        total += getattr(p, field)[at] * max(0.0, min(after, end) - p.at)
    return total / WHOLE / 3600


def waits(runs: Sequence[Run]) -> dict[str, float]:
    """Seconds from a job's coming to its first start."""
    found = [r.first - r.job.at for r in runs if r.first is not None]
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    made = {name: round(percentile(found, part), 1) for name, part in names.items()}
    mean = sum(found) / len(found) if found else 0.0
    return {**made, "max": round(max(found, default=0.0), 1), "mean": round(mean, 1)}


def summary(story: Story) -> dict[str, Any]:
    """Everything that is printed, as JSON."""
    runs = list(story.runs.values())
    begin = min((r.job.at for r in runs), default=0.0)
    span = max(story.end - begin, 1e-9)
    every = [_project(story, at) for at in range(len(story.projects))]
    held = sum(integral(story.points, story.end, "held", at) for at in range(len(story.projects)))
    ratios = [p["gotPerDeserved"] for p in every if p["deservedGpuHours"] > 0]
    return {
        "simulated": NOTE,
        "cluster": {"nodes": story.machines.nodes, "gpusPerNode": story.machines.gpus},
        "jobs": {
            "submitted": len(runs),
            "completed": sum(r.end is not None for r in runs),
            "neverStarted": sum(r.first is None for r in runs),
        },
        "makespanSeconds": round(span, 1),
        "utilisation": round(held * 3600 * WHOLE / (capacity(story.machines) * span), 4),
        "waitSeconds": waits(runs),
        "jain": round(jain(ratios), 4),
        "projects": every,
        "taken": dict(sorted(story.acts.items())),
        "lostGpuHours": round(sum(r.lost * _gpus(r) for r in runs) / 3600, 2),
        "cycles": story.cycles,
        "stuck": dict(sorted(story.stuck.items())),
    }


def _gpus(run: Run) -> float:
    return run.job.shape.gpus or run.job.shape.portion / WHOLE


def _project(story: Story, at: int) -> dict[str, Any]:
    project = story.projects[at]
    mine = [r for r in story.runs.values() if r.job.project == project.name]
    got = integral(story.points, story.end, "held", at)
    deserved = integral(story.points, story.end, "fair", at)
    return {
        "name": project.name,
        "quota": project.quota / WHOLE if project.quota >= 0 else "unlimited",
        "jobs": len(mine),
        "gpuHours": round(got, 2),
        "deservedGpuHours": round(deserved, 2),
        "gotPerDeserved": round(got / deserved, 3) if deserved else 0.0,
        "evictions": sum(r.evictions for r in mine),
        "waitSeconds": waits(mine),
    }


def span(seconds: float) -> str:
    """For people: 42s, 12m, 3.4h, 2.1d."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}".removesuffix(".0") + unit
    return f"{seconds:.0f}s"


def text(found: dict[str, Any]) -> str:
    """The summary for people."""
    jobs, wait, cluster = found["jobs"], found["waitSeconds"], found["cluster"]
    taken = ", ".join(f"{n} by {act}" for act, n in found["taken"].items()) or "none"
    lines = [
        f"{found['simulated']}.",
        "",
        f"cluster      {cluster['nodes']} nodes × {cluster['gpusPerNode']} GPUs",
        f"jobs         {jobs['completed']} of {jobs['submitted']} completed",
        f"makespan     {span(found['makespanSeconds'])}",
        f"utilisation  {found['utilisation']:.1%} of all GPU time",
        f"waiting      p50 {span(wait['p50'])}, p90 {span(wait['p90'])}, p99 {span(wait['p99'])}, "
        f"longest {span(wait['max'])}",
        f"fairness     Jain {found['jain']:.3f} over what projects got of what they deserved",
        f"taken back   {taken}; {found['lostGpuHours']:g} GPU-hours of work lost",
        "",
        *_rows(found["projects"]),
    ]
    lines += [f"never ran    {name}: {why}" for name, why in list(found["stuck"].items())[:5]]
    if len(found["stuck"]) > 5:
        lines.append(f"             and {len(found['stuck']) - 5} more")
    return "\n".join(lines)


def _rows(projects: Sequence[dict[str, Any]]) -> list[str]:
    header = ("PROJECT", "QUOTA", "JOBS", "GPU-HOURS", "DESERVED", "GOT/DESERVED", "WAIT P50", "WAIT P90", "EVICTED")
    rows = [header]
    for p in projects:
        quota = p["quota"] if isinstance(p["quota"], str) else f"{p['quota']:g}"
        wait = p["waitSeconds"]
        rows.append((
            p["name"], quota, str(p["jobs"]), f"{p['gpuHours']:.1f}", f"{p['deservedGpuHours']:.1f}",
            f"{p['gotPerDeserved']:.2f}", span(wait["p50"]), span(wait["p90"]), str(p["evictions"]),
        ))  # fmt: skip
    widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
    return ["  ".join(f"{c:{w}}" for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
