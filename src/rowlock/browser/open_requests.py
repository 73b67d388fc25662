"""Long requests of sessions (streams, followed logs, terminals), which end with their session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.browser.terminals import close_terminal
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
