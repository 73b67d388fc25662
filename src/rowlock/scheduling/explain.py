"""Why a gang waits: one word, one sentence with numbers, and the record that REST, CLI and describe show.

Made from the failure of the very attempt that decided, against the world as it is; nothing is worked out afresh that
the decision did not see. `what_if.py` answers the same question for a gang that does not exist yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rowlock.objects import timestamp
from rowlock.scheduling import sentences
from rowlock.scheduling.allocate import Failure, Reason
from rowlock.scheduling.amounts import CPU, GPU, MEMORY, UNLIMITED, WHOLE, describe, gpus, words
from rowlock.scheduling.histogram import Histogram, survey, verdict
from rowlock.scheduling.order import wanted
from rowlock.scheduling.plan import Hold
from rowlock.scheduling.reserve import held_up
from rowlock.scheduling.snapshot import Shape
from rowlock.scheduling.world import GangState, QueueState, World


@dataclass(frozen=True, slots=True)
class Explanation:
    """`kube` is the message for a bare pod's condition, in the kube-scheduler's words where those say it all."""

    reason: Reason
    message: str
    kube: str
    record: dict[str, Any]


class Explainer:
    """Explains holds of one cycle; surveys each shape once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.surveys: dict[Shape, Histogram] = {}

    def explain(self, hold: Hold) -> Explanation | None:
        state = self.world.gangs.get(hold.gang)
        if state is None:
            return None
        failure = self._refine(state, hold.failure)
        message, hint = _sentence(self.world, state, failure, self._survey(failure))
        more, kept = sentences.kept(self.world, state)
        found = self._survey(failure)
        if failure.reason in (Reason.DOES_NOT_FIT, Reason.EXHAUSTED) and self._never(state):
            hint = self._too_much(found)
        kube = verdict(found) if found is not None and _plain(failure) else message
        record = self._record(state, failure, hold, hint) | ({"kept": kept} if kept else {})
        return Explanation(failure.reason, message + more, kube, record)

    def _too_much(self, found: Histogram | None) -> str:
        less = f"ask for {words(GPU, self.capacity)} or less in all"
        if found is not None and found.shut is not None:
            return _open(less, found)
        return f"{less}, or add nodes: the cluster has no more"

    @cached_property
    def capacity(self) -> int:
        """All cards of all nodes that take pods, in hundredths."""
        return sum(s.node.gpus for s in self.world.order if s.node.ready and not s.node.unschedulable) * WHOLE

    def _never(self, state: GangState) -> bool:
        """Waiting would not help: even an empty cluster has too few cards."""
        return self.world.need(wanted(state))[GPU] > self.capacity

    def _survey(self, failure: Failure) -> Histogram | None:
        if failure.shape is None:
            return None
        if failure.shape not in self.surveys:
            self.surveys[failure.shape] = survey(self.world, failure.shape)
        return self.surveys[failure.shape]

    def _refine(self, state: GangState, failure: Failure) -> Failure:
        """`GangDoesNotFit` has more exact names."""
        found = self._survey(failure)
        if failure.reason is not Reason.DOES_NOT_FIT or found is None or failure.shape is None:
            return failure
        if sentences.too_large_for_any_region(self.world, state):
            return replace(failure, reason=Reason.TOPOLOGY)
        if held_up(self.world, state):
            return replace(failure, reason=Reason.RESERVED)
        shape = failure.shape
        need = self.world.need(wanted(state))
        reason: Reason = failure.reason
        if found.nodes and found.barred == found.nodes:
            reason = Reason.SELECTOR
        elif not found.usable:
            reason = Reason.TOO_LARGE
        elif shape.gpus and found.free_gpus * WHOLE >= need[GPU]:
            lacking = [o for o in found.obstacles if o.startswith("Insufficient") and "gpu" not in o]
            reason = Reason.DOES_NOT_FIT if lacking else Reason.FRAGMENTED
        elif _exhausted(state):
            reason = Reason.EXHAUSTED
        return replace(failure, reason=reason)

    def _record(self, state: GangState, failure: Failure, hold: Hold, hint: str) -> dict[str, Any]:
        tasks = wanted(state)
        record: dict[str, Any] = {
            "reason": str(failure.reason),
            "podsFit": failure.fit,
            "podsNeeded": failure.needed or len(tasks),
            "requested": describe(self.world.need(tasks)),
            "queue": [_queue_record(q) for q in state.queue.path] if state.queue else [],
            "ahead": hold.ahead,
            "hint": hint,
        }
        found = self._survey(failure)
        if found is not None:
            record["nodes"] = {
                "total": found.nodes,
                "obstacles": dict(sorted(found.obstacles.items())),
                "freeGpus": found.free_gpus,
                "best": {"node": found.best_node, "freeGpus": found.best_free},
            }
        holders = _holders(self.world, state)
        if holders:
            record["holders"] = holders
        return record


