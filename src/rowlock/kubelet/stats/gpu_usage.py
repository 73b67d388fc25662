"""What pods use of real GPUs, through NVML: how busy each card is, and whose memory is on it.

A card that one pod holds alone is as busy as the pod makes it. Of a shared card NVML says how much each process computed; where
the driver does not, nobody's part is guessed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class GpuReading(NamedTuple):
    """Of one card: percent of the time in which it computed, and the parts of processes."""

    utilization: float
    memory_by_pid: Mapping[int, int]
    """Bytes."""
    utilization_by_pid: Mapping[int, float]
    """Percent; empty where the driver does not tell."""


@dataclass(slots=True)
class GpuReader:
    """Reads all cards; remembers when it looked last, for NVML tells what processes computed since then."""

    _seen: dict[str, int] = field(default_factory=dict)

    def read(self) -> dict[str, GpuReading]:
        """By the uuid of the card; empty where there is no driver."""
        import pynvml

        readings: dict[str, GpuReading] = {}
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return {}
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                with contextlib.suppress(pynvml.NVMLError):  # one card is lost: the others are not
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                    uuid = pynvml.nvmlDeviceGetUUID(handle)
                    name = uuid if isinstance(uuid, str) else uuid.decode()
                    readings[name] = self._read_card(pynvml, handle, name)
        except pynvml.NVMLError:
            return readings
        finally:
            pynvml.nvmlShutdown()
        return readings

    def _read_card(self, nvml: Any, handle: Any, uuid: str) -> GpuReading:
        busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        memory = {process.pid: int(process.usedGpuMemory or 0) for process in running}
        by_pid: dict[int, float] = {}
        since, self._seen[uuid] = self._seen.get(uuid, 0), int(time.time() * 1e6)
        with contextlib.suppress(nvml.NVMLError):  # no process computed, or the driver does not tell
            for sample in nvml.nvmlDeviceGetProcessUtilization(handle, since):
                if sample.pid in memory:
                    by_pid[sample.pid] = min(100.0, float(sample.smUtil))
        return GpuReading(busy, memory, by_pid)


def usage_of_card(reading: GpuReading, pids: frozenset[int], *, is_shared: bool) -> tuple[float | None, float]:
    """Percent and bytes of one card for a pod with these processes; None where nobody can say how much of a shared card is its."""
    memory = float(sum(size for pid, size in reading.memory_by_pid.items() if pid in pids))
    if not is_shared:
        return reading.utilization, memory
    if reading.utilization_by_pid:
        return min(100.0, sum(part for pid, part in reading.utilization_by_pid.items() if pid in pids)), memory
    return (0.0 if not memory else None), memory
