"""Whether a node has room for a pod that names it in `spec.nodeName`, past the scheduler: as a kubelet admits pods. Pure.

A pod placed by the scheduler is counted already. The messages are a kubelet's, so that a search finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from rowlock.kubelet.node.gpus import GPU_RESOURCE
from rowlock.kubelet.node.machine import NodePlan
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.objects import is_condition_true
from rowlock.quantity import parse

_SHARES = ("gpu-fraction", "gpu-memory")


def is_placed(pod: PodSpec) -> bool:
    """Whether a scheduler has put it on its node. The creator of a pod cannot write this condition in its status."""
    return is_condition_true(pod.object, "PodScheduled")


def admission_failure(
    pod: PodSpec, node: NodePlan, others: Sequence[PodSpec], held_devices: Mapping[str, tuple[str, ...]]
) -> tuple[str, str] | None:
    """Reason and message if the pod is not admitted to the node; None = there is room. `others`: pods on it that have not ended;
    `held_devices`: uid of a pod → the GPUs that it holds."""
    if any(pod.annotations.get(note) for note in _SHARES):
        return (
            f"OutOf{GPU_RESOURCE}",
            "Pod was rejected: shares of a GPU are given by the scheduler: leave spec.nodeName out",
        )
    held = len({device for devices in held_devices.values() for device in devices})
    rows = (
        ("pods", Decimal(1), Decimal(len(others)), Decimal(node.max_pods), 1),
        ("cpu", requested_amount(pod, "cpu"), sum((requested_amount(p, "cpu") for p in others), Decimal()), node.cpus, 1000),
        ("memory", requested_amount(pod, "memory"), sum((requested_amount(p, "memory") for p in others), Decimal()), Decimal(node.memory), 1),
        (GPU_RESOURCE, requested_amount(pod, GPU_RESOURCE), Decimal(held), Decimal(len(node.gpus)), 1),
    )  # fmt: skip
    for resource, wanted, used, capacity, unit in rows:
        if wanted and used + wanted > capacity:
            return f"OutOf{resource}", (
                f"Pod was rejected: Node didn't have enough resource: {resource}, requested: {int(wanted * unit)},"
                f" used: {int(used * unit)}, capacity: {int(capacity * unit)}"
            )
    return None


def requested_amount(pod: PodSpec, resource: str) -> Decimal:
    """The pod's request: all its main containers and sidecars together, or its largest init container."""
    mains = sum((_amount(c, resource) for c in (*pod.main_containers, *pod.sidecars)), Decimal())
    return max(mains, *(_amount(c, resource) for c in pod.init_containers), Decimal())


def _amount(container: ContainerSpec, resource: str) -> Decimal:
    return parse(container.requests.get(resource, container.limits.get(resource, 0)))
