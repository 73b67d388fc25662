"""Long requests of sessions (streams, followed logs, terminals), which end with their session.

In a terminal, a browser's websocket becomes an exec request to the API, with the session's token. A page cannot set headers on a
websocket, and does not see the answer to a refused handshake. So it sends the session's key as an offered subprotocol, the way
Kubernetes takes tokens from browsers; and a refusal accepts the websocket and sends the API's error as the outcome of the program, in
the format of v5.channel.k8s.io.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.errors import ApiError

REVIEW_S = 5.0
"""Seconds between two checks whether the sessions of open requests are still valid."""
_SIGNED_OUT = "The session is over, and the terminal with it: sign in again."


class OpenRequests:
    """The open requests of all sessions, by the session's name."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[asyncio.Task[None], Callable[[], Awaitable[None]]]] = {}

    async def serve(
        self,
        session: str,
        app: ASGIApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """Answer a request of a session. `check` is awaited regularly and raises Unauthorized once the session is over."""
        told = _StartedAnswer(send)
        task = asyncio.ensure_future(_run(app, scope, receive, told))
        self._tasks.setdefault(session, {})[task] = check
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            own = self._tasks.get(session, {})
            own.pop(task, None)
            if not own:
                self._tasks.pop(session, None)
        if task.cancelled():
            return await told.finish(scope)
        if (error := task.exception()) is not None:
            raise error

    def end(self, session: str) -> None:
        """Cancel all requests of a session."""
        for task in list(self._tasks.get(session, ())):
            task.cancel()

    async def review(self) -> None:
        """Until cancelled, cancel the requests of sessions that expired or whose account ended."""
        while True:
            await asyncio.sleep(REVIEW_S)
            for session, tasks in list(self._tasks.items()):
                check = next(iter(tasks.values()), None)
                try:
                    if check is not None:
                        await check()
                except ApiError as error:
                    if error.code == 401:
                        self.end(session)


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


class _StartedAnswer:
    """Wraps `send` and tracks the answer's progress, so that a cancelled answer can be completed properly."""

    def __init__(self, send: Send) -> None:
        self._send, self._is_started, self._is_over = send, False, False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.accept"):
            self._is_started = True
        if kind == "websocket.close" or (kind == "http.response.body" and not message.get("more_body")):
            self._is_over = True
        await self._send(message)

    async def finish(self, scope: Scope) -> None:
        """Complete the answer of a cancelled request."""
        if self._is_over:
            return
        with suppress(OSError, RuntimeError):  # the reader has disconnected meanwhile
            if scope["type"] == "websocket":
                if self._is_started:
                    await close_terminal(self._send, _SIGNED_OUT)
                else:
                    await self._send({"type": "websocket.close", "code": 1008, "reason": _SIGNED_OUT})
                return
            if not self._is_started:
                headers = [(b"content-type", b"application/json")]
                await self._send({"type": "http.response.start", "status": 401, "headers": headers})
            await self._send({"type": "http.response.body", "body": b""})


EXEC_PATH = re.compile("/api/v1/namespaces/[^/]+/pods/[^/]+/exec")
KEY_PROTOCOL = "key.rowlock.dev."
"""Prefix of the key in an offered subprotocol, which is never selected."""
CHANNELS = "v5.channel.k8s.io"
_OUTCOME_CHANNEL = b"\x03"
_NOT_PASSED_ON = frozenset({b"authorization", b"cookie", b"origin", b"sec-websocket-protocol"})


def offered_key(scope: Scope) -> str:
    """The session's key from the offered subprotocols; "" if there is none."""
    keys = [
        word.removeprefix(KEY_PROTOCOL) for word in scope.get("subprotocols") or () if word.startswith(KEY_PROTOCOL)
    ]
    return keys[0] if keys else ""


async def serve_exec(api: ASGIApp, token: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass the websocket to the API at the path of `scope`. Authentication and impersonation headers of the browser are removed."""
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name not in _NOT_PASSED_ON and not name.startswith(b"impersonate-")
    ]
    headers = [*kept, (b"authorization", f"Bearer {token}".encode()), (b"sec-websocket-protocol", CHANNELS.encode())]
    inner = {**scope, "raw_path": scope["path"].encode(), "root_path": "", "headers": headers}
    await api({**inner, "subprotocols": [CHANNELS]}, receive, _TellRefusal(send))


async def close_terminal(send: Send, reason: str) -> None:
    """Close an open terminal; the reason is sent as the outcome of its program."""
    body = {"metadata": {}, "status": "Failure", "message": reason, "reason": "Unauthorized", "code": 401}
    await send({"type": "websocket.send", "bytes": _OUTCOME_CHANNEL + msgspec.json.encode(body)})
    await send({"type": "websocket.close", "code": 1000})


async def refuse(error: ApiError, receive: Receive, send: Send) -> None:
    """Accept the websocket, send the error as the outcome, and close it."""
    await receive()
    body: dict[str, Any] = {
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
    }
    await _end_with(send, msgspec.json.encode(body))


async def _end_with(send: Send, outcome: bytes) -> None:
    await send({"type": "websocket.accept", "subprotocol": CHANNELS})
    await send({"type": "websocket.send", "bytes": _OUTCOME_CHANNEL + outcome})
    await send({"type": "websocket.close", "code": 1000})


class _TellRefusal:
    """Wraps `send`: a refused handshake becomes an accepted websocket that receives the error."""

    def __init__(self, send: Send) -> None:
        self._send, self._body, self._is_accepted = send, bytearray(), False

    async def __call__(self, message: Message) -> None:
        kind: Any = message["type"]
        if kind == "websocket.accept":
            self._is_accepted = True
        if kind == "websocket.http.response.start":
            return
        if kind == "websocket.http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await _end_with(self._send, bytes(self._body))
            return
        if kind == "websocket.close" and not self._is_accepted:
            reason = message.get("reason") or "the server refused the terminal, and gave no reason"
            body: dict[str, Any] = {"metadata": {}, "status": "Failure", "message": reason, "reason": "Forbidden"}
            return await _end_with(self._send, msgspec.json.encode(body))
        await self._send(message)
