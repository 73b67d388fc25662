"""What a rank does beside its stack: counters of its process at two moments, and what follows from the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MIN_CPU, _KERNEL_SHARE, _QUIET_BYTES, _FEW_FAULTS = 0.02, 0.15, 4096, 64
"""Of a process that polls: seconds of CPU that it uses at least, the part of them inside of system calls; bytes and page faults that are fewer."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Counters of a rank at one moment; `own_cpu` is its process's, `cpu` that and of all below it, in seconds."""

    cpu: float
    own_cpu: float
    transferred: int
    """Bytes read and written by the rank and what is below it, and those of its pod's network."""
    wakeups: int
    """How often its main thread began to wait."""
    is_in_timer: bool
    """Its main thread waits for the kernel's timer alone: a sleep."""
    system_cpu: float = 0.0
    """Of `own_cpu`, seconds inside of system calls."""
    queued: float = 0.0
    """Seconds for which threads of it and of what is below it were ready to run and had no CPU: a busy machine holds them up, and nobody else."""
    own_queued: float = 0.0
    """Of `queued`, what its own threads waited."""
    main_cpu: float = 0.0
    """Of `own_cpu`, what its main thread used."""
    faults: int = 0
    """Pages that its process has touched for the first time: a program that computes on large arrays is in the kernel for these."""


def is_polling(first: Activity, last: Activity) -> bool:
    """Whether between two moments a process did nothing but ask the kernel again and again, as Open MPI does while it waits."""
    used, in_kernel = last.own_cpu - first.own_cpu, last.system_cpu - first.system_cpu
    is_quiet = last.transferred - first.transferred < _QUIET_BYTES and last.faults - first.faults < _FEW_FAULTS
    return is_quiet and used >= _MIN_CPU and in_kernel > _KERNEL_SHARE * used


def activity_between(first: Activity, last: Activity, seconds: float) -> dict[str, Any]:
    """The fields of a `RankObservation` that tell what it did in so many seconds between two moments."""
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
