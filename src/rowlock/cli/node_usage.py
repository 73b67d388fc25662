"""Nodes and their allocations, for `runai list nodes`, `runai node list`, `runai nodepool list` and `runai top node`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock.cli.client import ServerClient
from rowlock.cli.output import tell

NODE_POOL_LABEL = "kai.scheduler/node-pool"


def node_rows(server: ServerClient) -> list[dict[str, Any]]:
    """Every node: its state, its resources and their allocation; memory as a Kubernetes quantity. The server computes the sums,
    because the pods of a thousand nodes would be 50 MB."""
    rows: list[dict[str, Any]] = server.get("/api/v1/scheduler/nodes")["nodes"]
    return rows


_MADE_UP = "simulated: they do no work, and their type and memory are made up."
_MOST_NAMED = 3
SIMULATED = f"These GPUs are {_MADE_UP}"


def tell_simulated(nodes: Iterable[dict[str, Any]]) -> None:
    """Print to stderr which nodes, of `node_rows`, have simulated GPUs. The table itself has Run:ai's columns, which scripts parse."""
    with_gpus = [node for node in nodes if node["gpus"]]
    names = [node["name"] for node in with_gpus if node.get("gpusSimulated")]
    if not names:
        return
    if len(names) == len(with_gpus):
        return tell(SIMULATED)
    rest = f" and {len(names) - _MOST_NAMED} more nodes" if len(names) > _MOST_NAMED else ""
    tell(f"The GPUs of {', '.join(names[:_MOST_NAMED])}{rest} are {_MADE_UP}")


def has_simulated_gpus(node: dict[str, Any]) -> bool:
    """Whether the GPUs of a Kubernetes Node are simulated; False if it has none."""
    gpus = str((node["status"].get("allocatable") or {}).get("nvidia.com/gpu", "0"))
    return (node["metadata"].get("annotations") or {}).get("rowlock.dev/simulated-gpus") == "true" and gpus != "0"


def node_status(node: dict[str, Any]) -> str:
    """`Ready` or `NotReady`, by the conditions of a Kubernetes Node."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return "Ready" if ready else "NotReady"


def internal_ip(node: dict[str, Any]) -> str:
    """The InternalIP of a Kubernetes Node; "" if it has none."""
    addresses = node["status"].get("addresses") or []
    return next((str(a["address"]) for a in addresses if a.get("type") == "InternalIP"), "")
