"""What a rank does, apart from its stack: CPU time, bytes, sleeps. Read from `/proc`, so it works for any framework."""

import contextlib
import os

from rowlock.diagnosis.activity import Activity
from rowlock.diagnostics import stack_dumps
from rowlock.diagnostics.process_sockets import bytes_of_sockets, shares_host_network
from rowlock.kubelet.shim.process_tree import children, descendants

_MAX_BYTES, _MAX_COMMAND = 64 * 1024, 80
"""Bytes of a file of `/proc` that are read; characters of a command line that are shown."""
_MAX_DEPTH, _MAX_THREADS = 64, 256
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_activity(pid: int) -> Activity:
    """The counters of a process and its descendants; 0 when it has ended."""
    tree = (pid, *descendants(pid))
    own_queued, *below = map(_queued_seconds, tree)
    return Activity(
        stack_dumps.cpu_seconds(pid),
        stack_dumps.own_cpu_seconds(pid),
        sum(_bytes_moved(each) for each in tree) + _network_bytes(pid),
        _wakeups(pid),
        b"nanosleep" in _read(f"/proc/{pid}/wchan"),
        system_cpu=_kernel_work(pid)[0],
        queued=own_queued + sum(below),
        own_queued=own_queued,
        main_cpu=_main_cpu(pid),
        faults=_kernel_work(pid)[1],
    )


def _queued_seconds(pid: int) -> float:
    """Seconds for which its threads have waited for a CPU; 0 when the kernel does not count them."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task")[:_MAX_THREADS]:
            fields = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
            total += int(fields[1]) if len(fields) > 1 else 0
    return total / 1e9


def _kernel_work(pid: int) -> tuple[float, int]:
    """System CPU seconds and minor page faults of one process since its start."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[12]) / _TICKS_PER_SECOND, int(fields[7])) if len(fields) > 12 else (0.0, 0)


def _main_cpu(pid: int) -> float:
    fields = _read(f"/proc/{pid}/task/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND if len(fields) > 12 else 0.0


def command_below(pid: int) -> str:
    """The command line of the innermost descendant of `pid`, following the lowest pid each time: what a shell runs now."""
    for _ in range(_MAX_DEPTH):
        below = children(pid)
        if not below:
            break
        pid = min(below)
    words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    text = "".join(c if c.isprintable() and c != "`" else " " for c in words) or stack_dumps.process_name(pid)
    return text if len(text) <= _MAX_COMMAND else f"{text[: _MAX_COMMAND - 1]}…"


def _bytes_moved(pid: int) -> int:
    """Bytes of read and write calls, on files and connections."""
    fields = dict(line.split(b": ", 1) for line in _read(f"/proc/{pid}/io").splitlines() if b": " in line)
    return int(fields.get(b"rchar", 0)) + int(fields.get(b"wchar", 0))


def _network_bytes(pid: int) -> int:
    """Bytes of the process's network namespace; of its own connections when it shares the host's, which counts the bytes of all."""
    with contextlib.suppress(OSError):
        if shares_host_network(pid):
            return bytes_of_sockets(pid)
        lines = _read(f"/proc/{pid}/net/dev").splitlines()[2:]
        return sum(int(line.partition(b":")[2].split()[0]) for line in lines)
    return 0


def _wakeups(pid: int) -> int:
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    return b""
