"""A log as an HTTP response: it lasts until the log ends, the reader disconnects, or the reader's token is no longer valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rowlock.errors import ApiError
from rowlock.http_server.disconnects import wait_for_disconnect


class LogIncomplete(Exception):
    """Raised by a body after its last sentence: the log has not ended, but nothing more of it comes. The connection is closed before the
    response is complete, so that no client takes this for the end of the log."""


_FIRST_CHUNK_TIMEOUT = 0.25
"""Seconds to wait for the first bytes, so that an error can still become a status code."""
CALLER_REVIEW_S = 10.0
"""Seconds between two checks whether the reader's token is still valid."""


class LogResponse(Response):
    """A response that streams text until its end or until the client disconnects.

    Starlette's StreamingResponse uses anyio, whose import at the first log would block the event loop for 50 ms."""

    def __init__(self, body: AsyncGenerator[bytes]) -> None:
        self.status_code, self.background, self._body = 200, None, body
        self._is_line_over = True
        self.check_caller: Callable[[], Awaitable[None]] | None = None
        """Raises Unauthorized once the caller's token is no longer valid; None if it need not be checked."""
        self.init_headers({"content-type": "text/plain; charset=utf-8"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send_body(send))
        refused = asyncio.create_task(self._wait_until_refused(self.check_caller)) if self.check_caller else None
        tasks = {sending, asyncio.create_task(wait_for_disconnect(receive)), *filter(None, [refused])}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending in done:
                with suppress(LogIncomplete):
                    sending.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if refused is not None and done == {refused}:
            text = "" if self._is_line_over else "\n"
            text += f"rowlock: the log ends here: {refused.result()}\n"
            await send({"type": "http.response.body", "body": text.encode(), "more_body": False})

    async def _send_body(self, send: Send) -> None:
        async with aclosing(self._body) as pieces:
            async for piece in pieces:
                self._is_line_over = piece.endswith(b"\n")
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_until_refused(self, check_caller: Callable[[], Awaitable[None]]) -> str:
        """Return the error message once the caller's token is no longer valid."""
        while True:
            await asyncio.sleep(CALLER_REVIEW_S)
            try:
                await check_caller()
            except ApiError as error:  # go on if the token cannot be checked now
                if error.code == 401:
                    return error.message


async def stream_response(lines: AsyncIterator[bytes]) -> Response:
    """The stream as a response. Raises an error that occurs before the first bytes, so that it becomes a status code."""
    first = asyncio.ensure_future(anext(lines, None))
    done, _ = await asyncio.wait({first}, timeout=_FIRST_CHUNK_TIMEOUT)
    if done:
        first.result()

    async def body() -> AsyncGenerator[bytes]:
        try:
            chunk = await first
            if chunk is not None:
                yield chunk
                async for chunk in lines:
                    yield chunk
        except ApiError as error:
            yield f"rowlock: the log ends here: {error.message}\n".encode()
            raise LogIncomplete from error
        finally:
            first.cancel()
            await close_stream(lines)

    return LogResponse(body())


async def close_stream(lines: AsyncIterator[bytes]) -> None:
    """Close an iterator that is a generator, so that what it reads is let go of now."""
    close = getattr(lines, "aclose", None)
    if close is not None:
        await close()
