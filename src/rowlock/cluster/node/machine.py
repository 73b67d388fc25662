"""What this machine has: CPUs, memory, GPUs (through NVML, silent where there is none); and the nodes made of it.

Several nodes may share one machine: its resources are dealt out, so that their sum is what is there, unless the user
says how much each node shall pretend to have. Simulated GPUs are accounted like real ones and marked as such.
"""

import os
import platform
import resource
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil

import rowlock
from rowlock.cluster.node.engine import Engine
from rowlock.objects import Object, timestamp
from rowlock.quantity import render

SIMULATED = "rowlock.dev/simulated-gpus"
PRETEND = "rowlock.dev/pretend"
NETWORK = "rowlock.dev/network"
NETWORK_REASON = "rowlock.dev/network-reason"
LIMITS = "rowlock.dev/limits"
RUNTIME = "rowlock.dev/runtime"
HOW_LIMITS = {
    "v2": "cgroup v2: the kernel keeps memory and cpu limits",
    "v1": "cgroup v1: the kernel keeps memory and cpu limits",
    "watchdog": "watchdog: memory is measured five times a second, cpu limits are not enforced (control groups cannot be written)",
}
PRETEND_PRODUCT, PRETEND_MEMORY = "NVIDIA-H100-80GB-HBM3", 81559
PODS = 1000


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `memory` in MiB."""

    uuid: str
    product: str
    memory: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found."""

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
    labels: Mapping[str, str] = field(default_factory=dict)


def inventory() -> Inventory:
    """Looks at the machine, once."""
    gpus, driver = _nvml()
    return Inventory(_cpus(), _memory(), gpus, driver)


def _cpus() -> int:
    """CPUs we may use: affinity, and a CFS quota where a container engine set one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return count


def _memory() -> int:
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return total


def _nvml() -> tuple[tuple[Gpu, ...], str]:
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
                _text(pynvml.nvmlDeviceGetUUID(h)),
                _text(pynvml.nvmlDeviceGetName(h)).replace(" ", "-"),
                int(pynvml.nvmlDeviceGetMemoryInfo(h).total) >> 20,
            )
            for h in handles
        )
        return gpus, _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return (), ""
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user said about nodes; None = take the machine as it is."""

    nodes: int = 1
    gpus_per_node: int | None = None
    simulated_gpus: int = 0
    cpus_per_node: float | None = None
    memory_per_node: int | None = None
    name: str = ""


