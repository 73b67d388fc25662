"""Figures of projects, departments, node pools, nodes and the cluster over time: what they held and used. Kept in memory.

A restarted server begins with empty figures. The figures of a deleted project are deleted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.workload_routes.usage_history import TURN_S, Gauges, Steps, UsageHistory
from rowlock.scheduling.model.from_objects import parse_node
from rowlock.workloads import compute, runai_json
from rowlock.workloads.figures.gauges import GAUGES
from rowlock.workloads.figures.overtime import OvertimeMeans
from rowlock.workloads.figures.usage_series import NOT_MEASURED, PodUsageSource, UsageSample, UsageSeries
from rowlock.workloads.inventory import nodes, quotas
from rowlock.workloads.inventory.departments import department_id, is_department
from rowlock.workloads.phase import TERMINAL

INTERVAL_S = 15.0
"""Seconds between two samples."""
ORGANISATION_GAUGES = (
    "GPU_QUOTA", "CPU_QUOTA_MILLICORES", "CPU_MEMORY_QUOTA_MB", "GPU_ALLOCATION", "CPU_ALLOCATION_MILLICORES",
    "CPU_MEMORY_ALLOCATION_MB", "GPU_REQUEST", "GPU_FAIR_SHARE",
)  # fmt: skip
"""Run:ai's metric types of a project or department, in the order of a sample's fields, then two types of the scheduler's that
Run:ai lacks. A quota of -1 means unlimited."""
POOL_GAUGES = ("TOTAL_GPU_NODES", "TOTAL_GPU", "ALLOCATED_GPU", "UNALLOCATED_GPU", "WORKLOADS_COUNT")
"""Metric types of a node pool or the cluster."""
CLUSTER_GAUGES = (*POOL_GAUGES, "GPU_QUOTA")
_HELD = tuple(GAUGES.index(name) for name in ("GPU_ALLOCATION", "CPU_REQUEST_CORES", "CPU_MEMORY_REQUEST_BYTES"))
_UNITS = (Decimal(1), Decimal(1000), Decimal("0.000001"))
_NOTHING: Gauges = (Decimal(0), Decimal(0), Decimal(0))

ScopeKey = tuple[str, str]
"""`("project", its namespace)`, `("department", its id)`, `("pool", its name)`, `("node", its name)`, `CLUSTER`."""
CLUSTER: ScopeKey = ("cluster", "")


class _NodeLook(NamedTuple):
    """One node in one sample."""

    pool: str
    gpus: int
    allocated: Decimal
    used: UsageSample


class _GpuUse(NamedTuple):
    """Sums over the measured GPUs of a project's pods: utilization in percent, number of GPUs, bytes in use, bytes held."""

    busy: float = 0.0
    gpus: int = 0
    used_memory: float = 0.0
    held_memory: float = 0.0

    def plus(self, other: _GpuUse) -> _GpuUse:
        return _GpuUse(
            self.busy + other.busy,
            self.gpus + other.gpus,
            self.used_memory + other.used_memory,
            self.held_memory + other.held_memory,
        )

    def sample(self, allocated: Decimal) -> tuple[float, float, float]:
        """GPUs held, mean utilization and memory use (both in percent), in the order of `overtime.FIGURES`."""
        memory = self.used_memory * 100 / self.held_memory if self.held_memory and self.gpus else NOT_MEASURED
        return float(allocated), self.busy / self.gpus if self.gpus else NOT_MEASURED, memory


