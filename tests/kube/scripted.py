"""An HTTP server that says what a test tells it to: faults that no healthy API server commits on request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """`lines` are sent as a chunked stream. `cut` drops the connection: before any answer, or in mid-stream. `hold` says no more
    after the lines, and keeps the connection; `silent` says nothing at all."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: list[Any] | None = None
    cut: bool = False
    hold: bool = False
    silent: bool = False


def refusal(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return {**status, "reason": reason, "message": message, "details": details}


class Scripted:
    """Answers in order; the last one for ever. `asked` is what was asked, on so many `connections`."""

    def __init__(self, *answers: Answer | Callable[[Asked], Answer]) -> None:
        self._answers = list(answers)
        self.asked: list[Asked] = []
        self.url, self.connections = "", 0

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    def kubeconfig(self, where: Path, user: Mapping[str, Any] | None = None, **cluster: Any) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": "u", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = where / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while asked := await _read(reader):
                self.asked.append(asked)
                next_ = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                answer = next_ if isinstance(next_, Answer) else next_(asked)
                if not await _write(writer, answer):
                    break
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, target, _ = head[0].split(" ", 2)
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    return Asked(method, target.partition("?")[0], dict(parse_qsl(parts.query)), headers, body)


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    """False when the connection is to be dropped."""
    if answer.cut and answer.lines is None:
        return False
    if answer.silent:
        await asyncio.Event().wait()
    body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body or {}).encode()
    length = "Transfer-Encoding: chunked" if answer.lines is not None else f"Content-Length: {len(body)}"
    lines = [f"HTTP/1.1 {answer.status} x", length, *(f"{k}: {v}" for k, v in answer.headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    if answer.lines is None:
        writer.write(body)
        await writer.drain()
        return True
    for line in answer.lines:
        chunk = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await writer.drain()
    if answer.hold:
        await asyncio.Event().wait()
    if answer.cut:
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
