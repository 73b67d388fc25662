"""The pod host: a small process beside the server that starts containers by forking itself (1 ms, no exec).

    python -S -E -I -c BOOT SRC LISTENING-FD NETWORK [SHIM-PID]

It owns the fabric (see `fabric.py`) and listens on a unix socket: one JSON request a line, one JSON answer a line.
It outlives the server and ends when nobody is connected and no shim is left, at once when the server takes its leave.
Pods do not need it once they run.
Only the standard library, because every shim is a copy of it.
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
from typing import Any

from rowlock.cluster.node import entering, fabric, limits, mounts, nursery, shim, warm_parents
from rowlock.cluster.node.facts import ticks

PROTOCOL = 5
_IDLE = 3.0
"""Seconds that it waits for the next server when one has died."""
_PARTING = 1.0
"""Seconds that shims, whose programs have ended, may take to be gone when the server takes its leave."""
_LONGEST = 64 << 20
_MOST_FILES = 1 << 16
_REHEARSALS = 20
"""As often as it takes until Python has specialised the instructions (8 calls, then some more)."""
_SOURCE = os.path.abspath(__file__).rsplit("/rowlock/", 1)[0]
"""The directory that holds the package."""


class PodHost:
    """The loop: connections in, forks out."""

    def __init__(self, listener: socket.socket, network: str, join: int) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._buffers: dict[socket.socket, bytes] = {}
        self._shims: set[int] = set()
        self._fabric: fabric.Fabric | None = None
        self._proxy: socket.socket | None = None
        self._mounts = mounts.PodMounts()
        self._warm = warm_parents.WarmParents(_SOURCE)
        self._nursery = nursery.Nursery(born, leave)
        self._forked: dict[int, int] = {}
        self._limits = limits.how()
        self._dismissed = False
        self.problem = ""
        if network != "none":
            self._make_fabric(network, join)

    def _make_fabric(self, network: str, join: int) -> None:
        try:
            if join:
                self._fabric = fabric.Fabric.joined(join)
                mounts.leave_rooms()
            else:
                made = fabric.Fabric(user_namespace=network == "user")
                made.probe()
                self._fabric = made
        except OSError as error:
            self.problem = str(error)

    def run(self) -> None:
        """Until idle: no connection and no shim; or until dismissed."""
        while not self._dismissed:
            events = self._selector.select(_IDLE)
            self._reap()
            if not events:
                self._count()
            for key, _ in events:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type] # only sockets are registered
            if not events and not self._buffers and not self._shims and not self._forked:
                return

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._shims.discard(pid)
                self._warm.ended(pid)
        self._warm.look()

    def _count(self) -> None:
        """Nobody tells us of the ends of grandchildren."""
        self._forked = {pid: began for pid, began in self._forked.items() if _lives(pid, began)}

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._buffers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = connection.recv(1 << 20)
        *lines, rest = (self._buffers[connection] + data).split(b"\n")
        self._buffers[connection] = rest
        if not data or len(rest) > _LONGEST:
            self._drop(connection)
        for line in lines:
            request = json.loads(line)
            answer, passed = self._answer(request)
            self._send(connection, {"id": request.get("id"), **answer}, passed)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._buffers[connection]
        connection.close()

    def _send(self, connection: socket.socket, answer: dict[str, Any], passed: socket.socket | None) -> None:
        data = json.dumps(answer).encode() + b"\n"
        with contextlib.suppress(OSError):  # the server has gone; its successor reads the facts
            if passed is None:
                connection.sendall(data)
            else:
                socket.send_fds(connection, [data], [passed.fileno()])

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
        operations = {"hello": self._hello, "start": self._start, "adopt": self._adopt, "forget": self._forget}
        operations["dismiss"] = self._dismiss
        passing = {"proxy": self._give_proxy, "dial": self._dial, "socket": self._socket, "enter": self._enter}
        try:
            if request["op"] in passing:
                return {}, passing[request["op"]](request)
            return operations[request["op"]](request), None
        except (OSError, KeyError, TypeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}, None

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "protocol": PROTOCOL,
            "fabric": self._fabric is not None,
            "problem": self.problem,
            "limits": self._limits,
            "unmountable": mounts.probe(),
            "memory": self._fabric is not None or os.geteuid() == 0,
        }

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        netns, network = -1, request.get("network")
        if network and self._fabric:
            netns = self._fabric.pod(network["uid"], network["ip"])
        uid = request["hint"].partition("/")[0]
        room = self._mounts.of(uid, request["memory"]) if request.get("memory") else -1
        why = ""
        if request.get("warm"):
            pid, why = self._warm.fork(request, {"network": netns, "room": room})
            if pid:
                self._forked[pid] = ticks(pid)
                return {"shim": pid, "warm": True}
        if not request.get("warm"):
            pid = self._nursery.fork(request, {"network": netns, "room": room})
            self._forked[pid] = ticks(pid)
            return {"shim": pid, "cold": ""}
        pid = os.fork()  # one whose end we are told of: its environment gets a warm parent
        if pid == 0:
            leave(netns, room)
            shim.run_forked(request, netns, room)
        self._shims.add(pid)
        self._warm.began_cold(request, pid)
        return {"shim": pid, "cold": why}

    def _socket(self, request: dict[str, Any]) -> socket.socket:
        if request.get("pid"):
            return fabric.socket_at(request["pid"])
        if self._fabric is None:
            raise ValueError("there is no fabric to connect in")
        return self._fabric.socket_of(request["uid"])

    def _enter(self, request: dict[str, Any]) -> socket.socket:
        """One more program in a container that runs: what is returned leads to it (see `entering.py`)."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            leave(theirs.fileno())
            entering.run_forked(request, theirs)
        theirs.close()
        self._shims.add(pid)
        return ours

    def _adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._fabric:
            self._fabric.adopt(request["uid"], request["pid"])
        self._mounts.adopt(request["uid"], request["shim"])
        return {}

    def _forget(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._fabric:
            self._fabric.forget(request["uid"])
        self._mounts.forget(request["uid"])
        limits.clear(request["uid"])
        return {}

    def _dismiss(self, _: dict[str, Any]) -> dict[str, Any]:
        """The server ends on purpose: so does the pod host, but for programs that run on."""
        deadline = time.monotonic() + _PARTING
        while True:
            self._reap()
            self._count()
            running = len(self._shims) + len(self._forked)
            if not running or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self._dismissed = not running
        if self._dismissed:
            self._warm.end()
        return {"running": running}

    def _give_proxy(self, _: dict[str, Any]) -> socket.socket:
        if self._fabric is None:
            raise ValueError("there is no fabric to listen in")
        self._proxy = self._proxy or self._fabric.listen()
        return self._proxy

    def _dial(self, request: dict[str, Any]) -> socket.socket:
        if self._fabric is None:
            return socket.create_connection(("127.0.0.1", request["port"]), timeout=1)
        return self._fabric.dial(request["uid"], request["port"])


def _lives(pid: int, began: int) -> bool:
    """Is it still that process? Where there is no /proc, any of that pid will do."""
    if began:
        return ticks(pid) == began
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return not os.path.isdir("/proc/self")


def born(request: dict[str, Any], fds: dict[str, int]) -> None:
    """In a child of the nursery: it becomes a shim."""
    shim.run_forked(request, fds.get("network", -1), fds.get("room", -1))


def leave(*kept: int) -> None:
    """In a fork: of the pod host's descriptors none but these, stdin, stdout and stderr stay open.

    By number: an object that is told to close is a page of memory that the fork has for itself from then on."""
    begin = 3
    for fd in (*sorted(kept), _MOST_FILES):
        if fd >= begin:
            os.closerange(begin, fd)
            begin = fd + 1


def main(listening_fd: str, network: str, join: str = "0") -> None:
    """Entry point of the process; the server has made the listening socket."""
    listener = socket.socket(fileno=int(listening_fd))
    shim.keep_open(listener.fileno())
    path = listener.getsockname()
    mine = os.stat(path).st_ino
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    host = PodHost(listener, network, int(join))
    shim.rehearse(_REHEARSALS)
    nursery.rehearse(_REHEARSALS)
    gc.freeze()
    gc.disable()
    host.run()
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == mine:  # a newer pod host may listen there by now
            os.unlink(path)


BOOT = "import sys; sys.path.append(sys.argv[1]); from rowlock.cluster.node import podhost; podhost.main(*sys.argv[2:])"


def command(source: str, listening_fd: int, network: str, join: int = 0) -> list[str]:
    """The command line that starts a pod host; `source` is the directory that holds the package."""
    isolated = [sys.executable, "-S", "-E", "-I", "-c", BOOT]
    return [*isolated, source, str(listening_fd), network, str(join)]