class ScopeHistory:
    """The figures of every scope, by its key."""

    def __init__(
        self, cache: InformerCache, usage: UsageHistory, pod_usage: PodUsageSource | None, clock: Callable[[], float]
    ) -> None:
        self._cache, self._usage, self._pod_usage, self._clock = cache, usage, pod_usage, clock
        self._steps: dict[ScopeKey, Steps] = {}
        self._series: dict[ScopeKey, UsageSeries] = {}
        self._means: dict[ScopeKey, OvertimeMeans] = {}

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Take one sample of every scope, and drop the figures of deleted objects."""
        held, counts = await self._look_at_workloads()
        looks, gpu_use = await self._look_at_nodes()
        now = self._clock()
        present = {
            CLUSTER,
            *self._note_organisation(now, held, gpu_use),
            *self._note_pools(now, looks, counts),
        }
        for known in (self._steps, self._series, self._means):
            for key in [key for key in known if key not in present]:
                del known[key]

    def steps(self, key: ScopeKey, times: Sequence[float]) -> list[Gauges | None]:
        """The gauges of a scope at these times; None before its first sample."""
        return self._steps.get(key, Steps()).at(times)

    def series(self, key: ScopeKey) -> UsageSeries | None:
        """The usage of the pods of a node, of a pool's nodes or of all nodes; None if it is not measured."""
        return self._series.get(key)

    def overtime(self, key: ScopeKey) -> dict[str, Any] | None:
        """Run:ai's `overtimeData` of a project or department: means since this server began; None before its first sample."""
        means = self._means.get(key)
        return means.to_json(self._clock()) if means else None

    # ------------------------------------------------------------ workloads, projects, departments

    async def _look_at_workloads(self) -> tuple[dict[str, Gauges], dict[str, int]]:
        """Sum what workloads hold by namespace, and unfinished workloads by node pool."""
        held: dict[str, Gauges] = {}
        counts: dict[str, int] = {}
        budget = TurnBudget(TURN_S)
        for row in self._cache.rows():
            await budget.pause_if_due()
            gauges = self._usage.latest(row.uid)
            if gauges is not None and any(gauges[index] for index in _HELD):
                held[row.namespace] = _sum(held.get(row.namespace, _NOTHING), tuple(gauges[index] for index in _HELD))
            if self._cache.phase(row.uid) not in TERMINAL:
                pool = runai_json.node_pool_name(row.job) or nodes.DEFAULT_POOL
                counts[pool] = counts.get(pool, 0) + 1
        return held, counts

    def _note_organisation(self, now: float, held: dict[str, Gauges], gpu_use: dict[str, _GpuUse]) -> list[ScopeKey]:
        keys: list[ScopeKey] = []
        by_department: dict[str, Gauges] = {}
        use_by_department: dict[str, _GpuUse] = {}
        for namespace, project in self._cache.projects().items():
            amounts = held.get(namespace, _NOTHING)
            use = gpu_use.get(namespace, _GpuUse())
            by_department[project.department] = _sum(by_department.get(project.department, _NOTHING), amounts)
            use_by_department[project.department] = use.plus(use_by_department.get(project.department, _GpuUse()))
            keys.append(("project", namespace))
            self._note_means(keys[-1], now, use.sample(amounts[0]))
            self._note(keys[-1], now, _organisation_gauges(self._cache.queue(project.queue), amounts))
        for queue in filter(is_department, self._cache.queues()):
            keys.append(("department", department_id(queue)))
            amounts, use = by_department.get(keys[-1][1], _NOTHING), use_by_department.get(keys[-1][1], _GpuUse())
            self._note(keys[-1], now, _organisation_gauges(queue, amounts))
            self._note_means(keys[-1], now, use.sample(amounts[0]))
        return keys

    def _note(self, key: ScopeKey, now: float, values: Gauges) -> None:
        self._steps.setdefault(key, Steps()).add(now, values)

    def _note_means(self, key: ScopeKey, now: float, sample: Sequence[float]) -> None:
        self._means.setdefault(key, OvertimeMeans()).add(now, sample)

    # ------------------------------------------------------------ nodes, pools, the cluster

    async def _look_at_nodes(self) -> tuple[dict[str, _NodeLook], dict[str, _GpuUse]]:
        """Every node's GPUs and the usage of its pods; and by namespace, how pods use their GPUs."""
        allocated: dict[str, Decimal] = {}
        used: dict[str, list[UsageSample]] = {}
        gpu_use: dict[str, _GpuUse] = {}
        budget = TurnBudget(TURN_S)
        for pod in self._cache.unfinished_pods():
            await budget.pause_if_due()
            place = str(objects.dig(pod, "spec.nodeName") or "")
            if place and objects.phase(pod) in ("Pending", "Running"):
                gpus = compute.pod_gpus(pod, self._cache.card_memory(place))
                allocated[place] = allocated.get(place, Decimal(0)) + gpus
                latest = self._pod_usage.latest(objects.uid(pod)) if self._pod_usage else None
                if latest is not None:
                    held_memory = float(gpus * self._cache.card_memory(place)) * 2**20
                    space = objects.namespace(pod)
                    gpu_use[space] = _use_of(latest.gpus.values(), held_memory).plus(gpu_use.get(space, _GpuUse()))
                    busy = math.fsum(part for part, _ in latest.gpus.values() if not math.isnan(part))
                    used.setdefault(place, []).append(
                        latest.sample._replace(gpu_utilization=busy if latest.gpus else NOT_MEASURED)
                    )
        looks = {}
        for node in self._cache.nodes():
            name = objects.name(node)
            sample = _sum_samples(used.get(name, [UsageSample(0, 0)]))
            looks[name] = _NodeLook(
                nodes.pool_name(node), parse_node(node).gpus, allocated.get(name, Decimal(0)), sample
            )
        return looks, gpu_use

    def _note_pools(self, now: float, looks: dict[str, _NodeLook], counts: dict[str, int]) -> list[ScopeKey]:
        keys: list[ScopeKey] = []
        for pool in sorted({nodes.DEFAULT_POOL, *(look.pool for look in looks.values())}):
            members = [look for look in looks.values() if look.pool == pool]
            keys.append(("pool", pool))
            self._note(keys[-1], now, (*_pool_gauges(members), Decimal(counts.get(pool, 0))))
            self._note_usage(keys[-1], now, members)
        for name, look in looks.items():
            keys.append(("node", name))
            self._note_usage(keys[-1], now, [look])
        everything = (*_pool_gauges(looks.values()), Decimal(sum(counts.values())), self._total_quota())
        self._note(CLUSTER, now, everything)
        self._note_usage(CLUSTER, now, list(looks.values()))
        return keys

    def _note_usage(self, key: ScopeKey, now: float, members: Sequence[_NodeLook]) -> None:
        """Add a usage sample. GPU utilization is the mean over all GPUs, including idle ones."""
        if self._pod_usage is None or not members:
            return
        total, gpus = _sum_samples([look.used for look in members]), sum(look.gpus for look in members)
        busy = total.gpu_utilization / gpus if gpus else NOT_MEASURED
        self._series.setdefault(key, UsageSeries(now)).add(now, total._replace(gpu_utilization=busy))

    def _total_quota(self) -> Decimal:
        return sum((max(Decimal(0), project.quota) for project in self._cache.projects().values()), Decimal(0))


