"""Refuses at submit what no node of this cluster could ever hold, naming the field, the largest possible value and a remedy.

Uses the scheduler's own rule for an empty node. Nodes that are retired or being deleted do not count. Nodes that take no pods at the
moment (cordoned, long not ready) do: a job that only fits there is admitted, kubectl prints a warning, and `explain` names the node. If
no node is open, sizes are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rowlock import quantity
from rowlock.errors import Cause
from rowlock.objects import Object, is_deleting
from rowlock.scheduling.explain.sentences import closed_node_reason as why_shut
from rowlock.scheduling.model import from_objects, pod_requests
from rowlock.scheduling.model.resources import CPU, GPU, MEMORY, UNLIMITED, WHOLE_GPU, format_amount
from rowlock.scheduling.model.snapshot import Node, SchedulerSettings, Shape
from rowlock.scheduling.policy.placement import has_amounts
from rowlock.workloads.compute import Compute
from rowlock.workloads.submission import Submission

NO_GPU = (
    "a pod asks for a GPU, but no node of this cluster has one. Ask for none, or start the cluster "
    "with simulated GPUs: `rowlock down && rowlock up -d --simulated-gpus 1`."
)
_UNREADY_GRACE = SchedulerSettings().unready_grace
"""Seconds for which a node that is not ready still counts as open; after that its pods are evicted too."""


def shape_of_compute(compute: Compute, pool: str = "") -> Shape:
    """The scheduler's shape of a pod with this compute in this node pool."""
    amounts = {**dict(compute.limits), **dict(compute.requests)}
    return Shape(
        cpu=quantity.millis(amounts.get("cpu", "0")),
        memory=quantity.integer_value(amounts.get("memory", "0")),
        gpus=0 if compute.is_fraction else compute.devices,
        portion=round(compute.portion * 100) if compute.portion is not None else 0,
        gpu_memory=compute.memory_mib or 0,
        devices=compute.devices if compute.is_fraction else 0,
        pool=pool,
    )


def infeasible_cause(compute: Compute, nodes: Iterable[Object], pool: str = "") -> Cause | None:
    """Why no node of the pool could hold such a pod even if it were empty and open; None if one could."""
    return _infeasible_cause(shape_of_compute(compute, pool), nodes, None)


_PODS_PER_ROOM = 10
"""How many times as many pods as nodes hold a Job or set may have at a time, where they need not run together."""


def too_many_pods_message(count: int, nodes: Iterable[Object]) -> str:
    """Why so many pods can never run together; "" if they can. Without nodes it is "", since the nodes to come are
    unknown."""
    rooms = _rooms(nodes)
    if not rooms or count <= sum(rooms):
        return ""
    return (
        f"the job asks for {count} pods, but {_what_nodes_hold(rooms)}: ask for fewer pods with more processes each,"
        " or start the cluster with a larger --max-pods"
    )


def too_many_waiting_message(count: int, nodes: Iterable[Object]) -> str:
    """Why so many pods, which need not run together, are too many to be there at a time; "" if they are not, or without nodes."""
    rooms = _rooms(nodes)
    if not rooms or count <= sum(rooms) * _PODS_PER_ROOM:
        return ""
    return (
        f"it asks for {count} pods or Jobs at a time, but {_what_nodes_hold(rooms)} pods, and no more than {_PODS_PER_ROOM} times as many"
        " may wait: ask for fewer at a time (parallelism, replicas, numNodes), or start the cluster with a larger --max-pods"
    )


def _rooms(nodes: Iterable[Object]) -> list[int]:
    return [from_objects.parse_node(node).pods for node in nodes]


def _what_nodes_hold(rooms: Sequence[int]) -> str:
    return (
        f"the cluster's only node holds {rooms[0]}"
        if len(rooms) == 1
        else f"all {len(rooms)} nodes together hold {sum(rooms)}"
    )


def never_fits_message(template: Object, nodes: Iterable[Object], now: float, pool: str = "") -> str:
    """Why no node that is open now could hold a pod of this template, as a sentence; "" if one could, or if the template cannot
    be read."""
    shape = pod_requests.pod_shape(template)
    shape = replace(shape, pool=pool or shape.pool)
    cause = None if shape.unsupported else _infeasible_cause(shape, nodes, now)
    return cause.message if cause else ""


def _infeasible_cause(shape: Shape, nodes: Iterable[Object], now: float | None) -> Cause | None:
    """Why no node could hold the shape. `now` None: treat closed nodes as open."""
    open_nodes: list[Node] = []
    closed_nodes: list[Node] = []
    other_pools: set[str] = set()
    for obj in nodes:  # usually the first node fits
        node = from_objects.parse_node(obj)
        if node.pool != shape.pool:
            other_pools.add(node.pool)
        elif is_deleting(obj) or node.retired:
            continue
        elif now is not None and (node.unschedulable or (not node.ready and now - node.unready_since > _UNREADY_GRACE)):
            closed_nodes.append(node)
        elif has_amounts(node, shape):
            return None
        else:
            open_nodes.append(node)
    if open_nodes:
        return next(_infeasible_causes(shape, open_nodes, [node for node in closed_nodes if has_amounts(node, shape)]))
    return _no_pool_cause(shape.pool, other_pools) if other_pools and not closed_nodes else None


