"""The usage of a workload's pods over time: from the sampler while they exist, from the archive afterwards."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from rowlock import objects
from rowlock.archive import database
from rowlock.archive.database import UnusableArchive
from rowlock.objects import Object
from rowlock.rest.call import AppContext
from rowlock.workloads.figures.gauges import MEANS, MEASURED
from rowlock.workloads.figures.usage_series import UsageSeries

Points = list[float | None]


async def read_series(context: AppContext, run_uid: str, pods: Iterable[Object], name: str = "") -> list[UsageSeries]:
    """The usage series of all pods that the run ever had (or of those with this name): its existing `pods`, and archived
    ones."""
    held: dict[tuple[str, float], UsageSeries] = {}
    for pod in pods:
        if name in ("", objects.name(pod)) and context.pod_usage is not None:
            series = context.pod_usage.series(objects.uid(pod))
            if series is not None:
                held[objects.name(pod), series.start] = series.copy()
    return [*held.values(), *await _read_archived(context, run_uid, name, frozenset(held))]


async def _read_archived(
    context: AppContext, run_uid: str, pod: str, held: frozenset[tuple[str, float]]
) -> list[UsageSeries]:
    """The archived series, without pods in `held`. Unreadable ones are left out; the archive reports its own errors."""
    if context.archive is None:
        return []

    def read(connection: sqlite3.Connection) -> list[UsageSeries]:
        rows = database.read_samples(connection, run_uid, pod=pod, without=held)
        return [series for _, _, body in rows if (series := _series_of(body)) is not None]

    try:
        return await context.archive.read(read)
    except (FileNotFoundError, sqlite3.Error, OSError, UnusableArchive):
        return []


def _series_of(body: dict[str, Any]) -> UsageSeries | None:
    try:
        return UsageSeries.from_json(body)
    except (KeyError, ValueError, TypeError):
        return None


async def measure(types: Sequence[str], series: list[UsageSeries], times: list[float]) -> dict[str, Points]:
    """The values of these types of `MEASURED` at these times, over all series; in a thread, because there may be
    thousands."""
    return await asyncio.to_thread(lambda: {name: _combine(name, series, times) for name in types})


def _combine(name: str, series: list[UsageSeries], times: list[float]) -> Points:
    sums, counts = [0.0] * len(times), [0] * len(times)
    for one in series:
        for number, value in enumerate(one.averages(MEASURED[name], times)):
            if value is not None:
                sums[number] += value
                counts[number] += 1
    return [
        (total / count if name in MEANS else total) if count else None
        for total, count in zip(sums, counts, strict=True)
    ]
