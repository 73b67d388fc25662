"""Limits of a container (memory, CPU, processes): a control group where one can be made, else a watchdog that measures.

`detect_backend()` tries, once per pod host: `v2` or `v1` when groups with both controllers can be made, else `watchdog`. A group
is `rowlock/<pod uid>.<container>.<run>`; the shim makes it, the program joins it before exec, and the kernel's counters
(`oom_kill`, the peak) are read when everything in it has ended. The watchdog adds up the memory of the program's processes and
kills them all above the limit; it can limit neither CPUs nor forks. Standard library only.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rowlock.kubelet.mounts.cgroup_view import probe_view

ROOT = "/sys/fs/cgroup"
TOP_GROUP = "rowlock"
BEST_EFFORT_GROUP = "best-effort"
"""The group of all containers without CPU request and limits. Its name has no pod's uid, so no pod's cleanup removes it."""
CPU_PERIOD = 100_000
"""The period in microseconds over which a CPU limit is enforced, as by a kubelet."""
WATCHDOG_INTERVAL = 0.2
"""Seconds between two measurements of the watchdog."""
_MIN_QUOTA = 1000
_BEST_EFFORT_SHARE = 0.001
"""In cores; not 0, which would leave the group at the default weight."""
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def detect_backend(root: str = ROOT) -> str:
    """Tries which backend can be used here: `v2`, `v1` or `watchdog`."""
    if os.path.exists(f"{root}/cgroup.controllers"):
        backend = "v2" if _can_create_v2_group(root) else "watchdog"
    else:
        can_create = all(_can_create_group(f"{root}/{controller}") for controller in ("memory", "cpu"))
        backend = "v1" if can_create else "watchdog"
    if backend != "watchdog":
        _set_cpu_weight(Cgroup(backend, (cpu_directory(backend, root),)), os.cpu_count() or 1)
        _set_cpu_weight(Cgroup.make("", {"how": backend}, root), 0.0)
    return backend


def probe_pids(backend: str, root: str = ROOT) -> str:
    """Why the number of a container's processes cannot be limited here; "" when it can."""
    if backend == "watchdog":
        return "control groups cannot be written"
    if backend == "v1":
        return "" if _can_create_group(f"{root}/pids") else f"no control group can be made in {root}/pids"
    handed_down = f"{root}/{TOP_GROUP}/cgroup.subtree_control"
    return (
        "" if "pids" in _read(handed_down).split() else f"the controller pids is not handed down to {root}/{TOP_GROUP}"
    )


def cpu_directory(backend: str, root: str = ROOT) -> str:
    """The directory of the group that holds all containers, among which CPUs are divided."""
    return f"{root}/{TOP_GROUP}" if backend == "v2" else f"{root}/cpu/{TOP_GROUP}"


def probe_container_view(backend: str, root: str = ROOT) -> str:
    """Why containers cannot see their own limits in /sys/fs/cgroup; "" when they can, or have none that are kept there."""
    if backend == "watchdog":
        return ""
    point = root if backend == "v2" else f"{root}/cpu"
    return probe_view(cpu_directory(backend, root), point, backend)


def _set_cpu_weight(group: "Cgroup", cores: float) -> None:
    """Sets a group's CPU weight as a kubelet does, 1024 shares a core. If the kernel refuses, it divides CPUs evenly."""
    shares = _cpu_shares({"share": cores})
    file, value = ("cpu.weight", _weight_of(shares)) if group.version == "v2" else ("cpu.shares", shares)
    with contextlib.suppress(OSError):
        _write(f"{group.directories[0]}/{file}", str(value))


def _can_create_group(directory: str) -> bool:
    if not os.path.isdir(directory):
        return False
    try:
        os.makedirs(f"{directory}/{TOP_GROUP}/probe.{os.getpid()}")
        os.rmdir(f"{directory}/{TOP_GROUP}/probe.{os.getpid()}")
    except OSError:
        return False
    return True


