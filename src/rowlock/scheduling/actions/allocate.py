"""An attempt to allocate one gang: check its queue's limits and quota, then place all its tasks at once.

`allocate_gang` places the gang's tasks, or changes nothing and returns a `Failure`: the reason and the numbers for the message. Tasks that
fit only where other pods are terminating are Pipelined. If the gang cannot reach its minimum now, all its tasks are pipelined, so that half
a gang never runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rowlock.scheduling.model.gang_state import ALLOCATED_STATUSES, GangState, TaskState
from rowlock.scheduling.model.resources import UNLIMITED, ResourceVector, add
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Shape, Status
from rowlock.scheduling.policy.order import tasks_to_allocate
from rowlock.scheduling.policy.placement import WHOLE_CLUSTER, Placer
from rowlock.scheduling.policy.topology import candidate_domains


class Reason(StrEnum):
    """Why a gang waits, in one word, as lists show it; a message goes with it."""

    NOT_READY = "NotReady"
    QUEUE_MISSING = "QueueDoesNotExist"
    OVER_LIMIT = "OverLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"
    DOES_NOT_FIT = "GangDoesNotFit"
    FRAGMENTED = "Fragmented"
    TOO_LARGE = "NoNodeLargeEnough"
    SELECTOR = "NodeSelectorUnsatisfied"
    RELEASING = "WaitingForRelease"
    PROTECTED = "WaitingForReclaim"
    EXHAUSTED = "FairShareExhausted"
    RESERVED = "Reserved"
    TOPOLOGY = "TopologyUnsatisfied"
    UNSUPPORTED = "Unsupported"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed. `resource` (index) to `requested` describe the queue's capacity, `shape` to `pods_needed` the nodes'."""

    reason: Reason
    queue: str = ""
    resource: int = 0
    bound: float = 0
    allocated: float = 0
    requested: float = 0
    task: str = ""
    shape: Shape | None = None
    pods_fit: int = 0
    pods_needed: int = 0
    seconds: float = 0.0
    """Minimum of seconds until the obstacle ends, if it is one of time."""


def not_ready_message(state: GangState) -> str:
    """KAI's message for a gang that lacks pods of its minimum; "" if it is ready."""
    for pod_set in state.pod_sets.values():
        exist = pod_set.alive_count + pod_set.succeeded_count
        if exist < pod_set.minimum:
            gated = sum(t.status is Status.GATED for t in pod_set.tasks)
            where = f" for SubGroup {pod_set.name}" if pod_set.name else ""
            return (
                f"Job is not ready for scheduling. Waiting for {pod_set.minimum} pods{where}, "
                f"currently {exist + gated} exist, {gated} are gated"
            )
    return ""


def check_queue_capacity(state: GangState, amount: ResourceVector) -> Failure | None:
    """Check limits (all gangs) and quotas (non-preemptible gangs) of the queue and its ancestors; None = `amount` is within them."""
    if state.queue is None:
        return Failure(Reason.QUEUE_MISSING, state.gang.queue)
    for q in state.queue.path:
        exceeded = _exceeded_resource(q.queue.limit, q.allocated, amount)
        if exceeded is not None:
            r = exceeded
            return Failure(Reason.OVER_LIMIT, q.queue.name, r, q.queue.limit[r], q.allocated[r], amount[r])
    if not state.gang.preemptible:
        for q in state.queue.path:
            exceeded = _exceeded_resource(q.queue.quota, q.allocated_non_preemptible, amount)
            if exceeded is not None:
                r = exceeded
                return Failure(
                    Reason.OVER_QUOTA, q.queue.name, r, q.queue.quota[r], q.allocated_non_preemptible[r], amount[r]
                )
    return _check_reserved_quota(state, amount)


def _check_reserved_quota(state: GangState, amount: ResourceVector) -> Failure | None:
    """The same check with the amounts added that `reserve.py` keeps for gangs that have waited long."""
    assert state.queue is not None
    for q in state.queue.path:
        keys = [key for key, *_ in q.quota_reservations]
        own_index = (
            keys.index(state.gang.key) if state.gang.key in keys else len(keys)
        )  # only earlier ones count, so that two never block each other
        earlier = [(need, fixed) for _, need, fixed in q.quota_reservations[:own_index]]
        if not earlier:
            continue
        exceeded = _exceeded_resource(q.queue.limit, q.allocated, _add_all(amount, (need for need, _ in earlier)))
        if exceeded is None and not state.gang.preemptible and any(fixed for _, fixed in earlier):
            exceeded = _exceeded_resource(
                q.queue.quota, q.allocated_non_preemptible, _add_all(amount, (need for need, fixed in earlier if fixed))
            )
        if exceeded is not None and amount[exceeded]:
            return Failure(Reason.RESERVED, q.queue.name, exceeded, 0, q.allocated[exceeded], amount[exceeded])
    return None


