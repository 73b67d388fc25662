"""The pods' way to the API server: bytes go both ways, and no pod takes all connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine

import pytest

from rowlock.kubelet.network import loopback_relay
from rowlock.kubelet.network.egress_proxy import EgressProxy
from rowlock.kubelet.network.loopback_relay import LoopbackRelay


def listen() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


async def answer_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line * 2)
    writer.close()
    await writer.wait_closed()


async def say(address: tuple[str, int], held: list[asyncio.StreamWriter]) -> bytes:
    """What comes back for a word on a new connection, which stays open; nothing from one that is refused."""
    reader, writer = await asyncio.open_connection(*address)
    held.append(writer)
    with contextlib.suppress(ConnectionError):
        writer.write(b"hello\n")
        return await reader.read(12)
    return b""


@pytest.mark.parametrize("begin", [lambda one: LoopbackRelay(one, 1).run(), lambda one: EgressProxy(one, {}).run()])
def test_who_is_cancelled_while_he_begins_leaves_nobody_listening(
    begin: Callable[[socket.socket], Coroutine[None, None, None]],
) -> None:
    async def body(steps: int) -> None:
        with listen() as listener:
            serving = asyncio.ensure_future(begin(listener))
            for _ in range(steps):
                await asyncio.sleep(0)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            number = listener.fileno()
            assert number == -1 or not asyncio.get_running_loop().remove_reader(number)

    for steps in range(6):
        asyncio.run(body(steps))


def test_bytes_go_both_ways_and_a_pod_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_relay, "MAX_PER_POD", 2)

    async def main() -> None:
        server, listener, held = (
            await asyncio.start_server(answer_twice, "127.0.0.1", 0),
            listen(),
            list[asyncio.StreamWriter](),
        )
        relay = LoopbackRelay(listener, server.sockets[0].getsockname()[1])
        running = asyncio.create_task(relay.run())
        address = listener.getsockname()
        assert [await say(address, held) for _ in range(3)] == [b"hello\nhello\n"] * 2 + [b""]
        await close_all(held, relay)
        assert await say(address, held) == b"hello\nhello\n"
        await close_all(held, relay)
        server.close()
        running.cancel()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*rest, return_exceptions=True)

    asyncio.run(main())


async def close_all(held: list[asyncio.StreamWriter], relay: LoopbackRelay) -> None:
    """Until the relay has seen the end of each."""
    for writer in held:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    held.clear()
    while relay.open_connections:
        await asyncio.sleep(0)
