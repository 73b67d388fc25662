"""What pods use of real GPUs, through NVML: the utilization of each card, and the memory of its processes.

The utilization of a card that one pod holds alone is the pod's. For a shared card NVML reports how much each process computed;
where the driver does not, no pod's part is guessed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WINDOW = 6.0
"""Seconds for which the driver is asked how much each process computed. An H100's driver samples one process at a time: within two
seconds it may miss a process that takes turns with another, within six it has seen both."""


class GpuReading(NamedTuple):
    """One card: percent of the time in which it computed, and the parts of processes."""

    utilization: float
    memory_by_pid: Mapping[int, int]
    """Pid → bytes."""
    utilization_by_pid: Mapping[int, float]
    """Pid → percent; empty where the driver does not report it."""


@dataclass(slots=True)
class GpuReader:
    """Reads all cards. NVML stays open between looks: opening it and finding the cards takes twice as long as reading them.
    The caller closes it when no pod holds a card: an open handle would prevent a reset of the card or an update of the driver."""

    _handles: dict[str, Any] = field(default_factory=dict)
    """Handles of the cards by uuid; empty while NVML is closed."""

    @property
    def is_open(self) -> bool:
        return bool(self._handles)

    def read(self) -> dict[str, GpuReading]:
        """The readings by card uuid; {} without a driver."""
        import pynvml

        if not self._handles:
            self._open(pynvml)
        readings: dict[str, GpuReading] = {}
        for uuid, handle in self._handles.items():
            with contextlib.suppress(pynvml.NVMLError):  # one lost card does not affect the others
                readings[uuid] = _read_card(pynvml, handle)
        if not readings:
            self.close()  # the driver is gone, and may come back
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
        """Closes NVML, if open; the next `read` opens it again."""
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
    with contextlib.suppress(nvml.NVMLError):  # no process computed, or the driver does not report it
        for sample in nvml.nvmlDeviceGetProcessUtilization(handle, int((time.time() - WINDOW) * 1e6)):
            if sample.pid in memory:
                by_pid[sample.pid] = min(100.0, float(sample.smUtil))
    return GpuReading(busy, memory, by_pid)


def usage_of_card(reading: GpuReading, pids: frozenset[int], *, is_shared: bool) -> tuple[float | None, float]:
    """Percent and bytes of one card for a pod with these processes; percent is None if its part of a shared card is unknown."""
    memory = float(sum(size for pid, size in reading.memory_by_pid.items() if pid in pids))
    if not is_shared:
        return reading.utilization, memory
    if reading.utilization_by_pid:
        return min(100.0, sum(part for pid, part in reading.utilization_by_pid.items() if pid in pids)), memory
    return (0.0 if not memory else None), memory
