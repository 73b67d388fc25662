"""Says of a container whose program runs on that it has as many processes and threads as it may have.

The kernel refuses the next one (EAGAIN) and counts that in the control group; a program may wait, try again for ever, or go on
with fewer helpers. What of it is known when the program ends is in the run's facts (`reached_pids_limit`).
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
    """Raises Unavailable for a limit that would not hold. `problem`: why control groups cannot keep it here."""
    if limit and problem:
        raise Unavailable(
            f"--pids-limit {limit} cannot be kept here: {problem}. Start without it; `ulimit -u`, or TasksMax= of a systemd unit,"
            " limits the server and all pods together"
        )


def limit_sentence(container: str, limit: int) -> str:
    """What a container met that wanted one process or thread too many."""
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
    """Of all pods of this machine, where there is a limit."""

    view: View
    pod_states: Mapping[str, PodState]
    limit: int
    record: Callable[[Record], None]
    _refused: dict[int, int] = field(default_factory=dict)
    """How many were refused to each program, by its pid, at the last look."""

    async def run(self) -> None:
        """Until cancelled; at once where there is no limit."""
        while self.limit:
            await asyncio.sleep(WATCH_INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Tell of what was refused since the last look."""
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
