"""Amounts of the three resources that queues share: (millicores, bytes, hundredths of a GPU).

A `ResourceVector` is a plain tuple, because the planner adds millions of them. -1 in a quota or limit means *unlimited*.
A whole GPU is 100, so ten tenths fill a GPU exactly. A request for GPU memory is a float in steps of a power of two (`memory_portion`).
Sums of such floats are exact, so that rounding never decides what runs.
"""

from __future__ import annotations

from collections.abc import Sequence

ResourceVector = tuple[float, float, float]
CPU, MEMORY, GPU = 0, 1, 2
ZERO: ResourceVector = (0, 0, 0)
UNLIMITED = -1
NO_LIMIT: ResourceVector = (UNLIMITED, UNLIMITED, UNLIMITED)
WHOLE_GPU = 100
"""One GPU."""
_STEPS = 2**28
"""Steps per hundredth in which GPU memory is counted: exact for GPUs below 1.6 TiB, and in sums of up to 300,000 GPUs."""


def memory_portion(mebibytes: int, card: int) -> float:
    """The request in hundredths of a GPU with `card` MiB, rounded down to a step, so that `card // mebibytes` of them fit."""
    return mebibytes * WHOLE_GPU * _STEPS // max(1, card) / _STEPS


def portion_memory(portion: float, card: int) -> int:
    """The whole MiB in `portion` hundredths of a GPU with `card` MiB."""
    return int(portion * card / WHOLE_GPU)


def add(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    """a + b, resource by resource."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def subtract(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    """a - b, resource by resource; may be negative."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def is_within(amount: Sequence[float], bound: Sequence[float]) -> bool:
    """amount ≤ bound in every resource; unlimited bounds hold anything."""
    return all(b == UNLIMITED or a <= b for a, b in zip(amount, bound, strict=True))


def lower_bound(a: float, b: float) -> float:
    """The lower of two bounds, either of which may be unlimited."""
    if a == UNLIMITED:
        return b
    return a if b == UNLIMITED else min(a, b)


def format_gpus(amount: float) -> str:
    """250 → "2.5", 400 → "4", -1 → "unlimited"; shares by memory with four places: 2.4522 → "0.0245"."""
    if amount == UNLIMITED:
        return "unlimited"
    places = 2 if amount == int(amount) else 4
    return f"{amount / WHOLE_GPU:.{places}f}".rstrip("0").rstrip(".")


def format_cores(amount: float) -> str:
    """1500 → "1.5", -1 → "unlimited"."""
    if amount == UNLIMITED:
        return "unlimited"
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")


def format_memory(amount: float) -> str:
    """Bytes as decimal GB, as in KAI's messages; small amounts in MB."""
    if amount == UNLIMITED:
        return "unlimited"
    if 0 < amount < 10**8:
        return f"{amount / 1e6:.1f}".rstrip("0").rstrip(".") + " MB"
    return f"{amount / 1e9:.2f}".rstrip("0").rstrip(".") + " GB"


def format_amount(resource: int, amount: float) -> str:
    """One amount with its unit: "2.5 GPUs", "1 GPU", "4 CPU cores", "8 GB of memory"."""
    if resource == CPU:
        return f"{format_cores(amount)} CPU core{'' if amount == 1000 else 's'}"
    if resource == MEMORY:
        return f"{format_memory(amount)} of memory"
    return f"{format_gpus(amount)} GPU{'' if amount == WHOLE_GPU else 's'}"


def describe_resources(amount: Sequence[float]) -> str:
    """The amounts that are not zero, GPUs first: "2 GPUs, 4 CPU cores"."""
    parts = [format_amount(r, amount[r]) for r in (GPU, CPU, MEMORY) if amount[r]]
    return ", ".join(parts) or "nothing"
