"""What is imported for the first who needs it holds nobody else up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from rowlock.http_server.late import Late


def test_it_is_loaded_beside_the_event_loop_and_once() -> None:
    served, threads = threading.Event(), list[int]()

    def load() -> str:
        assert served.wait(200), "nobody was served while it was loaded"
        threads.append(threading.get_ident())
        return "loaded"

    async def first_use() -> None:
        part = Late(load)
        waiting = asyncio.create_task(part.get())
        await asyncio.sleep(0)
        served.set()  # the loop is free
        assert await waiting == "loaded" == part.loaded == await part.get()

    asyncio.run(first_use())
    assert len(threads) == 1 and threads[0] != threading.get_ident()


SERVED = """
import asyncio, sys
from rowlock.rest.log_streams.log_response import LogResponse

async def serve():
    sent = []
    async def body():
        yield b"a line\\n"
    async def receive():
        await asyncio.Event().wait()
    async def send(message):
        sent.append(message)
    await LogResponse(body())({"type": "http"}, receive, send)
    return sent

print([message.get("body") for message in asyncio.run(serve())], "anyio._backends._asyncio" in sys.modules)
"""


def test_a_log_is_streamed_without_what_takes_long_to_import() -> None:
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, timeout=200)
    assert done.stdout == "[None, b'a line\\n', b''] False\n", done.stderr