def _can_create_v2_group(root: str) -> bool:
    """The controllers must be handed down: to our directory, and from it to its children."""
    try:
        for directory in (root, f"{root}/{TOP_GROUP}"):
            os.makedirs(directory, exist_ok=True)
            if not {"memory", "cpu"} <= set(_read(f"{directory}/cgroup.subtree_control").split()):
                _write(f"{directory}/cgroup.subtree_control", "+memory +cpu")
            if "pids" not in _read(f"{directory}/cgroup.subtree_control").split():
                with contextlib.suppress(OSError):  # `probe_pids` reports it
                    _write(f"{directory}/cgroup.subtree_control", "+pids")
    except OSError:
        return False
    return _can_create_group(root)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read_number(path: str, field: str = "") -> int:
    """A number in a control file, on the line of `field`; 0 when it is not there."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _read(path).splitlines():
            if not field or line.split()[0] == field:
                return int(line.split()[-1])
    return 0


def read_refused_pids(directory: str) -> int:
    """How often the kernel refused a process or thread to the group in this directory (of version 2, or of the v1 controller pids)."""
    return _read_number(f"{directory}/pids.events", "max")


class Cgroup(NamedTuple):
    """A container's control group; `directories` is empty if it has none."""

    version: str
    directories: tuple[str, ...] = ()
    shared: bool = False
    """Whether other containers are in it, too: it has no limits, and is never removed."""

    @classmethod
    def make(cls, name: str, limits: Mapping[str, Any], root: str = ROOT) -> "Cgroup":
        """Makes the group with its limits. `limits`: how, memory (bytes, 0 = none), cpu (cores, 0 = none), share
        (cores asked for), pids (processes and threads, 0 = no limit). Raises OSError when the kernel refuses a limit."""
        group = cls.by_name(name, limits, root)
        if not group.directories:
            return group
        for directory in group.directories:
            if not os.access(directory, os.F_OK):  # `makedirs` would find out, but costs a fork 40 pages
                os.makedirs(directory, exist_ok=True)
        if group.shared:
            return group
        if limits.keys() == {
            "how",
            "pids",
        }:  # without a pids limit it would be best-effort: same weight
            limits = {**limits, "share": _BEST_EFFORT_SHARE}
        rows = _v2_settings(limits) if group.version == "v2" else _v1_settings(limits)
        for number, file, value, required in rows:
            try:
                _write(f"{group.directories[number]}/{file}", value)
            except OSError:
                if required:
                    raise
        return group

    @classmethod
    def by_name(cls, name: str, limits: Mapping[str, Any], root: str = ROOT) -> "Cgroup":
        """The group of that name as `make` makes it, without touching the disk."""
        version = str(limits.get("how") or "watchdog")
        if version == "watchdog":
            return cls(version)
        if limits.keys() == {"how"}:
            return cls(version, (f"{cpu_directory(version, root)}/{BEST_EFFORT_GROUP}",), shared=True)
        if version == "v2":
            return cls(version, (f"{root}/{TOP_GROUP}/{name}",))
        controllers = ("memory", "cpu", "pids") if limits.get("pids") else ("memory", "cpu")
        return cls(version, tuple(f"{root}/{controller}/{TOP_GROUP}/{name}" for controller in controllers))

    @property
    def procs_files(self) -> list[str]:
        """The files into which a single-threaded process writes itself. In version 1 it moves as a thread: before it moves a process,
        the kernel waits until none forks or ends, which takes ten milliseconds (an RCU grace period)."""
        file = "tasks" if self.version == "v1" else "cgroup.procs"
        return [f"{directory}/{file}" for directory in self.directories]

    def mount_points(self, root: str = ROOT) -> list[tuple[str, str]]:
        """Each directory of the container's own group, and where its hierarchy is mounted; [] for a shared group."""
        points = (root,) if self.version == "v2" else (f"{root}/memory", f"{root}/cpu", f"{root}/pids")
        return [] if self.shared else list(zip(self.directories, points, strict=False))

    def oom_kills(self) -> int:
        """How often the kernel killed a process of the group for lack of memory."""
        if not self.directories or self.shared:
            return 0
        file = "memory.events" if self.version == "v2" else "memory.oom_control"
        return _read_number(f"{self.directories[0]}/{file}", "oom_kill")

    def refused_pids(self) -> int:
        """How often the kernel refused the group another process or thread."""
        return 0 if self.shared or not self.directories else read_refused_pids(self.directories[-1])

    def peak_memory(self) -> int:
        """The peak memory of the group, in bytes."""
        file = "memory.peak" if self.version == "v2" else "memory.max_usage_in_bytes"
        return _read_number(f"{self.directories[0]}/{file}") if self.directories else 0

    def remove(self) -> None:
        """Removes the group, in which nothing runs any more."""
        if self.shared:
            return
        for directory in self.directories:
            with contextlib.suppress(OSError):  # something still runs there: the pod host tries again
                os.rmdir(directory)


