"""What is counted of a workload over time: its pods, and what those that hold a node ask for. Nothing here is measured."""

from __future__ import annotations

from decimal import Decimal

from rowlock import objects
from rowlock.workloads import compute
from rowlock.workloads.figures.resources import sum_pod_amounts
from rowlock.workloads.phase import count_pods
from rowlock.workloads.runai_json import Workload

GAUGES = (
    "POD_COUNT", "RUNNING_POD_COUNT", "GPU_ALLOCATION", "CPU_REQUEST_CORES", "CPU_LIMIT_CORES",
    "CPU_MEMORY_REQUEST_BYTES", "CPU_MEMORY_LIMIT_BYTES", "GPU_MEMORY_REQUEST_BYTES",
)  # fmt: skip
"""Run:ai's types of metrics that are known here, in the order of `read_gauges`."""
NOT_MEASURED = (
    "GPU_UTILIZATION", "GPU_MEMORY_USAGE_BYTES", "CPU_USAGE_CORES", "CPU_MEMORY_USAGE_BYTES", "NVLINK_BANDWIDTH_TOTAL",
)  # fmt: skip
"""Types that somebody would have to measure on the nodes: known words without values."""


def read_gauges(workload: Workload) -> tuple[Decimal, ...]:
    """The values of `GAUGES` now: counts, GPUs, cores, bytes."""
    holding = [
        pod
        for pod in workload.pods
        if objects.dig(pod, "spec.nodeName") and objects.phase(pod) in ("Pending", "Running")
    ]
    cards = [workload.card_memory(str(objects.dig(pod, "spec.nodeName"))) for pod in holding]
    shares = [(compute.pod_gpus(pod, card), card) for pod, card in zip(holding, cards, strict=True)]
    requests, limits = sum_pod_amounts(holding, "requests"), sum_pod_amounts(holding, "limits")
    zero = Decimal(0)
    return (
        Decimal(len(workload.pods)),
        Decimal(count_pods(workload.pods).running),
        sum((gpus for gpus, _ in shares), zero),
        requests.get("cpu", zero),
        limits.get("cpu", zero),
        requests.get("memory", zero),
        limits.get("memory", zero),
        sum((gpus * card * 2**20 for gpus, card in shares), zero),
    )
