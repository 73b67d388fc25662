"""What pods request and hold, in Run:ai's JSON: GPUs and CPU cores as numbers, memory as quantities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from rowlock import objects, quantity
from rowlock.answers import workloads as answers
from rowlock.errors import BadRequest
from rowlock.objects import Object, is_digits
from rowlock.workloads import compute

_CPU, _MEMORY = "cpu", "memory"
Amounts = dict[str, Decimal]


def json_number(value: Decimal) -> int | float:
    """The number for JSON: an int if it is whole, else a float."""
    return int(value) if value == value.to_integral_value() else float(value)


def _pod_amounts(pod: Object, section: str) -> Amounts:
    """The sum over a pod's containers of their `requests` or `limits`; malformed quantities count as 0."""
    total: Amounts = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        for name, text in ((container.get("resources") or {}).get(section) or {}).items():
            try:
                total[name] = total.get(name, Decimal(0)) + quantity.parse(text)
            except BadRequest:
                continue
    return total


def _sum_amounts(parts: Iterable[tuple[Amounts, int]]) -> Amounts:
    total: Amounts = {}
    for amounts, count in parts:
        for name, amount in amounts.items():
            total[name] = total.get(name, Decimal(0)) + amount * count
    return total


def sum_pod_amounts(pods: Iterable[Object], section: str) -> Amounts:
    """The sum of the `requests` or `limits` of all containers of these pods."""
    return _sum_amounts((_pod_amounts(pod, section), 1) for pod in pods)


def _gpu_memory_bytes(pod: Object) -> Decimal:
    notes = objects.annotations(pod)
    mebibytes, devices = notes.get("gpu-memory", ""), notes.get("gpu-fraction-num-devices", "1")
    return Decimal(int(mebibytes) * 2**20 * int(devices)) if is_digits(mebibytes) and is_digits(devices) else Decimal(0)


def _share_kind(pods: Iterable[Object]) -> str | None:
    """Run:ai's `gpuRequestType`: how shares of a GPU are requested; None for whole or no GPUs."""
    notes = [objects.annotations(pod) for pod in pods]
    if any("gpu-memory" in note for note in notes):
        return "memory"
    return "portion" if any("gpu-fraction" in note for note in notes) else None


def requested_resources(pods: Iterable[tuple[Object, int]], card_memory: int = 0) -> answers.RequestedResources:
    """What pods (or pod templates), each with its count, request in total; a share given as memory is counted for cards with
    `card_memory` MiB."""
    counted = list(pods)
    requests = _sum_amounts((_pod_amounts(pod, "requests"), count) for pod, count in counted)
    limits = _sum_amounts((_pod_amounts(pod, "limits"), count) for pod, count in counted)
    gpus = json_number(sum((compute.pod_gpus(pod, card_memory) * count for pod, count in counted), Decimal(0)))
    gpu_memory = _quantity(sum((_gpu_memory_bytes(pod) * count for pod, count in counted), Decimal(0)))
    others = sorted(set(requests) - {_CPU, _MEMORY, compute.GPU})
    return {
        "gpuRequestType": _share_kind(pod for pod, _ in counted),
        "gpu": {"request": gpus, "limit": gpus},
        "gpuMemory": {"request": gpu_memory, "limit": gpu_memory},
        "cpu": {"request": _cores(requests), "limit": _cores(limits)},
        "cpuMemory": {"request": _quantity(requests.get(_MEMORY)), "limit": _quantity(limits.get(_MEMORY))},
        "extendedResources": [{"resource": name, "quantity": quantity.render(requests[name])} for name in others],
    }


def allocated_resources(pods: Iterable[tuple[Object, int]]) -> answers.AllocatedResources:
    """What pods that hold their nodes have in total; each comes with the memory of its node's cards in MiB."""
    counted = list(pods)
    requests = _sum_amounts((_pod_amounts(pod, "requests"), 1) for pod, _ in counted)
    shares = [(compute.pod_gpus(pod, card), card) for pod, card in counted]
    return {
        "gpu": json_number(sum((gpus for gpus, _ in shares), Decimal(0))),
        "gpuMemory": f"{int(sum((gpus * card for gpus, card in shares), Decimal(0)))}Mi",
        "cpu": _cores(requests) or 0,
        "cpuMemory": _quantity(requests.get(_MEMORY)) or "0",
        "extendedResources": [],
    }


def _cores(amounts: Mapping[str, Decimal]) -> int | float | None:
    return json_number(amounts[_CPU]) if _CPU in amounts else None


def _quantity(amount: Decimal | None) -> str | None:
    if not amount:
        return None
    return quantity.render(amount, binary=amount % 2**20 == 0)
