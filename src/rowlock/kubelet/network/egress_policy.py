"""Which addresses the pods' proxy may connect to: the outside, but nothing that is private to this machine.

As a NetworkPolicy with `ipBlock` and `except` would state it. The check applies to the address that is connected to, after
names were resolved: a name that resolves differently the second time (DNS rebinding) gains nothing.
"""

import ipaddress
import socket

import psutil

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:c1::a9fe:a9fe", "fd20:ce::254"
    )
)  # fmt: skip
"""Metadata addresses, where clouds hand out the machine's credentials without authentication; all but one are not link-local."""
POD_NETWORK = ipaddress.ip_network("10.77.0.0/16")


def denial(host: str, port: int) -> str:
    """Why pods may not connect to this numeric address and port; "" = they may."""
    try:
        address = plain_address(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return f"{host} is no address"
    if address.is_loopback or address.is_unspecified:
        return f"{address} is this machine's loopback"
    if address in _METADATA:
        return f"{address} is the metadata service of a cloud"
    if address.is_link_local:
        return f"{address} is link-local"
    if address.is_multicast or (address.version == 4 and address.is_reserved):
        return f"{address} is not the address of a host"
    if address in POD_NETWORK:
        return f"{address} belongs to the pods' network"
    if is_own_address(address) and port in listening_ports():
        return f"{address}:{port} is this server"
    return ""


def server_denial(host: str, port: int, *, only_public: bool = False) -> str:
    """Why the server itself may not connect there on behalf of a user; "" = it may. It may do less than pods: nothing of this machine, and
    with `only_public` nothing of private networks."""
    if reason := denial(host, port):
        return reason
    address = plain_address(ipaddress.ip_address(host.partition("%")[0]))
    if is_own_address(address):
        return f"{address} is this machine"
    return f"{address} is an address of a private network" if only_public and not address.is_global else ""


def plain_address(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 one, if the kernel or a gateway would extract it; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and (address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1)):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def is_own_address(address: Address) -> bool:
    """Whether it is an address of this machine: only those can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
            return True
    except OSError:
        return False


def listening_ports() -> set[int]:
    """The TCP ports on which this process, the server, listens."""
    connections = psutil.Process().net_connections(kind="tcp")
    return {found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN}
