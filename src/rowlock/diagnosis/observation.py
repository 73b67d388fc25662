"""What is seen of a rank, and what may be said of one: a `RankObservation` of each, and a `Verdict` on all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rowlock.diagnosis.rendezvous import MEETINGS, Rendezvous
from rowlock.diagnosis.stacks import NO_CALL, Stack
from rowlock.diagnosis.tracebacks import LoggedError

STOPPED = "T"
"""The state of a process that was stopped by a signal, as in /proc."""
IDLE, BUSY, _WOKEN, _HALF = 0.1, 0.9, 0.01, 0.5
"""In CPUs: 1.0 is one CPU fully used."""
_QUIET = 1024.0
"""Bytes a second, read and written: keep-alives and heartbeats of a rank that makes no progress are fewer."""


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
    """What stands before a command that is to reach its process, as `kubectl exec … -- `; "" on this machine."""
    error: LoggedError | None = None
    """What it wrote into torch's error file: it has failed, and should have ended."""
    logged: LoggedError | None = None
    """The error with which its log ends: it may have handled it, and may go on after it."""
    restarts: int = 0
    """How often torchrun has started it again in the same container."""
    earlier_error: LoggedError | None = None
    """Why the last time; `rank` of it is the local rank that failed, in the same pod."""
    transferred: float = 0.0
    """Bytes a second that it read and wrote, to files and peers."""
    helpers: float = 0.0
    """Of `cpu`, what the processes below it used: a compiler, data loaders."""
    queued: float = 0.0
    """In CPUs: what its threads would have used, had the machine not been busy with others."""
    helpers_queued: float = 0.0
    """Of `queued`, what the processes below it would have used."""
    sleeps: bool = False
    """Its main thread lies in one sleep of the kernel's timer and was not woken between the looks."""
    polls: bool = False
    """It does nothing but ask the kernel again and again: so Open MPI waits."""
    main_is_asleep: bool = False
    """Its main thread used no CPU: if it polls, another thread does."""
    program: str = ""
    """Of a rank that has not begun: what its pod runs instead of Python."""
    has_ended: bool = False
    """Its program has ended with exit code 0."""
    world_size: int = 0
    """How many ranks it was told at its start that there are; 0 = not known."""
    rendezvous: Rendezvous | None = None
    """What it waits for, where it waits for ranks to come."""
    looks: int = 0
    """How often it was looked at; 0 = not known."""
    watched: float = 0.0
    """Seconds from the first look to the last."""

    @property
    def is_at_work(self) -> bool:
        """Whether it does anything, wherever its stack is: it talks, its helpers compute, or it would compute if it had a CPU."""
        talks = (
            self.transferred > _QUIET and self.awaited_collective not in MEETINGS
        )  # torch's store asks itself who came
        helpers_work = self.helpers > IDLE or self.helpers + self.helpers_queued > _HALF
        return talks or helpers_work or (self.is_starved and not self.polls)

    @property
    def is_standing_still(self) -> bool:
        """Whether no progress of the rank is visible."""
        return self.state == STOPPED or (self.stack is not None and not self.moved and not self.is_at_work)

    @property
    def is_at_rest(self) -> bool:
        """Whether it stands still and computes nothing, nor would if it had a CPU."""
        return self.is_standing_still and (self.is_idle or self.polls)

    @property
    def is_starved(self) -> bool:
        """Whether it would compute, had it a CPU; a rank that waits is woken now and then, and queues a little on a busy machine, too."""
        return self.cpu > _WOKEN and self.cpu + self.queued > _HALF

    @property
    def is_in_doubt(self) -> bool:
        """Whether it got so little of the CPUs that a longer look may show that it polls."""
        has_moved = self.transferred > _QUIET or (self.stack is not None and self.moved)
        return self.is_starved and not self.polls and self.cpu < _HALF and not has_moved

    @property
    def is_idle(self) -> bool:
        return self.cpu < IDLE and not self.is_starved

    @property
    def is_absent(self) -> bool:
        """Whether the others may wait for it though it has no Python process: it has not begun, or has ended."""
        return bool(self.program) or self.has_ended

    @property
    def is_failed(self) -> bool:
        """Whether it has failed by itself and is not over: a program that goes on after its error has handled it."""
        is_idle = self.is_standing_still or (self.stack is None and (self.is_idle or self.polls))
        return self.own_error is not None and not self.own_error.secondary and is_idle

    @property
    def own_error(self) -> LoggedError | None:
        """With which it has ended, as far as it ends: what it wrote into torch's error file, or logged before its main program was over."""
        is_over = self.stack.is_over if self.stack is not None else self.blind == NO_CALL
        return self.error or (self.logged if is_over else None)

    @property
    def awaited_collective(self) -> str:
        """The collective in which it waits for others; "" when it waits for nobody."""
        return "" if self.stack is None or self.state == STOPPED else self.stack.awaited_collective

    def to_dict(self) -> dict[str, Any]:
        """As one of `ranks` of a diagnosis."""
        return {
            "rank": self.rank, "pod": self.pod, "node": self.node, "pid": self.pid, "state": self.state,
            "cpu": round(self.cpu, 2), "silent": round(self.silent, 1), "waits": self.awaited_collective, "moved": self.moved,
            "stack": self.stack.format_frames() if self.stack is not None else [], "blind": self.blind,
            "program": self.program, "ended": self.has_ended, "error": str(self.own_error or ""), "restarts": self.restarts, "earlierError": str(self.earlier_error or ""),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind`: failed, stopped, behind, ended, absent, mismatch, stuck, still, slow, moving or blind; `culprits`: the ranks that it names."""

    kind: str
    sentence: str
    culprits: tuple[str, ...] = ()

    @property
    def is_hang(self) -> bool:
        return self.kind in ("failed", "stopped", "behind", "ended", "mismatch", "stuck", "still")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "sentence": self.sentence, "culprits": list(self.culprits)}
