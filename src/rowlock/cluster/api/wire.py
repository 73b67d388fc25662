"""Fewer packets: what one turn of the event loop writes to a connection is encrypted and sent once.

uvicorn writes an answer's head and body separately, and a watch writes line by line; over TLS each write is a record
and a system call. `Protocol` is uvicorn's own with a transport between that joins them; give it to
`uvicorn.Config(http=…)`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGE = 64 * 1024
"""Above this nothing is gained by waiting for more."""


class Joined(asyncio.Transport):
    """A transport that passes on what was written when the loop's turn ends."""

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner, self._loop = inner, loop
        self._parts: list[bytes | bytearray | memoryview] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > LARGE:
            self.flush()

    def flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._inner.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.flush()
        self._inner.close()

    def abort(self) -> None:
        self._parts.clear()
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def is_reading(self) -> bool:
        return self._inner.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size() + self._size

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.flush()
        self._inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner.get_protocol()


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol over a joining transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn says the same
        super().connection_made(Joined(transport, self.loop))