def _plain(failure: Failure) -> bool:
    special = failure.reason in (Reason.RESERVED, Reason.TOPOLOGY)
    return failure.shape is not None and not failure.shape.unsupported and not special


def _exhausted(state: GangState) -> bool:
    q = state.queue
    return q is not None and state.gang.preemptible and q.fair[GPU] > 0 and q.counted[GPU] >= q.fair[GPU]


def _queue_record(q: QueueState) -> dict[str, str]:
    return {
        "name": q.queue.name,
        "allocated": describe(q.counted),
        "quota": words(GPU, q.queue.quota[GPU]),
        "fairShare": words(GPU, q.fair[GPU]),
        "limit": words(GPU, q.queue.limit[GPU]),
    }


def _holders(world: World, state: GangState) -> list[dict[str, str]]:
    """Who holds GPUs beyond their quota: the three largest."""
    over = [
        (q.counted[GPU] - max(0, q.queue.quota[GPU]), q)
        for q in world.queues.values()
        if not q.children and q is not state.queue and q.queue.quota[GPU] != UNLIMITED
    ]
    over = [o for o in over if o[0] > 0]
    over.sort(key=lambda o: (-o[0], o[1].queue.name))
    return [{"queue": q.queue.name, "overQuota": words(GPU, amount)} for amount, q in over[:3]]


def _each(shape: Shape) -> str:
    parts = []
    if shape.gpus:
        parts.append(f"{shape.gpus} GPU{'s' if shape.gpus > 1 else ''}")
    elif shape.portion:
        parts.append(f"{gpus(shape.portion)} of {shape.devices} GPU{'s' if shape.devices > 1 else ''}")
    elif shape.gpu_memory:
        parts.append(f"{shape.gpu_memory} MiB of {shape.devices} GPU{'s' if shape.devices > 1 else ''}")
    parts += [words(r, v) for r, v in ((0, shape.cpu), (1, shape.memory)) if v]
    parts += [f"{value} {name}" for name, value in shape.extras]
    return ", ".join(parts) or "nothing special"


def _largest(shape: Shape, found: Histogram) -> str:
    """What of the lacking resource one node has; GPUs when it is not CPU or memory."""
    most = {CPU: found.most_cpu, MEMORY: found.most_memory}
    lacking = [words(r, most[r]) for r, asked in ((CPU, shape.cpu), (MEMORY, shape.memory)) if asked > most[r]]
    if not lacking and found.biggest >= shape.cards and shape.gpu_memory > found.most_card:
        return f"the largest card has {found.most_card} MiB"
    return f"the largest node has {' and '.join(lacking) or words(GPU, found.biggest * WHOLE)}"


def _nodes(found: Histogram) -> str:
    reasons = ", ".join(sorted(f"{count} {text}" for text, count in found.obstacles.items()))
    free = f"{found.free_gpus} GPU{'s' if found.free_gpus != 1 else ''} free"
    return f"{found.nodes} node{'s' if found.nodes != 1 else ''}: {reasons or free}"


