"""Server-sent events: a response that lasts until its reader disconnects, and that cuts off a reader that does not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rowlock.http_server.disconnects import send_until_disconnect

SEND_TIMEOUT_S = 30.0
"""Seconds within which a reader must accept a piece. A reader that is cut off reconnects and resumes."""


class EventStream(Response):
    """Sends events, each already in `text/event-stream` format. Closes `events` when the reader disconnects."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], *, send_timeout: float = SEND_TIMEOUT_S) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events, self._send_timeout = events, send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = (scope.get("extensions") or {}).get("rowlock")
        await send_until_disconnect(self._send_events(send, exchange), receive)

    async def _send_events(self, send: Send, exchange: Any) -> None:
        """Send the events. `exchange` (None outside our server) can abort the connection of a reader that does not read."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in self._events:
                async with asyncio.timeout(self._send_timeout):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            if exchange is not None:
                exchange.cut()
                await asyncio.Event().wait()  # until the server reports the disconnect: the answer is incomplete
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()
