"""The sampler: measures every few seconds what each pod uses, keeps its series, and passes it to the archive.

Measuring runs on another thread, and less often the longer it takes, so that a thousand pods cost no more of this
machine than ten. The data per pod is bounded (`usage_series.py`), and dropped when the pod has ended.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.kubelet.node.machine import NodePlan
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.stats.gpu_usage import GpuReader, GpuReading, usage_of_card
from rowlock.kubelet.stats.process_usage import TreeRoot, TreeUsage, read_usage
from rowlock.workloads.figures.usage_series import (
    IDLE_CORES,
    IDLE_PERCENT,
    LatestUsage,
    UsageSample,
    UsageSeries,
    mean_of,
)

MIN_INTERVAL, MAX_INTERVAL = 2.0, 10.0
"""Seconds between looks."""
_COST = 100
"""A look may take at most 1/_COST of the time, as long as MAX_INTERVAL allows."""
_TURN = 0.01
"""Seconds after which it yields to the event loop."""
_KEEP_INTERVAL = 300.0
"""Seconds after which the series of a running pod is passed on again."""
OnSeries = Callable[[PodCard, UsageSeries], None]
"""Called with each series that is to be kept."""


class Totals(NamedTuple):
    """Counters that only grow, of a container's run or of a pod."""

    cpu_seconds: float = 0.0
    disk_read: float = 0.0
    disk_write: float = 0.0
    net_receive: float = 0.0
    net_transmit: float = 0.0

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(sum, zip(self, other, strict=True)))

    def increase_since(self, other: Totals) -> Totals:
        return Totals(*(max(0.0, one - before) for one, before in zip(self, other, strict=True)))


@dataclass(slots=True)
class _PodRecord:
    card: PodCard
    series: UsageSeries
    last_time: float
    totals: Totals = field(default_factory=Totals)
    runs: dict[tuple[str, int], Totals] = field(default_factory=dict)
    idle_since: float | None = None
    gpus: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    gpu_idle_since: Mapping[str, float] = field(default_factory=dict)
    kept_at: float = 0.0


class _Look(NamedTuple):
    """What the measuring thread has read."""

    trees: Mapping[str, TreeUsage]
    gpus: Mapping[str, GpuReading]


