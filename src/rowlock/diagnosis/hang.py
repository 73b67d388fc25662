"""Who keeps whom waiting: the verdict over ranks that were looked at twice, a moment apart.

A distributed step ends for all or for none, so a job whose ranks wait for each other stands still as a whole, and the
question is only who is not where the others are. The words claim what was seen: where each rank stood, how much it
computed and for how long it has said nothing. When no stack could be had, that is said instead of guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rowlock.diagnosis.root_cause import format_duration, join_names
from rowlock.diagnosis.stacks import Stack
from rowlock.diagnosis.tracebacks import LoggedError

STOPPED = "T"
"""The state of a process that was stopped by a signal, as in /proc."""
_IDLE, _BUSY = 0.1, 0.9
"""In CPUs: 1.0 is one CPU fully used."""


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
    restarts: int = 0
    """How often torchrun has started it again in the same container."""
    earlier_error: LoggedError | None = None
    """Why the last time; `rank` of it is the local rank that failed, in the same pod."""

    @property
    def is_standing_still(self) -> bool:
        """Whether no progress of the rank is visible."""
        return self.state == STOPPED or (self.stack is not None and not self.moved)

    @property
    def is_failed(self) -> bool:
        """Whether it has failed by itself and is not over: a program that goes on after its error has handled it."""
        is_at_rest = self.is_standing_still or (self.stack is None and self.cpu < _IDLE)
        return self.error is not None and not self.error.secondary and is_at_rest

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
            "error": str(self.error or ""), "restarts": self.restarts, "earlierError": str(self.earlier_error or ""),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind`: failed, stopped, behind, mismatch, stuck, slow, moving or blind; `culprits`: the ranks that it names."""

    kind: str
    sentence: str
    culprits: tuple[str, ...] = ()

    @property
    def is_hang(self) -> bool:
        return self.kind in ("failed", "stopped", "behind", "mismatch", "stuck")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "sentence": self.sentence, "culprits": list(self.culprits)}


def judge_ranks(observations: Sequence[RankObservation]) -> Verdict:
    """The verdict over all running ranks of a job."""
    verdict, restarts = _judge_now(observations), _restart_sentence(observations)
    return replace(verdict, sentence=f"{verdict.sentence} {restarts}") if restarts else verdict


def _judge_now(observations: Sequence[RankObservation]) -> Verdict:
    if failed := [look for look in observations if look.is_failed]:
        return _failed_verdict(observations, failed)
    if stopped := [look for look in observations if look.state == STOPPED]:
        return _stopped_verdict(observations, stopped)
    with_stack = [look for look in observations if look.stack is not None]
    if not with_stack:
        no_stack_reason = next((look.blind for look in observations if look.blind), "no rank has a Python process")
        return Verdict("blind", f"The ranks' stacks cannot be read: {no_stack_reason}.")
    waiting = [look for look in with_stack if look.awaited_collective and not look.moved]
    not_waiting = [look for look in with_stack if not look.awaited_collective]
    if waiting and not_waiting:
        return _behind_verdict(waiting, not_waiting)
    if waiting and len(waiting) == len(with_stack) and len(with_stack) == len(observations) and len(observations) > 1:
        return _all_waiting_verdict(waiting)
    standing_still = [look for look in with_stack if look.is_standing_still]
    if len(observations) == 1 and standing_still and standing_still[0].cpu < _IDLE:
        only = standing_still[0]
        return Verdict("moving", f"{only.rank} is at {_place_of(only)} and uses no CPU; it waits for no other rank.")
    return Verdict("moving", _moving_sentence(observations))


def judge_after(observations: Sequence[RankObservation], seconds: float) -> Verdict:
    """The same verdict, told so long afterwards: nobody has moved, and nobody has written a line."""
    return judge_ranks([replace(look, silent=look.silent + seconds) for look in observations])


def _restart_sentence(observations: Sequence[RankObservation]) -> str:
    """That torchrun has started ranks again, and what failed before it did; "" where it has not."""
    count = max((look.restarts for look in observations), default=0)
    if not count:
        return ""
    text = f"torchrun has started its ranks again {'once' if count == 1 else f'{count} times'}"
    known = [(look.earlier_error, look.pod) for look in observations if look.earlier_error and look.restarts == count]
    if not known:
        return (
            f"{text}; what failed left no error file (programs under torch's `@record` write one), so its log may tell."
        )
    error, pod = min(known, key=lambda each: (each[0].secondary, each[0].at))
    local_rank = "a rank" if error.rank is None else f"local rank {error.rank}"
    return f"{text}{', the last time' if count > 1 else ''} after {local_rank} of pod {pod} had failed: {error}."


def _failed_verdict(observations: Sequence[RankObservation], failed: Sequence[RankObservation]) -> Verdict:
    """What failed first is the cause; the others wait for it, or fail later."""
    first = min(failed, key=lambda look: (look.error.at if look.error else 0.0) or float("inf"))
    text = f"{first.rank} (pod {first.pod}, node {first.node}) has failed and does not end: {first.error}"
    if first.stack is not None:
        text += f"; it is at {_place_of(first)}, {_activity_text(first)}"
    others = [look for look in observations if look is not first]
    if waiting := [look for look in others if look.awaited_collective and not look.moved and not look.is_failed]:
        text += (
            f"; {_count_text(waiting, others)} {'waits' if len(waiting) == 1 else 'wait'} in {_common_wait(waiting)}"
        )
    return Verdict("failed", f"{text}.", (first.rank,))


