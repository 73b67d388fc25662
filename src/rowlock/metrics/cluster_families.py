"""Metrics of the cluster: jobs and pods by phase, queues, pending gangs, nodes and their GPUs; and what each pod uses, under the
kubelet's or cAdvisor's metric names where they have one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rowlock import quantity
from rowlock.errors import BadRequest
from rowlock.kubelet.pod.directory import PodCard
from rowlock.objects import Object, dig, name, namespace, phase
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.resources import WHOLE_GPU, ResourceVector
from rowlock.workloads.figures.usage_series import LatestUsage

_NODE_UNITS = {"cpu": "core", "memory": "byte", "pods": "integer", "nvidia.com/gpu": "integer"}
"""Exported resources of a node → their unit, as in kube-state-metrics."""
_UNLIMITED = -1


def job_families(phases: Mapping[tuple[str, str, str], int]) -> Iterator[Metric]:
    """Jobs by phase. `phases`: number of jobs by (namespace, kind, Run:ai's phase)."""
    family = GaugeMetricFamily("rowlock_jobs", "Jobs by kind and phase.", labels=("namespace", "kind", "phase"))
    for labels, count in sorted(phases.items()):
        family.add_metric(labels, count)
    yield family


def pod_families(pods: Iterable[Object]) -> Iterator[Metric]:
    """Number of pods by phase; kube-state-metrics has a series for each pod instead."""
    counts = Counter((namespace(pod), phase(pod) or "Pending") for pod in pods)
    family = GaugeMetricFamily("rowlock_pods", "Pods by phase.", labels=("namespace", "phase"))
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    yield family


def node_families(nodes: Iterable[Object]) -> Iterator[Metric]:
    """Capacity and allocatable resources of nodes under kube-state-metrics' names, and whether each is ready."""
    labels = ("node", "resource", "unit")
    families = {
        "capacity": GaugeMetricFamily("kube_node_status_capacity", "What the node has.", labels=labels),
        "allocatable": GaugeMetricFamily("kube_node_status_allocatable", "What pods may have of it.", labels=labels),
    }
    ready = GaugeMetricFamily("rowlock_node_ready", "1 for a node that is ready, 0 for another.", labels=("node",))
    for node in nodes:
        for field, family in families.items():
            amounts = dig(node, f"status.{field}")
            for resource, unit in _NODE_UNITS.items():
                if isinstance(amounts, dict) and (value := _parse_amount(amounts.get(resource))) is not None:
                    family.add_metric((name(node), _label_of(resource), unit), value)
        conditions = dig(node, "status.conditions") or []
        ready.add_metric(
            (name(node),), float(any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions))
        )
    yield from families.values()
    yield ready


def _parse_amount(text: object) -> float | None:
    try:
        return None if text is None else float(quantity.parse(str(text)))
    except (BadRequest, ValueError):
        return None  # a node's status may hold any text


def _label_of(resource: str) -> str:
    return resource.replace(".", "_").replace("/", "_")


def scheduler_families(scheduler: Scheduler) -> Iterator[Metric]:
    """The scheduler's cycles, pending gangs and their pods by queue, and GPUs in use by node."""
    session = scheduler.tracker.planner.session
    yield CounterMetricFamily(
        "rowlock_scheduler_cycles_total", "Plans that the scheduler made.", value=scheduler.cycles
    )
    waiting: Counter[str] = Counter()
    waiting_pods: Counter[str] = Counter()
    for state in session.gangs.values():
        if state.has_pending_tasks() and not state.active_count:
            queue = state.gang.queue
            waiting[queue] += 1
            waiting_pods[queue] += state.pending_count
    gangs = GaugeMetricFamily("rowlock_pending_gangs", "Gangs of which no pod has a node.", labels=("queue_name",))
    pods = GaugeMetricFamily("scheduler_pending_pods", "Pods of these gangs.", labels=("queue",))
    for queue in {*waiting, *session.queues}:
        gangs.add_metric((queue,), waiting[queue])
        pods.add_metric((queue,), waiting_pods[queue])
    used = GaugeMetricFamily(
        "rowlock_node_gpus_allocated", "GPUs of the node that pods hold, fractions included.", labels=("node",)
    )
    for node, node_state in session.nodes.items():
        used.add_metric((node,), sum(node_state.used_per_device) / WHOLE_GPU)
    yield from (gangs, pods, used)


