"""What the kubelet's parts know about this machine: determined once, when the kubelet starts, and passed to each of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock.kubelet.network.pod_network import NetworkChoice
from rowlock.kubelet.node.machine import NodePlan


@dataclass(frozen=True, slots=True)
class PodHostAbilities:
    """What the pod host can do on this machine (its answer to `hello`)."""

    fabric: bool
    """Whether it can make network namespaces."""
    problem: str
    """Why it cannot make network namespaces."""
    limits: str
    """How it enforces limits: `v2` or `v1` (control groups), or `watchdog`."""
    mount_problem: str
    """Why containers cannot have mounts of their own here; "" when they can."""
    can_mount_memory: bool
    """Whether it can make memory volumes."""
    rootfs_problem: str
    """Why containers cannot have root file systems of their own here; "" when they can."""
    process_problem: str
    """Why programs cannot have processes, IPC and /dev/shm of their own here; "" when they can."""
    cgroup_problem: str
    """Why containers cannot see their own limits in /sys/fs/cgroup here; "" when they can."""
    pids_problem: str
    """Why the number of a container's processes cannot be limited here; "" when it can."""

    @classmethod
    def from_hello(cls, hello: Mapping[str, Any]) -> "PodHostAbilities":
        return cls(
            fabric=bool(hello.get("fabric")),
            problem=str(hello.get("problem") or "no fabric"),
            limits=str(hello.get("limits") or "watchdog"),
            mount_problem=str(hello.get("unmountable") or ""),
            can_mount_memory=bool(hello.get("memory")),
            rootfs_problem=str(hello.get("rootfs", "the pod host is of another version")),
            process_problem=str(hello.get("processes", "the pod host is of another version")),
            cgroup_problem=str(hello.get("cgroups") or ""),
            pids_problem=str(hello.get("pids", "the pod host is of another version")),
        )


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The machine on which a kubelet runs pods."""

    data_dir: Path
    nodes: Mapping[str, NodePlan]
    """Every node that pods of this machine may be bound to, also those that take no new ones."""
    network: NetworkChoice
    limits_mode: str
    """How limits are enforced: `v2` or `v1` (control groups), or `watchdog`."""
    mount_problem: str
    """Why containers cannot have mounts of their own here; "" when they can."""
    can_mount_memory: bool
    """Whether the pod host can make memory volumes."""
    rootfs_problem: str
    """Why containers cannot have root file systems of their own here; "" when they can."""
    server_env: Mapping[str, str]
    """The environment in which the server was started."""
    clock: Callable[[], float]
    """Seconds since the epoch."""
    process_problem: str = ""
    """Why programs cannot have processes, IPC and /dev/shm of their own here; "" when they can."""
    cgroup_problem: str = ""
    """Why containers cannot see their own limits in /sys/fs/cgroup here; "" when they can."""
    pids_limit: int = 0
    """The most processes and threads of each container; 0 = no limit of its own."""
    open_file_limits: tuple[int, int] | None = None
    """The soft and hard limit of open files that programs begin with; None = those of the server."""

    def unmet_isolation(self, *, has_limits: bool) -> list[str]:
        """What a pod of processes shares with others because the kernel allows no better, one sentence each."""
        shared = f"the pod sees processes, IPC and /dev/shm of others: {self.process_problem}"
        limits = f"/sys/fs/cgroup shows the machine's limits, and those of the pod are kept all the same: {self.cgroup_problem}"
        wanted = ((shared, self.process_problem), (limits, self.cgroup_problem if has_limits else ""))
        return [sentence for sentence, problem in wanted if problem]

    @property
    def wake_path(self) -> str:
        """The pipe into which shims write hints."""
        return str(self.data_dir / "wake")

    @property
    def rlimits(self) -> Mapping[str, tuple[int, int]]:
        """Limits that programs get of their own, under the names of `resource`."""
        return {"RLIMIT_NOFILE": self.open_file_limits} if self.open_file_limits else {}
