"""Traces made from a seed: the mix that shared GPU clusters show.

Most jobs are small and short, most GPU time goes to the large and long; teams differ in how much they ask, and they
submit in bursts. Arrivals are spread so that the cluster is asked for `load` times what it has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.rehearsal.trace import Job, Project, Trace, TraceError, nearest
from rowlock.scheduling.amounts import WHOLE
from rowlock.scheduling.snapshot import Shape

SIZES = ((1, 1, 0.46), (1, 2, 0.12), (1, 4, 0.12), (1, 8, 0.12), (2, 8, 0.08), (4, 8, 0.06), (8, 8, 0.04))
"""(pods, GPUs per pod, part of the jobs); what a small cluster cannot hold is made smaller."""
FRACTIONS = 0.12
"""Part of the single-GPU jobs that ask for a share of a card."""
DEFAULTS: Mapping[str, float] = {"jobs": 1000, "seed": 1, "projects": 4, "load": 1.2, "build": 0.1}


def options(text: str) -> dict[str, float]:
    """`jobs=1000,seed=1` with defaults for the rest. Raises TraceError."""
    found = dict(DEFAULTS)
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if key not in DEFAULTS:
            raise TraceError(f"--generate: there is no {key!r}{nearest(key, list(DEFAULTS))}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        whole = key in ("jobs", "seed", "projects")
        if not equals or not math.isfinite(number) or number < 0 or (whole and number != int(number)):
            what = "a whole number" if whole else "a number"
            raise TraceError(f"--generate: {key} must be {what}, for example {key}={DEFAULTS[key]:g}")
        found[key] = number
    if not 1 <= found["jobs"] <= 200_000 or not 1 <= found["projects"] <= 500 or found["load"] <= 0:
        raise TraceError("--generate: jobs must lie between 1 and 200000, projects between 1 and 500, load above 0")
    return found


def trace(wanted: Mapping[str, float], nodes: int, gpus: int) -> Trace:
    """The same options give the same trace."""
    rng = random.Random(int(wanted["seed"]))
    count = int(wanted["projects"])
    capacity = nodes * gpus
    quota = max(1, capacity // count) * WHOLE
    projects = tuple(
        Project(f"team-{i + 1}", quota=quota, weight=float(rng.choice((1, 1, 2, 3)))) for i in range(count)
    )
    eager = [rng.uniform(0.5, 2.0) for _ in projects]
    draw = Draw(rng, nodes, gpus, wanted["build"])
    made = [draw.job(i, projects[rng.choices(range(count), eager)[0]].name) for i in range(int(wanted["jobs"]))]
    work = sum(job.duration * job.pods * _gpus(job) for job in made)
    span = work / (capacity * wanted["load"])
    times = sorted(_moments(rng, len(made), span))
    jobs = tuple(Job(j.name, j.project, at, *_rest(j)) for j, at in zip(made, times, strict=True))
    return Trace(projects, jobs)


def _gpus(job: Job) -> float:
    return job.shape.gpus or job.shape.portion / WHOLE


def _rest(job: Job) -> tuple[Any, ...]:
    return (job.duration, job.pods, job.minimum, job.shape, job.priority, job.preemptible, job.checkpoint, job.declared)


def _moments(rng: random.Random, count: int, span: float) -> list[float]:
    """Arrivals: half spread evenly, half in bursts around a few dozen moments."""
    centres = [rng.uniform(0, span) for _ in range(max(1, count // 40))]
    found = []
    for i in range(count):
        at = rng.uniform(0, span) if i % 2 else rng.choice(centres) + rng.expovariate(1 / max(1.0, span / 200))
        found.append(round(min(span, at), 1))
    return found


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws jobs for one cluster; `build` is the part of small jobs that are notebooks: not preemptible."""

    rng: random.Random
    nodes: int
    gpus: int
    build: float

    def job(self, i: int, project: str) -> Job:
        rng = self.rng
        pods, each, _ = rng.choices(SIZES, [part for *_, part in SIZES])[0]
        each, pods = min(each, self.gpus), min(pods, self.nodes)
        shape = Shape(cpu=1000 * each, memory=4 << 30, gpus=each)
        if (pods, each) == (1, 1) and rng.random() < FRACTIONS:
            shape = Shape(cpu=500, memory=2 << 30, portion=rng.choice((10, 25, 50)), devices=1)
        length = rng.lognormvariate(math.log(600), 1.2) * (1 + math.log2(pods * each))
        build = rng.random() < self.build and pods * each <= 2
        return Job(
            f"job-{i + 1:05}", project, 0.0, round(min(86400.0, max(30.0, length)), 1), pods, pods, shape,
            100 if build else 50, not build, 600.0, rng.random() < 0.5,
        )  # fmt: skip
