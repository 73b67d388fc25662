"""Measures every few seconds how much memory of each card the pods' processes hold (NVML), and warns pods that exceed their share.

A process belongs to the pod whose mark is in its environment. Runs only on nodes with real cards, and measures only while
a pod has a share of one. It warns and never kills: a share is an agreement (`gpus.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from rowlock import kinds
from rowlock.api import Record, View
from rowlock.controllers.recorder import Recorder
from rowlock.kubelet.node import gpus
from rowlock.kubelet.node.gpus import OveruseTracker
from rowlock.kubelet.node.machine import NodePlan
from rowlock.kubelet.pod.facts import POD_UID_VARIABLE
from rowlock.kubelet.pod.pod_state import PodState

WATCH_INTERVAL = 2.0
PodGpuKey = tuple[str, str]
"""(pod's uid, card's uuid)."""
Measure = Callable[[], Mapping[str, list[tuple[int, int]]]]
"""(pid, MiB) of the processes on every card."""


def pod_of_process(pid: int) -> str:
    """The uid of the pod that the process belongs to; "" = none."""
    mark_prefix = f"{POD_UID_VARIABLE}=".encode()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for part in file.read().split(b"\0"):
            if part.startswith(mark_prefix):
                return part[len(mark_prefix) :].decode(errors="replace")
    return ""


def read_gpu_memory() -> dict[str, list[tuple[int, int]]]:
    """(pid, MiB) of the compute processes on every card. What the driver does not report is left out."""
    import pynvml

    memory_by_card: dict[str, list[tuple[int, int]]] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        for i in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(i)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            text = uuid if isinstance(uuid, str) else uuid.decode()
            memory_by_card[text] = [(p.pid, int(p.usedGpuMemory or 0) >> 20) for p in running]
    except pynvml.NVMLError:
        return memory_by_card
    finally:
        pynvml.nvmlShutdown()
    return memory_by_card


def memory_by_pod(
    cards: Mapping[str, list[tuple[int, int]]], owner: Callable[[int], str] = pod_of_process
) -> dict[PodGpuKey, int]:
    """MiB per pod and card."""
    sums: dict[PodGpuKey, int] = {}
    for card, processes in cards.items():
        for pid, mebibytes in processes:
            if uid := owner(pid):
                sums[uid, card] = sums.get((uid, card), 0) + mebibytes
    return sums


async def warn_overusers(
    get_allowed: Callable[[], Mapping[PodGpuKey, int]],
    warn: Callable[[str, str], None],
    measure: Measure = read_gpu_memory,
    interval: float = WATCH_INTERVAL,
) -> None:
    """Runs until cancelled. `get_allowed` returns the MiB that each pod may hold, `warn` takes a pod's uid and a sentence."""
    overuse = OveruseTracker()
    while True:
        await asyncio.sleep(interval)
        shares = get_allowed()
        if not shares:
            overuse.over_counts.clear()
            continue
        used = await asyncio.to_thread(lambda: memory_by_pod(measure()))
        for uid, card, held_mib, allowed_mib in overuse.find_overusers(used, shares):
            warn(
                uid,
                f"it uses {held_mib} MiB of {card}, but its share is {allowed_mib} MiB: other pods on this GPU may run out of memory",
            )


def allowed_memory(view: View, nodes: Mapping[str, NodePlan], pods: Mapping[str, PodState]) -> dict[PodGpuKey, int]:
    """MiB that each pod with a share may hold, on each of its real cards."""
    memory: dict[PodGpuKey, int] = {}
    for uid, pod_state in pods.items():
        card, plan = pod_state.card, nodes.get(pod_state.card.node)
        pod = view.get(kinds.POD, card.namespace, card.name) if card.devices and plan and not plan.simulated else None
        if pod is None or plan is None or pod_state.finished:
            continue
        fraction = gpus.pod_fraction(pod_state.spec_of(pod), plan, card.devices)
        if fraction is not None:
            memory |= {(uid, device): fraction.mebibytes for device in card.devices}
    return memory


async def watch_gpu_memory(
    view: View, nodes: Mapping[str, NodePlan], pods: Mapping[str, PodState], recorder: Recorder
) -> None:
    """Warns the kubelet's pods until cancelled; returns at once if no card is real."""
    if not any(plan.gpus and not plan.simulated for plan in nodes.values()):
        return

    def warn_pod(uid: str, sentence: str) -> None:
        pod_state = pods.get(uid)
        pod = view.get(kinds.POD, pod_state.card.namespace, pod_state.card.name) if pod_state else None
        if pod is not None:
            recorder.record(Record(pod, "Warning", "GPUMemoryExceeded", sentence, "kubelet"))

    await warn_overusers(lambda: allowed_memory(view, nodes, pods), warn_pod)
