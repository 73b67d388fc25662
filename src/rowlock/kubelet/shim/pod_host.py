"""The pod host: a small process beside the server that starts containers by forking itself (1 ms, no exec).

    python -S -E -I -c BOOT SRC LISTENING-FD NETWORK [SHIM-PID]

It owns the fabric (see `netns.py`) and listens on a unix socket: one JSON request a line, one JSON answer a line.
It outlives the server. It ends when no client is connected and no shim is left, or when the server dismisses it. Running pods
do not need it. Only the standard library, because every shim is a copy of it.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rowlock.kubelet.mounts import pod_ipc, pod_mounts, pod_processes, rootfs, spare_roots, volume_mounts
from rowlock.kubelet.shim import cgroups, exec_process, fork_server, forked_shim, netns, process_tree, shim, stdio
from rowlock.kubelet.shim.fact_files import own_pid, ticks
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.warm import warm_parents

PROTOCOL = 13
_IDLE_TIMEOUT = 3.0
"""Seconds that it waits for the next server after one has died."""
_DISMISS_TIMEOUT = 1.0
"""Seconds that shims, whose programs have ended, may take to exit when the server dismisses the pod host."""
_ACCEPT_PAUSE, _SEND_TIMEOUT = 0.05, 5.0
"""Seconds: to pause after a client could not be accepted; to wait for a client to take an answer."""
MAX_REQUEST_BYTES = 32 << 20
"""Exec takes 6 MiB; a byte of it may be six in JSON (`\\u0001`)."""
_MAX_FDS = 1 << 16
_PRIMING_RUNS = 20
"""Enough runs for Python to specialise the instructions (8 calls, then some more)."""
_SOURCE = os.path.abspath(__file__).rsplit("/rowlock/", 1)[0]
"""The directory that holds the package."""
WARM_PARENT_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from rowlock.kubelet.shim import forked_shim; "
    "from rowlock.kubelet.warm import warm_parent; warm_parent.main(forked_shim.fork_shim, *sys.argv[1:5])"
)


class PodHost:
    """The event loop: accepts connections, answers requests, forks shims."""

    def __init__(self, listener: socket.socket, network: str, join: Sequence[int] = ()) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._buffers: dict[socket.socket, bytearray] = {}
        self._shims: set[int] = set()
        self._fabric: netns.BridgeNetwork | None = None
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self._mounts = pod_mounts.PodMounts()
        self._warm_parents = warm_parents.WarmParents(WARM_PARENT_BOOT, _SOURCE)
        self._spare_roots = spare_roots.SpareRoots(close_other_fds)
        self._fork_server = fork_server.ForkServer(forked_shim.become_shim, close_other_fds)
        self._forked_shims: dict[int, int] = {}
        self._limits = cgroups.detect_backend()
        self._is_dismissed = False
        self.problem = ""
        if network != "none":
            self._make_fabric(network, join)
        self._processes = pod_processes.PodProcesses(close_other_fds, _skip_near_pids)
        self._ipc = pod_ipc.PodIpc()  # in the fabric's user namespace, if there is one

    def _make_fabric(self, network: str, join: Sequence[int]) -> None:
        """Joins the fabric of one of these shims; makes a new one if none of them is left, or there was none."""
        for pid in join:
            with contextlib.suppress(OSError):  # it has ended meanwhile: try the next one
                self._fabric = netns.BridgeNetwork.join_existing(pid)
                pod_mounts.leave_pod_namespaces()
                return
        try:
            new_fabric = netns.BridgeNetwork(user_namespace=network == "user")
            new_fabric.probe()
            self._fabric = new_fabric
        except OSError as error:
            self.problem = str(error)

    def run(self) -> None:
        """Runs until idle (no connection and no shim) or dismissed."""
        while not self._is_dismissed:
            pause = self._spare_roots.wait_seconds()
            events = self._selector.select(_IDLE_TIMEOUT if pause is None else pause)
            self._reap()
            is_idle = not events and pause is None
            if is_idle:
                self._drop_ended_shims()
            for key, _ in events:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type] # only sockets are registered
            self._spare_roots.advance()
            if is_idle and not self._buffers and not self._shims and not self._forked_shims:
                return

    def close(self) -> None:
        """Removes what it has on disk."""
        self._spare_roots.close()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._shims.discard(pid)
                self._warm_parents.handle_shim_exit(pid)
        self._warm_parents.make_due_parents()

    def _drop_ended_shims(self) -> None:
        """Forgets ended shims of the fork server: the kernel does not report exits of grandchildren."""
        self._forked_shims = {pid: began for pid, began in self._forked_shims.items() if _is_alive(pid, began)}

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # no descriptor is free, or the client is gone
            time.sleep(_ACCEPT_PAUSE)
            return
        if not stdio.is_own_peer(connection):
            connection.close()
            return
        connection.settimeout(_SEND_TIMEOUT)
        self._buffers[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = connection.recv(1 << 20)
        buffer, lines = self._buffers[connection], list[bytes]()
        buffer += data
        if b"\n" in data:
            *lines, rest = bytes(buffer).split(b"\n")
            self._buffers[connection] = bytearray(rest)
        if not data or len(self._buffers[connection]) > MAX_REQUEST_BYTES:
            self._drop(connection)
        for line in lines:
            try:
                request = dict(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                return self._drop(connection) if connection in self._buffers else None
            answer, passed_socket = self._handle_request(request)
            self._send(connection, {"id": request.get("id"), **answer}, passed_socket)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._buffers[connection]
        connection.close()

    def _send(self, connection: socket.socket, answer: dict[str, Any], passed_socket: socket.socket | None) -> None:
        data = json.dumps(answer).encode() + b"\n"
        with contextlib.suppress(OSError):  # the server is gone; its successor reads the facts
            if passed_socket is None:
                connection.sendall(data)
            else:
                socket.send_fds(connection, [data], [passed_socket.fileno()])

    def _handle_request(self, request: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
        operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "start": self._start_shim,
            "network": self._prepare_network,
            "adopt": self._adopt_pod,
            "forget": self._forget_pod,
            "end-service": self._end_service,
            "warm": lambda wanted: {"state": self._warm_parents.make_ahead(wanted["spec"])},
        }
        operations["dismiss"] = self._dismiss
        passing = {
            "proxy": lambda _: self._gateway_listener(netns.PROXY_PORT),
            "port": lambda wanted: self._gateway_listener(int(wanted["port"])),
            "service": lambda wanted: self._gateway_listener(int(wanted["port"]), str(wanted["address"])),
            "dial": self._dial,
            "socket": self._pod_socket,
            "enter": self._enter_container,
        }
        try:
            if request["op"] in passing:
                return {}, passing[request["op"]](request)
            return operations[request["op"]](request), None
        except (OSError, KeyError, TypeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}, None

    def _hello(self, request: dict[str, Any]) -> dict[str, Any]:
        self._spare_roots.settle(str(request["directory"]))
        return {
            "pid": os.getpid(),
            "ticks": ticks(os.getpid()),
            "protocol": PROTOCOL,
            "fabric": self._fabric is not None,
            "problem": self.problem,
            "limits": self._limits,
            "unmountable": volume_mounts.probe_mount_namespaces(),
            "rootfs": rootfs.probe_directory(str(request["directory"])),
            "memory": self._fabric is not None or os.geteuid() == 0,
            "processes": pod_ipc.probe_isolation(),
            "cgroups": cgroups.probe_container_view(self._limits),
            "pids": cgroups.probe_pids(self._limits),
        }

    def _start_shim(self, request: dict[str, Any]) -> dict[str, Any]:
        shim_request = ShimRequest.from_json(request["request"])
        netns, network, memory_volumes = -1, shim_request.network, shim_request.memory_volumes
        if network:
            if self._fabric is None:
                raise ValueError(f"there is no fabric for the pod's network: {self.problem}")
            netns = self._fabric.pod_netns(network["uid"], network["ip"])
        mount_namespace = self._mounts.namespace_of(shim_request.pod_uid, memory_volumes) if memory_volumes else -1
        ipc = self._ipc.namespace_of(shim_request.pod_uid) if "pod-ipc" in shim_request.namespaces else -1
        shares_processes = "pod-pid" in shim_request.namespaces
        processes = self._processes.namespace_of(shim_request.pod_uid) if shares_processes else -1
        fds = {"network": netns, "room": mount_namespace, "ipc": ipc, "processes": processes}
        spare = self._spare_roots.take(shim_request.rootfs) if shim_request.rootfs else None
        if spare is None:
            return self._fork_shim(shim_request, request["request"], fds)
        try:
            return self._fork_shim(
                shim_request._replace(spare=spare.directory),
                {**request["request"], "spare": spare.directory},
                {**fds, "root": spare.namespace},
            )
        finally:
            os.close(spare.namespace)

    def _fork_shim(
        self, shim_request: ShimRequest, plain_request: dict[str, Any], fds: dict[str, int]
    ) -> dict[str, Any]:
        """Forks the shim of a request. `plain_request` is the same request as JSON values."""
        cold_reason = ""
        if shim_request.warm:
            pid, cold_reason = self._warm_parents.fork(plain_request, fds)
            if pid:
                self._forked_shims[pid] = ticks(pid)
                return {"shim": pid, "warm": True}
        if not shim_request.warm:
            pid = self._fork_server.fork(plain_request, fds)
            self._forked_shims[pid] = ticks(pid)
            return {"shim": pid, "cold": ""}
        # a direct child, whose exit is reported: then its environment gets a warm parent
        kept = [fd for fd in fds.values() if fd >= 0]
        pid = forked_shim.fork_shim(plain_request, fds, lambda: close_other_fds(*kept))
        self._shims.add(pid)
        self._warm_parents.add_cold_run(plain_request, pid)
        return {"shim": pid, "cold": cold_reason}

    def _pod_socket(self, request: dict[str, Any]) -> socket.socket:
        if request.get("pid"):
            return netns.process_socket(request["pid"])
        if self._fabric is None:
            raise ValueError("there is no fabric to connect in")
        return self._fabric.pod_socket(request["uid"])

    def _enter_container(self, request: dict[str, Any]) -> socket.socket:
        """Starts one more program in a running container; returns a socket to it (see `exec_process.py`)."""
        host_end, shim_end = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            close_other_fds(shim_end.fileno())
            exec_process.run_forked(request, shim_end)
        shim_end.close()
        self._shims.add(pid)
        return host_end

    def _prepare_network(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes the network of a pod that will start."""
        if self._fabric:
            self._fabric.pod_netns(request["uid"], request["ip"])
        return {}

    def _adopt_pod(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._fabric:
            self._fabric.adopt(request["uid"], request["pid"])
        self._mounts.adopt(request["uid"], request["shim"])
        self._ipc.adopt(request["uid"], request["shim"])
        self._processes.adopt(request["uid"], request["shim"])
        return {}

    def _forget_pod(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._fabric:
            self._fabric.forget(request["uid"])
        self._mounts.forget(request["uid"])
        self._ipc.forget(request["uid"])
        self._processes.forget(request["uid"])
        cgroups.remove_pod_groups(request["uid"])
        return {}

    def _dismiss(self, _: dict[str, Any]) -> dict[str, Any]:
        """Ends the pod host because the server ends, unless programs still run. Returns their number."""
        deadline = time.monotonic() + _DISMISS_TIMEOUT
        while True:
            self._reap()
            self._drop_ended_shims()
            running = len(self._shims) + len(self._forked_shims)
            if not running or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self._is_dismissed = not running
        if self._is_dismissed:
            self._warm_parents.kill_parents()
        return {"running": running}

    def _gateway_listener(self, port: int, address: str = netns.GATEWAY) -> socket.socket:
        """A socket that pods reach at the gateway's address, or at a Service's."""
        if self._fabric is None:
            raise ValueError("there is no fabric to listen in")
        if (address, port) not in self._listeners:
            self._listeners[address, port] = self._fabric.listen(port, address)
        return self._listeners[address, port]

    def _end_service(self, request: dict[str, Any]) -> dict[str, Any]:
        """Closes a Service's port: from now on connections are refused, also those that were not accepted yet."""
        listener = self._listeners.pop((str(request["address"]), int(request["port"])), None)
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        return {}

    def _dial(self, request: dict[str, Any]) -> socket.socket:
        if self._fabric is None:
            return socket.create_connection(("127.0.0.1", request["port"]), timeout=1)
        return self._fabric.dial(request["uid"], request["port"])


def _skip_near_pids() -> None:
    process_tree.skip_pids(process_tree.distant_pid(own_pid()))


def _is_alive(pid: int, start_ticks: int) -> bool:
    """Whether it is still that process. Without /proc, any process of that pid counts."""
    if start_ticks:
        return ticks(pid) == start_ticks
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return not os.path.isdir("/proc/self")


def close_other_fds(*kept: int) -> None:
    """In a fork: closes all of the pod host's descriptors but these, stdin, stdout and stderr.

    By number: to close an object would write to a page of memory that the fork then has for itself."""
    first = 3
    for fd in (*sorted(kept), _MAX_FDS):
        if fd >= first:
            os.closerange(first, fd)
            first = fd + 1


def main(listening_fd: str, path: str, network: str, join: str = "") -> None:
    """Entry point of the process; the server has made the socket that listens at `path`."""
    listener = socket.socket(fileno=int(listening_fd))
    shim.set_close_on_exec(listener.fileno())
    own_inode = os.stat(path).st_ino
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    host = PodHost(listener, network, [int(pid) for pid in join.split(",") if pid])
    shim.prime_caches(_PRIMING_RUNS)
    fork_server.prime_caches(_PRIMING_RUNS)
    gc.freeze()
    gc.disable()
    host.run()
    host.close()
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == own_inode:  # a newer pod host may listen there by now
            os.unlink(path)


BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from rowlock.kubelet.shim import pod_host; pod_host.main(*sys.argv[2:])"
)


def command(source: str, listener: tuple[int, str], network: str, join: Sequence[int] = ()) -> list[str]:
    """The command line that starts a pod host; `source` is the directory that holds the package, `listener` the
    descriptor and the path of its socket."""
    isolated = [sys.executable, "-S", "-E", "-I", "-c", BOOT]
    return [*isolated, source, str(listener[0]), listener[1], network, ",".join(map(str, join))]