_Settings = list[tuple[int, str, str, bool]]
"""(index of the directory, file, value, whether it must succeed)."""


def _v2_settings(limits: Mapping[str, Any]) -> _Settings:
    rows: _Settings = []
    if limits.get("memory"):
        rows += [(0, "memory.max", str(limits["memory"]), True), (0, "memory.swap.max", "0", False)]
        rows += [(0, "memory.oom.group", "1", False)]
    if limits.get("cpu"):
        rows.append((0, "cpu.max", f"{_cpu_quota(limits)} {CPU_PERIOD}", True))
    if limits.get("share"):
        rows.append((0, "cpu.weight", str(_weight_of(_cpu_shares(limits))), False))
    if limits.get("pids"):
        rows.append((0, "pids.max", str(limits["pids"]), True))
    return rows


def _v1_settings(limits: Mapping[str, Any]) -> _Settings:
    rows: _Settings = []
    if limits.get("memory"):
        rows.append((0, "memory.limit_in_bytes", str(limits["memory"]), True))
        rows.append((0, "memory.memsw.limit_in_bytes", str(limits["memory"]), False))
    if limits.get("cpu"):
        rows += [
            (1, "cpu.cfs_period_us", str(CPU_PERIOD), True),
            (1, "cpu.cfs_quota_us", str(_cpu_quota(limits)), True),
        ]
    if limits.get("share"):
        rows.append((1, "cpu.shares", str(_cpu_shares(limits)), False))
    if limits.get("pids"):
        rows.append((2, "pids.max", str(limits["pids"]), True))
    return rows


def _cpu_quota(limits: Mapping[str, Any]) -> int:
    return max(_MIN_QUOTA, int(float(limits["cpu"]) * CPU_PERIOD))


def _cpu_shares(limits: Mapping[str, Any]) -> int:
    return min(262144, max(2, int(float(limits["share"]) * 1024)))


def _weight_of(shares: int) -> int:
    """Shares of version 1 (2 to 262144) as a weight of version 2 (1 to 10000), as runc converts them."""
    return 1 + (shares - 2) * 9999 // 262142


def join_group(procs_files: Iterable[str]) -> None:
    """Moves the calling process into the group; what it starts from now on is in it, too."""
    for procs_file in procs_files:
        _write(procs_file, "0")


def remove_pod_groups(pod: str, root: str = ROOT) -> None:
    """Removes a pod's groups whose shim was killed before it could remove them. A group in which a process still runs stays, and
    keeps no other from being removed."""
    hierarchies = (root, *(f"{root}/{controller}" for controller in ("memory", "cpu", "pids")))
    for directory in (f"{hierarchy}/{TOP_GROUP}" for hierarchy in hierarchies):
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(directory) if name.startswith(f"{pod}.")]
        for name in names:
            with contextlib.suppress(OSError):
                os.rmdir(f"{directory}/{name}")


def resident_memory(pids: Iterable[int], *, exact: bool = False) -> int:
    """Bytes of memory of these processes: a quick estimate that counts what they share once, or `exact` (slow)."""
    private = largest = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            if exact:
                private += _pss(pid)
                continue
            _, pages, shared = (int(word) for word in _read(f"/proc/{pid}/statm").split()[:3])
            private += (pages - shared) * _PAGE_SIZE
            largest = max(largest, shared * _PAGE_SIZE)
    return private + largest


def _pss(pid: int) -> int:
    """Bytes of memory of a process, its proportional part of shared pages included."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def format_bytes(size: int) -> str:
    """Bytes as people write them in limits: `50.0Mi`."""
    return f"{size / (1 << 30):.1f}Gi" if size >= 1 << 30 else f"{size / (1 << 20):.1f}Mi"
