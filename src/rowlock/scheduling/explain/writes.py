"""Decisions as writes: binds and deletes, and what people read (conditions, events and the PodGroup's status).

A placed pod costs one Bind and one Event. A waiting gang costs one status patch and one condition per pod when its message changes; a gang
that starts or stops waiting one more patch.
"""

from collections.abc import Iterator
from typing import Any

from rowlock import api
from rowlock.kinds import POD, POD_GROUP
from rowlock.objects import Object, dig, is_condition_true, timestamp, with_field
from rowlock.scheduling.explain import sentences
from rowlock.scheduling.explain.explanations import Explanation
from rowlock.scheduling.model.from_objects import DEVICES_ANNOTATION
from rowlock.scheduling.model.gang_state import GangState, QueueState
from rowlock.scheduling.model.resources import GPU, format_gpus
from rowlock.scheduling.model.scheduler_identity import SchedulerIdentity
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Gang, Task
from rowlock.scheduling.plan import PlannedBind, PlannedEviction

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


def object_reference(kind: str, version: str, namespace: str, name: str, uid: str) -> Object:
    """The parts of an object that an Event needs to refer to it."""
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name, "uid": uid}}


def pod_reference(namespace: str, name: str, uid: str) -> Object:
    """The pod as the involvedObject of an Event."""
    return object_reference("Pod", "v1", namespace, name, uid)


def group_reference(gang: Gang) -> Object:
    """The gang's PodGroup as the involvedObject of an Event."""
    return object_reference("PodGroup", POD_GROUP.api_version, gang.namespace, gang.name, gang.uid)


def event_targets(gang: Gang) -> Iterator[Object]:
    """The objects that get events about the gang: its PodGroup and its job; of a pod without a group, its Job."""
    if not gang.bare:
        yield group_reference(gang)
    version, kind, name, uid = gang.owner
    if kind:
        yield object_reference(kind, version, gang.namespace, name, uid)


def bind_writes(session: Session, planned: list[PlannedBind], identity: SchedulerIdentity) -> Iterator[api.Write]:
    """All binds first, so that a gang's binds are one commit; then their events."""
    for bind in planned:
        devices = device_annotations(session, bind) if identity.assigns_devices else {}
        yield api.Bind(bind.namespace, bind.pod, bind.node, bind.uid, devices)
    for bind in planned:
        text = f"Successfully assigned {bind.namespace}/{bind.pod} to {bind.node}"
        pod = pod_reference(bind.namespace, bind.pod, bind.uid)
        yield api.Record(pod, "Normal", "Scheduled", text, identity.event_source)


def device_annotations(session: Session, bind: PlannedBind) -> dict[str, str]:
    """Annotations with the assigned GPUs, and KAI's `received-resource-type` and, for a fraction, GPU group."""
    if not bind.devices:
        return {}
    annotations = {DEVICES_ANNOTATION: ",".join(str(d) for d in bind.devices)}
    gang = session.gangs.get(bind.gang)
    shape = next((t.task.shape for t in gang.tasks if t.task.uid == bind.uid), None) if gang else None
    if shape is not None:
        annotations["received-resource-type"] = "Fraction" if shape.is_fractional else "Regular"
        if shape.is_fractional:
            annotations["runai-gpu-group"] = ",".join(f"{bind.node}-gpu{d}" for d in bind.devices)
    return annotations


def with_condition(pod: Object, condition: dict[str, Any]) -> api.Write:
    """A status update that sets this condition of the pod, in transition since its status changed, as kube-scheduler counts. It conflicts if
    the pod has changed since the decision."""
    former: dict[str, Any] = next(
        (c for c in dig(pod, "status.conditions") or () if c.get("type") == condition["type"]), {}
    )
    if former.get("status") == condition["status"] and former.get("lastTransitionTime"):
        condition = {**condition, "lastTransitionTime": former["lastTransitionTime"]}
    others = [c for c in dig(pod, "status.conditions") or () if c.get("type") != condition["type"]]
    return api.Update(POD, with_field(pod, "status.conditions", [*others, condition]), "status")


def eviction_writes(
    session: Session, view: api.View, planned: list[PlannedEviction], now: float, source: str
) -> Iterator[api.Write]:
    """The writes of evictions: first a DisruptionTarget condition, which job controllers respect, then graceful deletes, then Events."""
    for eviction in planned:
        pod = view.get(POD, eviction.namespace, eviction.pod)
        if pod is None or is_condition_true(pod, DISRUPTION_TARGET):
            continue
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": eviction_message(session, eviction),
            "lastTransitionTime": timestamp(now),
        }
        yield with_condition(pod, condition)
    for eviction in planned:
        node = _evicted_node(session, eviction)
        node_lost = session.is_node_lost(node) if eviction.action == "lost" else node not in session.nodes
        options = api.DeleteOptions(uid=eviction.uid, grace=0) if node_lost else api.DeleteOptions(uid=eviction.uid)
        yield api.Delete(
            POD, eviction.namespace, eviction.pod, options
        )  # no kubelet on a lost node can confirm the end
    gangs = {
        eviction.gang: eviction for eviction in planned if eviction.gang in session.gangs and not eviction.moves_to
    }
    for key, eviction in gangs.items():
        if not session.gangs[key].gang.bare:
            yield evicted_write(session.gangs[key].gang, eviction.action, now)
    for eviction in planned:
        text = eviction_message(session, eviction)
        victim = pod_reference(eviction.namespace, eviction.pod, eviction.uid)
        yield api.Record(victim, "Normal", "Preempted" if eviction.action == "preempt" else "Evict", text, source)
        gang = session.gangs.get(eviction.gang)
        if gang is not None:
            for target in event_targets(gang.gang):
                yield api.Record(target, "Normal", "Evict", text, source)


