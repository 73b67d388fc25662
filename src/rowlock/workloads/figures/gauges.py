"""Metrics of a workload over time: pod counts, what pods with a node request, and what nodes measure."""

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
"""Run:ai's metric types that are read from objects, in the order of `read_gauges`."""
MEASURED = {
    "GPU_UTILIZATION": "gpu_utilization",
    "GPU_MEMORY_USAGE_BYTES": "gpu_memory_bytes",
    "CPU_USAGE_CORES": "cpu_cores",
    "CPU_MEMORY_USAGE_BYTES": "memory_bytes",
}
"""Metric type that the nodes measure → field of `UsageSample`."""
MEANS = frozenset({"GPU_UTILIZATION"})
"""Types for which a workload's value is the mean over its pods; for the others it is the sum."""
NOT_MEASURED = ("NVLINK_BANDWIDTH_TOTAL",)
"""Known types that are never measured here."""
POD_TYPES = (*MEASURED, "GPU_UTILIZATION_PER_GPU", "GPU_MEMORY_USAGE_BYTES_PER_GPU")
"""Metric types of a pod. For pods with several GPUs only mean and sum are stored, so the types per GPU have no values."""


def nothing_held(pods: int) -> tuple[Decimal, ...]:
    """The values of `GAUGES` for a workload whose pods, so many, have all ended."""
    return (Decimal(pods), *(Decimal(0),) * (len(GAUGES) - 1))


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
