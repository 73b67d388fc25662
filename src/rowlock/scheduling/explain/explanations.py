"""Why a gang waits: a reason of one word, a message with numbers, and the record that REST, CLI and describe show.

Made from the failure of the attempt that decided and the session at that time, so it states only what the decision was based on.
`what_if.py` answers the same question for a gang that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rowlock.objects import timestamp
from rowlock.scheduling.actions.allocate import Failure, Reason
from rowlock.scheduling.actions.reserve import is_blocked_by_reservation
from rowlock.scheduling.explain import sentences
from rowlock.scheduling.explain.fit_histogram import FitHistogram, build_histogram, unschedulable_message
from rowlock.scheduling.model.gang_state import GangState, QueueState, TaskState
from rowlock.scheduling.model.host_ports import is_port
from rowlock.scheduling.model.resources import (
    CPU,
    GPU,
    MEMORY,
    UNLIMITED,
    WHOLE_GPU,
    describe_resources,
    format_amount,
    format_gpus,
)
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Shape
from rowlock.scheduling.plan import Hold
from rowlock.scheduling.policy.order import tasks_to_allocate


@dataclass(frozen=True, slots=True)
class Explanation:
    """`kube_message` is the message for a bare pod's condition, in kube-scheduler's words where those are sufficient."""

    reason: Reason
    message: str
    kube_message: str
    record: dict[str, Any]


class Explainer:
    """Explains the holds of one cycle. The histogram of each shape is computed once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.histograms: dict[Shape, FitHistogram] = {}

    def explain(self, hold: Hold) -> Explanation | None:
        state = self.session.gangs.get(hold.gang)
        if state is None:
            return None
        failure = self._refine_failure(state, hold.failure)
        message, hint = _failure_sentence(self.session, state, failure, self._histogram(failure))
        reservation_note, reserved_nodes = sentences.reservation_note(self.session, state)
        histogram = self._histogram(failure)
        if failure.reason in (Reason.DOES_NOT_FIT, Reason.EXHAUSTED) and self._exceeds_capacity(state):
            hint = self._smaller_request_hint(histogram)
        kube_message = (
            unschedulable_message(histogram) if histogram is not None and _has_kube_message(failure) else message
        )
        record = self._build_record(state, failure, hold, hint) | ({"kept": reserved_nodes} if reserved_nodes else {})
        return Explanation(failure.reason, message + reservation_note, kube_message, record)

    def _smaller_request_hint(self, histogram: FitHistogram | None) -> str:
        hint = f"ask for {format_amount(GPU, self.gpu_capacity)} or less in all"
        if histogram is not None and histogram.closed_node is not None:
            return _open_node_hint(hint, histogram)
        return f"{hint}, or add nodes: the cluster has no more"

    @cached_property
    def gpu_capacity(self) -> int:
        """The GPUs of all nodes that take pods, in hundredths of a GPU."""
        return (
            sum(s.node.gpus for s in self.session.ordered_nodes if s.node.ready and not s.node.unschedulable)
            * WHOLE_GPU
        )

    def _exceeds_capacity(self, state: GangState) -> bool:
        """Whether the gang needs more GPUs than the empty cluster has, so that waiting would not help."""
        return self.session.total_cost(tasks_to_allocate(state))[GPU] > self.gpu_capacity

    def _histogram(self, failure: Failure) -> FitHistogram | None:
        if failure.shape is None:
            return None
        if failure.shape not in self.histograms:
            self.histograms[failure.shape] = build_histogram(self.session, failure.shape)
        return self.histograms[failure.shape]

    def _refine_failure(self, state: GangState, failure: Failure) -> Failure:
        """Replace the reason `GangDoesNotFit` by a more exact one, if there is one."""
        histogram = self._histogram(failure)
        if failure.reason is not Reason.DOES_NOT_FIT or histogram is None or failure.shape is None:
            return failure
        if sentences.is_too_large_for_any_domain(self.session, state):
            return replace(failure, reason=Reason.TOPOLOGY)
        if is_blocked_by_reservation(self.session, state):
            return replace(failure, reason=Reason.RESERVED)
        shape = failure.shape
        needed = self.session.total_cost(tasks_to_allocate(state))
        reason: Reason = failure.reason
        if histogram.nodes and histogram.excluded_nodes == histogram.nodes:
            reason = Reason.SELECTOR
        elif not histogram.usable_nodes:
            reason = Reason.TOO_LARGE
        elif shape.gpus and histogram.free_gpus * WHOLE_GPU >= needed[GPU]:
            lacking = [o for o in histogram.obstacles if o.startswith("Insufficient") and "gpu" not in o]
            reason = Reason.DOES_NOT_FIT if lacking else Reason.FRAGMENTED
        elif _is_fair_share_exhausted(state):
            reason = Reason.EXHAUSTED
        return replace(failure, reason=reason)

    def _build_record(self, state: GangState, failure: Failure, hold: Hold, hint: str) -> dict[str, Any]:
        tasks = tasks_to_allocate(state)
        record: dict[str, Any] = {
            "reason": str(failure.reason),
            "podsFit": failure.pods_fit,
            "podsNeeded": failure.pods_needed or len(tasks),
            "requested": _describe_request(self.session, tasks),
            "queue": [_queue_record(q) for q in state.queue.path] if state.queue else [],
            "ahead": hold.equals_ahead,
            "hint": hint,
        }
        histogram = self._histogram(failure)
        if histogram is not None:
            record["nodes"] = {
                "total": histogram.nodes,
                "obstacles": dict(sorted(histogram.obstacles.items())),
                "freeGpus": histogram.free_gpus,
                "best": {"node": histogram.best_node, "freeGpus": histogram.best_free_gpus},
            }
            if failure.shape is not None and (share := _describe_free_share(failure.shape, histogram)):
                record["nodes"]["freeShare"] = share
        over_quota = _over_quota_queues(self.session, state)
        if over_quota:
            record["holders"] = over_quota
        return record


