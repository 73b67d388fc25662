"""The server's socket: which port, and no waiting for acknowledgements."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from rowlock.cluster.api.sockets import HOST, listening


def one(port: int, data: Path) -> socket.socket:
    (made,) = listening(port, data)
    return made


def test_answers_are_not_held_back(tmp_path: Path) -> None:
    """Nagle's algorithm is off on accepted connections: with it a followed log begins 40 ms late."""

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock: socket.socket = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(serve, sock=one(0, tmp_path))
        async with server:
            port = server.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection(HOST, port)
            value = await found
            writer.close()
            await writer.wait_closed()
        return value

    assert asyncio.run(accepted())


def test_the_port_of_last_time_is_kept_when_it_is_free(tmp_path: Path) -> None:
    with one(0, tmp_path) as first:
        port = first.getsockname()[1]
        (tmp_path / "server.json").write_text(json.dumps({"url": f"https://{HOST}:{port}"}))
        first.listen()
        with one(0, tmp_path) as other:
            assert other.getsockname()[1] != port, "taken: another one"
        with pytest.raises(OSError):
            one(port, tmp_path)
    with one(0, tmp_path) as again:
        assert again.getsockname()[1] == port
