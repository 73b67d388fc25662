"""Answers that go on until their client leaves: watches, followed logs, events for browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def send_until_disconnect(
    sending: Coroutine[Any, Any, None], receive: Receive, timeout: float | None = None
) -> None:
    """Send, until that is done, the client has gone or the time is over. Raises what the sending raises."""
    tasks = asyncio.create_task(sending), asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue
