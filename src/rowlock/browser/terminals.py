"""Terminals of open pages: a browser's websocket becomes an exec request to the API, with the session's token.

A page cannot set headers on a websocket, and does not see the answer to a refused handshake. So it sends the session's key as an
offered subprotocol, the way Kubernetes takes tokens from browsers; and a refusal accepts the websocket and sends the API's error as
the outcome of the program, in the format of v5.channel.k8s.io.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.errors import ApiError

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
