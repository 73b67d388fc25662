"""HTTP answers: JSON bodies, Status errors, Warning headers. Depends on ASGI only."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate, compress, islice
from typing import Any

import msgspec
from starlette.types import Message, Send

from rowlock.apiserver.http.requests import Call
from rowlock.controllers.turn_budget import take_slices
from rowlock.errors import ApiError

encode = msgspec.json.Encoder().encode

JSON = b"application/json"
INTERNAL_ERROR_MESSAGE = "an error on the server: this is a fault of rowlock; its log has the details"
_CACHE_HEADERS = ((b"cache-control", b"no-cache, private"),)


TRUNCATE_AT_TOTAL_CHARS, TRUNCATE_ITEM_CHARS = 4096, 256
"""The most characters of all warnings of an answer, and of each warning if that is exceeded: a real server's limits."""


def warning_headers(warnings: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """The `Warning` headers: each text once, up to the limits."""
    texts = list(dict.fromkeys(islice(warnings, TRUNCATE_AT_TOTAL_CHARS)))
    if sum(map(len, texts)) > TRUNCATE_AT_TOTAL_CHARS:
        texts = [text[:TRUNCATE_ITEM_CHARS] for text in texts]
        fits = [length <= TRUNCATE_AT_TOTAL_CHARS for length in accumulate(map(len, texts))]
        texts = list(compress(texts, fits))
    return [warning_header(text) for text in texts]


def warning_header(text: str) -> tuple[bytes, bytes]:
    """A `Warning` header for any text; characters that a header cannot hold become "?"."""
    plain = (
        "".join(c if c.isprintable() else "?" for c in " ".join(text.split())).replace("\\", "\\\\").replace('"', '\\"')
    )
    return b"warning", f'299 - "{plain}"'.encode("ascii", "replace")


Headers = list[tuple[bytes, bytes]]
SEND_BYTES = 1 << 20  # bytes of an answer that are sent without yielding: encrypting them takes 1 ms


async def answer(
    send: Send,
    body: bytes,
    *,
    code: int = 200,
    media: bytes = JSON,
    warnings: Iterable[str] = (),
    more: Headers | None = None,
) -> None:
    """Send a complete answer, with `more` headers. An answer without a body (204, 304) has no content type and length."""
    content = [(b"content-type", media), (b"content-length", b"%d" % len(body))] if code not in (204, 304) else []
    headers = [*content, *_CACHE_HEADERS, *(warning_headers(warnings) if warnings else ()), *(more or ())]
    if content and isinstance(send, Reply) and send.send_whole(code, headers, body):
        return
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answer_slices(send: Send, slices: list[bytes], *, warnings: Iterable[str] = ()) -> None:
    """Send a long answer, yielding to the event loop between slices."""
    size = sum(map(len, slices))
    if size <= SEND_BYTES:
        return await answer(send, b"".join(slices), warnings=warnings)
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % size), *_CACHE_HEADERS, *warning_headers(warnings)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for one in slices:
        async for part in take_slices(one, SEND_BYTES):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})


class Reply:
    """Sends an answer through ASGI or bypassing it, and records whether it has begun."""

    __slots__ = ("_answer_whole", "_send", "code", "started")

    def __init__(self, send: Send, answer_whole: Callable[..., bool] | None) -> None:
        """`answer_whole`: `Exchange.answer` of `http_server/http_protocol.py`, if that is the server; else None."""
        self._send, self._answer_whole = send, answer_whole
        self.started = False
        self.code = 0
        """The HTTP status of the answer; 0 before it has begun."""

    async def __call__(self, message: Message) -> None:
        self.started = True
        self.code = message.get("status", self.code)
        await self._send(message)

    def send_whole(self, code: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send the complete answer bypassing ASGI; False when that is not possible now."""
        if self._answer_whole is None or not self._answer_whole(code, headers, body):
            return False
        self.started, self.code = True, code
        return True


@lru_cache(64)
def etag(body: bytes) -> str:
    """The ETag of a document: a hash of its content."""
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


async def answer_document(send: Send, body: bytes, call: Call, media: bytes = JSON) -> None:
    """Send a large document that seldom changes; 304 if the client's If-None-Match has its ETag."""
    tag = etag(body)
    known = tag in [text.strip().removeprefix("W/") for text in call.header(b"if-none-match").split(",")]
    headers = [(b"etag", tag.encode()), (b"vary", b"Accept")]
    await answer(send, b"" if known else body, code=304 if known else 200, media=media, more=headers)


async def answer_object(send: Send, value: Any, *, code: int = 200, warnings: Iterable[str] = ()) -> None:
    await answer(send, encode(value), code=code, warnings=warnings)


async def answer_error(send: Send, error: ApiError, warnings: Iterable[str] = ()) -> None:
    headers: Headers = []
    if error.retry_after is not None:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if error.code == 401:
        headers.append((b"www-authenticate", b'Bearer realm="rowlock"'))
    await answer(send, encode(error.status()), code=error.code, warnings=warnings, more=headers)


async def begin_stream(send: Send, media: bytes = JSON, warnings: Iterable[str] = ()) -> None:
    headers = [(b"content-type", media), *_CACHE_HEADERS, *warning_headers(warnings)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_chunk(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


def encode_chunk(data: bytes) -> bytes:
    """A chunk in the chunked transfer coding (RFC 9112, 7.1), for data that bypasses ASGI."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def end_stream(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})


class RewritingSend:
    """Rewrites the body of a JSON answer, of a stream line by line; other answers pass unchanged."""

    def __init__(self, send: Send, rewrite: Callable[[bytes], bytes], media: bytes = JSON) -> None:
        self._send, self._rewrite, self._media = send, rewrite, media
        self._headers: dict[bytes, bytes] = {}
        self._start: Message = {}
        self._parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] == "http.response.start":
            self._start, self._headers = message, dict(message["headers"])
            is_whole = b"content-length" in self._headers and self._headers.get(b"content-type") == JSON
            return None if is_whole else await self._send(message)
        if self._headers.get(b"content-type") != JSON:
            await self._send(message)
        elif b"content-length" not in self._headers:
            await self._send({**message, "body": b"".join(self._rewrite(line) + b"\n" for line in body.splitlines())})
        else:
            self._parts.append(body)
            if not message.get("more_body"):
                new = self._rewrite(b"".join(self._parts))
                own = {b"content-type": self._media, b"content-length": str(len(new)).encode()}
                others = [pair for pair in self._start["headers"] if pair[0] not in own]
                await self._send({**self._start, "headers": [*own.items(), *others]})
                await self._send({"type": "http.response.body", "body": new})


def websocket_send(send: Send) -> Send:
    """A `send` that refuses a websocket before its handshake with an ordinary HTTP answer."""

    async def send_message(message: Message) -> None:
        is_answer = message["type"].startswith("http.")
        await send({**message, "type": f"websocket.{message['type']}"} if is_answer else message)

    return send_message


def yaml_send(send: Send) -> RewritingSend:
    """A `send` that converts JSON answers to YAML."""
    return RewritingSend(send, _as_yaml, b"application/yaml")


def _as_yaml(body: bytes) -> bytes:
    import yaml

    return yaml.safe_dump(msgspec.json.decode(body), default_flow_style=False, allow_unicode=True).encode()
