"""Converts Nodes to Run:ai's Node JSON."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.scheduling.model import pod_requests
from rowlock.scheduling.model.from_objects import parse_node

DEFAULT_POOL = "default"
NETWORK_ANNOTATION = "rowlock.dev/network"
"""Annotation of every node that rowlock's kubelet registers: the mode of its pods' network."""
SIMULATED_GPUS_ANNOTATION = "rowlock.dev/simulated-gpus"
"""Annotation of nodes with simulated GPUs; its value is "true"."""


def pool_name(node: Object) -> str:
    """The name of the node pool that a node is in."""
    return pod_requests.node_pool(node) or DEFAULT_POOL


def node_status(node: Object) -> str:
    """Ready, NotReady, or Unknown (no recent heartbeat)."""
    ready = objects.condition(node, "Ready")
    return {"True": "Ready", "False": "NotReady"}.get(str((ready or {}).get("status")), "Unknown")


def gpu_type(node: Object) -> str:
    """The model of its GPUs, from NVIDIA's label; "" if the node has no such label."""
    return objects.labels(node).get("nvidia.com/gpu.product", "")


def is_rowlock_node(node: Object) -> bool:
    """Whether rowlock's own kubelet registered it: such a node runs programs of its machine."""
    return NETWORK_ANNOTATION in objects.annotations(node)


def has_simulated_gpus(node: Object) -> bool:
    """Whether its GPUs are simulated; False if it has none."""
    return objects.annotations(node).get(SIMULATED_GPUS_ANNOTATION) == "true" and parse_node(node).gpus > 0


_CLIQUE_LABEL = "nvidia.com/gpu.clique"


def nvlink_ids(node: Object) -> tuple[str | None, str | None]:
    """The NVLink domain and the clique in it, as NVIDIA's GPU feature discovery writes them into one label
    (the domain, a dot, the clique); (None, None) for a node without that label."""
    domain, _, clique = objects.labels(node).get(_CLIQUE_LABEL, "").rpartition(".")
    return domain or None, clique or None


def updated_at(node: Object) -> str:
    """When one of its conditions last changed; heartbeats do not count."""
    conditions = objects.dig(node, "status.conditions", [])
    changes = [str(condition.get("lastTransitionTime") or "") for condition in conditions]
    return max([*changes, _created_at(node)])


def _created_at(node: Object) -> str:
    return str(objects.meta(node).get("creationTimestamp") or "")


def node_json(node: Object, cluster: str) -> dict[str, Any]:
    """Run:ai's Node JSON; `gpuInfo` is null for a node without GPUs."""
    gpus = parse_node(node).gpus
    conditions = objects.dig(node, "status.conditions", [])
    taints = objects.dig(node, "spec.taints", [])
    domain, clique = nvlink_ids(node)
    return {
        "id": objects.uid(node),
        "name": objects.name(node),
        "status": node_status(node),
        "conditions": [{field: str(c.get(field) or "") for field in ("type", "reason", "message")} for c in conditions],
        "taints": [{field: str(t.get(field) or "") for field in ("key", "value", "effect")} for t in taints],
        "nodePool": pool_name(node),
        "gpuInfo": {"gpuType": gpu_type(node), "gpuCount": gpus} if gpus else None,
        "gpusSimulated": has_simulated_gpus(node),
        "nvLinkDomainUid": domain,
        "nvLinkCliqueId": clique,
        "clusterUuid": cluster,
        "createdAt": _created_at(node),
        "updatedAt": updated_at(node),
    }
