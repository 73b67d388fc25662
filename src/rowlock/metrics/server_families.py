"""Metrics of the server itself: requests, the event loop, background errors, controllers, the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from rowlock import KUBERNETES, __version__
from rowlock.controllers.loop_watchdog import LoopWatchdog, TurnClock
from rowlock.controllers.reconcile_stats import ReconcileStats
from rowlock.controllers.supervisor import ErrorLog
from rowlock.metrics.request_stats import RequestStats
from rowlock.storage.store import Store

_RESOURCE_LABELS = ("verb", "group", "version", "resource", "subresource", "scope")


def build_families() -> Iterator[Metric]:
    """The versions of rowlock and of the Kubernetes API."""
    info = GaugeMetricFamily("rowlock_build_info", "1, labelled with the versions.", labels=("version", "kubernetes"))
    info.add_metric((__version__, KUBERNETES), 1.0)
    yield info


def request_families(stats: RequestStats) -> Iterator[Metric]:
    """Requests of the Kubernetes API under kube-apiserver's names, and those of the REST API."""
    total = CounterMetricFamily(
        "apiserver_request_total",
        "Requests of the Kubernetes API that were answered.",
        labels=(*_RESOURCE_LABELS, "code"),
    )
    for (labels, code), count in list(stats.counts.items()):
        total.add_metric((*labels, str(code)), count)
    duration = HistogramMetricFamily(
        "apiserver_request_duration_seconds",
        "Seconds from a request's headers to the end of its answer; watches and sessions are left out.",
        labels=_RESOURCE_LABELS,
    )
    for labels, durations in list(stats.durations.items()):
        duration.add_metric(labels, durations.cumulative(), durations.total)
    long_running = GaugeMetricFamily(
        "apiserver_longrunning_requests",
        "Watches, followed logs and sessions in pods that are open.",
        labels=_RESOURCE_LABELS,
    )
    for labels, count in list(stats.long_running.items()):
        long_running.add_metric(labels, count)
    rest_total = CounterMetricFamily(
        "rowlock_rest_requests_total",
        "Requests of the REST API that were answered.",
        labels=("method", "route", "code"),
    )
    for (method, route, code), count in list(stats.rest_counts.items()):
        rest_total.add_metric((method, route, str(code)), count)
    rest_duration = HistogramMetricFamily(
        "rowlock_rest_request_duration_seconds",
        "Seconds from a REST request's headers to its answer.",
        labels=("method", "route"),
    )
    for rest_labels, durations in list(stats.rest_durations.items()):
        rest_duration.add_metric(rest_labels, durations.cumulative(), durations.total)
    yield from (total, duration, long_running, rest_total, rest_duration)


def loop_families(clock: TurnClock, watchdog: LoopWatchdog) -> Iterator[Metric]:
    """Stalls of the event loop, counted by its watchdog."""
    yield CounterMetricFamily(
        "rowlock_event_loop_stalls_total",
        "Turns of the event loop longer than 50 ms; the log names them.",
        value=clock.stalls,
    )
    yield CounterMetricFamily(
        "rowlock_event_loop_stall_seconds_total", "Seconds of all those turns.", value=clock.stalled_seconds
    )
    yield CounterMetricFamily(
        "rowlock_event_loop_starved_total",
        "Those of them that were long because the machine had no processor for the server.",
        value=watchdog.starved,
    )


def error_families(errors: ErrorLog) -> Iterator[Metric]:
    """Errors of background tasks, which are retried."""
    family = CounterMetricFamily(
        "rowlock_background_errors_total",
        "Errors of background work, by what raised them; the log has them.",
        labels=("place",),
    )
    for place, count in list(errors.counts.items()):
        family.add_metric((place,), count)
    yield family


def controller_families(stats: ReconcileStats) -> Iterator[Metric]:
    """Turns of the controllers under controller-runtime's names."""
    total = CounterMetricFamily(
        "controller_runtime_reconcile_total",
        "Turns of a controller, by how they ended.",
        labels=("controller", "result"),
    )
    for (controller, result), count in list(stats.results.items()):
        total.add_metric((controller, result), count)
    duration = SummaryMetricFamily(
        "controller_runtime_reconcile_time_seconds",
        "Seconds of a controller's turns, its writes included.",
        labels=("controller",),
    )
    deciding = CounterMetricFamily(
        "rowlock_controller_decide_seconds_total",
        "Seconds in which a controller decided: the event loop waits meanwhile.",
        labels=("controller",),
    )
    for controller, count in list(stats.turns.items()):
        duration.add_metric((controller,), count, stats.turn_seconds[controller])
        deciding.add_metric((controller,), stats.decide_seconds[controller])
    yield from (total, duration, deciding)


def silence_families(seconds: float) -> Iterator[Metric]:
    """How long a real cluster has not answered this server."""
    yield GaugeMetricFamily(
        "rowlock_cluster_silent_seconds",
        "Seconds since a real cluster answered last; 0 while it answers. What the server shows is as old.",
        value=seconds,
    )


def store_families(store: Store, database: Path | None) -> Iterator[Metric]:
    """Objects, revisions and size of the store."""
    stored = GaugeMetricFamily("apiserver_resource_objects", "Objects in the store.", labels=("group", "resource"))
    for kind, count in store.view.counts().items():
        stored.add_metric((kind.group, kind.plural), count)
    yield stored
    yield GaugeMetricFamily("rowlock_store_revision", "The newest revision that is durable.", value=store.revision)
    yield GaugeMetricFamily(
        "rowlock_store_compacted_revision",
        "Revisions up to this one are history no more.",
        value=store.compacted_revision,
    )
    yield CounterMetricFamily("rowlock_store_commits_total", "Commits; each was one fsync.", value=store.commits)
    if database is not None:
        size = sum(
            path.stat().st_size for path in (database, database.with_name(database.name + "-wal")) if path.exists()
        )
        family = GaugeMetricFamily(
            "apiserver_storage_size_bytes", "Bytes of the database and its log.", labels=("storage_cluster_id",)
        )
        family.add_metric(("cluster.db",), size)
        yield family
