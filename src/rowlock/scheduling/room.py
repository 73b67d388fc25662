"""The room on one node: what is idle, and what is coming back."""

from __future__ import annotations

from rowlock.scheduling.amounts import WHOLE
from rowlock.scheduling.snapshot import Node, Shape


class NodeState:
    """What is idle on a node, and what is coming back (releasing, less what is promised away)."""

    __slots__ = (
        "back",
        "back_cpu",
        "back_extras",
        "back_memory",
        "back_pods",
        "cpu",
        "extras",
        "index",
        "memory",
        "node",
        "pods",
        "used",
    )

    def __init__(self, node: Node, index: int) -> None:
        self.node, self.index = node, index
        self.cpu, self.memory, self.pods = node.cpu, node.memory, node.pods
        self.extras = dict(node.extras)
        self.back_cpu = self.back_memory = self.back_pods = 0
        self.back_extras = dict.fromkeys(self.extras, 0)
        self.used = [0] * node.gpus
        self.back = [0] * node.gpus

    def amount(self, shape: Shape) -> int:
        """Hundredths of each of its cards that the shape takes here; above 100 it does not fit any."""
        if shape.gpus:
            return WHOLE
        if shape.gpu_memory:
            return -(-shape.gpu_memory * 100 // max(1, self.node.gpu_memory))
        return shape.portion

    def occupy(self, shape: Shape, devices: tuple[int, ...], sign: int) -> int:
        """Returns the hundredths of GPUs taken."""
        self.cpu -= sign * shape.cpu
        self.memory -= sign * shape.memory
        self.pods -= sign
        for name, value in shape.extras:
            self.extras[name] = self.extras.get(name, 0) - sign * value
        if devices:
            amount = sign * self.amount(shape)
            for d in devices:
                self.used[d] += amount
            return amount * len(devices)
        return 0

    def release(self, shape: Shape, devices: tuple[int, ...], sign: int) -> int:
        """sign +1: what it holds is coming back; -1: what is coming back (or idle) is promised to it."""
        self.back_cpu += sign * shape.cpu
        self.back_memory += sign * shape.memory
        self.back_pods += sign
        for name, value in shape.extras:
            self.back_extras[name] = self.back_extras.get(name, 0) + sign * value
        if devices:
            amount = sign * self.amount(shape)
            for d in devices:
                self.back[d] += amount
            return amount * len(devices)
        return 0

    def idle_gpu(self) -> int:
        return sum(WHOLE - u for u in self.used)

    def free_gpu(self) -> int:
        """Idle and coming back, less what is promised."""
        return sum(WHOLE - u + b for u, b in zip(self.used, self.back, strict=True))
