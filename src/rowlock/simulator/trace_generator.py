"""Random traces from a seed, with the mix of jobs that shared GPU clusters have.

Most jobs are small and short, and most GPU time goes to large, long ones. Teams differ in how much they request and submit in bursts.
Arrivals are spread so that the total request is `load` times the cluster's capacity.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.scheduling.model.snapshot import Shape
from rowlock.simulator.trace import Trace, TraceError, TraceJob, TraceProject, suggest_nearest

JOB_SIZES = ((1, 1, 0.46), (1, 2, 0.12), (1, 4, 0.12), (1, 8, 0.12), (2, 8, 0.08), (4, 8, 0.06), (8, 8, 0.04))
"""(pods, GPUs per pod, fraction of the jobs). Sizes that exceed the cluster are reduced to it."""
FRACTION_PART = 0.12
"""Fraction of the single-GPU jobs that ask for a share of a GPU."""
DEFAULT_OPTIONS: Mapping[str, float] = {"jobs": 1000, "seed": 1, "projects": 4, "load": 1.2, "build": 0.1}


def parse_options(text: str) -> dict[str, float]:
    """`jobs=1000,seed=1` with defaults for the rest. Raises TraceError."""
    parsed = dict(DEFAULT_OPTIONS)
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if key not in DEFAULT_OPTIONS:
            raise TraceError(f"--generate: there is no {key!r}{suggest_nearest(key, list(DEFAULT_OPTIONS))}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        is_whole = key in ("jobs", "seed", "projects")
        if not equals or not math.isfinite(number) or number < 0 or (is_whole and number != int(number)):
            expected = "a whole number" if is_whole else "a number"
            raise TraceError(f"--generate: {key} must be {expected}, for example {key}={DEFAULT_OPTIONS[key]:g}")
        parsed[key] = number
    if not 1 <= parsed["jobs"] <= 200_000 or not 1 <= parsed["projects"] <= 500 or parsed["load"] <= 0:
        raise TraceError("--generate: jobs must lie between 1 and 200000, projects between 1 and 500, load above 0")
    return parsed


def generate_trace(options: Mapping[str, float], nodes: int, gpus: int) -> Trace:
    """Generate a trace for a cluster of `nodes` nodes with `gpus` GPUs each. The same arguments give the same trace."""
    rng = random.Random(int(options["seed"]))
    count = int(options["projects"])
    capacity = nodes * gpus
    quota = max(1, capacity // count) * WHOLE_GPU
    projects = tuple(
        TraceProject(f"team-{i + 1}", quota=quota, weight=float(rng.choice((1, 1, 2, 3)))) for i in range(count)
    )
    team_weights = [rng.uniform(0.5, 2.0) for _ in projects]
    generator = JobGenerator(rng, nodes, gpus, options["build"])
    drafts = [
        generator.generate_job(i, projects[rng.choices(range(count), team_weights)[0]].name)
        for i in range(int(options["jobs"]))
    ]
    work = sum(job.duration * job.pods * _gpus_per_pod(job) for job in drafts)
    span = work / (capacity * options["load"])
    times = sorted(_arrival_times(rng, len(drafts), span))
    jobs = tuple(
        TraceJob(j.name, j.project, at, *_fields_after_arrival(j)) for j, at in zip(drafts, times, strict=True)
    )
    return Trace(projects, jobs)


def _gpus_per_pod(job: TraceJob) -> float:
    return job.shape.gpus or job.shape.portion / WHOLE_GPU


def _fields_after_arrival(job: TraceJob) -> tuple[Any, ...]:
    return (
        job.duration,
        job.pods,
        job.minimum,
        job.shape,
        job.priority,
        job.preemptible,
        job.checkpoint,
        job.declares_duration,
    )


def _arrival_times(rng: random.Random, count: int, span: float) -> list[float]:
    """Arrival times in seconds, up to `span`: half uniform, half in bursts after random moments."""
    centres = [rng.uniform(0, span) for _ in range(max(1, count // 40))]
    times = []
    for i in range(count):
        at = rng.uniform(0, span) if i % 2 else rng.choice(centres) + rng.expovariate(1 / max(1.0, span / 200))
        times.append(round(min(span, at), 1))
    return times


@dataclass(frozen=True, slots=True)
class JobGenerator:
    """Draws random jobs for one cluster. `interactive_part`: the fraction of small jobs that are notebooks, which are not preemptible."""

    rng: random.Random
    nodes: int
    gpus: int
    interactive_part: float

    def generate_job(self, i: int, project: str) -> TraceJob:
        """Draw job number `i` for a project. The same seed gives the same jobs."""
        rng = self.rng
        pods, gpus_per_pod, _ = rng.choices(JOB_SIZES, [part for *_, part in JOB_SIZES])[0]
        gpus_per_pod, pods = min(gpus_per_pod, self.gpus), min(pods, self.nodes)
        shape = Shape(cpu=1000 * gpus_per_pod, memory=4 << 30, gpus=gpus_per_pod)
        if (pods, gpus_per_pod) == (1, 1) and rng.random() < FRACTION_PART:
            shape = Shape(cpu=500, memory=2 << 30, portion=rng.choice((10, 25, 50)), devices=1)
        length = rng.lognormvariate(math.log(600), 1.2) * (1 + math.log2(pods * gpus_per_pod))
        build = rng.random() < self.interactive_part and pods * gpus_per_pod <= 2
        return TraceJob(
            f"job-{i + 1:05}", project, 0.0, round(min(86400.0, max(30.0, length)), 1), pods, pods, shape,
            100 if build else 50, not build, 600.0, rng.random() < 0.5,
        )  # fmt: skip
