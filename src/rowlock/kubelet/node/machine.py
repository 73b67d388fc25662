"""The resources of this machine (CPUs, memory, GPUs through NVML, if there are any), and the nodes made of it.

Several nodes may share one machine: its resources are divided among them, unless the user states how much each node shall
pretend to have. Simulated GPUs are accounted like real ones and marked as such.
"""

import os
import platform
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil

import rowlock
from rowlock.kubelet.shim.engine_client import Engine
from rowlock.objects import Object, timestamp
from rowlock.quantity import render
from rowlock.workloads.inventory.nodes import NETWORK_ANNOTATION, SIMULATED_GPUS_ANNOTATION, is_rowlock_node

FAKE_NODE_ANNOTATION = "rowlock.dev/pretend"
NETWORK_REASON_ANNOTATION = "rowlock.dev/network-reason"
LIMITS_ANNOTATION = "rowlock.dev/limits"
ROOTFS_ANNOTATION = "rowlock.dev/root-file-system"
PROCESSES_ANNOTATION = "rowlock.dev/processes"
RUNTIME_ANNOTATION = "rowlock.dev/runtime"
LIMITS_MESSAGES = {
    "v2": "cgroup v2: the kernel enforces memory and cpu limits",
    "v1": "cgroup v1: the kernel enforces memory and cpu limits",
    "watchdog": "watchdog: memory is measured five times a second, cpu limits are not enforced (control groups cannot be written)",
}
SIMULATED_PRODUCT, SIMULATED_MEMORY = "NVIDIA-H100-80GB-HBM3", 81559
MAX_PODS = 1000
"""Default for the most pods of a node (`--max-pods`). A kubelet's default is 110, for nodes that are one of many."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `memory` in MiB."""

    uuid: str
    product: str
    memory: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the machine has; `memory` in bytes."""

    cpus: int
    memory: int
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node of this machine and its share."""

    name: str
    cpus: Decimal
    memory: int
    gpus: tuple[Gpu, ...] = ()
    simulated: bool = False
    has_hidden_gpus: bool = False
    """Whether its GPUs are simulated on a machine that has real ones, which its programs must not see."""
    labels: Mapping[str, str] = field(default_factory=dict)
    max_pods: int = MAX_PODS


def inventory() -> Inventory:
    """Inspects the machine."""
    gpus, driver = _read_gpus()
    return Inventory(_usable_cpus(), _usable_memory(), gpus, driver)


def _usable_cpus() -> int:
    """CPUs that this process may use: its affinity, and a CFS quota where a container engine set one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return count


def _usable_memory() -> int:
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return total


def _read_gpus() -> tuple[tuple[Gpu, ...], str]:
    try:
        import pynvml
    except ImportError:
        return (), ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), ""
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = tuple(
            Gpu(
                _decode_text(pynvml.nvmlDeviceGetUUID(h)),
                _decode_text(pynvml.nvmlDeviceGetName(h)).replace(" ", "-"),
                int(pynvml.nvmlDeviceGetMemoryInfo(h).total) >> 20,
            )
            for h in handles
        )
        return gpus, _decode_text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return (), ""
    finally:
        pynvml.nvmlShutdown()


def _decode_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The user's options for nodes; None = take the machine as it is."""

    nodes: int = 1
    gpus_per_node: int | None = None
    simulated_gpus: int = 0
    cpus_per_node: float | None = None
    memory_per_node: int | None = None
    name: str = ""
    max_pods: int = MAX_PODS