def queue_families(scheduler: Scheduler) -> Iterator[Metric]:
    """Metrics of queues under KAI's names. The value -1 means unlimited."""
    families: dict[str, GaugeMetricFamily] = {}

    def tell(metric: str, text: str, queue: str, value: float) -> None:
        family = families.setdefault(metric, GaugeMetricFamily(metric, text, labels=("queue_name",)))
        family.add_metric((queue,), value)

    for queue, state in scheduler.tracker.planner.session.queues.items():
        cpu, memory, gpu = _in_units(state.queue.quota)
        tell("kai_queue_deserved_gpus", "GPUs of the queue's quota.", queue, gpu)
        tell("kai_queue_quota_cpu_cores", "CPU cores of the queue's quota.", queue, cpu)
        tell("kai_queue_quota_memory_bytes", "Bytes of the queue's quota.", queue, memory)
        cpu, memory, gpu = _in_units(state.allocated)
        tell("kai_queue_allocated_gpus", "GPUs that the queue's pods hold.", queue, gpu)
        tell("kai_queue_allocated_cpu_cores", "CPU cores that the queue's pods hold.", queue, cpu)
        tell("kai_queue_allocated_memory_bytes", "Bytes that the queue's pods hold.", queue, memory)
        cpu, memory, gpu = _in_units(state.fair_share)
        tell("kai_queue_fair_share_gpu", "GPUs that are the queue's fair share now.", queue, gpu)
        tell("kai_queue_fair_share_cpu_cores", "CPU cores that are the queue's fair share now.", queue, cpu)
        tell("kai_queue_fair_share_memory_gb", "GB that are the queue's fair share now.", queue, memory / 1e9)
        tell(
            "rowlock_queue_requested_gpus",
            "GPUs that the queue's pods hold or ask for.",
            queue,
            _in_units(state.requested)[2],
        )
    yield from families.values()


def _in_units(amount: ResourceVector) -> tuple[float, float, float]:
    """CPU cores, bytes, GPUs."""
    cpu, memory, gpu = amount
    return (
        cpu if cpu == _UNLIMITED else cpu / 1000,
        memory,
        gpu if gpu == _UNLIMITED else gpu / WHOLE_GPU,
    )


_LABELS = ("namespace", "pod", "node")
PodUsages = list[tuple[PodCard, LatestUsage]]
_COUNTERS: tuple[tuple[str, str, Callable[[LatestUsage], float]], ...] = (
    ("pod_cpu_usage_seconds_total", "CPU time of the pod, in core-seconds.", lambda usage: usage.cpu_seconds),
    ("pod_fs_reads_bytes_total", "Bytes that the pod read from disks.", lambda usage: usage.disk_read_bytes),
    ("pod_fs_writes_bytes_total", "Bytes that the pod wrote to disks.", lambda usage: usage.disk_write_bytes),
)
_NETWORK: tuple[tuple[str, str, Callable[[LatestUsage], float]], ...] = (
    ("pod_network_receive_bytes_total", "Bytes that the pod received.", lambda usage: usage.net_receive_bytes),
    ("pod_network_transmit_bytes_total", "Bytes that the pod sent.", lambda usage: usage.net_transmit_bytes),
)


def pod_usage_families(pods: PodUsages) -> list[Iterator[Metric]]:
    """The families as iterators, so that each can be built in its own turn of the event loop: there may be thousands of pods."""
    with_network = [(card, usage) for card, usage in pods if not math.isnan(usage.sample.net_receive)]
    return [
        *(iter([_counter(*row, pods)]) for row in _COUNTERS),
        *(iter([_counter(*row, with_network)]) for row in _NETWORK),
        iter([_memory(pods)]),
        _gpus(pods),
    ]


def _names(card: PodCard) -> tuple[str, str, str]:
    return card.namespace, card.name, card.node


def _counter(name: str, text: str, read: Callable[[LatestUsage], float], pods: PodUsages) -> Metric:
    family = CounterMetricFamily(name, text, labels=_LABELS)
    for card, usage in pods:
        family.add_metric(_names(card), read(usage))
    return family


def _memory(pods: PodUsages) -> Metric:
    family = GaugeMetricFamily("pod_memory_working_set_bytes", "Memory of the pod's processes.", labels=_LABELS)
    for card, usage in pods:
        family.add_metric(_names(card), usage.sample.memory_bytes)
    return family


def _gpus(pods: PodUsages) -> Iterator[Metric]:
    labels = (*_LABELS, "gpu")
    busy = GaugeMetricFamily("rowlock_pod_gpu_utilization_percent", "How busy the pod keeps a GPU.", labels=labels)
    memory = GaugeMetricFamily("rowlock_pod_gpu_memory_bytes", "Memory of the pod's processes on a GPU.", labels=labels)
    for card, usage in pods:
        for gpu, (percent, size) in usage.gpus.items():
            memory.add_metric((*_names(card), gpu), size)
            if not math.isnan(percent):
                busy.add_metric((*_names(card), gpu), percent)
    yield busy
    yield memory