def _evicted_node(session: Session, eviction: PlannedEviction) -> str:
    gang = session.gangs.get(eviction.gang)
    return next((t.task.node for t in gang.tasks if t.task.uid == eviction.uid), "") if gang else ""


def eviction_message(session: Session, eviction: PlannedEviction) -> str:
    """Why a pod was evicted and for which gang; for a reclaim with both queues' numbers."""
    pod = f"Pod {eviction.namespace}/{eviction.pod}"
    victim = session.gangs.get(eviction.gang)
    preemptor = session.gangs.get(eviction.preemptor)
    preemptor_name = sentences.name_for(session, eviction.preemptor, eviction.namespace)
    if eviction.action == "stale":
        return f"{pod} was evicted: its gang ran with fewer pods than its minimum for too long; it starts again whole."
    if eviction.action == "lost":
        return f"{pod} was evicted: {_lost_node_message(session, victim)}; the gang starts again whole, elsewhere."
    if eviction.action == "reserve":
        return f"{pod} was evicted: its node is reserved for {preemptor_name}, which has waited long and can start now."
    if eviction.action == "consolidate":
        return f"{pod} moves to node {eviction.moves_to or 'another node'} so that {preemptor_name} fits."
    if eviction.action == "preempt":
        return f"{pod} was preempted by higher priority {preemptor_name.removeprefix('a ')}."
    lines = [f"{pod} was preempted by {preemptor_name}."]
    if eviction.moves_to:
        lines[0] += f" It continues on node {eviction.moves_to}."
    for state in (victim, preemptor):
        if state is not None and state.queue is not None:
            lines.append(_queue_line(state.queue))
    return "\n".join(lines)


def _lost_node_message(session: Session, gang: GangState | None) -> str:
    """Which node the gang has lost and how, as a part of a message."""
    nodes = (
        sorted({t.task.node for t in gang.tasks if t.task.node and session.is_node_lost(t.task.node)}) if gang else []
    )
    if not nodes:
        return "a node of its gang is gone"
    if nodes[0] not in session.nodes:
        return f"node {nodes[0]} of its gang is gone"
    return f"node {nodes[0]} of its gang is not ready since {timestamp(session.lost_nodes.get(nodes[0], session.now))}"


def _queue_line(q: QueueState) -> str:
    return (
        f"{q.queue.name} uses {format_gpus(q.allocated[GPU])} GPUs with a quota of {format_gpus(q.queue.quota[GPU])}, "
        f"a fair share of {format_gpus(q.fair_share[GPU])} and queue priority {q.queue.priority}."
    )


def pending_writes(state: GangState, explanation: Explanation, now: float, source: str) -> Iterator[api.Write]:
    """A PodGroup's status and Events when its explanation has changed. Its phase is Running if its minimum runs and further pods wait."""
    gang = state.gang
    condition = {
        "type": "UnschedulableOnNodePool",
        "nodePool": state.pool or "default",
        "status": "True",
        "reason": "Unschedulable",
        "message": explanation.message,
        "lastTransitionTime": timestamp(now),
        "reasons": [{"reason": str(explanation.reason), "message": explanation.message}],
    }
    status: dict[str, Any] = {
        "phase": "Running" if has_its_minimum(state) else "Pending",
        "schedulingConditions": [condition],
        "explanation": {**explanation.record, "message": explanation.message},
    }
    yield api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")
    for target in event_targets(gang):
        yield api.Record(target, "Warning", "FailedScheduling", explanation.message, source)


def unschedulable_write(pod: Object, message: str, now: float) -> api.Write:
    """The write of the pod's condition PodScheduled=False."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(now),
    }
    return with_condition(pod, condition)


def failed_scheduling_event(task: Task, message: str, source: str) -> api.Write:
    """The Event that kube-scheduler writes when a pod does not fit."""
    pod = pod_reference(task.namespace, task.name, task.uid)
    return api.Record(pod, "Warning", "FailedScheduling", message, source)


def has_its_minimum(state: GangState) -> bool:
    """Whether the gang's minimum of pods has nodes in the session's current state."""
    sets = state.pod_sets.values()
    return any(s.allocated_count for s in sets) and all(
        s.allocated_count + s.succeeded_count >= s.minimum for s in sets
    )


def running_write(state: GangState, now: float) -> api.Write:
    """Set the PodGroup to Running, without explanation. A gang that only grows keeps its startTime: no new min-runtime begins."""
    gang = state.gang
    status: dict[str, Any] = {"phase": "Running", "schedulingConditions": None, "explanation": None, "evicted": None}
    if not (gang.started and has_its_minimum(state)):
        status["startTime"] = timestamp(now)
    return api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")


def evicted_write(gang: Gang, action: str, now: float) -> api.Write:
    """Mark the PodGroup as evicted, for lists, until it runs again (`workloads/phase.py`). An Event would expire after an hour."""
    status = {"evicted": {"action": action, "time": timestamp(now)}}
    return api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")


def is_marked_evicted(view: api.View, gang: Gang) -> bool:
    """Whether the gang's PodGroup is marked as evicted."""
    return bool(dig(view.get(POD_GROUP, gang.namespace, gang.name) or {}, "status.evicted"))


def stale_write(gang: Gang, since: float | None) -> api.Write:
    """Set the PodGroup's staleSince: since when it runs below its minimum (seconds since the epoch); None clears it."""
    status = {"staleSince": None if since is None else timestamp(since)}
    return api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")