def plan_nodes(inventory: Inventory, options: NodeOptions) -> tuple[NodePlan, ...]:
    """The nodes to register. Raises ValueError with a sentence if the options need more real GPUs than there are."""
    base = (options.name or socket.gethostname().split(".")[0].lower() or "node").replace("_", "-")
    names = [base] if options.nodes == 1 else [f"{base}-{i}" for i in range(options.nodes)]
    gpus_per_node = len(inventory.gpus) // options.nodes if options.gpus_per_node is None else options.gpus_per_node
    if not options.simulated_gpus and gpus_per_node * options.nodes > len(inventory.gpus):
        raise ValueError(
            f"{options.nodes} node{'s' * (options.nodes > 1)} of {gpus_per_node} GPUs need{'s' * (options.nodes == 1)} {gpus_per_node * options.nodes}, this machine has {len(inventory.gpus)}; "
            f"to try jobs without GPUs, use --simulated-gpus {gpus_per_node}"
        )
    cpus = Decimal(str(options.cpus_per_node or max(1, inventory.cpus // options.nodes)))
    memory = options.memory_per_node or inventory.memory // options.nodes
    return tuple(
        NodePlan(
            name,
            cpus,
            memory,
            _node_gpus(inventory, options, i, gpus_per_node),
            bool(options.simulated_gpus),
            has_hidden_gpus=bool(options.simulated_gpus and inventory.gpus),
            max_pods=options.max_pods,
        )
        for i, name in enumerate(names)
    )


def _node_gpus(inventory: Inventory, options: NodeOptions, node: int, gpus_per_node: int) -> tuple[Gpu, ...]:
    if not options.simulated_gpus:
        return inventory.gpus[node * gpus_per_node : (node + 1) * gpus_per_node]
    return tuple(
        Gpu(f"GPU-simulated-{node}-{i}", SIMULATED_PRODUCT, SIMULATED_MEMORY) for i in range(options.simulated_gpus)
    )


def is_own_node(node: Object) -> bool:
    """Whether a kubelet of this data directory registered the node: it has a network mode and is not a pretend node."""
    annotations = node["metadata"].get("annotations") or {}
    return is_rowlock_node(node) and annotations.get(FAKE_NODE_ANNOTATION) != "true"


def retired_node_plan(name: str, inventory: Inventory) -> NodePlan:
    """A node of an earlier start that takes no new pods; those on it run on."""
    return NodePlan(name, Decimal(inventory.cpus), inventory.memory)


def node_object(node: NodePlan, network: tuple[str, str], now: float, limits: str = "") -> Object:
    """The Node as its kubelet registers it; `network` is the mode and its reason, `limits` the mode of enforcement."""
    labels = {
        "beta.kubernetes.io/arch": _arch(),
        "beta.kubernetes.io/os": sys.platform,
        "kubernetes.io/arch": _arch(),
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": sys.platform,
        **node.labels,
    }
    annotations = {NETWORK_ANNOTATION: network[0], NETWORK_REASON_ANNOTATION: network[1]}
    if limits:
        annotations[LIMITS_ANNOTATION] = LIMITS_MESSAGES[limits]
    if node.gpus:
        labels |= {
            "nvidia.com/gpu.count": str(len(node.gpus)),
            "nvidia.com/gpu.memory": str(min(g.memory for g in node.gpus)),
            "nvidia.com/gpu.product": node.gpus[0].product,
        }
    if node.simulated:
        annotations[SIMULATED_GPUS_ANNOTATION] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "spec": {},
        "status": node_status(node, now),
    }


def set_runtime_info(node: dict[str, Any], engine: Engine | None, problem: str) -> None:
    """Notes in the node's object what runs containers here."""
    if engine is not None:
        node["status"]["nodeInfo"]["containerRuntimeVersion"] = f"{engine.name}://{engine.version}"
        problem = f"{engine}: runs images that it has or pulls; what `rowlock image` knows runs as processes"
    if problem:
        node["metadata"]["annotations"][RUNTIME_ANNOTATION] = problem


def set_rootfs_info(node: dict[str, Any], problem: str) -> None:
    """Notes in the node's object what programs of built images see as their file system."""
    node["metadata"]["annotations"][ROOTFS_ANNOTATION] = (
        f"copies of the image's files beside this machine's own: {problem}"
        if problem
        else "an overlay of the image over this machine's files; what is written stays in the container"
    )


def add_limits_problem(node: dict[str, Any], problem: str) -> None:
    """Notes in the node's object why programs do not see their limits."""
    if problem:
        annotations = node["metadata"]["annotations"]
        annotations[LIMITS_ANNOTATION] += f"; in /sys/fs/cgroup programs see the machine's ({problem})"


def set_process_info(node: dict[str, Any], problem: str) -> None:
    """Notes in the node's object which processes, IPC objects and shared memory the programs of a pod see."""
    node["metadata"]["annotations"][PROCESSES_ANNOTATION] = (
        f"shared: pods see each other's processes, IPC and /dev/shm ({problem})"
        if problem
        else "namespaces: each container has its own processes, each pod its own IPC and /dev/shm; pods with real GPUs share"
        " the machine's IPC and /dev/shm; programs of this machine share its /tmp (event SharedTmp where jobs meet there)"
    )


def node_status(node: NodePlan, now: float) -> dict[str, Any]:
    """Capacity, conditions, addresses, nodeInfo."""
    capacity = {"cpu": render(node.cpus), "memory": f"{node.memory >> 10}Ki", "pods": str(node.max_pods)}
    if node.gpus:
        capacity["nvidia.com/gpu"] = str(len(node.gpus))
    return {
        "capacity": capacity,
        "allocatable": dict(capacity),
        "conditions": [_condition(row, now) for row in _CONDITIONS],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": node.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": _node_info(),
        "images": [],
    }


_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def _condition(row: tuple[str, str, str, str], now: float) -> dict[str, str]:
    kind, value, reason, message = row
    times = {"lastHeartbeatTime": timestamp(now), "lastTransitionTime": timestamp(now)}
    return {"type": kind, "status": value, **times, "reason": reason, "message": message}


def _node_info() -> dict[str, str]:
    boot = _first_line("/proc/sys/kernel/random/boot_id")
    machine = _first_line("/etc/machine-id") or boot
    return {
        "machineID": machine,
        "systemUUID": machine,
        "bootID": boot,
        "kernelVersion": platform.release(),
        "osImage": _os_name(),
        "containerRuntimeVersion": f"process://{rowlock.__version__}",
        "kubeletVersion": f"v{rowlock.KUBERNETES}-rowlock.{rowlock.__version__}",
        "kubeProxyVersion": "",
        "operatingSystem": sys.platform,
        "architecture": _arch(),
    }


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.platform()


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip().split("\n")[0]
    except OSError:
        return ""


def _arch() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
