"""Server-sent events over HTTP: a response that goes on until its reader goes, and that does not wait for one that takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SEND_TIMEOUT_S = 30.0
"""Seconds in which a reader must take a piece; one that is cut off comes back and goes on where it was."""


class EventStream(Response):
    """The events as they come, each already in the format of `text/event-stream`. The source is closed when the reader goes."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], *, send_timeout: float = SEND_TIMEOUT_S) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events, self._send_timeout = events, send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader_gone = asyncio.create_task(_wait_for_disconnect(receive))
        sending = asyncio.create_task(self._send_events(send))
        try:
            await asyncio.wait({reader_gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            is_stuck = sending.done() and sending.result()
            exchange = (scope.get("extensions") or {}).get("rowlock")
            if is_stuck and exchange is not None:
                exchange.cut()
                await reader_gone
        finally:
            reader_gone.cancel()
            sending.cancel()
            await asyncio.wait({reader_gone, sending})

    async def _send_events(self, send: Send) -> bool:
        """True: the reader took nothing for too long."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in self._events:
                async with asyncio.timeout(self._send_timeout):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            return True
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()
        await send({"type": "http.response.body", "body": b""})
        return False


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