def _stopped_verdict(observations: Sequence[RankObservation], stopped: Sequence[RankObservation]) -> Verdict:
    first = stopped[0]
    names = join_names([look.rank for look in stopped])
    location = f" (pod {first.pod}, node {first.node}, pid {first.pid})" if len(stopped) == 1 else ""
    text = f"{names} {'is' if len(stopped) == 1 else 'are'} stopped by a signal (SIGSTOP or a debugger){location}"
    if first.stack is not None and len(stopped) == 1:
        text += f" at {_place_of(first)}"
    others = [look for look in observations if look.state != STOPPED]
    if waiting := [look for look in others if look.awaited_collective]:
        text += f"; {_count_text(waiting, others)} {'waits' if len(waiting) == 1 else 'wait'} for it in {_common_wait(waiting)}"
    return Verdict(
        "stopped", f"{text}. `{first.reach}kill -CONT {first.pid}` continues it.", tuple(look.rank for look in stopped)
    )


def _behind_verdict(waiting: Sequence[RankObservation], not_waiting: Sequence[RankObservation]) -> Verdict:
    straggler = not_waiting[0] if len(not_waiting) == 1 else None
    kind = "behind" if all(look.is_standing_still for look in not_waiting) else "slow"
    waiting_text = (
        f"{_count_text(waiting, waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {_common_wait(waiting)}"
    )
    if straggler is None:
        places = join_names([f"{look.rank} at {_place_of(look)}" for look in not_waiting], 3)
        return Verdict(kind, f"{waiting_text}; not there yet: {places}.", tuple(look.rank for look in not_waiting))
    activity = _activity_text(straggler)
    text = f"{straggler.rank} (pod {straggler.pod}, node {straggler.node}) keeps the others waiting: it is at {_place_of(straggler)}, {activity}; {waiting_text}"
    return Verdict(kind, f"{text}.", (straggler.rank,))


def _all_waiting_verdict(waiting: Sequence[RankObservation]) -> Verdict:
    """All wait: for each other."""
    calls = Counter(look.awaited_collective for look in waiting)
    if len(calls) > 1:
        (common_call, _), *_ = calls.most_common(1)
        outliers = [look for look in waiting if look.awaited_collective != common_call]
        places = join_names([f"{look.rank} in {look.awaited_collective} at {_place_of(look)}" for look in outliers], 3)
        other = next(look for look in waiting if look.awaited_collective == common_call)
        text = f"The ranks wait in different collectives: {places}, the others in {common_call} at {_place_of(other)}"
        return Verdict(
            "mismatch",
            f"{text}; every rank must call the same ones in the same order.",
            tuple(o.rank for o in outliers),
        )
    if all(look.cpu > _BUSY for look in waiting) or (
        next(iter(calls)) == "backward" and any(w.cpu > _IDLE for w in waiting)
    ):
        return Verdict("moving", f"All ranks are in {next(iter(calls))} and compute.")
    silent = min(look.silent for look in waiting)
    text = (
        f"All {len(waiting)} ranks wait in {_common_wait(waiting)} and none moves, silent for {format_duration(silent)}"
    )
    return Verdict("stuck", f"{text}: a message between them was lost, or they sent different sizes.")


def _moving_sentence(observations: Sequence[RankObservation]) -> str:
    busy = sum(look.cpu for look in observations)
    places = Counter(look.stack.place for look in observations if look.stack is not None)
    place_text = f", most at {places.most_common(1)[0][0]}" if places else ""
    return f"Nothing hangs: {len(observations)} rank{'s' if len(observations) > 1 else ''}, {busy:.1f} CPUs in use{place_text}."


def _activity_text(look: RankObservation) -> str:
    share = f"{look.cpu * 100:.0f}% of a CPU"
    activity = (
        "computing" if look.cpu > _BUSY else "asleep or waiting for something else" if look.cpu < _IDLE else "at work"
    )
    return f"{activity} ({share}), silent for {format_duration(look.silent)}"


def _place_of(look: RankObservation) -> str:
    if look.stack is None:
        return "an unknown place"
    library_call = look.stack.library_call
    if (
        not library_call or look.awaited_collective or library_call == look.stack.place
    ):  # the same: nothing but a library's
        return look.stack.place
    return f"{look.stack.place} in {library_call}"


def _common_wait(waiting: Sequence[RankObservation]) -> str:
    """The call that most wait in, and where."""
    (collective, place), _ = Counter((look.awaited_collective, _place_of(look)) for look in waiting).most_common(1)[0]
    call = "the backward pass (where gradients are averaged)" if collective == "backward" else collective
    return f"{call} at {place}"


def _count_text(subset: Sequence[RankObservation], everyone: Sequence[RankObservation]) -> str:
    if len(subset) == 1:
        return subset[0].rank
    return f"{len(subset)} ranks" if len(subset) < len(everyone) or len(subset) > 2 else "both other ranks"