def _has_kube_message(failure: Failure) -> bool:
    is_special = failure.reason in (Reason.RESERVED, Reason.TOPOLOGY)
    return failure.shape is not None and not failure.shape.held_back and not is_special


def _is_fair_share_exhausted(state: GangState) -> bool:
    q = state.queue
    return q is not None and state.gang.preemptible and q.fair_share[GPU] > 0 and q.allocated[GPU] >= q.fair_share[GPU]


def _queue_record(q: QueueState) -> dict[str, str]:
    return {
        "name": q.queue.name,
        "allocated": describe_resources(q.allocated),
        "quota": format_amount(GPU, q.queue.quota[GPU]),
        "fairShare": format_amount(GPU, q.fair_share[GPU]),
        "limit": format_amount(GPU, q.queue.limit[GPU]),
    }


def _over_quota_queues(session: Session, state: GangState) -> list[dict[str, str]]:
    """The three queues that hold most GPUs above their quota."""
    candidates = [
        (q.allocated[GPU] - max(0, q.queue.quota[GPU]), q)
        for q in session.queues.values()
        if not q.children and q is not state.queue and q.queue.quota[GPU] != UNLIMITED
    ]
    candidates = [o for o in candidates if o[0] > 0]
    candidates.sort(key=lambda o: (-o[0], o[1].queue.name))
    return [{"queue": q.queue.name, "overQuota": format_amount(GPU, amount)} for amount, q in candidates[:3]]


def _describe_free_share(shape: Shape, histogram: FitHistogram) -> str:
    """The largest free share of a GPU, in the unit of the request: "at most 1559 MiB free on a GPU (n1)"; "" for other requests, or if
    hundredths are requested and none is free."""
    if not (shape.gpu_memory or histogram.best_share) or not histogram.usable_nodes:
        return ""
    share = int(histogram.best_share) if shape.gpu_memory else histogram.best_share
    amount = f"{share} MiB" if shape.gpu_memory else format_gpus(share)
    cards = "a GPU" if shape.devices == 1 else f"each of {shape.devices} GPUs of a node"
    where = f" ({histogram.best_share_node})" if histogram.best_share_node else ""
    return f"at most {amount} free on {cards}{where}"


def _describe_request(session: Session, tasks: Sequence[TaskState]) -> str:
    """The total request of the gang, with GPU memory in MiB."""
    cost, memory = session.total_cost(tasks), sum(t.task.shape.gpu_memory * t.task.shape.devices for t in tasks)
    if not memory:
        return describe_resources(cost)
    by_portion = session.total_cost([t for t in tasks if not t.task.shape.gpu_memory])
    rest = describe_resources((cost[CPU], cost[MEMORY], by_portion[GPU]))
    return f"{memory} MiB of GPU memory" + (f", {rest}" if rest != "nothing" else "")


