"""The resources of one node: what is idle, and what is being released."""

from __future__ import annotations

from rowlock.scheduling.model.host_ports import unlisted_amount
from rowlock.scheduling.model.pod_requests import replica_portion, replicas_of
from rowlock.scheduling.model.resources import WHOLE_GPU, memory_portion
from rowlock.scheduling.model.snapshot import Node, Shape


class NodeState:
    """What is idle on a node, and what is being released (minus what pipelined pods take)."""

    __slots__ = (
        "idle_cpu",
        "idle_extras",
        "idle_memory",
        "idle_pods",
        "index",
        "node",
        "releasing_cpu",
        "releasing_extras",
        "releasing_memory",
        "releasing_per_device",
        "releasing_pods",
        "replicas",
        "used_per_device",
    )

    def __init__(self, node: Node, index: int) -> None:
        self.node, self.index = node, index
        self.replicas = replicas_of(dict(node.labels)) if node.gpus else 1
        """Number of replicas per GPU by the device plugin; 1 = GPUs are not shared."""
        self.idle_cpu, self.idle_memory, self.idle_pods = node.cpu, node.memory, node.pods
        self.idle_extras = dict(node.extras)
        self.releasing_cpu = self.releasing_memory = self.releasing_pods = 0
        self.releasing_extras = dict.fromkeys(self.idle_extras, 0)
        self.used_per_device: list[float] = [0] * node.gpus
        self.releasing_per_device: list[float] = [0] * node.gpus

    def device_portion(self, shape: Shape) -> float:
        """Hundredths that the shape takes here of each of its GPUs; above 100 if it fits on none."""
        if shape.gpus:
            return WHOLE_GPU
        memory = shape.gpu_memory
        asked: float = memory_portion(memory, self.node.gpu_memory) if memory else shape.portion
        if self.replicas == 1:
            return asked
        part = replica_portion(self.replicas)
        return part if asked <= part else WHOLE_GPU + 1

    def occupy(self, shape: Shape, devices: tuple[int, ...], sign: int) -> float:
        """Add (`sign` +1) or remove (-1) a shape's resources. Returns the change of used GPUs in hundredths."""
        self.idle_cpu -= sign * shape.cpu
        self.idle_memory -= sign * shape.memory
        self.idle_pods -= sign
        for name, value in shape.extras:
            self.idle_extras[name] = self.idle_extras.get(name, unlisted_amount(name)) - sign * value
        if devices:
            amount = sign * self.device_portion(shape)
            for d in devices:
                self.used_per_device[d] += amount
            return amount * len(devices)
        return 0

    def release(self, shape: Shape, devices: tuple[int, ...], sign: int) -> float:
        """`sign` +1: a pod's resources are being released; -1: resources are pipelined to a pod. Returns hundredths of GPUs."""
        self.releasing_cpu += sign * shape.cpu
        self.releasing_memory += sign * shape.memory
        self.releasing_pods += sign
        for name, value in shape.extras:
            self.releasing_extras[name] = self.releasing_extras.get(name, 0) + sign * value
        if devices:
            amount = sign * self.device_portion(shape)
            for d in devices:
                self.releasing_per_device[d] += amount
            return amount * len(devices)
        return 0

    def idle_gpu(self) -> float:
        return sum(WHOLE_GPU - u for u in self.used_per_device)

    def free_gpu(self) -> float:
        """Hundredths of GPUs that are idle or being released, minus what pipelined pods take."""
        return sum(WHOLE_GPU - u + b for u, b in zip(self.used_per_device, self.releasing_per_device, strict=True))
