"""Resource usage of each pod, under the kubelet's or cAdvisor's metric names where they have one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rowlock.kubelet.pod.directory import PodCard
from rowlock.workloads.figures.usage_series import LatestUsage

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
