"""The handshake of a websocket: what is refused before it is an ordinary answer, what goes wrong after it a close code."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.types import Message, Send

from rowlock.apiserver.http.responses import INTERNAL_ERROR_MESSAGE, JSON, encode
from rowlock.errors import ApiError, Internal

log = logging.getLogger(__name__)


async def serve_websocket(path: str, send: Send, handler: Callable[[Send], Awaitable[None]]) -> None:
    """Serves one websocket with `handler`, whatever happens in it."""
    accepted = False

    async def record_accept(message: Message) -> None:
        nonlocal accepted
        accepted = accepted or message["type"] == "websocket.accept"
        await send(message)

    try:
        await handler(record_accept)
    except ApiError as error:
        await _refuse(send, error)
    except Exception as error:
        if accepted and isinstance(error, OSError):
            return  # the client has gone: that is how the server says it
        log.exception("websocket %s failed", path)
        if accepted:
            return await send({"type": "websocket.close", "code": 1011, "reason": INTERNAL_ERROR_MESSAGE})
        await _refuse(send, Internal(INTERNAL_ERROR_MESSAGE))


async def _refuse(send: Send, error: ApiError) -> None:
    body = encode(error.status())
    headers = [(b"content-type", JSON), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": error.code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
