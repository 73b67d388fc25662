"""A trace: projects with quotas, and jobs with their arrival time, requests and duration.

YAML, parsed strictly: the error for an unknown field suggests the nearest known one, the error for a bad value names its place and rule.
`docs/scheduler.md` shows the format; `trace_generator.py` makes traces from a seed.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock.errors import BadRequest
from rowlock.quantity import integer_value
from rowlock.scheduling.model.from_objects import PRIORITY_CLASS_VALUES
from rowlock.scheduling.model.resources import UNLIMITED, WHOLE_GPU
from rowlock.scheduling.model.snapshot import Shape

MAX_JOBS = 200_000
MAX_PODS = 10_000


class TraceError(Exception):
    """A trace or a flag is invalid. The message says where, which rule it breaks, and what to write instead."""


@dataclass(frozen=True, slots=True)
class TraceProject:
    """GPU amounts in hundredths; -1 = unlimited."""

    name: str
    department: str = ""
    quota: int = 0
    limit: int = UNLIMITED
    weight: float = 1.0
    priority: int = 100


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Times in seconds. `duration` is how long the job runs with all its pods; an elastic job with fewer pods takes longer."""

    name: str
    project: str
    arrival: float
    duration: float
    pods: int = 1
    minimum: int = 1
    shape: Shape = field(default_factory=lambda: Shape(cpu=1000, memory=4 << 30, gpus=1))
    priority: int = 50
    preemptible: bool = True
    checkpoint: float = 0.0
    """Seconds between checkpoints: an evicted job loses the work since its last one; 0 = it loses nothing."""
    declares_duration: bool = False
    """It declares its duration to the scheduler, which may then let it use reserved nodes."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A parsed trace: projects and departments with quotas, and jobs sorted by arrival."""

    projects: tuple[TraceProject, ...]
    jobs: tuple[TraceJob, ...]
    departments: tuple[TraceProject, ...] = ()


def parse_duration(value: Any, where: str) -> float:
    """`90`, `30s`, `5m`, `1h30m`, `2d` in seconds. Raises TraceError."""
    sizes = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(value))
    if not parts or "".join(n + u for n, u in parts) != str(value):
        raise TraceError(f"{where}: {value!r} is not a duration; write seconds, or for example 30s, 5m, 1h30m, 2d")
    return sum(float(n) * sizes[u] for n, u in parts)


def parse_trace(document: Any) -> Trace:
    """A decoded YAML document as a trace. Raises TraceError."""
    top = TraceTable(document, "the trace", ("projects", "departments", "jobs"))
    departments = tuple(
        _parse_project(TraceTable(d, f"departments[{i}]", _PROJECT_FIELDS))
        for i, d in enumerate(top.list_of("departments"))
    )
    projects = tuple(
        _parse_project(TraceTable(p, f"projects[{i}]", _PROJECT_FIELDS)) for i, p in enumerate(top.list_of("projects"))
    )
    _check_distinct([*departments, *projects], "projects")
    department_names = [d.name for d in departments]
    for i, d in enumerate(departments):
        if d.department:
            raise TraceError(f"departments[{i}]: a department has no parent: only a project has the field `department`")
    for p in projects:
        if p.department and p.department not in department_names:
            raise TraceError(
                f"project {p.name}: there is no department {p.department!r}{suggest_nearest(p.department, department_names)}"
            )
    if not projects:
        raise TraceError("projects: a trace needs at least one, for example `- {name: team-a, quota: 4}`")
    jobs: list[TraceJob] = []
    for i, item in enumerate(top.list_of("jobs")):
        jobs += _parse_jobs(TraceTable(item, f"jobs[{i}]", _JOB_FIELDS), [p.name for p in projects])
        if len(jobs) > MAX_JOBS:
            raise TraceError(f"jobs[{i}]: more than {MAX_JOBS} jobs, which is the limit of a simulation")
    _check_distinct(jobs, "jobs")
    if not jobs:
        raise TraceError("jobs: a trace needs at least one; or let `--generate jobs=1000,seed=1` make them")
    return Trace(projects, tuple(sorted(jobs, key=lambda j: (j.arrival, j.name))), departments)


_PROJECT_FIELDS = ("name", "department", "quota", "limit", "weight", "priority")
_JOB_FIELDS = (
    "name", "project", "at", "duration", "pods", "min", "gpus", "fraction", "cpu", "memory", "priority", "preemptible",
    "checkpoint", "declared", "count", "every",
)  # fmt: skip


