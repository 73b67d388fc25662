"""What would happen to a gang that does not exist yet: runs the real planner on a copy of the cluster; nothing is written.

`DryRunPlanner` takes a snapshot and gangs that might be submitted. It plans one cycle with them as the youngest of their queues, and
reports where each would start, which pods would be evicted for it, or why it would wait. For a gang that waits it also tries smaller or
preemptible versions with the same planner, and reports those that would start: a hint that was tested, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock.scheduling.actions.allocate import Failure, Reason
from rowlock.scheduling.explain.explanations import Explainer, Explanation
from rowlock.scheduling.model.gang_state import GangState
from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, PodSet, Shape, Snapshot, Status
from rowlock.scheduling.plan import Hold, Plan, PlannedEviction
from rowlock.scheduling.planner import Planner

STARTS, STARTS_AFTER, WAITS = "starts", "startsAfter", "waits"
"""The gang would start now; start once terminating pods have ended; wait."""
MAX_NODES_NAMED = 8
"""Maximum of nodes named in a message; the record has all."""


@dataclass(frozen=True, slots=True)
class DryRunOutcome:
    """What would happen to one gang. `places`: (pod, node, indices of its GPUs)."""

    gang: str
    verdict: str
    message: str
    places: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    evicted: tuple[PlannedEviction, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    """Changes with which the gang would start, each of them tested."""
    explanation: str = ""
    """Why it would wait: the message without the gang's name."""

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "gang": self.gang,
            "verdict": self.verdict,
            "message": self.message,
            "places": [{"pod": p, "node": n, "cards": list(c)} for p, n, c in self.places],
            "evicted": [{"pod": f"{e.namespace}/{e.pod}", "act": e.action} for e in self.evicted],
            "record": self.record,
            "changes": list(self.changes),
        }


