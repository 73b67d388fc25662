"""Shares of GPUs for schedulers that do not support them: replicas of the GPUs that NVIDIA's device plugin divides (time-slicing, MPS).

A pod that asks for half a GPU gets one replica, as a device, on a node whose GPUs are divided into two. It keeps the annotation with its
request, so that quotas and lists count half a GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any

from rowlock.objects import Object, dig, labels
from rowlock.scheduling.model.from_objects import parse_node
from rowlock.scheduling.model.pod_requests import (
    BY_DEVICE_PLUGIN,
    FRACTION_ANNOTATION,
    FRACTION_CONTAINER_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GPU_RESOURCE,
    NUM_DEVICES_ANNOTATION,
    REPLICAS_LABEL,
    SHARE_ANNOTATION,
    SHARED_RESOURCE,
    STRATEGY_LABEL,
    hundredths,
    most_replicas,
    replicas_of,
)

_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def asks_for_share(template: Object) -> bool:
    """Whether a pod or pod template asks for a share of a GPU by KAI's annotations and is not yet turned into a replica."""
    notes = _notes(template)
    return (FRACTION_ANNOTATION in notes or GPU_MEMORY_ANNOTATION in notes) and not is_replica(template)


def is_replica(template: Object) -> bool:
    """Whether the template's share of a GPU is already a replica of the device plugin."""
    return _notes(template).get(SHARE_ANNOTATION) == BY_DEVICE_PLUGIN


def replica_problem(template: Object, nodes: Collection[Object]) -> str:
    """Why no replica of a GPU on these nodes is as large as the share that the pod asks for, as the end of a sentence; "" if one is."""
    divided = sorted({_replicas_on(node) for node in nodes} - {1})
    if not divided:
        return "no node says that NVIDIA's device plugin divides its GPUs (time-slicing or MPS)"
    notes = _notes(template)
    if GPU_MEMORY_ANNOTATION in notes:
        return "the device plugin of the nodes divides GPUs into equal parts, and knows no memory: ask for a portion"
    if notes.get(NUM_DEVICES_ANNOTATION, "1") != "1":
        return "the device plugin of the nodes gives a pod a part of one GPU only"
    portion = _portion(notes)
    if portion is None or divided[0] > most_replicas(portion):
        largest = Decimal(1) / divided[0]
        return (
            f"the nodes divide their GPUs into {' or '.join(map(str, divided))}: ask for at most {largest:.2g} of one"
        )
    return ""


def whole_problem(template: Object, nodes: Iterable[Object]) -> str:
    """Why no node here has whole GPUs for the pod, as the end of a sentence; "" if one has, or if the pod asks for none."""
    if not any(_asks_for_devices(c) for c in dig(template, "spec.containers") or ()):
        return ""  # cheap check before the loop over all nodes: on some clusters most jobs ask for no GPU
    counts = [_replicas_on(node) for node in nodes if parse_node(node).gpus]
    if not counts or 1 in counts:
        return ""
    return f"the nodes divide all their GPUs: ask for a share, at most {Decimal(1) / min(counts):.2g} of one"


def _asks_for_devices(container: Mapping[str, Any]) -> bool:
    amounts = (container.get("resources") or {}).values()
    return any(GPU_RESOURCE in (part or {}) for part in amounts if isinstance(part, Mapping) or part is None)


def take_replica(template: Object, nodes: Iterable[Object]) -> Object:
    """The template changed so that each pod requests one replica of a GPU, at least as large as the share that it asks for."""
    notes = _notes(template)
    portion = _portion(notes)
    assert portion is not None
    most, is_renamed = most_replicas(portion), [_is_renamed(node) for node in _fitting_nodes(portion, nodes)]
    resource = SHARED_RESOURCE if is_renamed and all(is_renamed) else GPU_RESOURCE
    spec = template.get("spec") or {}
    wanted = notes.get(FRACTION_CONTAINER_ANNOTATION)
    containers = list(spec.get("containers") or ())
    index = next((i for i, c in enumerate(containers) if c.get("name") == wanted), 0)
    containers[index : index + 1] = [_with_device(c, resource) for c in containers[index : index + 1]]
    metadata = {
        **(template.get("metadata") or {}),
        "annotations": {**notes, SHARE_ANNOTATION: BY_DEVICE_PLUGIN},
    }
    return {**template, "metadata": metadata, "spec": {**_on_divided_nodes(spec, most), "containers": containers}}


def replica_notice(template: Object, nodes: Iterable[Object]) -> str:
    """The notice that time-slicing does not limit a replica's GPU memory; "" if every fitting node uses MPS, or none fits."""
    portion = _portion(_notes(template))
    fitting = _fitting_nodes(portion, nodes) if portion is not None else []
    if not fitting or all(labels(node).get(STRATEGY_LABEL) == "mps" for node in fitting):
        return ""
    return (
        "the share of a GPU is one turn of several (time-slicing by NVIDIA's device plugin): nothing holds a program to its part of the"
        " GPU's memory"
    )


def _notes(template: Object) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("annotations") or {}


def _portion(notes: Mapping[str, str]) -> int | None:
    """The requested share in hundredths of a GPU (1 to 100); None if the annotation is absent or invalid."""
    try:
        portion = hundredths(notes.get(FRACTION_ANNOTATION, ""))
    except (ValueError, ArithmeticError):
        return None
    return portion if 1 <= portion <= 100 else None


def _fitting_nodes(portion: int, nodes: Iterable[Object]) -> list[Object]:
    """The nodes with divided GPUs whose replicas are at least `portion` hundredths of a GPU."""
    return [node for node in nodes if 1 < _replicas_on(node) <= most_replicas(portion)]


def _replicas_on(node: Object) -> int:
    """Number of replicas per GPU of the node; 1 if it divides none or has none."""
    return replicas_of(labels(node)) if parse_node(node).gpus else 1


def _is_renamed(node: Object) -> bool:
    """Whether the device plugin advertises its replicas as `SHARED_RESOURCE`."""
    return dict(parse_node(node).extras).get(SHARED_RESOURCE, 0) > 0


def _with_device(container: dict[str, Any], resource: str) -> dict[str, Any]:
    given = container.get("resources") or {}
    amounts = {part: {**(given.get(part) or {}), resource: "1"} for part in ("requests", "limits")}
    return {**container, "resources": {**given, **amounts}}


def _on_divided_nodes(spec: Object, most: int) -> Object:
    """The pod's spec with a node affinity for nodes that divide each GPU into 2 to `most` replicas."""
    ours = [
        {"key": REPLICAS_LABEL, "operator": "Gt", "values": ["1"]},
        {"key": REPLICAS_LABEL, "operator": "Lt", "values": [str(most + 1)]},
    ]
    affinity = spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_AFFINITY) or {}).get("nodeSelectorTerms") or [{}]
    required = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *ours]} for term in terms]
    changed = {**of_nodes, _AFFINITY: {"nodeSelectorTerms": required}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": changed}}
