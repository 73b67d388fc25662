"""What running jobs hold and use now, for `/metrics`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rowlock import objects
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.rest.informers import InformerCache
from rowlock.workloads import compute, runai_json
from rowlock.workloads.figures.times import read_milestones
from rowlock.workloads.phase import TERMINAL


@dataclass(frozen=True, slots=True)
class LiveGpu:
    """A GPU of a pod. `ratio`: how busy it is, from 0 to 1; None if it is not measured."""

    pod: str
    gpu: str
    ratio: float | None
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job whose pods have nodes. `seconds`: how long it runs, since it last began to."""

    project: str
    user: str
    name: str
    id: str
    seconds: int
    gpus: float
    measured: tuple[LiveGpu, ...]


async def live_jobs(cache: InformerCache) -> list[LiveJob]:
    """All jobs that hold a node, in the order of the cache."""
    found, budget, usage = list[LiveJob](), TurnBudget(), cache.pod_usage
    for row in cache.rows():
        await budget.pause_if_due()
        workload = cache.workload(row.uid) if cache.phase(row.uid) not in TERMINAL else None
        pods = [pod for pod in workload.pods if _holds_node(pod)] if workload is not None else []
        if workload is None or not pods:
            continue
        nodes = [str(objects.dig(pod, "spec.nodeName", "")) for pod in pods]
        gpus = sum(
            float(compute.pod_gpus(pod, workload.card_memory(node))) for pod, node in zip(pods, nodes, strict=True)
        )
        readings = [(objects.name(pod), usage.latest(objects.uid(pod))) for pod in pods] if usage is not None else []
        measured = tuple(
            LiveGpu(name, gpu, None if math.isnan(percent) else percent / 100, memory)
            for name, latest in readings
            if latest is not None
            for gpu, (percent, memory) in latest.gpus.items()
        )
        job = workload.job
        seconds = read_milestones(job).running_seconds(cache.clock()) or 0
        found.append(
            LiveJob(
                workload.project.name,
                runai_json.creator(job),
                objects.name(job),
                runai_json.workload_id(job),
                seconds,
                gpus,
                measured,
            )
        )
    return found


def _holds_node(pod: objects.Object) -> bool:
    return bool(objects.dig(pod, "spec.nodeName", "")) and objects.phase(pod) not in objects.FINAL_PHASES
