"""What a container's program has as stdin, stdout and stderr: pipes, or a terminal (`tty: true`).

A container with `stdin: true` can be written to while it runs (`attach`): a small process beside its shim listens on
`in.N` in the container's directory and passes on what comes. With `stdinOnce` its stdin ends with the first who was
attached; without, never. Standard library only.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import termios
from collections.abc import Iterator
from typing import Any

CHUNK = 65536


class Ends:
    """The program's ends and ours. `wanted` may say `tty`, `stdin` and `once`."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._tty, self._stdin = bool(wanted.get("tty")), bool(wanted.get("stdin"))
        self._once = bool(wanted.get("once"))
        self._input = -1
        if self._tty:
            self.reading, slave = os.openpty()
            self._theirs = (slave, slave, slave)
            if self._stdin:
                self._input = os.dup(self.reading)
        else:
            self.reading, writing = os.pipe()
            first = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if self._stdin:
                os.close(first)
                first, self._input = os.pipe()
            self._theirs = (first, writing, writing)

    def take(self, owner: int | None = None) -> None:
        """In the program's own process, before exec. `owner`: who the terminal shall belong to."""
        if self._tty:
            os.fchown(self._theirs[0], -1 if owner is None else owner, -1)
        for target, source in enumerate(self._theirs):
            os.dup2(source, target)
        if self._tty:
            own_terminal(0)

    def let_go(self) -> None:
        """In the shim, when the program has been started: its ends are its own."""
        for fd in set(self._theirs):
            os.close(fd)

    def listen(self, path: str) -> None:
        """In the shim: from now on clients can connect at `path` and write to the program."""
        if self._input < 0:
            return
        listener = socket.socket(socket.AF_UNIX)
        with short(path) as name:
            listener.bind(name)
        listener.listen(8)
        if os.fork() == 0:
            status = 1
            try:
                os.close(self.reading)
                Feeder(listener, self._input, once=self._once and not self._tty).run()
                status = 0
            finally:
                os._exit(status)
        listener.close()
        os.close(self._input)


def own_terminal(fd: int) -> None:
    """Makes a terminal the one of this session: Ctrl-C and window sizes reach its programs."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def short(path: str) -> Iterator[str]:
    """A name for a socket's path that is short enough for the kernel (108 bytes)."""
    directory, _, name = path.rpartition("/")
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


class Feeder:
    """Passes on what attached clients write. The shim kills it with everything else when the program ends."""

    def __init__(self, listener: socket.socket, sink: int, *, once: bool) -> None:
        self._listener, self._sink, self._once = listener, sink, once
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def run(self) -> None:
        """Until the program reads no more, or (`once`) the first client has finished."""
        clients: list[socket.socket] = []
        while True:
            ready, _, _ = select.select([self._listener, *clients], [], [])
            for one in ready:
                if one is self._listener:
                    clients.append(self._listener.accept()[0])
                elif not self._pass(one):
                    clients.remove(one)
                    one.close()
                    if self._once:
                        return

    def _pass(self, client: socket.socket) -> bool:
        """One piece; False when the client has finished. Waits while the program reads nothing."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = client.recv(CHUNK)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._sink, rest) :]
        return bool(data)
