"""`/metrics`: all metrics in Prometheus' text format or OpenMetrics.

A scrape reads existing state (the store or a cache, the scheduler's session, the server's counters); nothing is maintained between scrapes.
The client library is imported at the first scrape. Families are built on the event loop, which runs other tasks between two of them, and
the text is encoded in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowlock.controllers.loop_watchdog import LoopWatchdog, TurnClock
from rowlock.controllers.reconcile_stats import RECONCILES, ReconcileStats
from rowlock.controllers.supervisor import ERRORS, ErrorLog
from rowlock.kubelet.stats.usage_sampler import UsageSampler
from rowlock.metrics.request_stats import RequestStats
from rowlock.objects import Object
from rowlock.rest.hours.live_jobs import LiveJob
from rowlock.scheduling.controller import Scheduler
from rowlock.storage.store import Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

JobPhases = Callable[[], Awaitable[Mapping[tuple[str, str, str], int]]]
"""Returns the number of jobs by (namespace, kind, phase)."""
ObjectsNow = Callable[[], Iterable[Object]]
"""Returns all currently known objects of one kind."""


@dataclass(frozen=True)
class MetricSources:
    """The sources of the metrics, for an embedded cluster or for a server of a real one."""

    pods: ObjectsNow
    nodes: ObjectsNow
    requests: RequestStats
    count_jobs: JobPhases
    clock: TurnClock
    watchdog: LoopWatchdog = field(kw_only=True)
    store: Store | None = field(default=None, kw_only=True)
    """The store of the embedded cluster; None for a real one, which exports its own metrics."""
    database: Path | None = field(default=None, kw_only=True)
    scheduler: Callable[[], Scheduler | None] = field(default=lambda: None, kw_only=True)
    """Returns rowlock's scheduler while it runs in this process, else None."""
    usage: UsageSampler | None = field(default=None, kw_only=True)
    """Samples of what pods use; None if pods are not measured."""
    live_jobs: Callable[[], Awaitable[list[LiveJob]]] | None = field(default=None, kw_only=True)
    """Returns what running jobs hold and use; None where nobody knows jobs."""
    silent_seconds: Callable[[], float] | None = field(default=None, kw_only=True)
    """Returns the seconds since a real cluster last answered; None for the embedded cluster."""
    errors: ErrorLog = field(default_factory=lambda: ERRORS, kw_only=True)
    reconciles: ReconcileStats = field(default_factory=lambda: RECONCILES, kw_only=True)


async def render_metrics(sources: MetricSources, accept: str) -> tuple[bytes, str]:
    """The metrics as (text, media type), in the format that the Accept header prefers."""
    exposition = await asyncio.to_thread(_import_library)
    families: list[Metric] = []
    for group in await _family_groups(sources):
        families += group
        await asyncio.sleep(0)
    encode, media = exposition.choose_encoder(accept)
    return await asyncio.to_thread(encode, _Families(families)), media


def _import_library() -> Any:
    """Import the client library: it costs a tenth of a second and some MiB, which a server without scrapes saves."""
    from prometheus_client import exposition

    from rowlock.metrics import cluster_families, job_families, server_families  # noqa: F401 (they import the library)

    return exposition


async def _family_groups(sources: MetricSources) -> list[Iterator[Metric]]:
    from prometheus_client import ProcessCollector

    from rowlock.metrics import cluster_families, job_families, server_families

    groups = [
        server_families.build_families(),
        server_families.request_families(sources.requests),
        server_families.loop_families(sources.clock, sources.watchdog),
        server_families.error_families(sources.errors),
        server_families.controller_families(sources.reconciles),
        iter(ProcessCollector(registry=None).collect()),
        cluster_families.job_families(await sources.count_jobs()),
        cluster_families.pod_families(sources.pods()),
        cluster_families.node_families(sources.nodes()),
    ]
    if sources.store is not None:
        groups.append(server_families.store_families(sources.store, sources.database))
    if sources.silent_seconds is not None:
        groups.append(server_families.silence_families(sources.silent_seconds()))
    if sources.live_jobs is not None:
        groups.append(job_families.live_job_families(await sources.live_jobs()))
    groups += cluster_families.pod_usage_families(list(sources.usage.pods()) if sources.usage else [])
    if (scheduler := sources.scheduler()) is not None:
        groups += [cluster_families.scheduler_families(scheduler), cluster_families.queue_families(scheduler)]
    return groups


class _Families:
    """The part of a registry that the library's encoders need."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