def _describe_shape(shape: Shape) -> str:
    parts = []
    if shape.gpus:
        parts.append(f"{shape.gpus} GPU{'s' if shape.gpus > 1 else ''}")
    elif shape.portion:
        parts.append(f"{format_gpus(shape.portion)} of {shape.devices} GPU{'s' if shape.devices > 1 else ''}")
    elif shape.gpu_memory:
        parts.append(f"{shape.gpu_memory} MiB of {shape.devices} GPU{'s' if shape.devices > 1 else ''}")
    parts += [format_amount(r, v) for r, v in ((0, shape.cpu), (1, shape.memory)) if v]
    parts += [name if is_port(name) else f"{value} {name}" for name, value in shape.extras]
    return ", ".join(parts) or "nothing special"


def _describe_largest_node(shape: Shape, histogram: FitHistogram) -> str:
    """The largest amount of the lacking resource on one node; of GPUs if CPU and memory suffice."""
    most = {CPU: histogram.most_cpu, MEMORY: histogram.most_memory}
    insufficient = [
        format_amount(r, most[r]) for r, asked in ((CPU, shape.cpu), (MEMORY, shape.memory)) if asked > most[r]
    ]
    if not insufficient and histogram.most_gpus >= shape.device_count and shape.gpu_memory > histogram.most_gpu_memory:
        return f"the largest card has {histogram.most_gpu_memory} MiB"
    return f"the largest node has {' and '.join(insufficient) or format_amount(GPU, histogram.most_gpus * WHOLE_GPU)}"


def _describe_nodes(histogram: FitHistogram) -> str:
    reasons = ", ".join(sorted(f"{count} {text}" for text, count in histogram.obstacles.items()))
    free = f"{histogram.free_gpus} GPU{'s' if histogram.free_gpus != 1 else ''} free"
    return f"{histogram.nodes} node{'s' if histogram.nodes != 1 else ''}: {reasons or free}"


def _failure_sentence(
    session: Session, state: GangState, failure: Failure, histogram: FitHistogram | None
) -> tuple[str, str]:
    """(message, hint: what change would let the gang start)."""
    reason, queue = failure.reason, failure.queue
    match reason:
        case Reason.NOT_READY:
            return f"{failure.task}.", "wait until all pods are created"
        case Reason.QUEUE_MISSING:
            return _queue_sentence(session, queue)
        case Reason.RELEASING:
            return "Room is promised: it starts when the pods that leave its nodes have gone.", "wait"
        case Reason.PROTECTED:
            until = timestamp(session.now + failure.seconds)
            return (
                f"It may preempt others, but their queue's min-runtime protects them until {until}.",
                f"wait until {until}",
            )
        case Reason.OVER_LIMIT:
            return _limit_sentence(failure)
        case Reason.OVER_QUOTA:
            return _quota_sentence(failure)
        case Reason.RESERVED:
            return sentences.reserved_sentence(session, state, failure)
        case Reason.TOPOLOGY:
            return sentences.topology_sentence(session, state, failure)
        case Reason.UNSUPPORTED:
            shape = failure.shape or Shape()
            hint = "change the pod template" if shape.unsupported else "wait for it, or use a class that does"
            return f"{shape.held_back}.", hint
    if histogram is None or failure.shape is None:
        return f"{reason}: waiting.", "wait"
    return _fit_sentence(state, failure, histogram)


def _queue_sentence(session: Session, name: str) -> tuple[str, str]:
    state = session.queues.get(name)
    if state is None:
        return (
            f"Queue '{name}' does not exist.",
            f"create the queue {name} (`rowlock project update` makes that of a project), or name another in spec.queue",
        )
    if state.children:
        some = ", ".join(c.queue.name for c in state.children[:3])
        return f"Queue '{name}' is a department; jobs run in its projects ({some}).", f"use one of: {some}"
    return (
        f"Queue '{name}' has the parent '{state.queue.parent}', which does not exist or is part of a cycle.",
        f"create the queue {state.queue.parent}, or correct spec.parentQueue of {name}",
    )