def _add_all(amount: ResourceVector, more: Iterable[ResourceVector]) -> ResourceVector:
    for one in more:
        amount = add(amount, one)
    return amount


def _exceeded_resource(bound: ResourceVector, counted: ResourceVector, amount: ResourceVector) -> int | None:
    after = add(counted, amount)
    for r in (2, 0, 1):
        if bound[r] != UNLIMITED and amount[r] > 0 and after[r] > bound[r]:
            return r
    return None


def allocate_gang(
    session: Session,
    placer: Placer,
    state: GangState,
    *,
    pipeline_only: bool = False,
    nominated_nodes: Mapping[str, str] | None = None,
    tasks: Sequence[TaskState] | None = None,
) -> Failure | None:
    """Place the gang's next tasks (or `tasks`): allocated if they fit now, else pipelined. None on success; on failure the session is
    unchanged. `nominated_nodes`: name of a pod → the node to try first."""
    tasks = tasks_to_allocate(state) if tasks is None else tasks
    if not tasks:
        return Failure(Reason.NOT_READY)
    failure = check_queue_capacity(state, session.total_cost(tasks)) or _check_lost_nodes(session, state)
    if failure is not None:
        return failure
    if state.gang.required or state.gang.preferred:
        return _place_in_domains(session, placer, state, tasks, AllocationOptions(pipeline_only, nominated_nodes or {}))
    return _place_tasks(session, placer, state, tasks, AllocationOptions(pipeline_only, nominated_nodes or {}))


def _check_lost_nodes(session: Session, state: GangState) -> Failure | None:
    """A Failure for a gang with pods on a lost node: it gets no more pods until it is restarted or the node comes back."""
    if state.gang.key not in session.gangs_on_lost_nodes:
        return None
    nodes = sorted(
        {t.node for t in state.tasks if t.node and t.status in ALLOCATED_STATUSES and session.is_node_lost(t.node)}
    )
    if not nodes:
        return None
    text = f"Node {nodes[0]} of this gang does not respond: the whole gang restarts unless the node comes back"
    return Failure(Reason.NOT_READY, state.gang.queue, task=text)


@dataclass(frozen=True, slots=True)
class AllocationOptions:
    """`pipeline_only`: start no task now. `nominated_nodes`: name of a pod → the node to try first."""

    pipeline_only: bool
    nominated_nodes: Mapping[str, str]


def _place_in_domains(
    session: Session, placer: Placer, state: GangState, tasks: Sequence[TaskState], options: AllocationOptions
) -> Failure | None:
    """Try one topology domain after another. Returns a TOPOLOGY failure if the tasks would fit without the required level."""
    most_fit = 0
    try:
        for domain in candidate_domains(session, state, tasks, options.nominated_nodes):
            state.domain = domain
            failure = _place_tasks(session, placer, state, tasks, options)
            if failure is None:
                return None
            most_fit = max(most_fit, failure.pods_fit)
    finally:
        state.domain = WHOLE_CLUSTER
    checkpoint = session.checkpoint()
    failure_anywhere = _place_tasks(session, placer, state, tasks, options)
    session.rollback(checkpoint)
    if failure_anywhere is not None:
        return failure_anywhere
    return Failure(
        Reason.TOPOLOGY,
        state.gang.queue,
        task=state.gang.required,
        shape=tasks[0].task.shape,
        pods_fit=most_fit,
        pods_needed=len(tasks),
    )


def _place_tasks(
    session: Session, placer: Placer, state: GangState, tasks: Sequence[TaskState], options: AllocationOptions
) -> Failure | None:
    checkpoint = session.checkpoint()
    for at, task in enumerate(tasks):
        preferred_node = options.nominated_nodes.get(task.task.name, "")
        if not placer.place_task(task, pipeline_only=options.pipeline_only, preferred_node=preferred_node):
            session.rollback(checkpoint)
            shape = task.task.shape
            reason = Reason.UNSUPPORTED if shape.held_back else Reason.DOES_NOT_FIT
            return Failure(
                reason, state.gang.queue, task=task.task.name, shape=shape, pods_fit=at, pods_needed=len(tasks)
            )
    if any(s.allocated_count + s.succeeded_count < s.minimum for s in state.pod_sets.values()):
        _pipeline_all(session, tasks)
    return None


def _pipeline_all(session: Session, tasks: Sequence[TaskState]) -> None:
    """Pipeline the tasks that could start now, since other tasks of the gang cannot: no half gang runs."""
    for t in tasks:
        if t.status is Status.ALLOCATED:
            session.move_task(t, Status.PIPELINED, t.node, t.devices, origin=t.origin)