def _no_pool_cause(pool: str, others: set[str]) -> Cause:
    pool_names = ", ".join(sorted(other or "default" for other in others))
    fix = (
        f"add nodes to it (kubectl label node NODE {pod_requests.NODE_POOL_LABEL}={pool}), or name" if pool else "name"
    )
    text = f"no node is in the node pool {pool or 'default'!r}; {fix} another pool: {pool_names}."
    return Cause("options", text, "spec.nodePools")


def queue_limit_cause(submission: Submission, queues: Iterable[Object]) -> Cause | None:
    """Why the smallest gang of the submit exceeds the limits of these queues (the project's and its parents); None if it does not."""
    pods = submission.options.min_replicas or submission.pod_count
    pod_groups = [(submission.master.compute, 1)] if submission.has_lead else []
    pod_groups.append((submission.worker.compute, pods - len(pod_groups)))
    need = [0, 0, 0]
    for compute, count in pod_groups:
        pod_shape = shape_of_compute(compute)
        for r, amount in enumerate(
            (pod_shape.cpu, pod_shape.memory, pod_shape.gpus * WHOLE_GPU + pod_shape.portion * pod_shape.devices)
        ):
            need[r] += amount * count
    for queue in map(from_objects.parse_queue, queues):
        for r, field in ((GPU, "gpuDevicesRequest"), (CPU, "cpuCoreRequest"), (MEMORY, "cpuMemoryRequest")):
            if queue.limit[r] != UNLIMITED and need[r] > queue.limit[r]:
                limit_text = format_amount(r, queue.limit[r])
                text = f"{pods} pods ask for {format_amount(r, need[r])} together, but queue {queue.name} may never hold more than {limit_text}"
                return _compute_cause(
                    field, f"{text}. Ask for less, or raise the limit: `kubectl edit queue {queue.name}`."
                )
    return None


def _infeasible_causes(shape: Shape, nodes: Sequence[Node], closed_nodes: Sequence[Node]) -> Iterator[Cause]:
    """The reasons, the most specific first. `closed_nodes`: nodes that could hold the shape if they were open."""
    node, remedy = (
        ("node", "Ask for at most")
        if not closed_nodes
        else ("schedulable node", f"{_closed_node_hint(closed_nodes)} Or ask for at most")
    )
    max_gpus = max(n.gpus for n in nodes)
    if shape.device_count > max_gpus:
        text = f"a pod asks for {shape.device_count} GPUs, but the largest {node} has {max_gpus}. "
        no_gpu_text = (
            f"a pod asks for a GPU, but no schedulable node has one. {_closed_node_hint(closed_nodes)}"
            if closed_nodes
            else NO_GPU
        )
        yield _compute_cause(
            "gpuDevicesRequest", f"{text}{remedy} {max_gpus} per pod and for more workers." if max_gpus else no_gpu_text
        )
    max_gpu_memory = max(n.gpu_memory for n in nodes if n.gpus >= shape.device_count) if shape.device_count else 0
    if shape.gpu_memory > max_gpu_memory:
        largest_text = (
            f"the largest has {max_gpu_memory} MiB"
            if not closed_nodes
            else f"the largest of a schedulable node has {max_gpu_memory} MiB"
        )
        text = f"a pod asks for {shape.gpu_memory} MiB of a GPU, but {largest_text}. {remedy} that."
        yield _compute_cause("gpuMemoryRequest", text)
    for resource, amount, largest, field in (
        (CPU, shape.cpu, max(n.cpu for n in nodes), "cpuCoreRequest"),
        (MEMORY, shape.memory, max(n.memory for n in nodes), "cpuMemoryRequest"),
    ):
        if amount > largest:
            text = f"a pod asks for {format_amount(resource, amount)}, but the largest {node} has {format_amount(resource, largest)}."
            yield _compute_cause(field, f"{text} {remedy} that.")
    text = f"no single {node} has the GPUs, CPUs and memory that a pod asks for together."
    remedy_start = f"{_closed_node_hint(closed_nodes)} Or ask" if closed_nodes else "Ask"
    yield _compute_cause(
        "gpuDevicesRequest" if shape.device_count else "cpuCoreRequest",
        f"{text} {remedy_start} for less of one of them.",
    )


def _closed_node_hint(closed_nodes: Sequence[Node]) -> str:
    """A sentence that names a closed node that could hold it, and why it is closed."""
    return f"Node {closed_nodes[0].name} could, but {why_shut(closed_nodes[0])}."


def _compute_cause(field: str, text: str) -> Cause:
    return Cause("max", text, f"spec.compute.{field}")
