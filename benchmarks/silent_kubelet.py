"""The part of a kubelet that an API server asks for logs, for all pretend nodes at once: each container has written one line, and
writes no more. Who follows 1,000 logs has 1,000 open streams by it, as over real nodes whose jobs are quiet.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_LINE = b"2026-01-01T00:00:00.000000000Z the first step is done\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
_ANSWER = _HEAD + b"%x\r\n%b\r\n" % (len(_LINE), _LINE)


def address(port: int) -> Mapping[str, Any]:
    """What a node says of where its kubelet listens, a part of its status."""
    return {
        "addresses": [{"type": "InternalIP", "address": HOST}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request: the log of a container, without an end where it is followed; then the connection is over."""
    try:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
        writer.write(_ANSWER)
        if b"follow=true" in path:
            await reader.read()  # until who asked hangs up
        else:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return  # who asked is gone
    finally:
        writer.close()


@contextmanager
def silent_kubelet(keys: Path) -> Iterator[int]:
    """Its port. It shows the certificate `server` of a directory: an API server asks nobody whose it is."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    loop, started = asyncio.new_event_loop(), threading.Event()
    port = 0

    async def serve() -> None:
        nonlocal port
        server = await asyncio.start_server(_answer, HOST, 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        started.set()
        await server.serve_forever()

    task = loop.create_task(serve())

    def work() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        if not started.wait(10):
            raise RuntimeError("the kubelet of the pretend nodes does not listen after 10 s")
        yield port
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
