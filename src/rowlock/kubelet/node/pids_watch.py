"""Reports running containers that have as many processes and threads as they may have.

The kernel refuses the next one (EAGAIN) and counts that in the control group; the program may wait, retry without end, or go on
with fewer helpers. What is known when the program ends is in the run's facts (`reached_pids_limit`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rowlock import kinds
from rowlock.api import Record, View
from rowlock.errors import Unavailable
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.shim import cgroups

WATCH_INTERVAL = 5.0
EVENT_REASON = "ProcessLimitReached"
_MAX_TEXT = 1 << 16


def refuse_unkept_limit(limit: int, problem: str) -> None:
    """Raises Unavailable for a limit that cannot be enforced. `problem`: why control groups cannot do it here; "" = they can."""
    if limit and problem:
        raise Unavailable(
            f"--pids-limit {limit} cannot be kept here: {problem}. Start without it; `ulimit -u`, or TasksMax= of a systemd unit,"
            " limits the server and all pods together"
        )


def limit_sentence(container: str, limit: int) -> str:
    """The event's message for a container that was refused a process or thread."""
    return (
        f"container {container} has as many processes and threads as it may have ({limit}): its fork failed with EAGAIN, Resource"
        " temporarily unavailable. Let it start fewer (DataLoader workers, OMP_NUM_THREADS), or start the cluster with a larger --pids-limit"
    )


def pids_directory(table: str, root: str = cgroups.ROOT) -> str:
    """The control group that counts the processes of a program; "" when there is none. `table`: its /proc/PID/cgroup."""
    rows = [line.split(":", 2) for line in table.splitlines() if line.count(":") >= 2]
    groups = {controllers: path for _, controllers, path in rows}
    if "pids" in groups:
        return f"{root}/pids{groups['pids']}"
    return f"{root}{groups['']}" if "" in groups else ""


@dataclass(slots=True)
class PidsWatch:
    """Watches all pods of this machine, if there is a limit."""

    view: View
    pod_states: Mapping[str, PodState]
    limit: int
    record: Callable[[Record], None]
    _refused: dict[int, int] = field(default_factory=dict)
    """Pid of a program → the refusals that the last look counted."""

    async def run(self) -> None:
        """Runs until cancelled; returns at once if there is no limit."""
        while self.limit:
            await asyncio.sleep(WATCH_INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Records an event for each program with refusals since the last look."""
        programs = {
            facts.run.pid: (uid, name)
            for uid, state in self.pod_states.items()
            for name, facts in state.containers.items()
            if facts.run is not None and facts.run.is_running and facts.run.pid > 0
        }
        refused = await asyncio.to_thread(_read_refused, list(programs))
        for pid, count in refused.items():
            uid, container = programs[pid]
            state = self.pod_states.get(uid)
            if count <= self._refused.get(pid, 0) or state is None:
                continue
            if (pod := self.view.get(kinds.POD, *state.card.key)) is not None:
                text = limit_sentence(container, self.limit)
                self.record(Record(pod, "Warning", EVENT_REASON, text, "kubelet"))
        self._refused = refused


def _read_refused(pids: list[int]) -> dict[int, int]:
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", errors="replace") as file:  # it may have ended
            found[pid] = cgroups.read_refused_pids(pids_directory(file.read(_MAX_TEXT)))
    return found