class UsageSampler:
    """One per kubelet. A `PodUsageSource`."""

    def __init__(
        self,
        pod_states: Mapping[str, PodState],
        nodes: Mapping[str, NodePlan],
        clock: Callable[[], float],
        on_series: OnSeries | None = None,
    ) -> None:
        self._pod_states, self._clock, self._on_series = pod_states, clock, on_series
        self._nodes, self._began = nodes, clock()
        self._records: dict[str, _PodRecord] = {}
        self._gpu_reader = GpuReader()

    async def run(self) -> None:
        """Measures until cancelled; then passes on the series that it holds."""
        try:
            while True:
                began = time.thread_time()
                cost = await self.look()
                cost += time.thread_time() - began
                await asyncio.sleep(min(MAX_INTERVAL, max(MIN_INTERVAL, cost * _COST)))
        finally:
            for record in self._records.values():
                self._keep(record)

    async def look(self) -> float:
        """Measures all pods once; returns the CPU seconds that it took on the other thread."""
        roots = {
            f"{uid}/{name}/{number}": root
            for uid, pod_state in self._pod_states.items()
            for name, number, root in tree_roots(pod_state)
        }
        cost = 0.0
        seen = _Look({}, {})
        holders = Counter(d for state in self._pod_states.values() if not state.finished for d in state.card.devices)
        has_gpus = bool(holders) and any(plan.gpus and not plan.simulated for plan in self._nodes.values())
        if roots or self._gpu_reader.is_open:
            seen, cost = await asyncio.to_thread(self._read, roots, has_gpus=has_gpus)
        now = self._clock()
        turn_began = time.perf_counter()
        for uid, pod_state in list(self._pod_states.items()):
            self._note(uid, pod_state, seen, holders, now)
            if time.perf_counter() - turn_began > _TURN:  # series that began together become due together
                await asyncio.sleep(0)
                turn_began = time.perf_counter()
        for uid in [uid for uid in self._records if uid not in self._pod_states]:
            self._keep(self._records.pop(uid))
        return cost

    def _read(self, roots: Mapping[str, TreeRoot], *, has_gpus: bool) -> tuple[_Look, float]:
        began = time.thread_time()
        if not has_gpus:
            self._gpu_reader.close()
        seen = _Look(read_usage(roots) if roots else {}, self._gpu_reader.read() if has_gpus else {})
        return seen, time.thread_time() - began

    def _note(self, uid: str, pod_state: PodState, seen: _Look, holders: Mapping[str, int], now: float) -> None:
        if pod_state.finished:
            if (record := self._records.pop(uid, None)) is not None:
                self._keep(record)
            return
        runs = {
            (name, run.number): (run.started, seen.trees[key])
            for name, facts in pod_state.containers.items()
            if (run := facts.run) and run.started and (key := f"{uid}/{name}/{run.number}") in seen.trees
        }
        if not runs:
            return
        record = self._records.get(uid)
        if record is None:
            record = self._records[uid] = self._begin_record(pod_state.card, runs, now)
        if now > record.last_time:  # else it begins now, or the clock was set back
            self._add_sample(record, {key: tree for key, (_, tree) in runs.items()}, seen, holders, now)
        record.last_time = now
        if now - record.kept_at >= _KEEP_INTERVAL:
            self._keep(record)

    def _begin_record(
        self, card: PodCard, runs: Mapping[tuple[str, int], tuple[float | None, TreeUsage]], now: float
    ) -> _PodRecord:
        """Begins a pod's record. What a pod older than this server used before counts in its totals, but in no sample."""
        start = min(started or now for started, _ in runs.values())
        if start >= self._began:
            return _PodRecord(card, UsageSeries(start), min(start, now - 0.001), kept_at=now)
        totals = {key: Totals(tree.cpu_seconds, *tree[2:6]) for key, (_, tree) in runs.items()}
        record = _PodRecord(card, UsageSeries(now), now, runs=totals, kept_at=now)
        for total in totals.values():
            record.totals = record.totals.plus(total)
        return record

    def _add_sample(
        self,
        record: _PodRecord,
        trees: Mapping[tuple[str, int], TreeUsage],
        seen: _Look,
        holders: Mapping[str, int],
        now: float,
    ) -> None:
        seconds, grown = now - record.last_time, Totals()
        for key, tree in trees.items():
            total = Totals(tree.cpu_seconds, *tree[2:6])
            grown = grown.plus(total.increase_since(record.runs.get(key, Totals())))
            record.runs[key] = total
        record.runs = {key: total for key, total in record.runs.items() if key in trees}
        record.totals = record.totals.plus(grown)
        has_network = any(tree.has_network for tree in trees.values())
        pids = frozenset(pid for tree in trees.values() for pid in tree.pids)
        record.gpus = _gpu_parts(record.card.devices, pids, seen.gpus, holders)
        record.gpu_idle_since = {
            gpu: record.gpu_idle_since.get(gpu, record.last_time)
            for gpu, (busy, _) in record.gpus.items()
            if busy < IDLE_PERCENT
        }
        sample = UsageSample(
            grown.cpu_seconds / seconds,
            float(sum(tree.memory_bytes for tree in trees.values())),
            grown.disk_read / seconds,
            grown.disk_write / seconds,
            grown.net_receive / seconds if has_network else math.nan,
            grown.net_transmit / seconds if has_network else math.nan,
            mean_of([busy for busy, _ in record.gpus.values()]),
            sum(memory for _, memory in record.gpus.values()) if record.gpus else math.nan,
        )
        record.series.add(now, sample)
        if _is_idle(sample):
            record.idle_since = record.last_time if record.idle_since is None else record.idle_since
        else:
            record.idle_since = None

    def _keep(self, record: _PodRecord) -> None:
        record.kept_at = record.last_time
        if self._on_series is not None and record.series.last is not None:
            self._on_series(record.card, record.series.copy())

    # ------------------------------------------------------------ queries

    def series(self, pod_uid: str) -> UsageSeries | None:
        """The series of a running pod; None = it has none."""
        record = self._records.get(pod_uid)
        return record.series if record else None

    def latest(self, pod_uid: str) -> LatestUsage | None:
        """The latest usage of a running pod; None = it was not measured yet."""
        record = self._records.get(pod_uid)
        last = record.series.last if record else None
        if record is None or last is None:
            return None
        return LatestUsage(*last, record.idle_since, *record.totals, record.gpus, record.gpu_idle_since)

    def pods(self) -> Iterable[tuple[PodCard, LatestUsage]]:
        """All pods that have been measured."""
        for uid, record in self._records.items():
            if (latest := self.latest(uid)) is not None:
                yield record.card, latest


def tree_roots(pod_state: PodState) -> list[tuple[str, int, TreeRoot]]:
    """A pod's running containers, the number of each one's run, and the root of its process tree."""
    roots = []
    for name, facts in pod_state.containers.items():
        run = facts.run
        if run is None or not run.is_running or run.pid <= 0:
            continue
        root = TreeRoot(run.pid, False, run.pid) if run.container else TreeRoot(run.shim, True, run.pid)
        roots.append((name, run.number, root))
    return roots


def _gpu_parts(
    devices: Iterable[str], pids: frozenset[int], readings: Mapping[str, GpuReading], holders: Mapping[str, int]
) -> dict[str, tuple[float, float]]:
    parts = {}
    for device in devices:
        if (reading := readings.get(device)) is not None:
            busy, memory = usage_of_card(reading, pids, is_shared=holders.get(device, 0) > 1)
            parts[device] = (math.nan if busy is None else busy, memory)
    return parts


def _is_idle(sample: UsageSample) -> bool:
    if not math.isnan(sample.gpu_utilization):
        return sample.gpu_utilization < IDLE_PERCENT
    return sample.cpu_cores < IDLE_CORES
