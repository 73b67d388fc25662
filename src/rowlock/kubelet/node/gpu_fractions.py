"""A share of a GPU: what the pod is told, what keeps it to it, and what does not. Pure.

Three layers, none of which is called isolation: it sees only its cards; the caching allocator of PyTorch (2.9 and newer
read it from the environment) stops at the share, TensorFlow grows as needed instead of taking the whole card; and a
watch (`gpu_watch.py`) warns when the pod holds more of the card's memory than its share. Compute time is not divided:
programs on one card take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowlock.kubelet.node.machine import Gpu, NodePlan
from rowlock.kubelet.pod.spec import PodSpec

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""PyTorch's name since 2.9, and the one before; a program reads the first that is set."""
FRACTION_OPTION = "per_process_memory_fraction"
CUDA_CONTEXT_MIB = 600
"""MiB that a CUDA context and the libraries' workspaces take beside the allocator: not held against the pod."""
TOLERANCE = 1.05
LOOKS_BEFORE_WARNING = 3
"""Looks in a row that must see too much before it is told."""


@dataclass(frozen=True, slots=True)
class GpuFraction:
    """Hundredths of each of the pod's cards, and the same in MiB."""

    percent: int
    mebibytes: int


def requested_fraction(pod: PodSpec, card: Gpu | None) -> GpuFraction | None:
    """The pod's share of a card of this kind; None when it asks for none, or for what admission has held anyway."""
    pod_annotations = pod.annotations
    memory = card.memory if card else 0
    try:
        if text := pod_annotations.get("gpu-fraction"):
            percent = round(float(text) * 100)
        elif (text := pod_annotations.get("gpu-memory")) and memory:
            percent = -(-int(text) * 100 // memory)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return GpuFraction(percent, memory * percent // 100) if 0 < percent < 100 else None


def pod_fraction(pod: PodSpec, plan: NodePlan, devices: Sequence[str]) -> GpuFraction | None:
    """The share of the first card that the pod was given."""
    return requested_fraction(
        pod, next((g for g in plan.gpus if g.uuid in devices), plan.gpus[0] if plan.gpus else None)
    )


def fraction_environment(fraction: GpuFraction, pod_env: Mapping[str, str]) -> dict[str, str]:
    """What a program learns of its share. What the user says about the allocator stays; the limit is added to it."""
    text = f"{fraction.percent / 100:g}"
    env = {"GPU_PORTION": text, "RUNAI_NUM_OF_GPUS": text, "ROWLOCK_GPU_MEMORY_MIB": str(fraction.mebibytes)}
    if "TF_FORCE_GPU_ALLOW_GROWTH" not in pod_env:
        env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    user_setting = next((pod_env[name] for name in ALLOCATOR_VARIABLES if pod_env.get(name)), "")
    limit = (
        user_setting
        if FRACTION_OPTION in user_setting
        else ",".join(filter(None, (user_setting, f"{FRACTION_OPTION}:{text}")))
    )
    return {**env, **dict.fromkeys(ALLOCATOR_VARIABLES, limit)}


def remarks(pod: PodSpec, plan: NodePlan | None) -> list[str]:
    """How far the share is kept, said once. Simulated cards limit nothing and hold nothing."""
    fraction = requested_fraction(pod, plan.gpus[0]) if plan is not None and plan.gpus and not plan.simulated else None
    if fraction is None:
        return []
    return [
        f"its {fraction.percent} % of a GPU ({fraction.mebibytes} MiB) is accounted for, not isolated: PyTorch's allocator stops there; "
        "other memory and the compute time of the GPU are shared with all pods on it; a pod that uses more is warned"
    ]


@dataclass(slots=True)
class OveruseTracker:
    """Which pods hold more memory of a card than their share, look after look."""

    over_counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def find_overusers(
        self, used: Mapping[tuple[str, str], int], allowed: Mapping[tuple[str, str], int]
    ) -> list[tuple[str, str, int, int]]:
        """(pod's uid, card, MiB held, MiB allowed) of those who exceed for the `LOOKS_BEFORE_WARNING`-th time now. Keys of both
        mappings are (uid, card); a pod is told again only after it was within its share."""
        overusers = []
        for key, allowed_mib in allowed.items():
            held_mib = used.get(key, 0)
            count = self.over_counts.get(key, 0) + 1 if held_mib > allowed_mib * TOLERANCE + CUDA_CONTEXT_MIB else 0
            self.over_counts[key] = count
            if count == LOOKS_BEFORE_WARNING:
                overusers.append((*key, held_mib, allowed_mib))
        self.over_counts = {key: count for key, count in self.over_counts.items() if key in allowed and count}
        return overusers
