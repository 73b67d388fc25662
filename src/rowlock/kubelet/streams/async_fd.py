"""The server's ends of a program's pipes, terminals and sockets, read and written without blocking.

One chunk at a time without a buffer: a slow reader blocks the program and uses no memory of the server.
"""

import asyncio
import os

CHUNK = 1 << 15


class AsyncFd:
    """A file descriptor owned by this object, which closes it once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read_timeout: float | None = None
        self._reader: asyncio.Future[None] | None = None
        os.set_blocking(fd, False)

    @property
    def fd(self) -> int:
        """The descriptor; -1 after it is closed."""
        return self._fd

    def set_read_timeout(self, timeout: float) -> None:
        """From now on, `timeout` seconds without a byte count as the end, also for a read that is already waiting."""
        self._read_timeout = timeout
        if self._reader is not None:
            _wake_waiter(self._reader)

    async def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        while self._fd >= 0:
            try:
                return os.read(self._fd, CHUNK)
            except BlockingIOError:
                if not await self._wait_readable():
                    return b""
            except OSError:  # EIO: the other end of the terminal is closed
                return b""
        return b""

    async def write(self, data: bytes) -> bool:
        """Writes all of it; False if the reader is gone."""
        rest = memoryview(data)
        while rest and self._fd >= 0:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                await self._wait_writable()
            except OSError:
                return False
        return not rest

    async def _wait_readable(self) -> bool:
        loop, fd = asyncio.get_running_loop(), self._fd
        ready = self._reader = loop.create_future()
        loop.add_reader(fd, _wake_waiter, ready)
        try:
            async with asyncio.timeout(self._read_timeout):
                await ready
            return True
        except TimeoutError:
            return False
        finally:
            self._reader = None
            if self._fd == fd:
                loop.remove_reader(fd)

    async def _wait_writable(self) -> None:
        loop, fd = asyncio.get_running_loop(), self._fd
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(fd, _wake_waiter, ready)
        try:
            await ready
        finally:
            if self._fd == fd:
                loop.remove_writer(fd)

    def close(self) -> None:
        """Closes it; a waiting read returns the end of file."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(fd)
        loop.remove_writer(fd)
        os.close(fd)
        if self._reader is not None:
            _wake_waiter(self._reader)


def _wake_waiter(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
