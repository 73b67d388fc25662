"""A node pool is the set of nodes whose label `kai.scheduler/node-pool` has its name; `default` is that of nodes without the label.

Nothing is stored besides the nodes: a pool is created by labelling nodes, and is gone with its last node. Its id is its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.scheduling.model.pod_requests import NODE_POOL_LABEL
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.inventory.nodes import DEFAULT_POOL, node_status, pool_name, updated_at
from rowlock.workloads.runai_json import TENANT

_PLACEMENT = {"cpu": "binpack", "gpu": "binpack"}
_REFUSED: dict[str, tuple[Any, str]] = {
    "overProvisioningRatio": (1, "a GPU is shared as far as shares of it are free, and no further"),
    "placementStrategy": (_PLACEMENT, "pods are packed on as few nodes as can be"),
    "gpuNetworkAccelerationLabelKey": (None, "racks are named by a job: spec.podAffinity"),
    "gpuNetworkAccelerationDetection": ("Auto", "racks are named by a job: spec.podAffinity"),
    "gpuResourceOptimization": (None, "GPUs are neither swapped nor time-sliced here"),
    "schedulingConfiguration": (None, "how long a job is safe is a field of its queue"),
    "networkTopologyId": (None, "topologies are named by a job: spec.podAffinity"),
}


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool and its nodes, sorted by name."""

    name: str
    nodes: tuple[Object, ...]

    @property
    def phase(self) -> str:
        if not self.nodes:
            return "Empty"
        usable = [n for n in self.nodes if node_status(n) != "NotReady" and not objects.dig(n, "spec.unschedulable")]
        return "Ready" if usable else "Unschedulable"

    @property
    def creation_time(self) -> str:
        """When its oldest node was created; "" without nodes."""
        return min((str(objects.meta(node).get("creationTimestamp") or "") for node in self.nodes), default="")

    @property
    def update_time(self) -> str:
        """When one of its nodes last changed; "" without nodes."""
        return max((updated_at(node) for node in self.nodes), default="")


def node_pools(nodes: Iterable[Object]) -> list[NodePool]:
    """Every pool; `default` comes first, and exists even without nodes."""
    members: dict[str, list[Object]] = {DEFAULT_POOL: []}
    for node in sorted(nodes, key=objects.name):
        members.setdefault(pool_name(node), []).append(node)
    names = sorted(members, key=lambda name: (name != DEFAULT_POOL, name))
    return [NodePool(name, tuple(members[name])) for name in names]


@dataclass(frozen=True, slots=True)
class NodePoolRequest:
    """The pool in a request: the nodes with this label shall be in it."""

    name: str
    label_key: str
    label_value: str
    cluster: str

    def selects(self, node: Object) -> bool:
        return objects.labels(node).get(self.label_key) == self.label_value


def parse_node_pool_request(body: Any) -> NodePoolRequest:
    """The body of a POST, or of a PUT or PATCH completed with the name. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only("name", "labelKey", "labelValue", "clusterId", refused=_REFUSED)
    request = NodePoolRequest(top.label("name"), top.text("labelKey"), top.text("labelValue"), top.text("clusterId"))
    if request.name == DEFAULT_POOL:
        top.add_error("name", "format", "must not be default: that is the pool of the nodes without a pool.")
    for field in ("labelKey", "labelValue"):
        if not top.text(field):
            top.add_error(field, "required", "names the label of the nodes that are to be in the pool.")
    errors.raise_if_any()
    return request


def node_pool_json(pool: NodePool, cluster: str, cluster_name: str, cluster_created: str) -> dict[str, Any]:
    """Run:ai's NodePool JSON."""
    return {
        "id": pool.name,
        "name": pool.name,
        "labelKey": NODE_POOL_LABEL,
        "labelValue": pool.name,
        "clusterId": cluster,
        "clusterName": cluster_name,
        "tenantId": TENANT,
        "isDefault": pool.name == DEFAULT_POOL,
        "phase": pool.phase,
        "phaseMessage": "",
        "overProvisioningRatio": 1,
        "placementStrategy": _PLACEMENT,
        "createdAt": pool.creation_time or cluster_created,
        "createdBy": "",
        "updatedAt": pool.update_time or cluster_created,
        "updatedBy": "",
        "deletedAt": None,
        "deletedBy": None,
        "nodes": [objects.name(node) for node in pool.nodes],
    }


def list_label_changes(nodes: Sequence[Object], request: NodePoolRequest) -> list[tuple[str, str | None]]:
    """(node's name, new value) for each node whose pool label changes; None removes the label."""
    changes: list[tuple[str, str | None]] = []
    for node in nodes:
        is_in, belongs = pool_name(node) == request.name, request.selects(node)
        if is_in != belongs:
            changes.append((objects.name(node), request.name if belongs else None))
    return changes
