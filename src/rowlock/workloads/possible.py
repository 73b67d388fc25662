"""What no node of this cluster could ever hold is refused at submit, with the field, the largest possible value and a way out.

Asked of the scheduler's own rule for an empty node. One that is retired or leaving holds none. One that takes no pods for now
(cordoned, long not ready) is worth waiting for: a job that fits there alone is admitted, kubectl is warned of it, and `explain` names
the node. A cluster without open nodes is given the benefit of the doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rowlock import quantity
from rowlock.errors import Cause
from rowlock.objects import Object, deleting
from rowlock.scheduling import reading, requests
from rowlock.scheduling.amounts import CPU, GPU, MEMORY, UNLIMITED, WHOLE, words
from rowlock.scheduling.placement import could_hold
from rowlock.scheduling.sentences import shut as why_shut
from rowlock.scheduling.snapshot import Node, Settings, Shape
from rowlock.workloads.compute import Compute
from rowlock.workloads.spec import Submission

NO_GPU = (
    "a GPU is asked for, but no node of this cluster has one. Ask for none, or start the cluster "
    "with simulated ones: `rowlock down && rowlock up -d --simulated-gpus 1`."
)
_AWAITED = Settings().unready_grace
"""Seconds for which a node that is not ready may come back; then its pods are given up, too."""


def shape(compute: Compute, pool: str = "") -> Shape:
    """A pod of this compute in this node pool as the scheduler sees it."""
    asked = {**dict(compute.limits), **dict(compute.requests)}
    return Shape(
        cpu=quantity.millis(asked.get("cpu", "0")),
        memory=quantity.whole(asked.get("memory", "0")),
        gpus=0 if compute.shared else compute.devices,
        portion=round(compute.portion * 100) if compute.portion is not None else 0,
        gpu_memory=compute.memory_mib or 0,
        devices=compute.devices if compute.shared else 0,
        pool=pool,
    )


def impossible(compute: Compute, nodes: Iterable[Object], pool: str = "") -> Cause | None:
    """Why no node of the pool could hold a pod like this, were it empty and open; None when one could."""
    return _impossible(shape(compute, pool), nodes, None)


def never_fits(template: Object, nodes: Iterable[Object], now: float, pool: str = "") -> str:
    """The same of a pod template, as a sentence, and without the nodes that are closed now; "" when a node could, or when
    the template cannot be read."""
    wanted = requests.shape(template)
    wanted = replace(wanted, pool=pool or wanted.pool)
    found = None if wanted.unsupported else _impossible(wanted, nodes, now)
    return found.message if found else ""


def _impossible(wanted: Shape, nodes: Iterable[Object], now: float | None) -> Cause | None:
    """`now` None: whatever is closed will be open some day."""
    known: list[Node] = []
    shut: list[Node] = []
    elsewhere: set[str] = set()
    for obj in nodes:  # as a rule the first one could
        node = reading.node(obj)
        if node.pool != wanted.pool:
            elsewhere.add(node.pool)
        elif deleting(obj) or node.retired:
            continue
        elif now is not None and (node.unschedulable or (not node.ready and now - node.unready_since > _AWAITED)):
            shut.append(node)
        elif could_hold(node, wanted):
            return None
        else:
            known.append(node)
    if known:
        return next(_reasons(wanted, known, [node for node in shut if could_hold(node, wanted)]))
    return _no_pool(wanted.pool, elsewhere) if elsewhere and not shut else None


def _no_pool(pool: str, others: set[str]) -> Cause:
    there = ", ".join(sorted(other or "default" for other in others))
    fix = f"put nodes into it (kubectl label node NODE {requests.POOL}={pool}), or name" if pool else "name"
    text = f"no node is in the node pool {pool or 'default'!r}; {fix} another pool: {there}."
    return Cause("options", text, "spec.nodePools")


def beyond_limit(asked: Submission, queues: Iterable[Object]) -> Cause | None:
    """Why the least of it that must run together can never run in these queues (a project and those above it)."""
    pods = asked.run.min_replicas or asked.pods
    crew = [(asked.master.compute, 1)] if asked.lead else []
    crew.append((asked.worker.compute, pods - len(crew)))
    need = [0, 0, 0]
    for compute, count in crew:
        one = shape(compute)
        for r, amount in enumerate((one.cpu, one.memory, one.gpus * WHOLE + one.portion * one.devices)):
            need[r] += amount * count
    for queue in map(reading.queue, queues):
        for r, field in ((GPU, "gpuDevicesRequest"), (CPU, "cpuCoreRequest"), (MEMORY, "cpuMemoryRequest")):
            if queue.limit[r] != UNLIMITED and need[r] > queue.limit[r]:
                most = words(r, queue.limit[r])
                text = f"{pods} pods ask for {words(r, need[r])} together, but queue {queue.name} may never hold more than {most}"
                return _cause(field, f"{text}. Ask for less, or raise the limit: `kubectl edit queue {queue.name}`.")
    return None


def _reasons(wanted: Shape, nodes: Sequence[Node], shut: Sequence[Node]) -> Iterator[Cause]:
    """`shut`: nodes that could hold it if they took pods."""
    node, fewer = ("node", "Ask for at most") if not shut else ("open node", f"{_could(shut)} Or ask for at most")
    most = max(n.gpus for n in nodes)
    if wanted.cards > most:
        text = f"a pod asks for {wanted.cards} GPUs, but the largest {node} has {most}. "
        none = f"a GPU is asked for, but no open node has one. {_could(shut)}" if shut else NO_GPU
        yield _cause("gpuDevicesRequest", f"{text}{fewer} {most} per pod and for more workers." if most else none)
    card = max(n.gpu_memory for n in nodes if n.gpus >= wanted.cards) if wanted.cards else 0
    if wanted.gpu_memory > card:
        there = f"the largest has {card} MiB" if not shut else f"the largest of an open node has {card} MiB"
        text = f"a pod asks for {wanted.gpu_memory} MiB of a GPU, but {there}. {fewer} that."
        yield _cause("gpuMemoryRequest", text)
    for resource, asked, largest, field in (
        (CPU, wanted.cpu, max(n.cpu for n in nodes), "cpuCoreRequest"),
        (MEMORY, wanted.memory, max(n.memory for n in nodes), "cpuMemoryRequest"),
    ):
        if asked > largest:
            text = f"a pod asks for {words(resource, asked)}, but the largest {node} has {words(resource, largest)}."
            yield _cause(field, f"{text} {fewer} that.")
    text = f"no single {node} has the GPUs, CPUs and memory that a pod asks for together."
    less = f"{_could(shut)} Or ask" if shut else "Ask"
    yield _cause("gpuDevicesRequest" if wanted.cards else "cpuCoreRequest", f"{text} {less} for less of one of them.")


def _could(shut: Sequence[Node]) -> str:
    """Which node could hold it, and how to open it."""
    return f"Node {shut[0].name} could, but {why_shut(shut[0])}."


def _cause(field: str, text: str) -> Cause:
    return Cause("max", text, f"spec.compute.{field}")
