"""A log on its way: it is let go of when its reader has gone or counts no longer, and when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rowlock.errors import ApiError, Unauthorized, Unavailable
from rowlock.rest.log_streams import log_response
from rowlock.rest.log_streams.log_response import LogResponse, stream_response


class Reader:
    """The ASGI ends of a client, and what it was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def test_a_reader_who_leaves_ends_a_silent_log() -> None:
    async def play() -> None:
        closed, reader = asyncio.Event(), Reader()

        async def silent() -> AsyncGenerator[bytes]:
            try:
                yield b"first\n"
                await asyncio.Event().wait()
            finally:
                closed.set()

        answering = asyncio.create_task(LogResponse(silent())({"type": "http"}, reader.receive, reader.send))
        while len(reader.sent) < 2:
            await asyncio.sleep(0)
        reader.leaves.set()
        await asyncio.wait_for(answering, 200)
        assert closed.is_set() and reader.sent[0]["status"] == 200 and reader.sent[-1]["more_body"]

    asyncio.run(play())


def test_a_log_that_breaks_is_no_end_of_a_log() -> None:
    async def play() -> None:
        reader = Reader()

        async def breaking() -> AsyncGenerator[bytes]:
            yield b"first\n"
            raise RuntimeError("the disk is gone")

        with pytest.raises(RuntimeError, match="the disk is gone"):
            await LogResponse(breaking())({"type": "http"}, reader.receive, reader.send)
        assert reader.sent[-1]["more_body"], "the server closes the connection, so that the reader knows"

    asyncio.run(play())


@pytest.mark.parametrize(("written", "told"), [(b"first\n", b""), (b"half a l", b"\n")])
def test_a_log_ends_when_the_readers_token_counts_no_longer(
    monkeypatch: pytest.MonkeyPatch, written: bytes, told: bytes
) -> None:
    """A server that cannot be asked about it has not refused it."""
    monkeypatch.setattr(log_response, "CALLER_REVIEW_S", 0.01)
    answers: list[ApiError | None] = [None, Unavailable("the cluster is away"), Unauthorized("sign in again")]

    async def play() -> None:
        closed, reader = asyncio.Event(), Reader()

        async def silent() -> AsyncGenerator[bytes]:
            try:
                yield written
                await asyncio.Event().wait()
            finally:
                closed.set()

        async def check() -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        response = LogResponse(silent())
        response.check_caller = check
        await asyncio.wait_for(response({"type": "http"}, reader.receive, reader.send), 200)
        assert closed.is_set() and not answers
        assert reader.sent[-1]["body"] == told + b"rowlock: the log ends here: sign in again\n"
        assert not reader.sent[-1]["more_body"]

    asyncio.run(play())


def test_a_log_that_cannot_be_read_to_its_end_has_no_end() -> None:
    """The last sentence is sent, and the response is not completed: the server then closes the connection, and is told of no fault."""

    async def play() -> None:
        reader = Reader()

        async def lines() -> AsyncGenerator[bytes]:
            yield b"first\n"
            raise Unavailable("its node is gone")

        response = await stream_response(lines())
        await response({"type": "http"}, reader.receive, reader.send)
        bodies = [message["body"] for message in reader.sent[1:]]
        assert bodies == [b"first\n", b"rowlock: the log ends here: its node is gone\n"]
        assert reader.sent[-1]["more_body"]

    asyncio.run(play())
