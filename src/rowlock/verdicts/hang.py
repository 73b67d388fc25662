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

from rowlock.verdicts.failure import listed, span
from rowlock.verdicts.stacks import Stack

STOPPED = "T"
"""The state of a process that was stopped by a signal, as in /proc."""
_IDLE, _BUSY = 0.1, 0.9
"""Shares of one CPU."""


@dataclass(frozen=True, slots=True)
class Look:
    """One rank, looked at. `cpu`: CPUs it used lately; `silent`: seconds since it wrote its last line."""

    rank: str
    pod: str
    node: str
    pid: int = 0
    state: str = "S"
    cpu: float = 0.0
    silent: float = 0.0
    stack: Stack | None = None
    moved: bool = True
    """Its stack was another one a moment before."""
    blind: str = ""
    """Why there is no stack."""

    @property
    def stands(self) -> bool:
        """It makes no progress that could be seen."""
        return self.state == STOPPED or (self.stack is not None and not self.moved)

    @property
    def waits(self) -> str:
        """The collective in which it waits for others; "" when it waits for nobody."""
        return "" if self.stack is None or self.state == STOPPED else self.stack.waits


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind`: stopped, behind, mismatch, stuck, slow, moving or blind; `culprits`: the ranks that it names."""

    kind: str
    sentence: str
    culprits: tuple[str, ...] = ()

    @property
    def hangs(self) -> bool:
        return self.kind in ("stopped", "behind", "mismatch", "stuck")

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "sentence": self.sentence, "culprits": list(self.culprits)}


def judge(looks: Sequence[Look]) -> Verdict:
    """The verdict over all running ranks of a job."""
    if stopped := [look for look in looks if look.state == STOPPED]:
        return _stopped(looks, stopped)
    seen = [look for look in looks if look.stack is not None]
    if not seen:
        why = next((look.blind for look in looks if look.blind), "no rank has a Python process")
        return Verdict("blind", f"Where the ranks stand cannot be seen: {why}.")
    waiting = [look for look in seen if look.waits and not look.moved]
    absent = [look for look in seen if not look.waits]
    if waiting and absent:
        return _behind(waiting, absent)
    if waiting and len(waiting) == len(seen) and len(seen) == len(looks) and len(looks) > 1:
        return _together(waiting)
    standing = [look for look in seen if look.stands]
    if len(looks) == 1 and standing and standing[0].cpu < _IDLE:
        only = standing[0]
        return Verdict("moving", f"{only.rank} is at {_at(only)} and uses no CPU; it waits for no other rank.")
    return Verdict("moving", _moving(looks))


def later(looks: Sequence[Look], seconds: float) -> Verdict:
    """The same verdict, told so long afterwards: nobody has moved, and nobody has written a line."""
    return judge([replace(look, silent=look.silent + seconds) for look in looks])


def _stopped(looks: Sequence[Look], stopped: Sequence[Look]) -> Verdict:
    one = stopped[0]
    who = listed([look.rank for look in stopped])
    where = f" (pod {one.pod}, node {one.node}, pid {one.pid})" if len(stopped) == 1 else ""
    said = f"{who} {'is' if len(stopped) == 1 else 'are'} stopped by a signal (SIGSTOP or a debugger){where}"
    if one.stack is not None and len(stopped) == 1:
        said += f" at {_at(one)}"
    others = [look for look in looks if look.state != STOPPED]
    if waiting := [look for look in others if look.waits]:
        said += f"; {_count(waiting, others)} {'waits' if len(waiting) == 1 else 'wait'} for it in {_common(waiting)}"
    return Verdict("stopped", f"{said}. `kill -CONT {one.pid}` lets it go on.", tuple(look.rank for look in stopped))


def _behind(waiting: Sequence[Look], absent: Sequence[Look]) -> Verdict:
    who = absent[0] if len(absent) == 1 else None
    kind = "behind" if all(look.stands for look in absent) else "slow"
    wait = f"{_count(waiting, waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {_common(waiting)}"
    if who is None:
        places = listed([f"{look.rank} at {_at(look)}" for look in absent], 3)
        return Verdict(kind, f"{wait}; not there yet: {places}.", tuple(look.rank for look in absent))
    doing = _doing(who)
    said = f"{who.rank} (pod {who.pod}, node {who.node}) keeps the others waiting: it is at {_at(who)}, {doing}; {wait}"
    return Verdict(kind, f"{said}.", (who.rank,))


def _together(waiting: Sequence[Look]) -> Verdict:
    """All wait: for each other."""
    calls = Counter(look.waits for look in waiting)
    if len(calls) > 1:
        (most, _), *_ = calls.most_common(1)
        odd = [look for look in waiting if look.waits != most]
        places = listed([f"{look.rank} in {look.waits} at {_at(look)}" for look in odd], 3)
        rest = next(look for look in waiting if look.waits == most)
        said = f"The ranks wait in different collectives: {places}, the others in {most} at {_at(rest)}"
        return Verdict(
            "mismatch", f"{said}; every rank must call the same ones in the same order.", tuple(o.rank for o in odd)
        )
    if all(look.cpu > _BUSY for look in waiting) or (
        next(iter(calls)) == "backward" and any(w.cpu > _IDLE for w in waiting)
    ):
        return Verdict("moving", f"All ranks are in {next(iter(calls))} and compute.")
    silent = min(look.silent for look in waiting)
    said = f"All {len(waiting)} ranks wait in {_common(waiting)} and none moves, silent for {span(silent)}"
    return Verdict("stuck", f"{said}: a message between them was lost, or they sent different sizes.")


def _moving(looks: Sequence[Look]) -> str:
    busy = sum(look.cpu for look in looks)
    places = Counter(look.stack.place for look in looks if look.stack is not None)
    most = f", most at {places.most_common(1)[0][0]}" if places else ""
    return f"Nothing hangs: {len(looks)} rank{'s' if len(looks) > 1 else ''}, {busy:.1f} CPUs in use{most}."


def _doing(look: Look) -> str:
    share = f"{look.cpu * 100:.0f}% of a CPU"
    what = (
        "computing" if look.cpu > _BUSY else "asleep or waiting for something else" if look.cpu < _IDLE else "at work"
    )
    return f"{what} ({share}), silent for {span(look.silent)}"


def _at(look: Look) -> str:
    if look.stack is None:
        return "an unknown place"
    inside = look.stack.inside
    return f"{look.stack.place} in {inside}" if inside and not look.waits else look.stack.place


def _common(waiting: Sequence[Look]) -> str:
    """The call that most wait in, and where."""
    (what, place), _ = Counter((look.waits, _at(look)) for look in waiting).most_common(1)[0]
    call = "the backward pass (where gradients are averaged)" if what == "backward" else what
    return f"{call} at {place}"


def _count(some: Sequence[Look], of: Sequence[Look]) -> str:
    if len(some) == 1:
        return some[0].rank
    return f"{len(some)} ranks" if len(some) < len(of) or len(some) > 2 else "both other ranks"
