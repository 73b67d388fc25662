"""Just enough rtnetlink for the pod network: bridges, veth pairs (into another namespace), an address, a link up.

Spoken by hand because starting `ip` costs ten times what the kernel needs, and because the pod host must not exec:
it would lose the capabilities it holds in its user namespace. Standard library only; imported by the pod host.
"""

import os
import socket
import struct

_NEWLINK, _GETLINK, _NEWADDR, _ERROR = 16, 18, 20, 2
_REQUEST, _ACK, _EXCL, _CREATE = 1, 4, 0x200, 0x400
_IFNAME, _MASTER, _LINKINFO, _AF_SPEC, _NET_NS_FD = 3, 10, 18, 26, 28
_KIND, _DATA, _PEER = 1, 2, 1
_MULTICAST_SNOOPING, _ADDR_GEN_MODE, _ADDR_GEN_NONE = 23, 8, 1
_TX_QUEUES, _RX_QUEUES = 31, 32
_UP = 1


def attribute(kind: int, value: bytes) -> bytes:
    """One netlink attribute, padded to four bytes."""
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def _text_attribute(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _link_header(index: int = 0, *, up: bool = False) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, _UP if up else 0, _UP if up else 0)


def bridge(name: str) -> bytes:
    """Body of RTM_NEWLINK: a bridge, up. Multicast goes to all its ports: snooping for listeners would cost timers for each."""
    no_snooping = attribute(_DATA, attribute(_MULTICAST_SNOOPING, b"\0"))
    info = attribute(_LINKINFO, _text_attribute(_KIND, "bridge") + no_snooping)
    return _link_header(up=True) + _text_attribute(_IFNAME, name) + info


def veth(name: str, master: int, peer: str, *, index: int = 0, namespace: int = -1) -> bytes:
    """Body of RTM_NEWLINK: a pair, our end up and attached to the bridge `master`. `index` of both ends, 0 = the kernel
    chooses; `namespace` of the peer as a file descriptor, -1 = ours.

    The kernel honours the peer's index only when ours is given too, and refuses a peer that is created up."""
    inside = _link_header(index) + _end(peer)
    if namespace >= 0:
        inside += attribute(_NET_NS_FD, struct.pack("=I", namespace))
    info = _text_attribute(_KIND, "veth") + attribute(_DATA, attribute(_PEER, inside))
    return _link_header(index, up=True) + _end(name) + _master_attribute(master) + attribute(_LINKINFO, info)


def attachment(index: int, master: int) -> bytes:
    """Body of RTM_NEWLINK: a link becomes a port of the bridge `master`, and is up."""
    return _link_header(index, up=True) + _master_attribute(master)


def no_ipv6_address(index: int) -> bytes:
    """Body of RTM_NEWLINK: a link generates no IPv6 address when it comes up, and so sends no neighbour solicitations."""
    family = attribute(socket.AF_INET6, attribute(_ADDR_GEN_MODE, bytes([_ADDR_GEN_NONE])))
    return _link_header(index) + attribute(_AF_SPEC, family)


def _end(name: str) -> bytes:
    """The attributes of one end of a pair: its name, and one queue each way. The default is a queue per CPU; each is a directory in
    sysfs, and only XDP programs use them."""
    one = struct.pack("=I", 1)
    return _text_attribute(_IFNAME, name) + attribute(_TX_QUEUES, one) + attribute(_RX_QUEUES, one)


def _master_attribute(master: int) -> bytes:
    return attribute(_MASTER, struct.pack("=I", master))


def address(index: int, ip: str, prefix: int) -> bytes:
    """Body of RTM_NEWADDR: one IPv4 address on a link."""
    packed = socket.inet_aton(ip)
    return (
        struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
        + attribute(2, packed)
        + attribute(1, packed)
        + attribute(4, socket.inet_aton(_broadcast(ip, prefix)))
    )


def _broadcast(ip: str, prefix: int) -> str:
    number = struct.unpack("!I", socket.inet_aton(ip))[0] | ((1 << (32 - prefix)) - 1)
    return socket.inet_ntoa(struct.pack("!I", number))


class Netlink:
    """A route socket. It stays in the network namespace in which it was opened, even if its owner moves to another."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def add_link(self, body: bytes) -> None:
        self._request(_NEWLINK, _CREATE | _EXCL, body)

    def change_link(self, body: bytes) -> None:
        self._request(_NEWLINK, 0, body)

    def set_up(self, index: int) -> None:
        self.change_link(_link_header(index, up=True))

    def add_address(self, body: bytes) -> None:
        self._request(_NEWADDR, _CREATE | _EXCL, body)

    def index_of(self, name: str) -> int:
        """The index of a link. Raises OSError (ENODEV) when there is none of that name."""
        reply = self._request(_GETLINK, 0, _link_header() + _text_attribute(_IFNAME, name))
        return int(struct.unpack_from("=i", reply, 20)[0])

    def _request(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence += 1
        ack = 0 if kind == _GETLINK else _ACK
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | ack | flags, self._sequence, 0)
        self._socket.send(head + body)
        reply = self._socket.recv(65536)
        if struct.unpack_from("=H", reply, 4)[0] == _ERROR:
            code = -struct.unpack_from("=i", reply, 16)[0]
            if code:
                raise OSError(code, f"netlink: {os.strerror(code)}")
        return reply
