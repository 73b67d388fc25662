"""Looks every few seconds how much memory of each card the pods' processes hold (NVML), and tells who exceeds its share.

A process belongs to the pod whose mark it carries in its environment. Runs only on nodes with real cards, and looks
only while a pod has a share of one. It warns and never kills: a share is an agreement (`gpu_shares.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from rowlock import kinds
from rowlock.api import Record, View
from rowlock.cluster.node import gpu_shares
from rowlock.cluster.node.gpu_shares import Overuse
from rowlock.cluster.node.machine import NodePlan
from rowlock.cluster.node.processes import MARK
from rowlock.cluster.node.tended import Tended
from rowlock.controllers.recorder import Recorder

EVERY = 2.0
Key = tuple[str, str]
"""(pod's uid, card's uuid)."""
Measure = Callable[[], Mapping[str, list[tuple[int, int]]]]
"""(pid, MiB) of the processes on every card."""


def pod_of(pid: int) -> str:
    """The uid of the pod that the process belongs to; "" for strangers."""
    wanted = f"{MARK}=".encode()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for part in file.read().split(b"\0"):
            if part.startswith(wanted):
                return part[len(wanted) :].decode(errors="replace")
    return ""


def held() -> dict[str, list[tuple[int, int]]]:
    """(pid, MiB) of the computing processes on every card. What the driver does not tell is left out."""
    import pynvml

    found: dict[str, list[tuple[int, int]]] = {}
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
            found[text] = [(p.pid, int(p.usedGpuMemory or 0) >> 20) for p in running]
    except pynvml.NVMLError:
        return found
    finally:
        pynvml.nvmlShutdown()
    return found


def by_pod(cards: Mapping[str, list[tuple[int, int]]], owner: Callable[[int], str] = pod_of) -> dict[Key, int]:
    """MiB per pod and card."""
    sums: dict[Key, int] = {}
    for card, processes in cards.items():
        for pid, mebibytes in processes:
            if uid := owner(pid):
                sums[uid, card] = sums.get((uid, card), 0) + mebibytes
    return sums


async def run(
    allowed: Callable[[], Mapping[Key, int]],
    tell: Callable[[str, str], None],
    measure: Measure = held,
    every: float = EVERY,
) -> None:
    """Until cancelled. `allowed` says who may hold how much, `tell` takes a pod's uid and a sentence."""
    overuse = Overuse()
    while True:
        await asyncio.sleep(every)
        shares = allowed()
        if not shares:
            overuse.seen.clear()
            continue
        used = await asyncio.to_thread(lambda: by_pod(measure()))
        for uid, card, have, most in overuse.look(used, shares):
            tell(
                uid, f"it holds {have} MiB of {card}, its share is {most} MiB: others on the card may run out of memory"
            )


def allowed(view: View, nodes: Mapping[str, NodePlan], pods: Mapping[str, Tended]) -> dict[Key, int]:
    """MiB that each pod with a share may hold, on each of its real cards."""
    found: dict[Key, int] = {}
    for uid, tended in pods.items():
        card, plan = tended.card, nodes.get(tended.card.node)
        pod = view.get(kinds.POD, card.namespace, card.name) if card.devices and plan and not plan.simulated else None
        if pod is None or plan is None or tended.finished:
            continue
        share = gpu_shares.of_pod(pod, plan, card.devices)
        if share is not None:
            found |= {(uid, device): share.mebibytes for device in card.devices}
    return found


async def watch(view: View, nodes: Mapping[str, NodePlan], pods: Mapping[str, Tended], recorder: Recorder) -> None:
    """The kubelet's watch over its pods: until cancelled, or at once over where no card is real."""
    if not any(plan.gpus and not plan.simulated for plan in nodes.values()):
        return

    def tell(uid: str, sentence: str) -> None:
        tended = pods.get(uid)
        pod = view.get(kinds.POD, tended.card.namespace, tended.card.name) if tended else None
        if pod is not None:
            recorder.record(Record(pod, "Warning", "GPUMemoryExceeded", sentence, "kubelet"))

    await run(lambda: allowed(view, nodes, pods), tell)
