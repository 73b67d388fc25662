"""What a rank does, apart from its stack: counters of its process at two moments, and their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MIN_CPU, _KERNEL_SHARE, _QUIET_BYTES, _FEW_FAULTS = 0.02, 0.15, 4096, 64
"""Limits for a polling process: at least these seconds of CPU and this share of them in system calls; fewer bytes and page faults."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Counters of a rank at one moment; `own_cpu`: CPU seconds of its process; `cpu`: including all descendants."""

    cpu: float
    own_cpu: float
    transferred: int
    """Bytes read and written by the rank and its descendants, and those of its pod's network."""
    wakeups: int
    """How often its main thread began to wait."""
    is_in_timer: bool
    """Its main thread waits only for a kernel timer: it sleeps."""
    system_cpu: float = 0.0
    """Of `own_cpu`, seconds inside of system calls."""
    queued: float = 0.0
    """Seconds for which its threads and those of its descendants were runnable without a CPU: a busy machine delays them, not a peer."""
    own_queued: float = 0.0
    """Of `queued`, the seconds of its own threads."""
    main_cpu: float = 0.0
    """Of `own_cpu`, the seconds of its main thread."""
    faults: int = 0
    """Minor page faults of its process: a program that computes on large arrays spends system time on them."""


def is_polling(first: Activity, last: Activity) -> bool:
    """Whether between two moments a process only polled the kernel, as Open MPI does while it waits."""
    used, in_kernel = last.own_cpu - first.own_cpu, last.system_cpu - first.system_cpu
    is_quiet = last.transferred - first.transferred < _QUIET_BYTES and last.faults - first.faults < _FEW_FAULTS
    return is_quiet and used >= _MIN_CPU and in_kernel > _KERNEL_SHARE * used


def activity_between(first: Activity, last: Activity, seconds: float) -> dict[str, Any]:
    """The fields of a `RankObservation` that follow from two activities `seconds` apart; rates are per second."""
    cpu = (last.cpu - first.cpu) / seconds
    return {
        "cpu": max(0.0, cpu),
        "helpers": max(0.0, cpu - (last.own_cpu - first.own_cpu) / seconds),
        "transferred": max(0.0, (last.transferred - first.transferred) / seconds),
        "queued": max(0.0, (last.queued - first.queued) / seconds),
        "helpers_queued": max(0.0, (last.queued - first.queued - last.own_queued + first.own_queued) / seconds),
        "polls": is_polling(first, last),
        "main_is_asleep": last.main_cpu == first.main_cpu,
        "sleeps": first.is_in_timer and last.is_in_timer and first.wakeups == last.wakeups,
    }
