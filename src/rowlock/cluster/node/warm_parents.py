"""The pod host's side of warm starts: one parent (`warm_parent.py`) per environment that has shown it is used.

The first program of an environment starts cold; when it ends, or after some seconds at work, its parent is made. Until the
parent has said that it may be forked, and whenever it does not answer, programs start cold. Standard library only.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

IMPORTS = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch._dynamo",  # the first optimizer step imports it: half of a short script's start
)
BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from rowlock.cluster.node import warm_parent; "
    "warm_parent.main(*sys.argv[1:4])"
)
PATIENCE = 20.0
"""Seconds that a first program runs before its environment's parent is made, so that they do not quarrel for the CPU."""
MOST = 4
"""Parents at a time: each holds what an imported torch takes. The one that has not been asked for longest leaves."""
IN_VAIN = 8
"""After so many parents in a row that nobody forked from, only an environment that has come twice gets one."""
_ANSWER = 5.0


class _Parent:
    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid, self.connection = pid, connection
        self.modules: frozenset[str] | None = None
        """What it has imported; None until it has said so."""

    def hides(self, directory: str) -> str:
        """What a program would import from the directory that leads its path, were it not imported already; "" = nothing."""
        for name in sorted(os.listdir(directory)):
            module, _, suffix = name.partition(".")
            if module in (self.modules or ()) and (suffix or os.path.exists(f"{directory}/{name}/__init__.py")):
                return os.path.join(directory, name)
        return ""


class WarmParents:
    """Parents by their key."""

    def __init__(self, source: str, imports: Sequence[str] = IMPORTS) -> None:
        self._source, self._imports = source, ",".join(imports)
        self._parents: dict[str, _Parent] = {}
        self._first: dict[int, tuple[float, dict[str, Any]]] = {}
        self._unfit: dict[str, str] = {}
        self._in_vain = 0
        self._once: set[str] = set()

    def fork(self, request: dict[str, Any], fds: dict[str, int]) -> tuple[int, str]:
        """A shim from the parent of this program's environment. (0, why) = start it cold; "" when it is only too early."""
        wanted = request["warm"]
        parent = self._parents.get(wanted["key"])
        if parent is None or not self._ready(wanted["key"], parent):
            return 0, self._unfit.get(wanted["key"], "")
        with contextlib.suppress(OSError):
            if hidden := parent.hides(wanted["first"]):
                return 0, f"{hidden} has the name of a module that torch imports"
        fds = {name: fd for name, fd in fds.items() if fd >= 0}
        message = {**request, "warm": {**wanted, "fds": list(fds)}}
        parent.connection.settimeout(_ANSWER)
        try:
            socket.send_fds(parent.connection, [json.dumps(message).encode() + b"\n"], list(fds.values()))
            shim = int(_line(parent.connection)["shim"])
        except (OSError, ValueError, KeyError):
            self._drop(wanted["key"])  # gone, or stuck; a run that it did begin has claimed its number
            return 0, ""
        self._in_vain = 0
        self._parents[wanted["key"]] = self._parents.pop(wanted["key"])  # the last one is the one asked last
        return shim, ""

    def began_cold(self, request: dict[str, Any], pid: int) -> None:
        """A program that could have been warm runs: its environment is in use."""
        key = request["warm"]["key"]
        if key not in self._parents and key not in self._unfit:
            self._first[pid] = (time.monotonic(), request["warm"])

    def ended(self, pid: int) -> None:
        """A shim has gone."""
        if pid in self._first:
            self._make(self._first.pop(pid)[1])

    def look(self) -> None:
        """From time to time."""
        now = time.monotonic()
        for pid, (since, wanted) in list(self._first.items()):
            if now - since > PATIENCE:
                del self._first[pid]
                self._make(wanted)

    def close(self) -> None:
        """In a forked shim, and at the end: parents leave when nobody holds the other end."""
        for parent in self._parents.values():
            parent.connection.close()

    def end(self) -> None:
        """Now, and they are gone when this returns."""
        for key in list(self._parents):
            self._drop(key)

    def _make(self, wanted: dict[str, Any]) -> None:
        if wanted["key"] in self._parents or not self._worth(wanted["key"]):
            return
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        arguments = [self._source, str(theirs.fileno()), self._imports]
        words = [wanted["interpreter"], *wanted["flags"], "-c", BOOT, *arguments]
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        with theirs, contextlib.suppress(OSError):  # an interpreter that cannot be started says so at the cold start
            pid = os.posix_spawn(words[0], words, wanted["env"], file_actions=null)
            self._in_vain += 1
            self._parents[wanted["key"]] = _Parent(pid, ours)
            while len(self._parents) > MOST:
                self._drop(next(iter(self._parents)))
            return
        ours.close()

    def _worth(self, key: str) -> bool:
        """Whether programs of this environment seem to come again."""
        if self._in_vain < IN_VAIN or key in self._once:
            self._once.discard(key)
            return True
        if len(self._once) >= 1000:
            self._once.clear()
        self._once.add(key)
        return False

    def _ready(self, key: str, parent: _Parent) -> bool:
        if parent.modules is not None:
            return True
        parent.connection.setblocking(False)
        try:
            said = _line(parent.connection)
            why, parent.modules = str(said["unfit"]), frozenset(said["modules"])
        except BlockingIOError:
            return False
        except (OSError, ValueError, KeyError):
            why = "its interpreter could not import what a warm start needs"
        if why:
            self._unfit[key] = why
            self._drop(key)
        return not why

    def _drop(self, key: str) -> None:
        parent = self._parents.pop(key)
        parent.connection.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(parent.pid, signal.SIGKILL)
            os.waitpid(parent.pid, 0)


def _line(connection: socket.socket) -> dict[str, Any]:
    """One short answer. Raises OSError, or ValueError at the end of the stream."""
    return dict(json.loads(connection.recv(1 << 16)))
