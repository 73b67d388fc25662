"""What would become of a gang that does not exist yet: the real planner, on a copy of the cluster; nothing is written.

`Rehearsal` takes a snapshot and gangs that might be submitted. It plays one cycle with them in the queue as the
youngest, and reads off where each would start, for whom others would have to leave, or the sentence why it would wait.
For one that waits it tries smaller or more obedient versions of it, with the same planner, and reports those that
would start: a hint that was tested, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock.scheduling.allocate import Failure, Reason
from rowlock.scheduling.explain import Explainer, Explanation
from rowlock.scheduling.plan import Evict, Hold, Plan
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.snapshot import Gang, PodSet, Shape, Snapshot, Status
from rowlock.scheduling.world import GangState, build

STARTS, AFTER, WAITS = "starts", "startsAfter", "waits"
"""It would start now; when those who must yield have left; not now."""
NAMED = 8
"""Nodes that a sentence names; the record has all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would happen to one gang. `places` are (pod, node, cards)."""

    gang: str
    verdict: str
    message: str
    places: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    evicted: tuple[Evict, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    """Changes with which it would start now, each of them tried."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "gang": self.gang,
            "verdict": self.verdict,
            "message": self.message,
            "places": [{"pod": p, "node": n, "cards": list(c)} for p, n, c in self.places],
            "evicted": [{"pod": f"{e.namespace}/{e.pod}", "act": e.act} for e in self.evicted],
            "record": self.record,
            "changes": list(self.changes),
        }


class Rehearsal:
    """One world, built once, in which gangs are tried and taken out again."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.planner = Planner(build(snapshot))

    def ask(self, gangs: Sequence[Gang]) -> list[Outcome]:
        """All of them submitted together, in this order."""
        found = self._try(gangs)
        return [
            replace(outcome, changes=tuple(self._changes(gang))) if outcome.verdict == WAITS else outcome
            for gang, outcome in zip(gangs, found, strict=True)
        ]

    def _try(self, gangs: Sequence[Gang]) -> list[Outcome]:
        world, waiting = self.planner.world, self.planner.waiting
        for gang in gangs:
            waiting.put(world.put_gang(gang))
        plan = self.planner.cycle(keep=True)
        holds = {h.gang: h for h in self.planner.holds()}
        found = [self._outcome(world.gangs[g.key], plan, holds.get(g.key)) for g in gangs]
        self.planner.reset()
        for gang in gangs:
            waiting.drop(gang.key)
            world.drop_gang(gang.key)
        return found

    def _outcome(self, state: GangState, plan: Plan, hold: Hold | None) -> Outcome:
        gang = state.gang
        tasks = [t for t in state.tasks if t.status in (Status.ALLOCATED, Status.PIPELINED)]
        places = tuple((t.task.name, t.node, t.devices) for t in tasks)
        evicted = tuple(e for e in plan.evicts if e.by == gang.key)
        total = len(gang.tasks)
        if any(t.status is Status.ALLOCATED for t in tasks):
            text = f"{_title(gang)} would start now: {_pods(len(places), total)} on {_nodes(places)}."
            return Outcome(gang.key, STARTS, text + _leavers(evicted), places, evicted)
        if places:
            text = f"{_title(gang)} would start when room is free: {_pods(len(places), total)} on {_nodes(places)}."
            return Outcome(gang.key, AFTER, text + _leavers(evicted), places, evicted)
        hold = hold or Hold(gang.key, Failure(Reason.NOT_READY, task="It has no pods that could be placed"))
        why = Explainer(self.planner.world).explain(hold)
        assert why is not None, "the gang is in the world"
        return Outcome(gang.key, WAITS, f"{_title(gang)} would wait: {_told(why)}", record=why.record)

    # ------------------------------------------------------------ what would help

    def _changes(self, gang: Gang) -> Iterator[str]:
        """Changes with which it would start now (or when others have yielded), tried one at a time."""
        if not gang.preemptible and self._starts(replace(gang, preemptible=True, priority=min(gang.priority, 75))):
            yield "submit it as preemptible (it may then be taken back by others within their quota)"
        fewer = self._fewer(gang)
        if fewer:
            yield f"ask for {fewer} pods instead of {len(gang.tasks)}"
        if any(t.shape.gpus > 1 for t in gang.tasks) and (less := self._smaller(gang)):
            yield f"ask for {less} GPU{'s' if less > 1 else ''} per pod"

    def _starts(self, gang: Gang) -> bool:
        return self._try([gang])[0].verdict != WAITS

    def _fewer(self, gang: Gang) -> int:
        """The most pods with which it starts, taken off its most numerous equal ones; 0 when none would help."""
        like = Counter((t.pod_set, t.shape) for t in gang.tasks).most_common(1)
        if not like:
            return 0
        (kind, many), low = like[0], 0
        high = many - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._starts(shrunk(gang, kind, middle)) else (low, middle - 1)
        return len(shrunk(gang, kind, low).tasks) if low and self._starts(shrunk(gang, kind, low)) else 0

    def _smaller(self, gang: Gang) -> int:
        most = max(t.shape.gpus for t in gang.tasks)
        for count in range(most - 1, 0, -1):
            tasks = (replace(t, shape=replace(t.shape, gpus=min(count, t.shape.gpus))) for t in gang.tasks)
            if self._starts(replace(gang, tasks=tuple(tasks))):
                return count
        return 0


def shrunk(gang: Gang, kind: tuple[str, Shape], count: int) -> Gang:
    """The gang with only so many of its pods of one set and shape; the set's minimum shrinks with them."""
    kept = [t for t in gang.tasks if (t.pod_set, t.shape) == kind][:count]
    tasks = tuple(t for t in gang.tasks if (t.pod_set, t.shape) != kind or t in kept)
    gone = len(gang.tasks) - len(tasks)
    sets = tuple(PodSet(s.name, max(1, s.minimum - gone)) if s.name == kind[0] else s for s in gang.pod_sets)
    return replace(gang, tasks=tasks, pod_sets=sets)


def _title(gang: Gang) -> str:
    """For people: the job's name where a job owns it."""
    return f"{gang.namespace}/{gang.owner[2]}" if gang.owner[2] else gang.title


def _told(why: Explanation) -> str:
    reason = "" if why.message.startswith(str(why.reason)) else f"{why.reason}: "
    return reason + why.message


def _pods(placed: int, total: int) -> str:
    if placed < total:
        return f"{placed} of {total} pods"
    return "1 pod" if total == 1 else f"{total} pods"


def _nodes(places: Sequence[tuple[str, str, tuple[int, ...]]]) -> str:
    """`nodes a (4 pods), b (4 pods)`; the fullest first."""
    counts: dict[str, int] = {}
    for _, node, _ in places:
        counts[node] = counts.get(node, 0) + 1
    ordered = sorted(counts, key=lambda n: (-counts[n], n))
    text = ", ".join(n if len(places) == 1 else f"{n} ({counts[n]})" for n in ordered[:NAMED])
    more = len(ordered) - NAMED
    return f"node{'s' if len(ordered) > 1 else ''} {text}" + (f" and {more} more" if more > 0 else "")


def _leavers(evicted: Sequence[Evict]) -> str:
    if not evicted:
        return ""
    gangs = list(dict.fromkeys(e.gang.replace("/pod/", "/") for e in evicted))
    some = ", ".join(gangs[:3]) + (f" and {len(gangs) - 3} more" if len(gangs) > 3 else "")
    pods = "1 pod" if len(evicted) == 1 else f"{len(evicted)} pods"
    acts = " and ".join(sorted({e.act for e in evicted}))
    return f" For it {pods} of {some} would have to yield ({acts})."
