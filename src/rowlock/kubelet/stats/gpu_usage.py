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

WINDOW = 6.0
"""Seconds of which the driver says how much each process computed. An H100's driver looks at one process at a time: within two
seconds a process that takes turns with another may not have been seen, and within six both have their parts."""


class GpuReading(NamedTuple):
    """Of one card: percent of the time in which it computed, and the parts of processes."""

    utilization: float
    memory_by_pid: Mapping[int, int]
    """Bytes."""
    utilization_by_pid: Mapping[int, float]
    """Percent; empty where the driver does not tell."""


@dataclass(slots=True)
class GpuReader:
    """Reads all cards. NVML stays open from look to look: opening it and finding the cards takes twice as long as reading them.
    The caller closes it when no pod holds a card: an open handle would prevent a reset of the card or an update of the driver."""

    _handles: dict[str, Any] = field(default_factory=dict)
    """Of the cards, by uuid; empty while NVML is closed."""

    @property
    def is_open(self) -> bool:
        return bool(self._handles)

    def read(self) -> dict[str, GpuReading]:
        """By the uuid of the card; empty where there is no driver."""
        import pynvml

        if not self._handles:
            self._open(pynvml)
        readings: dict[str, GpuReading] = {}
        for uuid, handle in self._handles.items():
            with contextlib.suppress(pynvml.NVMLError):  # one card is lost: the others are not
                readings[uuid] = _read_card(pynvml, handle)
        if not readings:
            self.close()  # the driver has gone, and perhaps comes back
        return readings

    def _open(self, nvml: Any) -> None:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlInit()
            try:
                for index in range(nvml.nvmlDeviceGetCount()):
                    with contextlib.suppress(nvml.NVMLError):
                        handle = nvml.nvmlDeviceGetHandleByIndex(index)
                        uuid = nvml.nvmlDeviceGetUUID(handle)
                        self._handles[uuid if isinstance(uuid, str) else uuid.decode()] = handle
            finally:
                if not self._handles:
                    nvml.nvmlShutdown()

    def close(self) -> None:
        """What is closed stays closed; the next look opens it again."""
        if self._handles:
            import pynvml

            self._handles.clear()
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def _read_card(nvml: Any, handle: Any) -> GpuReading:
    busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    memory = {process.pid: int(process.usedGpuMemory or 0) for process in running}
    by_pid: dict[int, float] = {}
    with contextlib.suppress(nvml.NVMLError):  # no process computed, or the driver does not tell
        for sample in nvml.nvmlDeviceGetProcessUtilization(handle, int((time.time() - WINDOW) * 1e6)):
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
