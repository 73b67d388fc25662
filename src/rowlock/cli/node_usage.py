"""Nodes and what their pods hold, for `runai list nodes`, `runai node list`, `runai nodepool list` and `runai top node`."""

from __future__ import annotations

from typing import Any

from rowlock.cli.client import ServerClient

NODE_POOL_LABEL = "kai.scheduler/node-pool"


def node_rows(server: ServerClient) -> list[dict[str, Any]]:
    """Every node: its state, what it has and what of it is allocated. Memory as Kubernetes writes it. The server adds up: of a
    thousand nodes the pods alone would be 50 MB."""
    rows: list[dict[str, Any]] = server.get("/api/v1/scheduler/nodes")["nodes"]
    return rows


def node_status(node: dict[str, Any]) -> str:
    """`Ready` or `NotReady`, by the conditions of a Kubernetes Node."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return "Ready" if ready else "NotReady"


def internal_ip(node: dict[str, Any]) -> str:
    """The address inside the cluster of a Kubernetes Node; empty where it has none."""
    addresses = node["status"].get("addresses") or []
    return next((str(a["address"]) for a in addresses if a.get("type") == "InternalIP"), "")
