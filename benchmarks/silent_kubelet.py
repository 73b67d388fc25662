"""The part of a kubelet that an API server asks for logs, for all pretend nodes at once: each container has written one line, and
writes no more. Who follows 1,000 logs has 1,000 open streams by it, as over real nodes whose jobs are quiet.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
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


async def _serve(keys: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    server = await asyncio.start_server(_answer, HOST, 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until who started it is done, or gone


@contextmanager
def silent_kubelet(keys: Path) -> Iterator[int]:
    """Its port. It shows the certificate `server` of a directory: an API server asks nobody whose it is. It is a process of its own:
    a thousand streams that end at once shall not hold up who measures."""
    command = [sys.executable, "-m", "benchmarks.silent_kubelet", str(keys)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        if not (said := process.stdout.readline().strip()):
            raise RuntimeError(f"the kubelet of the pretend nodes ended with {process.wait()}")
        yield int(said)
    finally:
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