def _amount_is(resource: int, amount: float) -> str:
    text = format_amount(resource, amount)
    return f"{text} {'are' if text.endswith('s') else 'is'}"


def _limit_sentence(failure: Failure) -> tuple[str, str]:
    r = failure.resource
    smaller = _smaller_request(failure)
    return (
        f"OverLimit: {failure.queue} may hold at most {format_amount(r, failure.bound)}, {_amount_is(r, failure.allocated)} held, "
        f"this job asks {format_amount(r, failure.requested)}.",
        f"{smaller and f'{smaller} or less, '}wait for others of {failure.queue}, or raise its limit",
    )


def _quota_sentence(failure: Failure) -> tuple[str, str]:
    r = failure.resource
    return (
        f"NonPreemptibleOverQuota: {failure.queue} may hold {format_amount(r, failure.bound)} non-preemptibly, "
        f"{_amount_is(r, failure.allocated)} held, this job asks {format_amount(r, failure.requested)}.",
        f"submit it as preemptible, or {_smaller_request(failure) or f'wait for others of {failure.queue}'}",
    )


def _smaller_request(failure: Failure) -> str:
    """`ask for` the amount left below the bound; "" if nothing is left."""
    room = failure.bound - failure.allocated
    return f"ask for {format_amount(failure.resource, room)}" if room > 0 else ""


def _open_node_hint(hint: str, histogram: FitHistogram, *, replace_hint: bool = False) -> str:
    """The hint, with the node added that could hold the pod but takes no pods. `replace_hint`: return only that node's hint."""
    if histogram.closed_node is None:
        return hint
    node = f"open node {histogram.closed_node.name}, which {sentences.closed_node_reason(histogram.closed_node)}"
    return node if replace_hint else f"{hint}, or {node}"


def _closed_node_sentence(histogram: FitHistogram) -> str:
    """A sentence that names the node that could hold the pod but takes no pods; "" if there is none."""
    node = histogram.closed_node
    return f" Node {node.name} could, but it {sentences.closed_node_reason(node)}." if node is not None else ""


def _fit_sentence(state: GangState, failure: Failure, histogram: FitHistogram) -> tuple[str, str]:
    shape = failure.shape or Shape()
    fit = f"{failure.pods_fit} of {failure.pods_needed} pods fit"
    request = _describe_shape(shape)
    nodes = "; ".join(filter(None, (_describe_nodes(histogram), _describe_free_share(shape, histogram))))
    match failure.reason:
        case Reason.SELECTOR:
            return (
                f"No node may take it ({nodes}); {fit}.{_closed_node_sentence(histogram)}",
                _open_node_hint(
                    "change nodeSelector, affinity or tolerations, or the nodes", histogram, replace_hint=True
                ),
            )
        case Reason.TOO_LARGE:
            return (
                f"No node is large enough: each pod needs {request}; {_describe_largest_node(shape, histogram)}; {nodes}.",
                _open_node_hint("ask for less per pod", histogram),
            )
        case Reason.FRAGMENTED:
            return (
                f"Fragmented: {histogram.free_gpus} GPUs are free but at most {histogram.best_free_gpus} on one node "
                f"({histogram.best_node}); each pod needs {request} on one node. {fit}.",
                f"ask for at most {histogram.best_free_gpus} GPUs per pod",
            )
        case Reason.EXHAUSTED if state.queue is not None:
            q = state.queue
            return (
                f"FairShareExhausted: {q.queue.name} uses {format_amount(GPU, q.allocated[GPU])} (quota "
                f"{format_gpus(q.queue.quota[GPU])}, fair share {format_gpus(q.fair_share[GPU])}) and no room is idle. {fit}.",
                "wait for pods to finish" + (", or raise the quota" if q.queue.quota[GPU] != UNLIMITED else ""),
            )
    if histogram.usable_nodes and histogram.free_pods < failure.pods_needed:
        room = "no more pods" if not histogram.free_pods else f"{histogram.free_pods} more"
        return f"Too many pods: the nodes take {room}; {fit} now ({nodes}).", _open_node_hint(
            "wait for pods to finish, or start the cluster with a larger --max-pods", histogram
        )
    return f"Each pod needs {request}; {fit} now ({nodes}).", _open_node_hint(
        "wait for pods to finish, or ask for less", histogram
    )
