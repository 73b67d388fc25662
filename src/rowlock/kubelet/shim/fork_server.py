"""Forks shims: a process beside the pod host that does nothing else.

After a fork, each page of memory that either side writes to is copied. A shim that the pod host forked itself would
keep an old copy of all pages that the pod host touches afterwards, 0.3 MiB. The fork server touches nothing: it reads a byte,
which names the namespaces, and forks. The child reads the request, answers with its pid, and is the shim. Standard library only.
"""

import array
import contextlib
import marshal
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rowlock.kubelet.mounts import calls
from rowlock.kubelet.shim.fact_files import own_pid
from rowlock.kubelet.shim.shim_request import namespace_flags

_ANSWER_TIMEOUT = 5.0
_HEADER_BYTES = 16
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * 4)
_WORDS = {0: b".", calls.NEWPID: b"p"}
"""Namespaces to fork into (`calls.fork_into`) → the byte that asks the fork server for them."""
_NAMESPACES = {word: namespaces for namespaces, word in _WORDS.items()}
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""A program must not inherit descriptors of namespaces: it could enter them."""
ChildMain = Callable[[dict[str, Any], dict[str, int]], None]
"""Runs in the child with its request and its descriptors by name; never returns."""


class ForkServer:
    """The pod host's end. `close_other_fds` closes, in a fork, everything but the descriptors it is given."""

    def __init__(self, child_main: ChildMain, close_other_fds: Callable[..., None]) -> None:
        self._child_main, self._close_other_fds = child_main, close_other_fds
        self._trigger = -1
        self._data: socket.socket | None = None

    def fork(self, request: dict[str, Any], fds: Mapping[str, int]) -> int:
        """Returns the pid of a new shim. Raises OSError when none can be forked."""
        for _ in range(2):
            if self._data is None:
                self._start_server()
            pid = self._request_fork(request, {name: fd for name, fd in fds.items() if fd >= 0})
            if pid > 0:
                return pid
            self._stop_server()  # it was killed, or could not fork: start another
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        raise OSError("the process that forks shims was killed repeatedly")

    def _request_fork(self, request: dict[str, Any], fds: dict[str, int]) -> int:
        """The child's pid; below 0 = the fork's errno, negated; 0 = no answer."""
        assert self._data is not None
        try:
            os.write(self._trigger, _WORDS[namespace_flags(request["namespaces"])])
            _send(self._data, request, fds)
            return int(self._data.recv(64) or b"0")
        except OSError:
            return 0

    def _start_server(self) -> None:
        trigger, self._trigger = os.pipe()
        self._data, theirs = socket.socketpair()
        self._data.settimeout(_ANSWER_TIMEOUT)
        if os.fork() == 0:
            self._close_other_fds(trigger, theirs.fileno())
            self._serve(trigger, theirs)
        os.close(trigger)
        theirs.close()

    def _stop_server(self) -> None:
        os.close(self._trigger)
        if self._data is not None:
            self._data.close()
        self._data = None

    def _serve(self, trigger: int, data: socket.socket) -> None:
        """In the fork server: forks until the pod host is gone."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
        while word := os.read(trigger, 1):
            try:
                pid = calls.fork_into(_NAMESPACES[word])
            except OSError as error:
                data.send(b"%d" % -(error.errno or 1))
                os._exit(1)
            if pid == 0:
                os.close(trigger)
                self._run_child(data)
        os._exit(0)

    def _run_child(self, data: socket.socket) -> None:
        """In the child: never returns."""
        try:
            request, fds = _receive(data)
            os.write(data.fileno(), b"%d" % own_pid())
            os.close(data.fileno())
            self._child_main(request, fds)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)


def _send(data: socket.socket, request: dict[str, Any], fds: Mapping[str, int]) -> None:
    payload = marshal.dumps({"request": request, "fds": list(fds)})  # reading JSON would cost two forks 30 pages each
    socket.send_fds(data, [b"%*d" % (_HEADER_BYTES, len(payload))], list(fds.values()))
    data.sendall(payload)


def _receive(data: socket.socket) -> tuple[dict[str, Any], dict[str, int]]:
    header, ancillary, _, _ = data.recvmsg(_HEADER_BYTES, _ANCILLARY_BYTES, _CLOSE_ON_EXEC)
    message = marshal.loads(data.recv(int(header), socket.MSG_WAITALL))
    fds = array.array("i", ancillary[0][2]) if ancillary else ()
    return message["request"], dict(zip(message["fds"], fds, strict=True))


def prime_caches(times: int) -> None:
    """Performs a child's first steps in the pod host, so that shims share the caches (see `shim.prime_caches`)."""
    sender, receiver = socket.socketpair()
    for _ in range(times):
        _send(sender, {}, {"network": 0})
        os.close(_receive(receiver)[1]["network"])
        own_pid()
        with contextlib.suppress(OSError):
            calls.fork_into(-1)  # refused
    sender.close()
    receiver.close()
