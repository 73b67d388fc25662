"""A trace: projects with quotas, and jobs with the moment they come, what they ask for and how long they run.

YAML, read strictly: an unknown word is refused with the nearest known one, a value with its place and rule.
`docs/scheduler.md` shows the format; `generate.py` makes traces from a seed.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock.errors import BadRequest
from rowlock.quantity import whole
from rowlock.scheduling.amounts import UNLIMITED, WHOLE
from rowlock.scheduling.reading import PRIORITIES
from rowlock.scheduling.snapshot import Shape

MOST_JOBS = 200_000
MOST_PODS = 10_000


class TraceError(Exception):
    """What is wrong with a trace: where, which rule, what to write instead."""


@dataclass(frozen=True, slots=True)
class Project:
    """GPU amounts in hundredths; -1 = unlimited."""

    name: str
    department: str = ""
    quota: int = 0
    limit: int = UNLIMITED
    weight: float = 1.0
    priority: int = 100


@dataclass(frozen=True, slots=True)
class Job:
    """Times in seconds. `duration` is how long it runs with all its pods; fewer pods of an elastic job take longer."""

    name: str
    project: str
    at: float
    duration: float
    pods: int = 1
    minimum: int = 1
    shape: Shape = field(default_factory=lambda: Shape(cpu=1000, memory=4 << 30, gpus=1))
    priority: int = 50
    preemptible: bool = True
    checkpoint: float = 0.0
    """Work since the last multiple of this is lost when it is evicted; 0 = nothing is lost."""
    declared: bool = False
    """It declares its duration to the scheduler, which may let it run beside a reservation."""


@dataclass(frozen=True, slots=True)
class Trace:
    projects: tuple[Project, ...]
    jobs: tuple[Job, ...]
    departments: tuple[Project, ...] = ()


def duration(value: Any, where: str) -> float:
    """`90`, `30s`, `5m`, `1h30m`, `2d` in seconds. Raises TraceError."""
    sizes = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(value))
    if not parts or "".join(n + u for n, u in parts) != str(value):
        raise TraceError(f"{where}: {value!r} is not a duration; write seconds, or for example 30s, 5m, 1h30m, 2d")
    return sum(float(n) * sizes[u] for n, u in parts)


def parse(document: Any) -> Trace:
    """A decoded YAML document as a trace. Raises TraceError."""
    top = Table(document, "the trace", ("projects", "departments", "jobs"))
    departments = tuple(
        _project(Table(d, f"departments[{i}]", _PROJECT)) for i, d in enumerate(top.items("departments"))
    )
    projects = tuple(_project(Table(p, f"projects[{i}]", _PROJECT)) for i, p in enumerate(top.items("projects")))
    _distinct([*departments, *projects], "projects")
    known = [d.name for d in departments]
    for i, d in enumerate(departments):
        if d.department:
            raise TraceError(f"departments[{i}]: a department hangs below nothing; leave `department` to projects")
    for p in projects:
        if p.department and p.department not in known:
            raise TraceError(f"project {p.name}: there is no department {p.department!r}{nearest(p.department, known)}")
    if not projects:
        raise TraceError("projects: a trace needs at least one, for example `- {name: team-a, quota: 4}`")
    jobs: list[Job] = []
    for i, item in enumerate(top.items("jobs")):
        jobs += _jobs(Table(item, f"jobs[{i}]", _JOB), [p.name for p in projects])
        if len(jobs) > MOST_JOBS:
            raise TraceError(f"jobs[{i}]: that makes more than {MOST_JOBS} jobs; a simulation takes no more")
    _distinct(jobs, "jobs")
    if not jobs:
        raise TraceError("jobs: a trace needs at least one; or let `--generate jobs=1000,seed=1` make them")
    return Trace(projects, tuple(sorted(jobs, key=lambda j: (j.at, j.name))), departments)


_PROJECT = ("name", "department", "quota", "limit", "weight", "priority")
_JOB = (
    "name", "project", "at", "duration", "pods", "min", "gpus", "fraction", "cpu", "memory", "priority", "preemptible",
    "checkpoint", "declared", "count", "every",
)  # fmt: skip


class Table:
    """A mapping of the document, with its place for sentences."""

    def __init__(self, value: Any, where: str, known: Sequence[str]) -> None:
        if not isinstance(value, Mapping):
            raise TraceError(f"{where} must be a mapping with {', '.join(known)}, not {value!r:.60}")
        for key in value:
            if key not in known:
                raise TraceError(f"{where}: there is no {str(key)!r}{nearest(str(key), known)}")
        self.value, self.where = value, where

    def items(self, key: str) -> list[Any]:
        found = self.value.get(key)
        if found is not None and not isinstance(found, list):
            raise TraceError(f"{key} must be a list")
        return found or []

    def text(self, key: str, absent: str | None = None) -> str:
        found = self.value.get(key, absent)
        if not isinstance(found, str | int) or isinstance(found, bool) or found == "":
            if key in self.value or absent is None:
                raise TraceError(f"{self.where}: {key} must be a name")
        return str(found)

    def number(self, key: str, absent: float, *, least: float = 0.0, most: float = math.inf) -> float:
        found = self.value.get(key, absent)
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
            raise TraceError(f"{self.where}: {key} must be a number, {bounds}, not {found!r}")
        return float(found)

    def count(self, key: str, absent: int, *, least: int = 1, most: float = math.inf) -> int:
        found = self.number(key, absent, least=least, most=most)
        if found != int(found):
            raise TraceError(f"{self.where}: {key} must be a whole number, not {found:g}")
        return int(found)

    def flag(self, key: str, absent: bool) -> bool:
        found = self.value.get(key, absent)
        if not isinstance(found, bool):
            raise TraceError(f"{self.where}: {key} must be true or false, not {found!r}")
        return found


def _project(t: Table) -> Project:
    def gpus(key: str, absent: int) -> int:
        if t.value.get(key) in (-1, None):
            return UNLIMITED if key in t.value or absent < 0 else absent
        return round(t.number(key, 0) * WHOLE)

    return Project(
        t.text("name"),
        t.text("department", ""),
        gpus("quota", 0),
        gpus("limit", UNLIMITED),
        t.number("weight", 1.0),
        t.count("priority", 100, least=0),
    )


def _jobs(t: Table, projects: Sequence[str]) -> list[Job]:
    """One entry; with `count` several, `every` so long after the one before."""
    name, project = t.text("name"), t.text("project")
    if project not in projects:
        raise TraceError(f"{t.where}: there is no project {project!r}{nearest(project, projects)}")
    pods = t.count("pods", 1, most=MOST_PODS)
    priority, preemptible = _priority(t)
    if "duration" not in t.value:
        raise TraceError(f"{t.where}: duration is missing: how long does {name} run?")
    job = Job(
        name, project, duration(t.value.get("at", 0), f"{t.where}.at"),
        duration(t.value["duration"], f"{t.where}.duration"), pods, t.count("min", pods, most=pods), _shape(t), priority,
        t.flag("preemptible", preemptible), duration(t.value.get("checkpoint", 0), f"{t.where}.checkpoint"),
        t.flag("declared", False),
    )  # fmt: skip
    count = t.count("count", 1, most=MOST_JOBS)
    if count == 1:
        return [job]
    every = duration(t.value.get("every", 0), f"{t.where}.every")
    return [replace(job, name=f"{name}-{i}", at=job.at + i * every) for i in range(count)]


def _shape(t: Table) -> Shape:
    cpu = round(t.number("cpu", 1.0) * 1000)
    try:
        memory = whole(str(t.value.get("memory", "4Gi")))
    except BadRequest as error:
        raise TraceError(f"{t.where}: memory: {error.message}") from None
    if "fraction" not in t.value:
        return Shape(cpu=cpu, memory=memory, gpus=t.count("gpus", 1, least=0))
    if "gpus" in t.value:
        raise TraceError(f"{t.where}: gpus and fraction exclude each other; keep one")
    share = t.number("fraction", 0.0, least=0.01, most=1.0)
    hundredths = math.floor(share * WHOLE + 0.5)
    if hundredths == WHOLE:
        return Shape(cpu=cpu, memory=memory, gpus=1)
    return Shape(cpu=cpu, memory=memory, portion=hundredths, devices=1)


def _priority(t: Table) -> tuple[int, bool]:
    """(value, preemptible unless the job says otherwise)."""
    word = t.value.get("priority", "train")
    if isinstance(word, str):
        if word not in PRIORITIES:
            raise TraceError(f"{t.where}: there is no priority {word!r}{nearest(word, list(PRIORITIES))}")
        value = PRIORITIES[word]
    else:
        value = t.count("priority", 50, least=0)
    return value, value < 100


def _distinct(items: Sequence[Project | Job], what: str) -> None:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            raise TraceError(f"{what}: the name {item.name!r} is given twice")
        seen.add(item.name)


def nearest(word: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, known, 1, 0.5)
    return f"; did you mean {found[0]!r}?" if found else f"; known: {', '.join(known) or 'none'}"
