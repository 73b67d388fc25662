"""Attached to a container's own program: what it prints from now on is read from its log, input goes to its stdin.

stdout and stderr are one stream, as in the log. Leaving does nothing to the program, but a stdin with `stdinOnce`
ends with the first who had it.
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

from rowlock.cluster.node.console import short
from rowlock.cluster.node.ends import End

OUT = 1


class Attached:
    """One client. See `Session` in `entrance.py` for what each of these is."""

    channels: tuple[int, ...] = (OUT,)

    def __init__(self, output: AsyncIterator[bytes], pid: int, *, tty: bool) -> None:
        self._output, self._pid, self._tty = output, pid, tty
        self._input: socket.socket | None = None
        self._end: End | None = None
        self._ended = asyncio.Event()

    def open_input(self, path: Path) -> None:
        """Connects to the program's stdin. Raises OSError when it has ended (somebody had it before)."""
        made = socket.socket(socket.AF_UNIX)
        try:
            with short(str(path)) as name:
                made.connect(name)
        except OSError:
            made.close()
            raise
        self._input, self._end = made, End(made.fileno())

    async def read(self, channel: int) -> bytes:
        """What the program prints; b"" when it has ended."""
        piece = await anext(self._output, b"")
        if not piece:
            self._ended.set()
        return piece

    async def write(self, data: bytes) -> None:
        """Waits while the program reads nothing."""
        if self._end is not None:
            await self._end.write(data)

    def finish_input(self) -> None:
        """No more input from this client."""
        if self._input is not None:
            with contextlib.suppress(OSError):  # the program has ended
                self._input.shutdown(socket.SHUT_WR)

    def resize(self, columns: int, rows: int) -> None:
        """The size of the program's terminal, where it has one."""
        if not self._tty:
            return
        with contextlib.suppress(OSError):  # it has just ended
            fd = os.open(f"/proc/{self._pid}/fd/0", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            finally:
                os.close(fd)

    async def ended(self) -> tuple[int, str]:
        """Always 0: how the program ended is in the pod's status."""
        await self._ended.wait()
        return 0, ""

    async def close(self) -> None:
        if self._end is not None and self._input is not None:
            self._input.detach()
            self._end.close()
        if isinstance(self._output, AsyncGenerator):
            await self._output.aclose()
