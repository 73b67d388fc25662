"""Decisions as writes: binds and deletes, and what people read: conditions, events and the PodGroup's status.

A placed pod costs one Bind and one Event. A gang that waits costs one status patch when its sentence changes, and one
condition per pod; a gang that starts or stops waiting one more patch.
"""

from collections.abc import Iterator
from typing import Any

from rowlock import api
from rowlock.kinds import POD, POD_GROUP
from rowlock.objects import Object, changed, dig, is_true, timestamp
from rowlock.scheduling.amounts import GPU, gpus
from rowlock.scheduling.explain import Explanation
from rowlock.scheduling.plan import Bind, Evict
from rowlock.scheduling.reading import DEVICES
from rowlock.scheduling.snapshot import Gang, Task
from rowlock.scheduling.world import GangState, QueueState, World

SOURCE = "default-scheduler"
EVICTED = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"


def reference(kind: str, version: str, namespace: str, name: str, uid: str) -> Object:
    """Enough of an object to hang an Event on."""
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name, "uid": uid}}


def pod_reference(namespace: str, name: str, uid: str) -> Object:
    return reference("Pod", "v1", namespace, name, uid)


def group_reference(gang: Gang) -> Object:
    return reference("PodGroup", POD_GROUP.api_version, gang.namespace, gang.name, gang.uid)


def told(gang: Gang) -> Iterator[Object]:
    """Who hears about the gang: its PodGroup and its job."""
    yield group_reference(gang)
    version, kind, name, uid = gang.owner
    if kind:
        yield reference(kind, version, gang.namespace, name, uid)


def binds(world: World, chosen: list[Bind]) -> Iterator[api.Write]:
    """All binds first, so that a gang's binds are one commit; then their events."""
    for b in chosen:
        yield api.Bind(b.namespace, b.pod, b.node, b.uid, card_annotations(world, b))
    for b in chosen:
        text = f"Successfully assigned {b.namespace}/{b.pod} to {b.node}"
        yield api.Record(pod_reference(b.namespace, b.pod, b.uid), "Normal", "Scheduled", text, SOURCE)


def card_annotations(world: World, b: Bind) -> dict[str, str]:
    """Which cards; for a fraction also KAI's group and kind words."""
    if not b.devices:
        return {}
    found = {DEVICES: ",".join(str(d) for d in b.devices)}
    gang = world.gangs.get(b.gang)
    shape = next((t.task.shape for t in gang.tasks if t.task.uid == b.uid), None) if gang else None
    if shape is not None:
        found["received-resource-type"] = "Fraction" if shape.fractional else "Regular"
        if shape.fractional:
            found["runai-gpu-group"] = ",".join(f"{b.node}-gpu{d}" for d in b.devices)
    return found


def with_condition(pod: Object, condition: dict[str, Any]) -> api.Write:
    """The pod's status with this condition among the others; on the version that was decided on."""
    others = [c for c in dig(pod, "status.conditions") or () if c.get("type") != condition["type"]]
    return api.Update(POD, changed(pod, "status.conditions", [*others, condition]), "status")


def evictions(world: World, view: api.View, chosen: list[Evict], now: float) -> Iterator[api.Write]:
    """First say why (a condition that job controllers respect), then delete gracefully, then tell."""
    for e in chosen:
        pod = view.get(POD, e.namespace, e.pod)
        if pod is None or is_true(pod, EVICTED):
            continue
        condition = {
            "type": EVICTED,
            "status": "True",
            "reason": PREEMPTED,
            "message": sentence(world, e),
            "lastTransitionTime": timestamp(now),
        }
        yield with_condition(pod, condition)
    for e in chosen:
        node = _node_of(world, e)
        lost = world.gone(node) if e.act == "lost" else node not in world.nodes
        options = api.DeleteOptions(uid=e.uid, grace=0) if lost else api.DeleteOptions(uid=e.uid)
        yield api.Delete(POD, e.namespace, e.pod, options)  # nobody is left on a lost node to confirm the end
    for e in chosen:
        text = sentence(world, e)
        victim = pod_reference(e.namespace, e.pod, e.uid)
        yield api.Record(victim, "Normal", "Preempted" if e.act == "preempt" else "Evict", text, SOURCE)
        gang = world.gangs.get(e.gang)
        if gang is not None and not gang.gang.bare:
            for about in told(gang.gang):
                yield api.Record(about, "Normal", "Evict", text, SOURCE)


