"""The network between our server and an API server, with faults: it swallows what is sent, or answers 429 in the API server's place.

with Wire(address, keys) as wire:   # `keys`: the directory with the API server's certificate, which is shown here, too
    wire.url                        # what our kubeconfig names
    wire.swallow() / wire.throttle() / wire.pass_on()
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

THROTTLED = {
    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429, "reason": "TooManyRequests",
    "message": "Too many requests, please try again later.", "details": {"retryAfterSeconds": 1},
}  # fmt: skip
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_CHUNK = 1 << 16


class Wire:
    """Connections that were swallowed are lost for ever, as those that a firewall has forgotten: their peers are acknowledged all the
    same, and hear nothing."""

    def __init__(self, url: str, keys: Path) -> None:
        parts = urlsplit(url)
        self._target, self._keys = (parts.hostname or "127.0.0.1", parts.port or 443), keys
        self._mode: Literal["pass", "swallow", "throttle"] = "pass"
        self._lost: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._ready, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self.url = ""

    def __enter__(self) -> Wire:
        self._thread.start()
        assert self._ready.wait(200), "the wire listens"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(200)

    def swallow(self) -> None:
        """Nothing passes, neither on connections that are there nor on new ones."""
        self._do(self._begin_swallowing)

    def throttle(self) -> None:
        """Each new request is answered with 429, and may be sent again after a second. Watches go on."""
        self._do(lambda: setattr(self, "_mode", "throttle"))

    def pass_on(self) -> None:
        """What is sent from now on passes; connections that were swallowed stay lost."""
        self._do(lambda: setattr(self, "_mode", "pass"))

    # ------------------------------------------------------------ in the thread

    def _do(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def act() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(act)
        assert done.wait(200)

    def _begin_swallowing(self) -> None:
        self._mode = "swallow"
        self._lost |= self._open

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
            self._ready.set()
            self._loop.run_forever()
        finally:
            if self._server is not None:
                self._server.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()

    async def _listen(self) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self._keys / "server.crt", self._keys / "server.key")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        if self._mode == "swallow":
            self._lost.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            if writer in self._lost:
                await self._swallow(reader)
                return
            tls = ssl.create_default_context(cafile=str(self._keys / "ca.crt"))
            answers, upstream = await asyncio.open_connection(*self._target, ssl=tls)
            back = asyncio.create_task(self._carry_answers(answers, writer))
            await self._carry_requests(reader, writer, upstream)
            back.cancel()
        except (OSError, ssl.SSLError):
            pass  # either end has gone, as it happens on a network
        finally:
            self._open.discard(writer)
            self._lost.discard(writer)
            for end in (writer, upstream):
                if end is not None:
                    with suppress(OSError):
                        end.transport.abort()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(_CHUNK):
            pass

    async def _carry_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(_CHUNK):
            if writer in self._lost:
                await self._swallow(reader)
                return
            if self._mode == "throttle":
                await self._refuse(chunk, reader, writer)
                return
            upstream.write(chunk)
            await upstream.drain()

    async def _refuse(self, chunk: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the request that begins with this chunk, and hang up after the answer."""
        while b"\r\n\r\n" not in chunk:
            if not (more := await reader.read(_CHUNK)):
                return
            chunk += more
        head, _, body = chunk.partition(b"\r\n\r\n")
        length = int(found[1]) if (found := _LENGTH.search(head)) else 0
        if len(body) < length:
            await reader.readexactly(length - len(body))
        text = json.dumps(THROTTLED).encode()
        lines = ("HTTP/1.1 429 Too Many Requests", "Content-Type: application/json", "Retry-After: 1",
                 f"Content-Length: {len(text)}", "Connection: close")  # fmt: skip
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
        await writer.drain()

    async def _carry_answers(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await answers.read(_CHUNK):
                if writer not in self._lost:
                    writer.write(chunk)
                    await writer.drain()
        except (OSError, ssl.SSLError):
            pass  # one of both has gone
        if writer not in self._lost:
            writer.transport.abort()  # as the API server did
