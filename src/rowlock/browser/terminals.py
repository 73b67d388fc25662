"""Terminals of open pages: a websocket of the door's becomes a request for exec of the API's, with the token behind the session.

A browser sets no headers of its own on a websocket, and shows a page nothing of a handshake that was refused. So the key of the session
comes as an offered subprotocol, as Kubernetes takes tokens from browsers; and a refusal is told inside the socket, in the words
of the API, as its version 5 of the protocol tells how a program ended.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.errors import ApiError

EXEC_PATH = re.compile("/api/v1/namespaces/[^/]+/pods/[^/]+/exec")
KEY_PROTOCOL = "key.rowlock.dev."
"""Before the key, in a subprotocol that is offered and never chosen."""
CHANNELS = "v5.channel.k8s.io"
_OUTCOME_CHANNEL = b"\x03"
_NOT_PASSED_ON = frozenset({b"authorization", b"cookie", b"origin", b"sec-websocket-protocol"})


def offered_key(scope: Scope) -> str:
    """The key among the subprotocols; "" where there is none."""
    keys = [
        word.removeprefix(KEY_PROTOCOL) for word in scope.get("subprotocols") or () if word.startswith(KEY_PROTOCOL)
    ]
    return keys[0] if keys else ""


async def serve_exec(api: ASGIApp, token: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Hand the socket on to the API, whose path `scope` has. Headers that say as whom somebody acts are not a browser's to set, and stay behind."""
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name not in _NOT_PASSED_ON and not name.startswith(b"impersonate-")
    ]
    headers = [*kept, (b"authorization", f"Bearer {token}".encode()), (b"sec-websocket-protocol", CHANNELS.encode())]
    inner = {**scope, "raw_path": scope["path"].encode(), "root_path": "", "headers": headers}
    await api({**inner, "subprotocols": [CHANNELS]}, receive, _TellRefusal(send))


async def close_terminal(send: Send, reason: str) -> None:
    """For one that is open: why it ends is told as the outcome of its program."""
    body = {"metadata": {}, "status": "Failure", "message": reason, "reason": "Unauthorized", "code": 401}
    await send({"type": "websocket.send", "bytes": _OUTCOME_CHANNEL + msgspec.json.encode(body)})
    await send({"type": "websocket.close", "code": 1000})


async def refuse(error: ApiError, receive: Receive, send: Send) -> None:
    """Say so inside the socket, and end it."""
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
    """`send`, where an HTTP answer in place of a handshake goes into the socket."""

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
