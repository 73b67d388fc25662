"""The way out for pods: an HTTP(S) proxy. Pods in namespaces have no route to the world, only this listener.

The listening socket is made inside the fabric and served here, outside, by the server: CONNECT for TLS, absolute URLs for
plain HTTP. If the server itself lives behind a proxy (`https_proxy`, `http_proxy`), connections go through that one.
Only HTTP gets out; nothing gets in.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

_MAX_HEADER_BYTES = 65536
_CHUNK_BYTES = 1 << 18
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class EgressProxy:
    """Serves one listening socket until cancelled."""

    def __init__(self, listener: socket.socket, environment: Mapping[str, str]) -> None:
        self._listener = listener
        upstream = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or environment.get("http_proxy")
        self._upstream = urlsplit(upstream) if upstream else None

    async def run(self) -> None:
        self._listener.setblocking(False)
        server = await asyncio.start_server(self._serve, sock=self._listener, limit=_MAX_HEADER_BYTES)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            header = await reader.readuntil(b"\r\n\r\n")
            try:
                await self._relay(header, reader, writer)
            except (OSError, ValueError) as error:
                text = f"rowlock's proxy could not connect: {error}\n".encode()
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text))
                writer.write(text)
        writer.close()

    async def _relay(self, header: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, _, rest = header.partition(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ")
        tunnel = method == "CONNECT"
        host, port = _parse_address(target if tunnel else urlsplit(target).netloc, 443 if tunnel else 80)
        if self._upstream is not None:
            upstream_reader, upstream_writer = await asyncio.open_connection(
                self._upstream.hostname, self._upstream.port or 80
            )
            upstream_writer.write(header)
        else:
            upstream_reader, upstream_writer = await asyncio.open_connection(host, port)
            if tunnel:
                writer.write(_ESTABLISHED)
            else:
                upstream_writer.write(
                    f"{method} {_origin_path(target)} {version}\r\n".encode("latin-1") + _with_connection_close(rest)
                )
        await asyncio.gather(_copy_stream(reader, upstream_writer), _copy_stream(upstream_reader, writer))
        upstream_writer.close()


def _parse_address(text: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f'"{text}" is no host')
    return parts.hostname, parts.port or default


def _origin_path(target: str) -> str:
    parts = urlsplit(target)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _with_connection_close(headers: bytes) -> bytes:
    """One request per connection: the next one may be for another host."""
    kept = [h for h in headers.split(b"\r\n") if not h.lower().startswith((b"proxy-", b"connection:"))]
    return b"Connection: close\r\n" + b"\r\n".join(kept)


async def _copy_stream(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
