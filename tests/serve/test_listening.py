"""The server's socket: which port, and no waiting for acknowledgements."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from rowlock.http_server.sockets import HOST, open_listeners


def one(port: int, data: Path) -> socket.socket:
    (made,) = open_listeners(port, data)
    return made


def accepted(data: Path, *options: tuple[int, int]) -> list[int]:
    """Options of a connection that the server has accepted."""

    async def main() -> list[int]:
        found: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock: socket.socket = writer.get_extra_info("socket")
            found.set_result([sock.getsockopt(*option) for option in options])
            writer.close()

        server = await asyncio.start_server(serve, sock=one(0, data))
        async with server:
            port = server.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection(HOST, port)
            value = await found
            writer.close()
            await writer.wait_closed()
        return value

    return asyncio.run(main())


def test_answers_are_not_held_back(tmp_path: Path) -> None:
    """Nagle's algorithm is off on accepted connections: with it a followed log begins 40 ms late."""
    assert accepted(tmp_path, (socket.IPPROTO_TCP, socket.TCP_NODELAY)) == [1]


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system has other names for it")
def test_clients_that_vanish_are_noticed(tmp_path: Path) -> None:
    """A watch may say nothing for an hour: the kernel asks whether the other machine is still there."""
    wanted = (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    assert accepted(tmp_path, *wanted) == [1, 30]


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