def _use_of(parts: Iterable[tuple[float, float]], held_memory: float) -> _GpuUse:
    """The GPU use of one pod; `parts` has the utilization in percent and the bytes in use for each of its GPUs."""
    measured = [(busy, memory) for busy, memory in parts if not math.isnan(busy)]
    if not measured:
        return _GpuUse()
    memory = math.fsum(memory for _, memory in measured)
    return _GpuUse(math.fsum(busy for busy, _ in measured), len(measured), memory, held_memory)


def _sum(one: Gauges, other: Gauges) -> Gauges:
    return tuple(first + second for first, second in zip(one, other, strict=True))


def _organisation_gauges(queue: Object | None, held: Gauges) -> Gauges:
    quota = quotas.total_resources_json(queue)
    promised = tuple(Decimal(str(quota[f"{name}Quota"])) for name in ("gpu", "cpu", "memory"))
    counted = quotas.quota_status_json(queue)
    ours = (Decimal(str(round(counted[name]["gpu"], 2))) for name in ("requested", "fairShare"))
    return (*promised, *(amount * unit for amount, unit in zip(held, _UNITS, strict=True)), *ours)


def _pool_gauges(members: Iterable[_NodeLook]) -> Gauges:
    with_gpus = [look for look in members if look.gpus]
    total = Decimal(sum(look.gpus for look in with_gpus))
    allocated = sum((look.allocated for look in with_gpus), Decimal(0))
    return Decimal(len(with_gpus)), total, allocated, max(Decimal(0), total - allocated)


def _sum_samples(samples: Sequence[UsageSample]) -> UsageSample:
    """The sums of the samples by field; values that were not measured are left out."""
    sums = []
    for values in zip(*samples, strict=True):
        known = [value for value in values if not math.isnan(value)]
        sums.append(math.fsum(known) if known else NOT_MEASURED)
    return UsageSample(*sums)
