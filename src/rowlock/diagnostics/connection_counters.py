"""What the kernel counts of the connections of a job's pods: a connection that lasted only a moment between two looks, or at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

_MAX_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TcpOpens:
    """How many TCP connections a network namespace has opened and accepted so far, to itself, too; and attempts that failed."""

    opened: int = 0
    accepted: int = 0
    failed: int = 0

    def opened_elsewhere_since(self, before: TcpOpens) -> int:
        """How many more connections it has opened since then than it has accepted: those that surely left it. Negative: as many were surely
        others'."""
        return (self.opened - self.failed) - (before.opened - before.failed) - (self.accepted - before.accepted)


@dataclass(slots=True)
class ConnectionCounters:
    """The counters of the pods that have a network of their own. They can be read after the pods' programs have ended, until `close`."""

    files: dict[str, int] = field(default_factory=dict)
    """By uid of a pod: a descriptor of its counters."""
    before: dict[str, TcpOpens] = field(default_factory=dict)
    """By uid of a pod: what was counted at the last look."""

    def hold(self, pids: Iterable[tuple[str, int]]) -> None:
        """Hold the counters of pods, each with a process of it. A descriptor keeps the namespace of a pod that has ended."""
        for pod, pid in pids:
            if pod not in self.files and (fd := open_counters(pid)) is not None:
                self.files[pod] = fd

    def are_surely_alone(self, at_end: bool = False) -> bool:
        """Whether nothing that was counted since the last look can be a connection between pods. At the end, whatever was accepted then may
        be one."""
        now = {pod: found for pod, fd in list(self.files.items()) if (found := read_opens(fd)) is not None}
        earlier = {pod: self.before.get(pod, TcpOpens()) for pod in now}
        self.before |= now
        elsewhere = {pod: now[pod].opened_elsewhere_since(before) for pod, before in earlier.items()}
        accepting = {pod for pod, before in earlier.items() if now[pod].accepted > before.accepted}
        if (at_end and accepting) or min(elsewhere.values(), default=0) < 0:
            return False
        leaving = {pod for pod, count in elsewhere.items() if count > 0}
        return not any(leaving - {pod} for pod in accepting)  # else what left the one may have come to the other

    def close(self) -> None:
        while self.files:
            os.close(self.files.popitem()[1])


def open_counters(pid: int) -> int | None:
    """A descriptor of the counters of a process's network namespace; None when it shares the host's, or has ended."""
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return os.open(f"/proc/{pid}/net/snmp", os.O_RDONLY | os.O_CLOEXEC)
    return None


def read_opens(fd: int) -> TcpOpens | None:
    """What the counters say now; None when they cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        text = os.pread(fd, _MAX_BYTES, 0)
        names, values = (line.split() for line in text.splitlines() if line.startswith(b"Tcp:"))
        return TcpOpens(
            *(int(values[names.index(name)]) for name in (b"ActiveOpens", b"PassiveOpens", b"AttemptFails"))
        )
    return None


def failed_attempts(pid: int) -> int:
    """How many attempts to connect have failed in the network namespace of a process; 0 when it shares the host's, or has ended."""
    if (fd := open_counters(pid)) is None:
        return 0
    opens = read_opens(fd)
    os.close(fd)
    return opens.failed if opens is not None else 0
