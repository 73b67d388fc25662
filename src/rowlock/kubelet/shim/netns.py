"""The pod network's kernel side: namespaces, made by the pod host, joined by each pod's programs.

The pod host lives in the *fabric*: one network and one mount namespace with a bridge in it (inside a user namespace when the user is
not root). Every pod gets a network namespace whose `eth0` is on a second bridge that leads to that one: a bridge has 1,023 ports, and
adding one scans them all. The fabric exists as long as a process is in it; shims stay in it, so it survives the pod host, and the
next pod host joins it through a shim.
Users keep their own uid: the map is the identity, and capabilities end at exec. Standard library only; Linux only.
"""

import contextlib
import ctypes
import errno
import os
import socket
from collections.abc import Mapping

from rowlock.kubelet.mounts import calls
from rowlock.kubelet.shim import netlink

_NEWNS, _NEWUTS, _NEWUSER, _NEWNET = 0x20000, 0x04000000, 0x10000000, 0x40000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
GATEWAY, PREFIX = "10.77.0.1", 16
PROXY_PORT, API_PORT = 3128, 6443
_BRIDGE = "pods"
_FIRST_INDEX = 1000
_BRIDGE_PODS = 256
"""Addresses of pods that share a bridge."""

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = getattr(_libc, "prctl", None)
"""Looked up once, in the pod host: a lookup in a shim would cost it memory for its lifetime."""


