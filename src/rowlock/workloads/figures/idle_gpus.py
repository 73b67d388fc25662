"""Counts the idle GPUs of a workload, as far as its nodes measure them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.figures.usage_series import LatestUsage

IDLE_AFTER_S = 300.0
"""Seconds without work after which a GPU counts as idle, as in Run:ai."""

LookUpUsage = Callable[[str], LatestUsage | None]
"""Pod's uid → its latest usage; None if it has not been measured."""


def count_idle_gpus(pods: Iterable[Object], look_up: LookUpUsage | None, now: float) -> int | None:
    """How many GPUs of these pods have been idle for `IDLE_AFTER_S` at the time `now`; None if none of them is measured."""
    if look_up is None:
        return None
    usages = [usage for pod in pods if (usage := look_up(objects.uid(pod))) is not None]
    if not any(not math.isnan(busy) for usage in usages for busy, _ in usage.gpus.values()):
        return None
    return sum(now - since >= IDLE_AFTER_S for usage in usages for since in usage.gpu_idle_since.values())
