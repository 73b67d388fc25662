"""Attaches to a container's own program: its further output is read from its log, input goes to its stdin.

stdout and stderr are one stream, as in the log. Detaching does not affect the program, but with `stdinOnce` its stdin ends
with the first client that had it.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

from rowlock.kubelet.shim.stdio import short_socket_path
from rowlock.kubelet.streams.async_fd import AsyncFd

STDOUT = 1


class AttachSession:
    """One attached client, with the methods of `ProcessSession` in `exec_sessions.py`."""

    channels: tuple[int, ...] = (STDOUT,)

    def __init__(self, output: AsyncIterator[bytes], pid: int, *, tty: bool) -> None:
        self._output, self._pid, self._tty = output, pid, tty
        self._input: socket.socket | None = None
        self._input_fd: AsyncFd | None = None
        self._ended = asyncio.Event()

    def open_input(self, path: Path) -> None:
        """Connects to the program's stdin. Raises OSError if stdin has ended (with an earlier client), BlockingIOError if the
        listener accepts no connection now: it belongs to the pod, and must not block the server."""
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            with short_socket_path(str(path)) as name:
                sock.connect(name)
        except OSError:
            sock.close()
            raise
        self._input, self._input_fd = sock, AsyncFd(sock.fileno())

    async def read(self, channel: int) -> bytes:
        """The next output of the program; b"" when it has ended."""
        chunk = await anext(self._output, b"")
        if not chunk:
            self._ended.set()
        return chunk

    async def write(self, data: bytes) -> None:
        """Writes to the program's stdin; waits while the program reads nothing."""
        if self._input_fd is not None:
            await self._input_fd.write(data)

    def finish_input(self) -> None:
        """Ends the input of this client."""
        if self._input is not None:
            with contextlib.suppress(OSError):  # the program has ended
                self._input.shutdown(socket.SHUT_WR)

    def resize(self, columns: int, rows: int) -> None:
        """Sets the size of the program's terminal, if it has one."""
        if not self._tty:
            return
        with contextlib.suppress(OSError):  # it has just ended
            fd = os.open(f"/proc/{self._pid}/fd/0", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            finally:
                os.close(fd)

    async def wait_exit(self) -> tuple[int, str]:
        """Waits for the end of the output. Always 0: how the program ended is in the pod's status."""
        await self._ended.wait()
        return 0, ""

    async def close(self) -> None:
        if self._input_fd is not None and self._input is not None:
            self._input.detach()
            self._input_fd.close()
        if isinstance(self._output, AsyncGenerator):
            await self._output.aclose()
