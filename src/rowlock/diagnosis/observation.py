"""What was observed of ranks, and what follows: a `RankObservation` of each, and a `Verdict` on all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rowlock.diagnosis.rendezvous import MEETINGS, Rendezvous
from rowlock.diagnosis.stacks import NO_CALL, Stack
from rowlock.diagnosis.tracebacks import LoggedError

STOPPED = "T"
"""The state letter in /proc of a process that was stopped by a signal."""
IDLE, BUSY, _WOKEN, _HALF = 0.1, 0.9, 0.01, 0.5
"""In CPUs: 1.0 is one CPU fully used."""
_QUIET = 1024.0
"""Bytes per second, read and written: keep-alives and heartbeats of a rank without progress stay below."""


@dataclass(frozen=True, slots=True)
class RankObservation:
    """One rank as observed. `cpu`: CPUs it used since the observation before; `silent`: seconds since it wrote its last line."""

    rank: str
    pod: str
    node: str
    pid: int = 0
    state: str = "S"
    cpu: float = 0.0
    silent: float = 0.0
    stack: Stack | None = None
    moved: bool = True
    """Its stack has changed since the observation before."""
    blind: str = ""
    """Why there is no stack."""
    reach: str = ""
    """Prefix for a command that must reach its process, such as `kubectl exec … -- `; "" on this machine."""
    error: LoggedError | None = None
    """The error in its torch error file: it has failed, and should have ended."""
    logged: LoggedError | None = None
    """The error at the end of its log, which it may have handled."""
    restarts: int = 0
    """How often torchrun has restarted it in the same container."""
    earlier_error: LoggedError | None = None
    """The error before the last restart; its `rank` is the local rank that failed, in the same pod."""
    transferred: float = 0.0
    """Bytes per second that it read and wrote, to files and peers."""
    chatter: float = 0.0
    """Bytes per second, at most, that torchruns send in the network of its pod to keep each other alive: they tell nothing of the rank."""
    helpers: float = 0.0
    """Of `cpu`, the CPUs that its descendants used: a compiler, data loaders."""
    queued: float = 0.0
    """CPUs that its threads and descendants would also have used on an idle machine."""
    helpers_queued: float = 0.0
    """Of `queued`, the CPUs of its descendants."""
    sleeps: bool = False
    """Its main thread was in one uninterrupted timer sleep during all observations."""
    polls: bool = False
    """It only polls the kernel, as Open MPI does while it waits."""
    main_is_asleep: bool = False
    """Its main thread used no CPU: if it polls, another thread does."""
    program: str = ""
    """For a rank that has not begun: the command that its pod runs before Python."""
    has_ended: bool = False
    """Its program has ended with exit code 0."""
    has_left: bool = False
    """Its process has ended since the first look, so something has happened in its pod: another process may be the rank now."""
    world_size: int = 0
    """The number of ranks by its environment at its start (WORLD_SIZE, TF_CONFIG); 0 = unknown."""
    rendezvous: Rendezvous | None = None
    """What it waits for, if it is in a rendezvous."""
    together: float = math.inf
    """Seconds since all ranks were first seen together in a rendezvous; infinite = unknown."""
    is_connected: bool = True
    """It has a connection to another rank; also True when that is unknown."""
    looks: int = 0
    """How often its stack was read; 0 = unknown."""
    watched: float = 0.0
    """Seconds from the first observation to the last."""

    @property
    def _transfers(self) -> bool:
        return self.transferred > _QUIET + self.chatter

    @property
    def is_at_work(self) -> bool:
        """Whether it works, wherever its stack is: it transfers data, its helpers compute, or it would compute if it had a CPU."""
        talks = (
            self._transfers and self.awaited_collective not in MEETINGS
        )  # there torch's store causes traffic of its own
        helpers_work = self.helpers > IDLE or self.helpers + self.helpers_queued > _HALF
        return talks or helpers_work or (self.is_starved and not self.polls)

    @property
    def is_standing_still(self) -> bool:
        """Whether no progress of the rank is visible."""
        return self.state == STOPPED or (self.stack is not None and not self.moved and not self.is_at_work)

    @property
    def is_at_rest(self) -> bool:
        """Whether it stands still and does not compute, or only polls."""
        return self.is_standing_still and (self.is_idle or self.polls)

    @property
    def is_starved(self) -> bool:
        """Whether it would compute if it had a CPU. The limits allow for waiting ranks, which also wake up and queue a little."""
        return self.cpu > _WOKEN and self.cpu + self.queued > _HALF

    @property
    def is_in_doubt(self) -> bool:
        """Whether it got so little CPU that only a longer observation can show whether it polls."""
        has_moved = self._transfers or (self.stack is not None and self.moved)
        return self.is_starved and not self.polls and self.cpu < _HALF and not has_moved

    @property
    def is_idle(self) -> bool:
        return self.cpu < IDLE and not self.is_starved

    @property
    def is_absent(self) -> bool:
        """Whether it has no Python process that could be observed: it has not begun, or has ended. The others may wait for it."""
        return bool(self.program) or self.has_ended

    @property
    def is_failed(self) -> bool:
        """Whether it has failed by itself without ending: a program that continues after its error has handled it."""
        is_idle = self.is_standing_still or (self.stack is None and (self.is_idle or self.polls))
        return self.own_error is not None and not self.own_error.secondary and is_idle

    @property
    def own_error(self) -> LoggedError | None:
        """The error that ended its program: the one in torch's error file, or the logged one if its main program is over."""
        is_over = self.stack.is_over if self.stack is not None else self.blind == NO_CALL
        return self.error or (self.logged if is_over else None)

    @property
    def awaited_collective(self) -> str:
        """The collective in which it waits for other ranks; "" when it does not."""
        return "" if self.stack is None or self.state == STOPPED else self.stack.awaited_collective

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of this rank in the `ranks` of a diagnosis."""
        return {
            "rank": self.rank, "pod": self.pod, "node": self.node, "pid": self.pid, "state": self.state,
            "cpu": round(self.cpu, 2), "silent": round(self.silent, 1), "waits": self.awaited_collective, "moved": self.moved,
            "stack": self.stack.format_frames() if self.stack is not None else [], "blind": self.blind,
            "program": self.program, "ended": self.has_ended, "error": str(self.own_error or ""), "restarts": self.restarts, "earlierError": str(self.earlier_error or ""),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind`: failed, stopped, behind, ended, absent, mismatch, stuck, still, slow, moving, lost (on a node that is silent) or blind; `culprits`: the ranks that it names."""

    kind: str
    sentence: str
    culprits: tuple[str, ...] = ()

    @property
    def is_hang(self) -> bool:
        return self.kind in ("failed", "stopped", "behind", "ended", "mismatch", "stuck", "still")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "sentence": self.sentence, "culprits": list(self.culprits)}