class DryRunPlanner:
    """Tries gangs in one session, and removes them again."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.planner = Planner(open_session(snapshot))

    def dry_run(self, gangs: Sequence[Gang]) -> list[DryRunOutcome]:
        """The outcomes if all these gangs were submitted together, in this order."""
        outcomes = self._plan_gangs(gangs)
        return [
            replace(outcome, changes=tuple(self._helpful_changes(gang))) if outcome.verdict == WAITS else outcome
            for gang, outcome in zip(gangs, outcomes, strict=True)
        ]

    def _plan_gangs(self, gangs: Sequence[Gang]) -> list[DryRunOutcome]:
        session, pending_gangs = self.planner.session, self.planner.pending_gangs
        for gang in gangs:
            pending_gangs.put_gang(session.put_gang(gang))
        plan = self.planner.run_cycle(keep_plan=True)
        holds = {h.gang: h for h in self.planner.holds()}
        outcomes = [self._build_outcome(session.gangs[g.key], plan, holds.get(g.key)) for g in gangs]
        self.planner.reset()
        for gang in gangs:
            pending_gangs.drop_gang(gang.key)
            session.drop_gang(gang.key)
        return outcomes

    def _build_outcome(self, state: GangState, plan: Plan, hold: Hold | None) -> DryRunOutcome:
        gang = state.gang
        tasks = [t for t in state.tasks if t.status in (Status.ALLOCATED, Status.PIPELINED)]
        places = tuple((t.task.name, t.node, t.devices) for t in tasks)
        evicted = tuple(e for e in plan.evictions if e.preemptor == gang.key)
        total = len(gang.tasks)
        if any(t.status is Status.ALLOCATED for t in tasks):
            text = f"{_title(gang)} would start now: {_pods_text(len(places), total)} on {_nodes_text(places)}."
            return DryRunOutcome(gang.key, STARTS, text + self._evictions_text(evicted), places, evicted)
        if places:
            text = f"{_title(gang)} would start when resources are free: {_pods_text(len(places), total)} on {_nodes_text(places)}."
            return DryRunOutcome(gang.key, STARTS_AFTER, text + self._evictions_text(evicted), places, evicted)
        hold = hold or Hold(gang.key, Failure(Reason.NOT_READY, task="It has no pods that could be placed"))
        explanation = Explainer(self.planner.session).explain(hold)
        assert explanation is not None, "the gang is in the world"
        text = _explanation_text(explanation)
        message = f"{_title(gang)} would wait: {text}"
        return DryRunOutcome(gang.key, WAITS, message, record=explanation.record, explanation=text)

    def _evictions_text(self, evicted: Sequence[PlannedEviction]) -> str:
        if not evicted:
            return ""
        gangs = list(dict.fromkeys(_title(self.planner.session.gangs[e.gang].gang) for e in evicted))
        some = ", ".join(gangs[:3]) + (f" and {len(gangs) - 3} more" if len(gangs) > 3 else "")
        pods = "1 pod" if len(evicted) == 1 else f"{len(evicted)} pods"
        acts = " and ".join(sorted({e.action for e in evicted}))
        return f" For it {pods} of {some} would be evicted ({acts})."

    # ------------------------------------------------------------ what would help

    def _helpful_changes(self, gang: Gang) -> Iterator[str]:
        """Changes with which the gang would start now, or once evicted pods have ended; tested one at a time."""
        if not gang.preemptible and self._would_start(replace(gang, preemptible=True, priority=min(gang.priority, 75))):
            yield "submit it as preemptible (it may then be taken back by others within their quota)"
        fewer = self._most_pods_that_start(gang)
        if fewer:
            yield f"ask for {fewer} pods instead of {len(gang.tasks)}"
        if any(t.shape.gpus > 1 for t in gang.tasks) and (less := self._most_gpus_that_start(gang)):
            yield f"ask for {less} GPU{'s' if less > 1 else ''} per pod"

    def _would_start(self, gang: Gang) -> bool:
        return self._plan_gangs([gang])[0].verdict != WAITS

    def _most_pods_that_start(self, gang: Gang) -> int:
        """The largest number of pods with which the gang would start, reducing its most frequent pod shape; 0 if no number helps."""
        most_common = Counter((t.pod_set, t.shape) for t in gang.tasks).most_common(1)
        if not most_common:
            return 0
        (kind, pod_count), low = most_common[0], 0
        high = pod_count - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._would_start(shrink_gang(gang, kind, middle)) else (low, middle - 1)
        return len(shrink_gang(gang, kind, low).tasks) if low and self._would_start(shrink_gang(gang, kind, low)) else 0

    def _most_gpus_that_start(self, gang: Gang) -> int:
        most = max(t.shape.gpus for t in gang.tasks)
        for count in range(most - 1, 0, -1):
            tasks = (replace(t, shape=replace(t.shape, gpus=min(count, t.shape.gpus))) for t in gang.tasks)
            if self._would_start(replace(gang, tasks=tuple(tasks))):
                return count
        return 0


def shrink_gang(gang: Gang, kind: tuple[str, Shape], count: int) -> Gang:
    """The gang with at most `count` pods of one (pod set, shape); the set's minimum is reduced accordingly."""
    kept_tasks = [t for t in gang.tasks if (t.pod_set, t.shape) == kind][:count]
    tasks = tuple(t for t in gang.tasks if (t.pod_set, t.shape) != kind or t in kept_tasks)
    removed = len(gang.tasks) - len(tasks)
    sets = tuple(PodSet(s.name, max(1, s.minimum - removed)) if s.name == kind[0] else s for s in gang.pod_sets)
    return replace(gang, tasks=tasks, pod_sets=sets)


def _title(gang: Gang) -> str:
    """The gang's name for messages: the job's name if a job owns it."""
    return f"{gang.namespace}/{gang.owner[2]}" if gang.owner[2] and not gang.bare else gang.display_name


def _explanation_text(explanation: Explanation) -> str:
    reason = "" if explanation.message.startswith(str(explanation.reason)) else f"{explanation.reason}: "
    return reason + explanation.message


def _pods_text(placed: int, total: int) -> str:
    if placed < total:
        return f"{placed} of {total} pods"
    return "1 pod" if total == 1 else f"{total} pods"


def _nodes_text(places: Sequence[tuple[str, str, tuple[int, ...]]]) -> str:
    """`nodes a (4 pods), b (4 pods)`; the fullest first."""
    counts: dict[str, int] = {}
    for _, node, _ in places:
        counts[node] = counts.get(node, 0) + 1
    ordered = sorted(counts, key=lambda n: (-counts[n], n))
    text = ", ".join(n if len(places) == 1 else f"{n} ({counts[n]})" for n in ordered[:MAX_NODES_NAMED])
    more = len(ordered) - MAX_NODES_NAMED
    return f"node{'s' if len(ordered) > 1 else ''} {text}" + (f" and {more} more" if more > 0 else "")