class TraceTable:
    """A mapping of the document, with its path for error messages."""

    def __init__(self, value: Any, path: str, fields: Sequence[str]) -> None:
        if not isinstance(value, Mapping):
            raise TraceError(f"{path} must be a mapping with {', '.join(fields)}, not {value!r:.60}")
        for key in value:
            if key not in fields:
                raise TraceError(f"{path}: there is no {str(key)!r}{suggest_nearest(str(key), fields)}")
        self.value, self.path = value, path

    def list_of(self, key: str) -> list[Any]:
        """The list at `key`, [] when absent. Raises TraceError."""
        items = self.value.get(key)
        if items is not None and not isinstance(items, list):
            raise TraceError(f"{key} must be a list")
        return items or []

    def text(self, key: str, default: str | None = None) -> str:
        """The name at `key`; without a default it is required. Raises TraceError."""
        value = self.value.get(key, default)
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            if key in self.value or default is None:
                raise TraceError(f"{self.path}: {key} must be a name")
        return str(value)

    def number(self, key: str, default: float, *, minimum: float = 0.0, maximum: float = math.inf) -> float:
        """The number at `key`, within both bounds. Raises TraceError."""
        value = self.value.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            bounds = f"at least {minimum:g}" if maximum == math.inf else f"between {minimum:g} and {maximum:g}"
            raise TraceError(f"{self.path}: {key} must be a number, {bounds}, not {value!r}")
        return float(value)

    def count(self, key: str, default: int, *, minimum: int = 1, maximum: float = math.inf) -> int:
        """The whole number at `key`, within both bounds. Raises TraceError."""
        number = self.number(key, default, minimum=minimum, maximum=maximum)
        if number != int(number):
            raise TraceError(f"{self.path}: {key} must be a whole number, not {number:g}")
        return int(number)

    def flag(self, key: str, default: bool) -> bool:
        """The boolean at `key`. Raises TraceError."""
        value = self.value.get(key, default)
        if not isinstance(value, bool):
            raise TraceError(f"{self.path}: {key} must be true or false, not {value!r}")
        return value


def _parse_project(t: TraceTable) -> TraceProject:
    def parse_gpus(key: str, absent: int) -> int:
        if t.value.get(key) in (-1, None):
            return UNLIMITED if key in t.value or absent < 0 else absent
        return round(t.number(key, 0) * WHOLE_GPU)

    return TraceProject(
        t.text("name"),
        t.text("department", ""),
        parse_gpus("quota", 0),
        parse_gpus("limit", UNLIMITED),
        t.number("weight", 1.0),
        t.count("priority", 100, minimum=0),
    )


def _parse_jobs(t: TraceTable, projects: Sequence[str]) -> list[TraceJob]:
    """The jobs of one entry: one, or `count` jobs that arrive `every` so often."""
    name, project = t.text("name"), t.text("project")
    if project not in projects:
        raise TraceError(f"{t.path}: there is no project {project!r}{suggest_nearest(project, projects)}")
    pods = t.count("pods", 1, maximum=MAX_PODS)
    priority, preemptible = _parse_priority(t)
    if "duration" not in t.value:
        raise TraceError(f"{t.path}: duration is missing: how long does {name} run?")
    job = TraceJob(
        name, project, parse_duration(t.value.get("at", 0), f"{t.path}.at"),
        parse_duration(t.value["duration"], f"{t.path}.duration"), pods, t.count("min", pods, maximum=pods), _parse_shape(t), priority,
        t.flag("preemptible", preemptible), parse_duration(t.value.get("checkpoint", 0), f"{t.path}.checkpoint"),
        t.flag("declared", False),
    )  # fmt: skip
    count = t.count("count", 1, maximum=MAX_JOBS)
    if count == 1:
        return [job]
    every = parse_duration(t.value.get("every", 0), f"{t.path}.every")
    return [replace(job, name=f"{name}-{i}", arrival=job.arrival + i * every) for i in range(count)]


def _parse_shape(t: TraceTable) -> Shape:
    cpu = round(t.number("cpu", 1.0) * 1000)
    try:
        memory = integer_value(str(t.value.get("memory", "4Gi")))
    except BadRequest as error:
        raise TraceError(f"{t.path}: memory: {error.message}") from None
    if "fraction" not in t.value:
        return Shape(cpu=cpu, memory=memory, gpus=t.count("gpus", 1, minimum=0))
    if "gpus" in t.value:
        raise TraceError(f"{t.path}: gpus and fraction exclude each other; keep one")
    fraction = t.number("fraction", 0.0, minimum=0.01, maximum=1.0)
    hundredths = math.floor(fraction * WHOLE_GPU + 0.5)
    if hundredths == WHOLE_GPU:
        return Shape(cpu=cpu, memory=memory, gpus=1)
    return Shape(cpu=cpu, memory=memory, portion=hundredths, devices=1)


def _parse_priority(t: TraceTable) -> tuple[int, bool]:
    """(priority value, whether a job of this priority is preemptible by default)."""
    value_or_class = t.value.get("priority", "train")
    if isinstance(value_or_class, str):
        if value_or_class not in PRIORITY_CLASS_VALUES:
            raise TraceError(
                f"{t.path}: there is no priority {value_or_class!r}{suggest_nearest(value_or_class, list(PRIORITY_CLASS_VALUES))}"
            )
        value = PRIORITY_CLASS_VALUES[value_or_class]
    else:
        value = t.count("priority", 50, minimum=0)
    return value, value < 100


def _check_distinct(items: Sequence[TraceProject | TraceJob], section: str) -> None:
    names: set[str] = set()
    for item in items:
        if item.name in names:
            raise TraceError(f"{section}: the name {item.name!r} is given twice")
        names.add(item.name)


def suggest_nearest(word: str, known: Sequence[str]) -> str:
    """The end of an error message about an unknown word: the nearest known word, or all of them."""
    matches = difflib.get_close_matches(word, known, 1, 0.5)
    return f"; did you mean {matches[0]!r}?" if matches else f"; known: {', '.join(known) or 'none'}"
