"""Nodes and what their pods ask of them, for `runai list nodes`, `runai node list` and `runai top node`."""

from __future__ import annotations

from typing import Any

from rowlock.cli.client import ServerClient

NODE_POOL_LABEL = "kai.scheduler/node-pool"
_GPU = "nvidia.com/gpu"
_SUFFIX = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3}


def node_rows(server: ServerClient) -> list[dict[str, Any]]:
    """Every node: its state, what it has and what of it is allocated. Memory as Kubernetes writes it."""
    nodes = server.get("/api/v1/nodes")["items"]
    pods = server.get("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")["items"]
    return [_node_row(n, [p for p in pods if p["spec"].get("nodeName") == n["metadata"]["name"]]) for n in nodes]


def _node_row(node: dict[str, Any], pods: list[dict[str, Any]]) -> dict[str, Any]:
    allocatable, labels = node["status"].get("allocatable") or {}, node["metadata"].get("labels") or {}
    memory = sum(_requested_by_pod(p, "memory") for p in pods)
    gpu_memory = max(100, int(labels.get("nvidia.com/gpu.memory") or 0) // 100 * 100)  # as the scheduler reckons
    return {
        "name": node["metadata"]["name"],
        "status": node_status(node),
        "address": internal_ip(node),
        "nodePool": labels.get(NODE_POOL_LABEL) or "default",
        "gpuType": labels.get("nvidia.com/gpu.product", "-") if allocatable.get(_GPU) else "-",
        "gpus": parse_quantity(str(allocatable.get(_GPU, "0"))),
        "allocatedGpus": sum(requested_gpus(p, gpu_memory) for p in pods),
        "gpuMemory": gpu_memory,
        "cpu": str(allocatable.get("cpu", "")),
        "allocatedCpu": sum(_requested_by_pod(p, "cpu") for p in pods),
        "memory": str(allocatable.get("memory", "")),
        "allocatedMemory": f"{memory / 2**20:.0f}Mi",
        "createdAt": node["metadata"].get("creationTimestamp"),
        "pods": len(pods),
    }


def node_status(node: dict[str, Any]) -> str:
    """`Ready` or `NotReady`, by the conditions of a Kubernetes Node."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return "Ready" if ready else "NotReady"


def internal_ip(node: dict[str, Any]) -> str:
    """The address inside the cluster of a Kubernetes Node; empty where it has none."""
    addresses = node["status"].get("addresses") or []
    return next((str(a["address"]) for a in addresses if a.get("type") == "InternalIP"), "")


def parse_quantity(text: str) -> float:
    """A Kubernetes quantity as a number."""
    for suffix, size in _SUFFIX.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * size
    return float(text or 0)


def _requested_by_pod(pod: dict[str, Any], resource: str) -> float:
    requests = [(c.get("resources") or {}).get("requests") or {} for c in pod["spec"].get("containers") or []]
    return sum(parse_quantity(str(r.get(resource, "0"))) for r in requests)


def requested_gpus(pod: dict[str, Any], gpu_memory: int) -> float:
    """Devices, or the share of one; a share by memory in hundredths of a card with `gpu_memory` MiB, rounded up."""
    annotations = pod["metadata"].get("annotations") or {}
    devices = float(annotations.get("gpu-fraction-num-devices", "1"))
    if "gpu-fraction" in annotations:
        return float(annotations["gpu-fraction"]) * devices
    if "gpu-memory" in annotations and gpu_memory:
        return -(-int(annotations["gpu-memory"]) * 100 // gpu_memory) / 100 * devices
    return _requested_by_pod(pod, _GPU)
