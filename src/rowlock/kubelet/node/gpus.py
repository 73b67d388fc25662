"""The GPUs of pods: which of them a container gets, what its programs are told, and shares of one. Pure.

A share has three layers, none of which is isolation: the pod sees only its cards; the caching allocator of PyTorch (2.9 and newer
read the limit from the environment) stops at the share, and so does JAX's, while TensorFlow grows as needed instead of taking the
whole card; and a watch (`gpu_watch.py`) warns when the pod holds more of the card's memory than its share. Compute time is not
divided: programs on one card take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowlock.kubelet.node.machine import Gpu, NodePlan
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.objects import is_digits
from rowlock.quantity import integer_value

DEVICES_ANNOTATION = "rowlock.dev/devices"
GPU_RESOURCE = "nvidia.com/gpu"
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""PyTorch's name since 2.9, and the one before; a program reads the first that is set."""
FRACTION_OPTION = "per_process_memory_fraction"
JAX_VARIABLES = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")
"""JAX takes three quarters of the card at its start, unless told otherwise. Every version reads the first name; one that knows
the second refuses a program that has both."""
CUDA_CONTEXT_MIB = 600
"""MiB that a CUDA context and the libraries' workspaces take beside the allocator; not counted as overuse."""
TOLERANCE = 1.05
LOOKS_BEFORE_WARNING = 3
"""Measurements in a row that must exceed the share before the pod is warned."""


@dataclass(frozen=True, slots=True)
class GpuFraction:
    """Percent of each of the pod's cards, and the same in MiB. A request for memory is rounded down to four places: the shares of as
    many pods as fit on the card must not add up to more than the card."""

    percent: float
    mebibytes: int


@dataclass(frozen=True, slots=True)
class ContainerGpus:
    """The GPUs of one container, and what its programs are told about them."""

    devices: tuple[str, ...] | None = None
    """UUIDs of its GPUs; () = none; None = no GPU of this machine needs to be hidden.

    With None, CUDA_VISIBLE_DEVICES is unset, as in a cluster's pod without a GPU. Empty or -1 means "no GPU" to CUDA, and so to PyTorch,
    TensorFlow and JAX; Paddle's launcher takes any value that is set for the name of a GPU, and then makes no group on CPUs."""
    simulated: str | None = None
    """The numbers of its simulated GPUs, separated by commas; None = its node has none."""
    fraction: GpuFraction | None = None
    """Its share of a GPU; None = it has whole ones, or none."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further variables for its programs."""


def assign_devices(
    pod: PodSpec, node: NodePlan, held_devices: Mapping[str, tuple[str, ...]], *, is_placed: bool = True
) -> tuple[str, ...]:
    """The pod's devices, as UUIDs: the scheduler's choice, else free whole ones. `held_devices`: pod → its devices; `is_placed`: whether
    a scheduler has put the pod on its node; if not, its annotation is only its creator's wish and is ignored."""
    if is_placed and (chosen := pod.annotations.get(DEVICES_ANNOTATION)):
        indices = [int(i) for i in chosen.split(",") if is_digits(i.strip())]
        return tuple(node.gpus[i].uuid for i in indices if i < len(node.gpus))
    taken_uuids = {uuid for devices in held_devices.values() for uuid in devices}
    free = [gpu.uuid for gpu in node.gpus if gpu.uuid not in taken_uuids]
    return tuple(free[: sum(_whole_gpus(pod).values())])


def container_gpus(
    pod: PodSpec, container: ContainerSpec, card: PodCard, node: NodePlan, *, has_own_address: bool
) -> ContainerGpus:
    """The container's part of the pod's devices: as many as it asks for, in order of the containers.

    NCCL: whole GPUs of one node are one host (its fast path); a pod that shares a card must be a host of its own. NCCL's newer
    memory handles cannot be passed between network namespaces, so the older way is selected."""
    whole_gpus, devices, variables = _whole_gpus(pod), tuple[str, ...](), dict[str, str]()
    is_fractional = any(pod.annotations.get(k) for k in ("gpu-fraction", "gpu-memory"))
    if is_fractional:
        chosen = pod.annotations.get("gpu-fraction-container-name") or pod.main_containers[0].name
        devices = card.devices if container.name == chosen else ()
    elif container.name in whole_gpus:
        names = list(whole_gpus)
        first = sum(whole_gpus[name] for name in names[: names.index(container.name)])
        devices = card.devices[first : first + whole_gpus[container.name]]
    if gpus := sum(whole_gpus.values()):
        variables["RUNAI_NUM_OF_GPUS"] = str(gpus)
    if card.devices and not node.simulated:
        variables["NCCL_HOSTID"] = card.uid if is_fractional else card.node
        if has_own_address:
            variables |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"}
    return ContainerGpus(
        devices=_visible_devices(devices, node),
        simulated=",".join(u.rpartition("-")[2] for u in devices) if node.simulated else None,
        fraction=pod_fraction(pod, node, card.devices) if devices else None,
        variables=variables,
    )


