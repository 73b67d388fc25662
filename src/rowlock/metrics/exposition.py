"""`/metrics`: everything that is counted, as Prometheus' text or as OpenMetrics.

The figures are read from what is there anyway (the store or a cache, the scheduler's session, counters of the server) when somebody asks:
between two scrapes nothing is kept up to date. The client library is imported for the first scrape; the families are
made on the event loop, one after the other with others' turns in between, and the text in a thread.
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
from rowlock.scheduling.controller import Scheduler
from rowlock.storage.store import Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

JobPhases = Callable[[], Awaitable[Mapping[tuple[str, str, str], int]]]
"""How many jobs there are by namespace, kind and phase."""
ObjectsNow = Callable[[], Iterable[Object]]
"""All objects of one kind, as they are known when somebody asks."""


@dataclass(frozen=True)
class MetricSources:
    """Where the figures come from: an embedded cluster, or a server over a real one."""

    pods: ObjectsNow
    nodes: ObjectsNow
    requests: RequestStats
    count_jobs: JobPhases
    clock: TurnClock
    watchdog: LoopWatchdog = field(kw_only=True)
    store: Store | None = field(default=None, kw_only=True)
    """The embedded cluster's; a real one has figures of its own."""
    database: Path | None = field(default=None, kw_only=True)
    scheduler: Callable[[], Scheduler | None] = field(default=lambda: None, kw_only=True)
    """Ours, while it works in this process."""
    usage: UsageSampler | None = field(default=None, kw_only=True)
    """What pods use; None where nobody measures it."""
    silent_seconds: Callable[[], float] | None = field(default=None, kw_only=True)
    """How long a real cluster has not answered; None for the embedded one."""
    errors: ErrorLog = field(default_factory=lambda: ERRORS, kw_only=True)
    reconciles: ReconcileStats = field(default_factory=lambda: RECONCILES, kw_only=True)


async def render_metrics(sources: MetricSources, accept: str) -> tuple[bytes, str]:
    """The text and its media type, as the Accept header wants it."""
    exposition = await asyncio.to_thread(_import_library)
    families: list[Metric] = []
    for group in await _family_groups(sources):
        families += group
        await asyncio.sleep(0)
    encode, media = exposition.choose_encoder(accept)
    return await asyncio.to_thread(encode, _Families(families)), media


def _import_library() -> Any:
    """A tenth of a second, and some MiB, that a server which nobody scrapes need not spend."""
    from prometheus_client import exposition

    from rowlock.metrics import cluster_families, server_families, usage_families  # noqa: F401 (they import the library)

    return exposition


async def _family_groups(sources: MetricSources) -> list[Iterator[Metric]]:
    from prometheus_client import ProcessCollector

    from rowlock.metrics import cluster_families, server_families, usage_families

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
    groups += usage_families.pod_usage_families(list(sources.usage.pods()) if sources.usage else [])
    if (scheduler := sources.scheduler()) is not None:
        groups += [cluster_families.scheduler_families(scheduler), cluster_families.queue_families(scheduler)]
    return groups


class _Families:
    """What the library's encoders take for a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
