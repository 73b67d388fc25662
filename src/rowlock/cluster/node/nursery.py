"""Where shims are forked: a process beside the pod host that does nothing else.

After a fork, each page of memory that either side writes to is there twice. A shim that the pod host forked itself would
keep an old copy of everything that the pod host touches for the requests after it, 0.3 MiB; the nursery touches nothing:
it reads a byte and forks. The child reads the request, answers its pid, and is the shim. Standard library only.
"""

import array
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

_ANSWER = 5.0
_HEAD = 16
_ROOM = socket.CMSG_SPACE(4 * 4)
Birth = Callable[[dict[str, Any], dict[str, int]], None]
"""What becomes of a child: gets its request and descriptors by name; never returns."""


class Nursery:
    """The pod host's end. `leave` closes, in a fork, everything but the descriptors it is given."""

    def __init__(self, birth: Birth, leave: Callable[..., None]) -> None:
        self._birth, self._leave = birth, leave
        self._word = -1
        self._data: socket.socket | None = None

    def fork(self, request: dict[str, Any], fds: Mapping[str, int]) -> int:
        """The pid of a new shim. Raises OSError when none can be forked."""
        for _ in range(2):
            if self._data is None:
                self._begin()
            pid = self._asked(request, {name: fd for name, fd in fds.items() if fd >= 0})
            if pid > 0:
                return pid
            self._end()  # it was killed: the next one is as good
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        raise OSError("the process that forks shims is killed again and again")

    def _asked(self, request: dict[str, Any], fds: dict[str, int]) -> int:
        """The child's pid; below 0 = the error of the fork; 0 = nobody answers."""
        assert self._data is not None
        try:
            os.write(self._word, b".")
            _send(self._data, request, fds)
            return int(self._data.recv(64) or b"0")
        except OSError:
            return 0

    def _begin(self) -> None:
        reading, self._word = os.pipe()
        self._data, theirs = socket.socketpair()
        self._data.settimeout(_ANSWER)
        if os.fork() == 0:
            self._leave(reading, theirs.fileno())
            self._serve(reading, theirs)
        os.close(reading)
        theirs.close()

    def _end(self) -> None:
        os.close(self._word)
        if self._data is not None:
            self._data.close()
        self._data = None

    def _serve(self, word: int, data: socket.socket) -> None:
        """In the nursery: until the pod host has gone."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
        while os.read(word, 1):
            try:
                pid = os.fork()
            except OSError as error:
                data.send(b"%d" % -(error.errno or 1))
                os._exit(1)
            if pid == 0:
                os.close(word)
                self._born(data)
        os._exit(0)

    def _born(self, data: socket.socket) -> None:
        """In the child: never returns."""
        try:
            request, fds = _received(data)
            os.write(data.fileno(), b"%d" % os.getpid())
            os.close(data.fileno())
            self._birth(request, fds)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)


def _send(data: socket.socket, request: dict[str, Any], fds: Mapping[str, int]) -> None:
    whole = json.dumps({**request, "fds": list(fds)}).encode()
    socket.send_fds(data, [b"%*d" % (_HEAD, len(whole))], list(fds.values()))
    data.sendall(whole)


def _received(data: socket.socket) -> tuple[dict[str, Any], dict[str, int]]:
    head, passed, _, _ = data.recvmsg(_HEAD, _ROOM)
    request = json.loads(data.recv(int(head), socket.MSG_WAITALL))
    fds = array.array("i", passed[0][2]) if passed else ()
    return request, dict(zip(request["fds"], fds, strict=True))


def rehearse(times: int) -> None:
    """What a child does first, where shims share it (see `shim.rehearse`)."""
    ours, theirs = socket.socketpair()
    for _ in range(times):
        _send(ours, {}, {"network": 0})
        os.close(_received(theirs)[1]["network"])
    ours.close()
    theirs.close()
