"""A log on its way to a client: how it ends when the client leaves, and what an error becomes."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.waiting import PATIENCE

from rowlock.apiserver.endpoints import subresources
from rowlock.http_server.disconnects import send_until_disconnect


async def _copy(chunks: AsyncGenerator[bytes], left: asyncio.Event, sent: list[Any]) -> None:
    async def send(message: Any) -> None:
        sent.append(message.get("body", message.get("status")))

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    await send_until_disconnect(subresources._copy_log(chunks, send, []), receive)
    await asyncio.sleep(0)


def test_a_client_that_leaves_a_quiet_log_ends_it() -> None:
    async def scenario() -> tuple[list[Any], bool]:
        left, sent, closed = asyncio.Event(), list[Any](), False

        async def chunks() -> AsyncGenerator[bytes]:
            nonlocal closed
            try:
                yield b"one"
                left.set()
                await asyncio.Event().wait()
            finally:
                closed = True

        async with asyncio.timeout(PATIENCE):
            await _copy(chunks(), left, sent)
        return sent, closed

    assert asyncio.run(scenario()) == ([200, b"one"], True)


def test_a_log_that_ends_first_is_ended_once_and_its_client_may_leave_later() -> None:
    failures: list[dict[str, Any]] = []

    async def scenario() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        sent: list[Any] = []

        async def chunks() -> AsyncGenerator[bytes]:
            yield b"all"

        await _copy(chunks(), asyncio.Event(), sent)
        return sent

    assert asyncio.run(scenario()) == [200, b"all", b""]
    assert not failures


def test_an_empty_log_is_an_answer_and_a_reader_that_timed_out_an_error() -> None:
    async def scenario(error: Exception | None) -> list[Any]:
        sent: list[Any] = []

        async def chunks() -> AsyncGenerator[bytes]:
            if error:
                raise error
            return
            yield

        await _copy(chunks(), asyncio.Event(), sent)
        return sent

    assert asyncio.run(scenario(None)) == [200, b""]
    with pytest.raises(TimeoutError, match="a slow disk"):
        asyncio.run(scenario(TimeoutError("a slow disk")))
