"""Stdin, stdout and stderr of a container's program: pipes, or a terminal (`tty: true`).

A container with `stdin: true` can be written to while it runs (`attach`): a small process beside its shim listens on
`in.N` in the container's directory and forwards what clients write. With `stdinOnce` its stdin ends with the first client;
without, never. Standard library only.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import termios
from collections.abc import Iterator

from rowlock.kubelet.shim.shim_request import ConsoleSpec

CHUNK = 65536
BREAKPOINT_WITHOUT_TERMINAL = {"PYTHONBREAKPOINT": "traceback.print_stack"}
"""Makes Python's `breakpoint()` print where the program is and go on: without a terminal, pdb would read the end of its input and
end the program."""
_MAX_SOCKET_PATH = 100


class Stdio:
    """The program's descriptors and the shim's. `console` may have `tty`, `stdin` and `once`."""

    def __init__(self, console: ConsoleSpec) -> None:
        self._tty, self._stdin = bool(console.get("tty")), bool(console.get("stdin"))
        self._stdin_once = bool(console.get("once"))
        self._input_fd = -1
        if self._tty:
            self.output_fd, slave = os.openpty()
            self._child_fds = (slave, slave, slave)
            if self._stdin:
                self._input_fd = os.dup(self.output_fd)
        else:
            self.output_fd, writing = os.pipe()
            first = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if self._stdin:
                os.close(first)
                first, self._input_fd = os.pipe()
            self._child_fds = (first, writing, writing)

    def install(self, owner: int | None = None) -> None:
        """In the program's own process, before exec: installs its descriptors. `owner`: the uid that shall own the terminal."""
        if self._tty:
            os.fchown(self._child_fds[0], -1 if owner is None else owner, -1)
        for target, source in enumerate(self._child_fds):
            os.dup2(source, target)
        if self._tty:
            set_controlling_terminal(0)

    def close_child_fds(self) -> None:
        """In the shim, after the program has started: closes the program's descriptors."""
        for fd in set(self._child_fds):
            os.close(fd)

    def listen(self, path: str) -> None:
        """In the shim: from now on clients can connect at `path` and write to the program."""
        if self._input_fd < 0:
            return
        listener = socket.socket(socket.AF_UNIX)
        with short_socket_path(path) as name:
            listener.bind(name)
        listener.listen(8)
        if os.fork() == 0:
            status = 1
            try:
                os.close(self.output_fd)
                StdinForwarder(listener, self._input_fd, once=self._stdin_once and not self._tty).run()
                status = 0
            finally:
                os._exit(status)
        listener.close()
        os.close(self._input_fd)


def set_controlling_terminal(fd: int) -> None:
    """Makes a terminal the controlling one of this session: Ctrl-C and window sizes reach its programs."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def short_socket_path(path: str) -> Iterator[str]:
    """A name for a socket's path that is short enough for the kernel (108 bytes)."""
    directory, _, name = path.rpartition("/")
    if len(os.fsencode(path)) < _MAX_SOCKET_PATH or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def is_own_peer(connection: socket.socket) -> bool:
    """Whether the process at the other end of a unix socket is of this user. Where the system cannot say, the permissions of the
    socket's directory protect it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.geteuid())


class StdinForwarder:
    """Forwards what attached clients write. The shim kills it with everything else when the program ends."""

    def __init__(self, listener: socket.socket, sink: int, *, once: bool) -> None:
        self._listener, self._sink, self._once = listener, sink, once
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def run(self) -> None:
        """Runs until the program reads no more, or (`once`) the first client has finished. While the program reads nothing,
        clients are accepted but not read."""
        clients: list[socket.socket] = []
        rest = b""
        while True:
            readers = [self._listener] if rest else [self._listener, *clients]
            ready, writable, _ = select.select(readers, [self._sink] if rest else [], [])
            if writable:
                rest = rest[os.write(self._sink, rest[: select.PIPE_BUF]) :]
            for sock in ready:
                if sock is self._listener:
                    clients.append(self._listener.accept()[0])
                elif not rest and not (rest := _receive_chunk(sock)):
                    clients.remove(sock)
                    sock.close()
                    if self._once:
                        return


def _receive_chunk(client: socket.socket) -> bytes:
    """The next piece; b"" when the client has finished."""
    try:
        return client.recv(CHUNK)
    except ConnectionError:
        return b""
