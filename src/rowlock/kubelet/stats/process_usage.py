"""What process trees have used so far, in one pass over `/proc` for all of them (psutil where there is no `/proc`).

The kernel adds a process's usage to its parent's account when the parent reaps it. So the sum over a living tree, including
each member's reaped children, only grows, and a process that ends between two looks is still counted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from rowlock.kubelet.shim.cgroups import resident_memory

_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE_EVERY = 256
_PAUSE = 0.0005
"""Seconds to pause after that many processes, so that other threads can run."""
MAX_MEMBERS = 20_000
"""Most processes that are measured in one pass; larger pods are measured in part."""


class TreeRoot(NamedTuple):
    """The process at the top of a container: its shim, whose own usage is not counted; or the program itself."""

    pid: int
    is_shim: bool
    program: int = 0
    """A process in the container's network namespace; 0 = its network is not measured."""


class TreeUsage(NamedTuple):
    """The usage of one tree since it began; memory is the present amount. Bytes and seconds."""

    cpu_seconds: float
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_receive_bytes: int
    net_transmit_bytes: int
    pids: tuple[int, ...]
    has_network: bool


class _Process(NamedTuple):
    parent: int
    own_seconds: float
    children_seconds: float


def read_usage(roots: Mapping[str, TreeRoot]) -> dict[str, TreeUsage]:
    """The usage by the names of the roots; roots that have ended are left out."""
    has_proc = os.path.exists("/proc/self/stat")
    processes = _read_processes() if has_proc else _ask_psutil()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    usage: dict[str, TreeUsage] = {}
    looked = 0
    for name, root in roots.items():
        if root.pid in processes and looked < MAX_MEMBERS:
            members = _members(root.pid, children)[: MAX_MEMBERS - looked]
            usage[name] = _sum_tree(root, members, processes, has_proc=has_proc)
            looked += len(members)
            time.sleep(_PAUSE if len(usage) % (_PAUSE_EVERY // 8) == 0 else 0)
    return usage


def _members(root: int, children: Mapping[int, list[int]]) -> list[int]:
    members, unvisited = [root], [root]
    while unvisited:
        below = children.get(unvisited.pop(), [])
        members += below
        unvisited += below
    return members


def _sum_tree(root: TreeRoot, members: list[int], processes: Mapping[int, _Process], *, has_proc: bool) -> TreeUsage:
    cpu = sum(processes[pid].own_seconds + processes[pid].children_seconds for pid in members)
    programs = [pid for pid in members if pid != root.pid or not root.is_shim]
    if root.is_shim:
        cpu -= processes[root.pid].own_seconds
    if not has_proc:
        return TreeUsage(cpu, _ask_memory(programs), 0, 0, 0, 0, tuple(programs), False)
    read = write = 0
    for pid in programs:
        more_read, more_write = _disk_bytes(pid)
        read, write = read + more_read, write + more_write
    network = _network_bytes(root) if root.program else None
    received, sent = network or (0, 0)
    return TreeUsage(cpu, resident_memory(programs), read, write, received, sent, tuple(programs), network is not None)


def _read_processes() -> dict[int, _Process]:
    """All processes of the machine."""
    processes: dict[int, _Process] = {}
    for number, name in enumerate(os.listdir("/proc")):
        if not (name.isascii() and name.isdigit()):
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            processes[int(name)] = _parse_stat(_read(f"/proc/{name}/stat"))
        if number % _PAUSE_EVERY == 0:
            time.sleep(_PAUSE)
    return processes


def _parse_stat(text: bytes) -> _Process:
    """Parses /proc/PID/stat. The program's name may contain blanks and brackets; only numbers follow the last bracket."""
    words = text[text.rindex(b")") + 2 :].split()
    user, system, dead_user, dead_system = (int(word) for word in words[11:15])
    return _Process(int(words[1]), (user + system) / _TICKS, (dead_user + dead_system) / _TICKS)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Bytes that it and its reaped children read from and wrote to disks; 0 if this user may not know."""
    try:
        lines = dict(line.split(b": ") for line in _read(f"/proc/{pid}/io").splitlines())
        return int(lines[b"read_bytes"]), int(lines[b"write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0, 0


def _network_bytes(root: TreeRoot) -> tuple[int, int] | None:
    """Bytes received and sent in the program's network namespace; None = it has none of its own."""
    try:
        outside = root.pid if root.is_shim else "self"
        if os.readlink(f"/proc/{root.program}/ns/net") == os.readlink(f"/proc/{outside}/ns/net"):
            return None
        received = sent = 0
        for line in _read(f"/proc/{root.program}/net/dev").splitlines()[2:]:
            interface, _, figures = line.partition(b":")
            if interface.strip() != b"lo":
                numbers = figures.split()
                received, sent = received + int(numbers[0]), sent + int(numbers[8])
        return received, sent
    except (OSError, ValueError, IndexError):
        return None


def _ask_psutil() -> dict[int, _Process]:
    processes: dict[int, _Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            processes[process.pid] = _Process(process.ppid(), times.user + times.system, 0.0)
    return processes


def _ask_memory(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_info().rss
    return total
