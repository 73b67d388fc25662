"""The TCP connections of processes, from `/proc`, and which processes are connected to each other."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from rowlock.kubelet.shim.process_tree import descendants

Connection = tuple[str, str]
"""Both ends of a TCP connection as in /proc/net/tcp, the local one first."""
_MAX_DESCRIPTORS, _MAX_PROCESSES, _MAX_TABLE = 4096, 256, 4 << 20
_ESTABLISHED = b"01"


def connected_siblings(parent: int, pids: Sequence[int]) -> list[int]:
    """Those children of a process that are connected to each other. A socket that several of these processes hold, because they inherited
    it, does not count. [] when their sockets may not be read."""
    try:
        sockets = {pid: found for pid in pids[:_MAX_PROCESSES] if (found := set(socket_inodes(pid)))}
        if len(sockets) < 2:
            return []
        table, of_parent = read_connections(parent), set(_inodes_of(parent))
        held = {pid: inodes & table.keys() for pid, inodes in sockets.items()}
    except OSError:
        return []
    holders = Counter(inode for inodes in held.values() for inode in inodes)
    ends = {
        table[inode]: pid
        for pid, inodes in held.items()
        for inode in inodes
        if holders[inode] == 1 and inode not in of_parent
    }
    peers = {pid for (near, far), pid in ends.items() if ends.get((far, near), pid) != pid}
    return [pid for pid in pids if pid in peers]


def connected_processes(pids: Sequence[int]) -> set[int]:
    """Those processes that are connected to another one of them, each with its descendants; all of them when it cannot be known."""
    tables: dict[str, dict[bytes, Connection]] = {}
    ends: dict[Connection, int] = {}
    found: set[int] = set()
    try:
        for pid in pids[:_MAX_PROCESSES]:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            if namespace not in tables:
                tables[namespace] = read_connections(pid)
            for near, far in (tables[namespace][inode] for inode in socket_inodes(pid) if inode in tables[namespace]):
                if (peer := ends.get((far, near), pid)) != pid:
                    found |= {pid, peer}
                ends[near, far] = pid
    except OSError:
        return set(pids)
    return found


def read_connections(pid: int) -> dict[bytes, Connection]:
    """Socket inode → established connection, in the network namespace of a process. Raises OSError."""
    found: dict[bytes, Connection] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/net/{name}", "rb") as file:
            for line in file.read(_MAX_TABLE).splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _ESTABLISHED:
                    found[fields[9]] = _end(fields[1]), _end(fields[2])
    return found


def _end(text: bytes) -> str:
    """Address and port as in /proc/net/tcp; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    address, _, port = text.decode(errors="replace").partition(":")
    return (
        f"{address[24:] if len(address) == 32 and address.startswith('0000000000000000FFFF0000') else address}:{port}"
    )


def socket_inodes(pid: int) -> Iterator[bytes]:
    """The socket inodes of a process and its descendants. Raises OSError when the process's own descriptors may not be read."""
    yield from _inodes_of(pid)
    for each in descendants(pid)[:_MAX_PROCESSES]:
        with contextlib.suppress(OSError):
            yield from _inodes_of(each)


def _inodes_of(pid: int) -> Iterator[bytes]:
    """The socket inodes of one process. Raises OSError."""
    for name in os.listdir(f"/proc/{pid}/fd")[:_MAX_DESCRIPTORS]:
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                yield target[8:-1].encode()
