"""Amounts of the three resources that queues share: (millicores, bytes, hundredths of a GPU).

A `ResourceVector` is a plain tuple, because the planner adds millions of them. -1 in a quota or limit means *unlimited*.
A whole GPU is 100, so ten tenths fill a card exactly and no float ever decides who runs.
"""

from __future__ import annotations

from collections.abc import Sequence

ResourceVector = tuple[int, int, int]
CPU, MEMORY, GPU = 0, 1, 2
ZERO: ResourceVector = (0, 0, 0)
UNLIMITED = -1
NO_LIMIT: ResourceVector = (UNLIMITED, UNLIMITED, UNLIMITED)
WHOLE_GPU = 100
"""One GPU."""


def add(a: Sequence[int], b: Sequence[int]) -> ResourceVector:
    """a + b, resource by resource."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def subtract(a: Sequence[int], b: Sequence[int]) -> ResourceVector:
    """a - b, resource by resource; may be negative."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def is_within(amount: Sequence[int], bound: Sequence[int]) -> bool:
    """amount ≤ bound in every resource; unlimited bounds hold anything."""
    return all(b == UNLIMITED or a <= b for a, b in zip(amount, bound, strict=True))


def lower_bound(a: int, b: int) -> int:
    """The lower of two bounds, either of which may be unlimited."""
    if a == UNLIMITED:
        return b
    return a if b == UNLIMITED else min(a, b)


def format_gpus(amount: int) -> str:
    """250 → "2.5", 400 → "4", -1 → "unlimited"."""
    if amount == UNLIMITED:
        return "unlimited"
    return f"{amount / WHOLE_GPU:.2f}".rstrip("0").rstrip(".")


def format_cores(amount: int) -> str:
    """1500 → "1.5", -1 → "unlimited"."""
    if amount == UNLIMITED:
        return "unlimited"
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")


def format_memory(amount: int) -> str:
    """Bytes as decimal GB, as KAI's sentences count; small amounts in MB."""
    if amount == UNLIMITED:
        return "unlimited"
    if 0 < amount < 10**8:
        return f"{amount / 1e6:.1f}".rstrip("0").rstrip(".") + " MB"
    return f"{amount / 1e9:.2f}".rstrip("0").rstrip(".") + " GB"


def format_amount(resource: int, amount: int) -> str:
    """One amount as people say it: "2.5 GPUs", "1 GPU", "4 CPU cores", "8 GB of memory"."""
    if resource == CPU:
        return f"{format_cores(amount)} CPU core{'' if amount == 1000 else 's'}"
    if resource == MEMORY:
        return f"{format_memory(amount)} of memory"
    return f"{format_gpus(amount)} GPU{'' if amount == WHOLE_GPU else 's'}"


def describe_resources(amount: Sequence[int]) -> str:
    """What is not zero, GPUs first: "2 GPUs, 4 CPU cores"."""
    parts = [format_amount(r, amount[r]) for r in (GPU, CPU, MEMORY) if amount[r]]
    return ", ".join(parts) or "nothing"