def _visible_devices(devices: tuple[str, ...], node: NodePlan) -> tuple[str, ...] | None:
    """`ContainerGpus.devices` of a container with these devices of the node."""
    if node.simulated:
        return () if node.has_hidden_gpus else None
    return devices if node.gpus else None


def _whole_gpus(pod: PodSpec) -> dict[str, int]:
    """Number of whole GPUs that each of the pod's main containers requests."""
    return {c.name: integer_value(c.limits.get(GPU_RESOURCE, 0)) for c in pod.main_containers}


def gpu_environment(gpus: ContainerGpus, pod_env: Mapping[str, str]) -> dict[str, str]:
    """The GPU variables of the container's programs, whatever the pod sets."""
    env: dict[str, str] = {}
    if gpus.devices is not None:
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.devices)
        env["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpus.devices) or "void"
    if gpus.simulated is not None:
        env["ROWLOCK_SIMULATED_GPU"] = gpus.simulated
    if gpus.fraction is not None:
        env |= fraction_environment(gpus.fraction, pod_env)
    return {**env, **gpus.variables}


def requested_fraction(pod: PodSpec, card: Gpu | None) -> GpuFraction | None:
    """The pod's share of a card of this kind; None if it requests none, or a value that is not valid."""
    pod_annotations = pod.annotations
    memory = card.memory if card else 0
    try:
        if text := pod_annotations.get("gpu-fraction"):
            percent = round(float(text) * 100)
            return GpuFraction(percent, memory * percent // 100) if 0 < percent < 100 else None
        if (text := pod_annotations.get("gpu-memory")) and 0 < int(text) < memory:
            return GpuFraction(int(text) * 1_000_000 // memory / 10_000, int(text))
    except (ValueError, OverflowError):
        pass
    return None


def pod_fraction(pod: PodSpec, plan: NodePlan, devices: Sequence[str]) -> GpuFraction | None:
    """The pod's share of the first card that it was given."""
    return requested_fraction(
        pod, next((g for g in plan.gpus if g.uuid in devices), plan.gpus[0] if plan.gpus else None)
    )


def fraction_environment(fraction: GpuFraction, pod_env: Mapping[str, str]) -> dict[str, str]:
    """The variables that tell a program its share. The user's allocator settings stay; the limit is added to them."""
    text = f"{fraction.percent / 100:g}"
    env = {"GPU_PORTION": text, "RUNAI_NUM_OF_GPUS": text, "ROWLOCK_GPU_MEMORY_MIB": str(fraction.mebibytes)}
    if "TF_FORCE_GPU_ALLOW_GROWTH" not in pod_env:
        env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if not any(name in pod_env for name in JAX_VARIABLES):
        env[JAX_VARIABLES[0]] = text
    user_setting = next((pod_env[name] for name in ALLOCATOR_VARIABLES if pod_env.get(name)), "")
    limit = (
        user_setting
        if FRACTION_OPTION in user_setting
        else ",".join(filter(None, (user_setting, f"{FRACTION_OPTION}:{text}")))
    )
    return {**env, **dict.fromkeys(ALLOCATOR_VARIABLES, limit)}


def remarks(pod: PodSpec, plan: NodePlan | None) -> list[str]:
    """A sentence on how far the pod's share is enforced; [] without one. Simulated cards limit nothing."""
    fraction = requested_fraction(pod, plan.gpus[0]) if plan is not None and plan.gpus and not plan.simulated else None
    if fraction is None:
        return []
    return [
        f"its {fraction.percent} % of a GPU ({fraction.mebibytes} MiB) is accounted for, not isolated: the allocators of PyTorch and JAX stop there; "
        "other memory and the compute time of the GPU are shared with all pods on it; a pod that uses more is warned"
    ]


@dataclass(slots=True)
class OveruseTracker:
    """Counts measurements in a row in which a pod held more memory of a card than its share."""

    over_counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def find_overusers(
        self, used: Mapping[tuple[str, str], int], allowed: Mapping[tuple[str, str], int]
    ) -> list[tuple[str, str, int, int]]:
        """(pod's uid, card, MiB held, MiB allowed) of pods that exceed their share for the `LOOKS_BEFORE_WARNING`-th time in a row. Keys of
        both mappings are (uid, card). A pod is listed again only after it was within its share."""
        overusers = []
        for key, allowed_mib in allowed.items():
            held_mib = used.get(key, 0)
            count = self.over_counts.get(key, 0) + 1 if held_mib > allowed_mib * TOLERANCE + CUDA_CONTEXT_MIB else 0
            self.over_counts[key] = count
            if count == LOOKS_BEFORE_WARNING:
                overusers.append((*key, held_mib, allowed_mib))
        self.over_counts = {key: count for key, count in self.over_counts.items() if key in allowed and count}
        return overusers