def _call(name: str, *args: object) -> int:
    result = int(getattr(_libc, name)(*args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; does nothing where there is no such call."""
    if _prctl is not None:
        _prctl(option, value, 0, 0, 0)


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), None, ctypes.c_ulong(flags), None)


def _unshare_as_user() -> None:
    """Enters new user, network and mount namespaces in which ids map to themselves: all for root, only its own for any other user."""
    uid, gid = os.getuid(), os.getgid()
    if os.geteuid() == 0 and _unshare_as_root():
        return
    calls.unshare(_NEWUSER | _NEWNET | _NEWNS)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _unshare_as_root() -> bool:
    """Maps all ids. The kernel lets only a process outside the new namespace do that: a child that stays there. False = it failed."""
    parent, maps = os.getpid(), {k: _identity_map(f"/proc/self/{k}") for k in ("uid_map", "gid_map")}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(OSError):
            os.read(reading, 1)
            for name, text in maps.items():
                _write(f"/proc/{parent}/{name}", text)
            status = 0
        os._exit(status)
    calls.unshare(_NEWUSER | _NEWNET | _NEWNS)
    os.write(writing, b".")
    os.close(writing)
    os.close(reading)
    return os.waitpid(child, 0)[1] == 0


def _identity_map(path: str) -> str:
    with open(path) as file:
        return "\n".join(f"{row[0]} {row[0]} {row[2]}" for row in (line.split() for line in file))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


class BridgeNetwork:
    """The pod network, which the pod host owns."""

    def __init__(self, *, user_namespace: bool = False) -> None:
        """Makes a new fabric around the calling process. Raises OSError where the kernel does not allow it."""
        if user_namespace or os.geteuid() != 0:
            _unshare_as_user()
        else:
            try:
                calls.unshare(_NEWNET | _NEWNS)
            except PermissionError:
                _unshare_as_user()
        _mount("none", "/", _REC | _PRIVATE)
        self._open_namespace()
        for scope in ("default", "all"):
            with contextlib.suppress(OSError):  # without IPv6 there is nothing to silence
                _write(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "1")
        self._netlink.set_up(1)
        self._netlink.add_link(netlink.bridge(_BRIDGE))
        self._bridge = self._netlink.index_of(_BRIDGE)
        self._netlink.add_address(netlink.address(self._bridge, GATEWAY, PREFIX))

    @classmethod
    def join_existing(cls, pid: int) -> "BridgeNetwork":
        """Joins the fabric of process `pid`, a shim whose pod host has died. Raises OSError."""
        with contextlib.ExitStack() as opened:  # all or none: `pid` may end at any moment
            foreign = []
            for name, kind in (("user", _NEWUSER), ("mnt", _NEWNS), ("net", _NEWNET)):
                if os.stat(f"/proc/{pid}/ns/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
                    fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                    opened.callback(os.close, fd)
                    foreign.append((fd, kind))
            if not any(kind == _NEWNET for _, kind in foreign):
                raise OSError(errno.ENODEV, f"process {pid} is in no fabric")
            for fd, kind in foreign:
                _call("setns", fd, kind)
        network = cls.__new__(cls)
        network._open_namespace()
        network._bridge = network._netlink.index_of(_BRIDGE)
        return network

    def _open_namespace(self) -> None:
        self._netlink = netlink.Netlink()
        self._home_netns = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._pod_fds: dict[str, int] = {}
        self._branches: dict[int, int] = {}

    def probe(self) -> None:
        """Makes one real pod network and enters it in a child. Raises OSError if that fails, as it then would for pods."""
        fd = self.pod_netns("probe", "10.77.255.250")
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(OSError):
                enter_pod_network({"hostname": "probe", "hosts": "/etc/hosts"}, fd)
                status = 0
            os._exit(status)
        self.forget("probe")
        if os.waitpid(child, 0)[1] != 0:
            raise OSError("a program could not enter a pod's network, mount and host name namespaces")

    def pod_netns(self, uid: str, ip: str) -> int:
        """The pod's network namespace as a file descriptor; made at the first call."""
        if uid not in self._pod_fds:
            self._pod_fds[uid] = self._create_pod_netns(ip)
        return self._pod_fds[uid]

    def adopt(self, uid: str, pid: int) -> None:
        """Takes over a pod of a previous pod host, through one of its programs."""
        if uid not in self._pod_fds:
            self._pod_fds[uid] = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, uid: str) -> None:
        """Closes the pod's namespace, whose programs have ended: it goes with its last reference."""
        fd = self._pod_fds.pop(uid, None)
        if fd is not None:
            os.close(fd)

    def _create_pod_netns(self, ip: str) -> int:
        number = int.from_bytes(socket.inet_aton(ip), "big") & 0xFFFF
        index = _FIRST_INDEX + number
        calls.unshare(_NEWNET)
        try:
            fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            inside = netlink.Netlink()
        finally:
            _call("setns", self._home_netns, _NEWNET)
        try:
            inside.set_up(1)
            bridge = self._branch(number // _BRIDGE_PODS)
            self._netlink.add_link(netlink.veth(f"pod{number}", bridge, "eth0", index=index, namespace=fd))
            # Not by /proc/sys: a lookup there goes through the entries of all network namespaces.
            with contextlib.suppress(OSError):  # there is no IPv6 here
                inside.change_link(netlink.no_ipv6_address(index))
            inside.set_up(index)
            inside.add_address(netlink.address(index, ip, PREFIX))
        except OSError:
            os.close(fd)
            raise
        finally:
            inside.close()
        return fd

    def _branch(self, number: int) -> int:
        """The index of the bridge for these pods. The first call makes what is missing: the bridge, and a pair of links to the main
        one. An earlier pod host may have ended halfway."""
        if number not in self._branches:
            name = f"{_BRIDGE}{number}"
            for link in (netlink.bridge(name), netlink.veth(f"{name}-up", self._bridge, f"{name}-down")):
                with contextlib.suppress(FileExistsError):
                    self._netlink.add_link(link)
            branch = self._netlink.index_of(name)
            self._netlink.change_link(netlink.attachment(self._netlink.index_of(f"{name}-down"), branch))
            self._branches[number] = branch
        return self._branches[number]

    def listen(self, port: int = PROXY_PORT, address: str = GATEWAY) -> socket.socket:
        """A listening socket that pods reach; a process outside the fabric may serve it, too."""
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address != GATEWAY:
            with contextlib.suppress(FileExistsError):  # added for another port, or earlier
                self._netlink.add_address(netlink.address(self._bridge, address, 32))
        server.bind((address, port))
        server.listen(128)
        return server

    def pod_socket(self, uid: str) -> socket.socket:
        """An unconnected socket in the pod's network. Raises KeyError for an unknown uid."""
        _call("setns", self._pod_fds[uid], _NEWNET)
        try:
            return socket.socket()
        finally:
            _call("setns", self._home_netns, _NEWNET)

    def dial(self, uid: str, port: int) -> socket.socket:
        """A socket that connects to a port from inside the pod (probes, port-forward). Raises KeyError for an unknown uid, and OSError."""
        client = self.pod_socket(uid)
        client.settimeout(1)
        client.connect(("127.0.0.1", port))
        return client


def process_socket(pid: int) -> socket.socket:
    """An unconnected socket in the network of a process. Raises OSError where we may not enter it."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", target, _NEWNET)
            return socket.socket()
        finally:
            _call("setns", home, _NEWNET)
            os.close(target)
    finally:
        os.close(home)


def join_namespace(fd: int, kind: int) -> None:
    """setns(2): this process moves into the namespace behind a file descriptor."""
    _call("setns", fd, kind)


def enter_pod_network(network: Mapping[str, object], fd: int, *, has_own_root: bool = False) -> None:
    """In a program's own process, before exec: enters the pod's network, sets its host name, and mounts its hosts file in a mount
    namespace of its own. A program with its own root file system gets the last two in `rootfs.enter`."""
    _call("setns", fd, _NEWNET)
    calls.unshare(_NEWUTS if has_own_root else _NEWNS | _NEWUTS)
    socket.sethostname(str(network["hostname"]))
    if not has_own_root and os.path.exists("/etc/hosts"):  # pods of a namespace share the file: read-only
        _mount(str(network["hosts"]), "/etc/hosts", _BIND)
        calls.remount_read_only("/etc/hosts")
