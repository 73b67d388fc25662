"""The TCP connections of processes, from `/proc` and the kernel, and which processes are connected to each other."""

import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence

from rowlock.kubelet.shim.process_tree import descendants

Connection = tuple[str, str]
"""Both ends of a TCP connection as in /proc/net/tcp, the local one first."""
_MAX_DESCRIPTORS, _MAX_PROCESSES, _MAX_TABLE = 4096, 256, 4 << 20
_ESTABLISHED, _LISTEN, _NOBODY = b"01", b"0A", b"0"
"""States in /proc/net/tcp, and the inode of a connection that no process holds any more: both ends have closed it a moment ago."""
_SOCK_DIAG, _GET_SOCKETS, _DUMP, _WITH_INFO = 4, 20, 0x301, 1 << 1
_ERROR, _DONE, _INFO = 2, 3, 2
"""The protocol and the messages of sock_diag(7), and the attribute that holds a tcp_info."""
_INODE, _ATTRIBUTES, _ACKED = 84, 88, 120
"""Where in a message the inode and the attributes are; where in a tcp_info the acknowledged and the received bytes are."""


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


def visited_ports(pid: int, inodes: set[bytes]) -> dict[str, bool]:
    """The ports on which these sockets listen, in hexadecimal, in the network namespace of a process; and whether somebody has closed a
    connection there in the last minute. Raises OSError."""
    listening, closed = set[str](), set[str]()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/net/{name}", "rb") as file:
            for fields in map(bytes.split, file.read(_MAX_TABLE).splitlines()[1:]):
                if len(fields) > 9 and fields[3] == _LISTEN and fields[9] in inodes:
                    listening.add(_port(fields[1]))
                elif len(fields) > 9 and fields[9] == _NOBODY:
                    closed |= {_port(fields[1]), _port(fields[2])}
    return {port: port in closed for port in listening}


def _port(text: bytes) -> str:
    return text.rpartition(b":")[2].decode(errors="replace")


def shares_host_network(pid: int) -> bool:
    """Whether a process has no network namespace of its own, so that counters of its network are those of the machine. Raises OSError."""
    return os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")


def bytes_of_sockets(pid: int) -> int:
    """Bytes sent and received on the connections that a process of the machine's network and its descendants hold now; 0 if unknown."""
    with contextlib.suppress(OSError, struct.error):
        held = set(socket_inodes(pid))
        return sum(count for inode, count in _bytes_of_connections() if inode in held) if held else 0
    return 0


def _bytes_of_connections() -> Iterator[tuple[bytes, int]]:
    """Socket inode and bytes of each established TCP connection in this process's network, as the kernel tells it. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.settimeout(1.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            ask = struct.pack("=BBBBI48s", family, socket.IPPROTO_TCP, _WITH_INFO, 0, 1 << int(_ESTABLISHED), b"")
            link.send(struct.pack("=IHHII", 16 + len(ask), _GET_SOCKETS, _DUMP, 1, 0) + ask)
            for message in _messages(link):
                (inode,) = struct.unpack_from("=I", message, _INODE)
                yield str(inode).encode(), _bytes_in(message)


def _messages(link: socket.socket) -> Iterator[bytes]:
    """The messages of one answer, up to its end. Raises OSError."""
    while True:
        data = link.recv(1 << 16)
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind in (_ERROR, _DONE) or length < 16:
                return
            yield data[at : at + length]
            at += (length + 3) & ~3


def _bytes_in(message: bytes) -> int:
    at = _ATTRIBUTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _INFO and length >= 4 + _ACKED + 16:
            return sum(struct.unpack_from("=QQ", message, at + 4 + _ACKED))
        at += max(4, (length + 3) & ~3)
    return 0


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