def _node_of(world: World, e: Evict) -> str:
    gang = world.gangs.get(e.gang)
    return next((t.task.node for t in gang.tasks if t.task.uid == e.uid), "") if gang else ""


def sentence(world: World, e: Evict) -> str:
    """Who yields to whom and why, with both queues' numbers."""
    pod = f"Pod {e.namespace}/{e.pod}"
    victim = world.gangs.get(e.gang)
    asker = world.gangs.get(e.by)
    by = asker.gang.title if asker is not None else e.by
    if e.act == "stale":
        return f"{pod} was evicted: its gang ran with fewer pods than its minimum for too long; it starts again whole."
    if e.act == "lost":
        return f"{pod} was evicted: {_loss(world, victim)}; the gang starts again whole, elsewhere."
    if e.act == "reserve":
        return f"{pod} yields its node, which is kept for {by}: that gang has waited long and can start now."
    if e.act == "consolidate":
        return f"{pod} moves to node {e.moves_to or 'another node'} to make room in one piece for {by}."
    if e.act == "preempt":
        return f"{pod} was preempted by higher priority workload {by}."
    lines = [f"{pod} was preempted by workload {by}."]
    if e.moves_to:
        lines[0] += f" It continues on node {e.moves_to}."
    for state in (victim, asker):
        if state is not None and state.queue is not None:
            lines.append(_queue_line(state.queue))
    return "\n".join(lines)


def _loss(world: World, gang: GangState | None) -> str:
    """Which node the gang has lost."""
    nodes = sorted({t.task.node for t in gang.tasks if t.task.node and world.gone(t.task.node)}) if gang else []
    if not nodes:
        return "a node of its gang is gone"
    if nodes[0] not in world.nodes:
        return f"node {nodes[0]} of its gang is gone"
    return f"node {nodes[0]} of its gang is not ready since {timestamp(world.lost.get(nodes[0], world.now))}"


def _queue_line(q: QueueState) -> str:
    return (
        f"{q.queue.name} uses {gpus(q.counted[GPU])} GPUs with a quota of {gpus(q.queue.quota[GPU])}, "
        f"a fair share of {gpus(q.fair[GPU])} and queue priority {q.queue.priority}."
    )


def waiting(gang: Gang, why: Explanation, now: float) -> Iterator[api.Write]:
    """A PodGroup's status and Event when its sentence has changed."""
    condition = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "status": "True",
        "reason": "Unschedulable",
        "message": why.message,
        "lastTransitionTime": timestamp(now),
        "reasons": [{"reason": str(why.reason), "message": why.message}],
    }
    status: dict[str, Any] = {
        "phase": "Pending",
        "schedulingConditions": [condition],
        "explanation": {**why.record, "message": why.message},
    }
    yield api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")
    for about in told(gang):
        yield api.Record(about, "Warning", "FailedScheduling", why.message, SOURCE)


def unschedulable(pod: Object, message: str, now: float) -> api.Write:
    """The pod's PodScheduled=False."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(now),
    }
    return with_condition(pod, condition)


def failed_scheduling(task: Task, message: str) -> api.Write:
    pod = pod_reference(task.namespace, task.name, task.uid)
    return api.Record(pod, "Warning", "FailedScheduling", message, SOURCE)


def started(gang: Gang, now: float) -> api.Write:
    """The gang runs: no more waiting on its status."""
    status = {"phase": "Running", "startTime": timestamp(now), "schedulingConditions": None, "explanation": None}
    return api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")


def stale(gang: Gang, since: float | None) -> api.Write:
    """Since when it runs below its minimum; None = it is whole again."""
    status = {"staleSince": None if since is None else timestamp(since)}
    return api.Patch(POD_GROUP, gang.namespace, gang.name, {"status": status}, subresource="status")