def _sentence(world: World, state: GangState, failure: Failure, found: Histogram | None) -> tuple[str, str]:
    """(sentence, hint: what change would let it start)."""
    reason, queue = failure.reason, failure.queue
    match reason:
        case Reason.NOT_READY:
            return f"{failure.task}.", "wait until all pods are created"
        case Reason.QUEUE_MISSING:
            return _queue_sentence(world, queue)
        case Reason.RELEASING:
            return "Room is promised: it starts when the pods that leave its nodes have gone.", "wait"
        case Reason.PROTECTED:
            until = timestamp(world.now + failure.seconds)
            return (
                f"It may take room from others, but they are protected by their queue's min-runtime until {until}.",
                f"wait until {until}",
            )
        case Reason.OVER_LIMIT:
            return _limit_sentence(failure)
        case Reason.OVER_QUOTA:
            return _quota_sentence(failure)
        case Reason.RESERVED:
            return sentences.reserved(world, state, failure)
        case Reason.TOPOLOGY:
            return sentences.topology(world, state, failure)
        case Reason.UNSUPPORTED:
            return f"{failure.shape.unsupported if failure.shape else ''}.", "change the pod template"
    if found is None or failure.shape is None:
        return f"{reason}: waiting.", "wait"
    return _room_sentence(state, failure, found)


def _queue_sentence(world: World, name: str) -> tuple[str, str]:
    state = world.queues.get(name)
    if state is None:
        return f"Queue '{name}' does not exist.", f"create the queue {name}, or name another in spec.queue"
    if state.children:
        some = ", ".join(c.queue.name for c in state.children[:3])
        return f"Queue '{name}' is a department; jobs run in its projects ({some}).", f"use one of: {some}"
    return (
        f"Queue '{name}' hangs below '{state.queue.parent}', which does not exist or leads in a circle.",
        f"create the queue {state.queue.parent}, or correct spec.parentQueue of {name}",
    )


def _held(resource: int, amount: int) -> str:
    text = words(resource, amount)
    return f"{text} {'are' if text.endswith('s') else 'is'}"


def _limit_sentence(failure: Failure) -> tuple[str, str]:
    r = failure.resource
    room = max(0, failure.bound - failure.counted)
    return (
        f"OverLimit: {failure.queue} may hold at most {words(r, failure.bound)}, {_held(r, failure.counted)} held, "
        f"this job asks {words(r, failure.asked)}.",
        f"ask for {words(r, room)} or less, wait for others of {failure.queue}, or raise its limit",
    )


def _quota_sentence(failure: Failure) -> tuple[str, str]:
    r = failure.resource
    room = max(0, failure.bound - failure.counted)
    return (
        f"NonPreemptibleOverQuota: {failure.queue} may hold {words(r, failure.bound)} non-preemptibly, "
        f"{_held(r, failure.counted)} held, this job asks {words(r, failure.asked)}.",
        f"submit it as preemptible, or ask for {words(r, room)}",
    )


def _open(otherwise: str, found: Histogram, *, alone: bool = False) -> str:
    """What helps where a node that takes no pods could hold it; `alone`: then nothing else does."""
    if found.shut is None:
        return otherwise
    node = f"open node {found.shut.name}, which {sentences.shut(found.shut)}"
    return node if alone else f"{otherwise}, or {node}"


def _room_sentence(state: GangState, failure: Failure, found: Histogram) -> tuple[str, str]:
    shape = failure.shape or Shape()
    fit = f"{failure.fit} of {failure.needed} pods fit"
    each = _each(shape)
    where = _nodes(found)
    match failure.reason:
        case Reason.SELECTOR:
            return (
                f"No node may take it ({where}); {fit}.",
                _open("change nodeSelector, affinity or tolerations, or the nodes", found, alone=True),
            )
        case Reason.TOO_LARGE:
            return (
                f"No node is large enough: each pod needs {each}; {_largest(shape, found)}; {where}.",
                _open("ask for less per pod", found),
            )
        case Reason.FRAGMENTED:
            return (
                f"Fragmented: {found.free_gpus} GPUs are free but at most {found.best_free} on one node "
                f"({found.best_node}); each pod needs {each} on one node. {fit}.",
                f"ask for at most {found.best_free} GPUs per pod",
            )
        case Reason.EXHAUSTED if state.queue is not None:
            q = state.queue
            return (
                f"FairShareExhausted: {q.queue.name} uses {words(GPU, q.counted[GPU])} (quota "
                f"{gpus(q.queue.quota[GPU])}, fair share {gpus(q.fair[GPU])}) and no room is idle. {fit}.",
                "wait for pods to finish, or raise the quota",
            )
    return f"Each pod needs {each}; {fit} now ({where}).", _open("wait for pods to finish, or ask for less", found)