def plan(found: Inventory, wishes: Wishes) -> tuple[NodePlan, ...]:
    """The nodes. Raises ValueError with a sentence when the wish needs more real GPUs than there are."""
    base = (wishes.name or socket.gethostname().split(".")[0].lower() or "node").replace("_", "-")
    names = [base] if wishes.nodes == 1 else [f"{base}-{i}" for i in range(wishes.nodes)]
    each = len(found.gpus) // wishes.nodes if wishes.gpus_per_node is None else wishes.gpus_per_node
    if not wishes.simulated_gpus and each * wishes.nodes > len(found.gpus):
        raise ValueError(
            f"{wishes.nodes} node{'s' * (wishes.nodes > 1)} of {each} GPUs need{'s' * (wishes.nodes == 1)} {each * wishes.nodes}, this machine has {len(found.gpus)}; "
            f"for a rehearsal without GPUs use --simulated-gpus {each}"
        )
    cpus = Decimal(str(wishes.cpus_per_node or max(1, found.cpus // wishes.nodes)))
    memory = wishes.memory_per_node or found.memory // wishes.nodes
    return tuple(
        NodePlan(name, cpus, memory, _devices(found, wishes, i, each), bool(wishes.simulated_gpus))
        for i, name in enumerate(names)
    )


def _devices(found: Inventory, wishes: Wishes, node: int, each: int) -> tuple[Gpu, ...]:
    if not wishes.simulated_gpus:
        return found.gpus[node * each : (node + 1) * each]
    return tuple(
        Gpu(f"GPU-simulated-{node}-{i}", PRETEND_PRODUCT, PRETEND_MEMORY) for i in range(wishes.simulated_gpus)
    )


def ours(node: Object) -> bool:
    """A node that a kubelet of this data directory registered: it has a network mode and is not pretended."""
    notes = node["metadata"].get("annotations") or {}
    return NETWORK in notes and notes.get(PRETEND) != "true"


def closed(name: str, found: Inventory) -> NodePlan:
    """A node of an earlier start that takes no new pods; those on it run on."""
    return NodePlan(name, Decimal(found.cpus), found.memory)


def node_object(node: NodePlan, network: tuple[str, str], now: float, limits: str = "") -> Object:
    """The Node as its kubelet registers it; `network` is the mode and why, `limits` how they are kept."""
    labels = {
        "beta.kubernetes.io/arch": _arch(),
        "beta.kubernetes.io/os": sys.platform,
        "kubernetes.io/arch": _arch(),
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": sys.platform,
        **node.labels,
    }
    notes = {NETWORK: network[0], NETWORK_REASON: network[1]}
    if limits:
        notes[LIMITS] = HOW_LIMITS[limits]
    if node.gpus:
        labels |= {
            "nvidia.com/gpu.count": str(len(node.gpus)),
            "nvidia.com/gpu.memory": str(min(g.memory for g in node.gpus)),
            "nvidia.com/gpu.product": node.gpus[0].product,
        }
    if node.simulated:
        notes[SIMULATED] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": notes},
        "spec": {},
        "status": node_status(node, now),
    }


def tell_runtime(node: dict[str, Any], engine: Engine | None, why: str) -> None:
    """What runs containers here, in the node's object."""
    if engine is not None:
        node["status"]["nodeInfo"]["containerRuntimeVersion"] = f"{engine.name}://{engine.version}"
        why = f"{engine}: runs images that it has or pulls; what `rowlock image` knows runs as processes"
    if why:
        node["metadata"]["annotations"][RUNTIME] = why


def node_status(node: NodePlan, now: float) -> dict[str, Any]:
    """Capacity, conditions, addresses, nodeInfo."""
    amounts = {"cpu": render(node.cpus), "memory": f"{node.memory >> 10}Ki", "pods": str(PODS)}
    if node.gpus:
        amounts["nvidia.com/gpu"] = str(len(node.gpus))
    return {
        "capacity": amounts,
        "allocatable": dict(amounts),
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
        "kubeletVersion": f"v1.34.4-rowlock.{rowlock.__version__}",
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


def doctor() -> list[dict[str, str]]:
    """Facts for `rowlock doctor`: what was looked at, `ok` or `warning`, and a sentence."""
    found = inventory()
    gpus = ", ".join(f"{g.product} ({g.memory} MiB)" for g in found.gpus)
    rows = [
        ("cpus", True, f"{found.cpus} usable of {os.cpu_count()}"),
        (
            "memory",
            True,
            f"{found.memory / (1 << 30):.1f} GiB, {psutil.virtual_memory().available / (1 << 30):.1f} free",
        ),
        ("gpus", True, gpus or "none found through NVML; --simulated-gpus N pretends for rehearsals"),
        _open_files(),
        _shared_memory(),
    ]
    return [{"name": name, "state": "ok" if fine else "warning", "text": text} for name, fine, text in rows]


def _open_files() -> tuple[str, bool, str]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= 4096
    return ("open files", enough, f"limit {hard}" + ("" if enough else "; 1,000 pods need 4096: raise `ulimit -Hn`"))


def _shared_memory() -> tuple[str, bool, str]:
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return ("shared memory", True, "no /dev/shm on this system")
    free = room.f_bavail * room.f_frsize / (1 << 30)
    return ("shared memory", free >= 0.5, f"{free:.1f} GiB free in /dev/shm (DataLoader workers use it)")
