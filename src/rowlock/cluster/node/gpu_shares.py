"""A share of a GPU: what the pod is told, what keeps it to it, and what does not. Pure.

Three layers, none of which is called isolation: it sees only its cards; the caching allocator of PyTorch (2.9 and newer
read it from the environment) stops at the share, TensorFlow grows as needed instead of taking the whole card; and a
watch (`gpu_watch.py`) warns when the pod holds more of the card's memory than its share. Compute time is not divided:
programs on one card take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowlock.cluster.node.machine import Gpu, NodePlan
from rowlock.objects import Object
from rowlock.objects import annotations as annotations_of

ALLOCATORS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""PyTorch's name since 2.9, and the one before; a program reads the first that is set."""
FRACTION = "per_process_memory_fraction"
CONTEXT = 600
"""MiB that a CUDA context and the libraries' workspaces take beside the allocator: not held against the pod."""
TOLERANCE = 1.05
PATIENCE = 3
"""Looks in a row that must see too much before it is told."""


@dataclass(frozen=True, slots=True)
class Share:
    """Hundredths of each of the pod's cards, and the same in MiB."""

    portion: int
    mebibytes: int


def share(pod: Object, card: Gpu | None) -> Share | None:
    """The pod's share of a card of this kind; None when it asks for none, or for what admission has held anyway."""
    notes = annotations_of(pod)
    memory = card.memory if card else 0
    try:
        if text := notes.get("gpu-fraction"):
            portion = round(float(text) * 100)
        elif (text := notes.get("gpu-memory")) and memory:
            portion = -(-int(text) * 100 // memory)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return Share(portion, memory * portion // 100) if 0 < portion < 100 else None


def of_pod(pod: Object, plan: NodePlan, devices: Sequence[str]) -> Share | None:
    """The share of the first card that the pod was given."""
    return share(pod, next((g for g in plan.gpus if g.uuid in devices), plan.gpus[0] if plan.gpus else None))


def environment(found: Share, given: Mapping[str, str]) -> dict[str, str]:
    """What a program learns of its share. What the user says about the allocator stays; the limit is added to it."""
    text = f"{found.portion / 100:g}"
    made = {"GPU_PORTION": text, "RUNAI_NUM_OF_GPUS": text, "ROWLOCK_GPU_MEMORY_MIB": str(found.mebibytes)}
    if "TF_FORCE_GPU_ALLOW_GROWTH" not in given:
        made["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    own = next((given[name] for name in ALLOCATORS if given.get(name)), "")
    limit = own if FRACTION in own else ",".join(filter(None, (own, f"{FRACTION}:{text}")))
    return {**made, **dict.fromkeys(ALLOCATORS, limit)}


def remarks(pod: Object, plan: NodePlan | None) -> list[str]:
    """How far the share is kept, said once. Simulated cards limit nothing and hold nothing."""
    found = share(pod, plan.gpus[0]) if plan is not None and plan.gpus and not plan.simulated else None
    if found is None:
        return []
    return [
        f"its {found.portion} % of a GPU ({found.mebibytes} MiB) is accounted, not isolated: PyTorch's allocator stops there, "
        "other memory and the card's time are shared with everybody on it; who holds more is warned"
    ]


@dataclass(slots=True)
class Overuse:
    """Which pods hold more memory of a card than their share, look after look."""

    seen: dict[tuple[str, str], int] = field(default_factory=dict)

    def look(
        self, used: Mapping[tuple[str, str], int], allowed: Mapping[tuple[str, str], int]
    ) -> list[tuple[str, str, int, int]]:
        """(pod's uid, card, MiB held, MiB allowed) of those who exceed for the `PATIENCE`-th time now. Keys of both
        mappings are (uid, card); a pod is told again only after it was within its share."""
        told = []
        for key, most in allowed.items():
            have = used.get(key, 0)
            count = self.seen.get(key, 0) + 1 if have > most * TOLERANCE + CONTEXT else 0
            self.seen[key] = count
            if count == PATIENCE:
                told.append((*key, have, most))
        self.seen = {key: count for key, count in self.seen.items() if key in allowed and count}
        return told
