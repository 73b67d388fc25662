"""Answers that go on until their client leaves: watches, followed logs, events for browsers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

from rowlock.controllers.waiters import run_until_first_ends


async def send_until_disconnect(
    sending: Coroutine[Any, Any, None], receive: Receive, timeout: float | None = None
) -> None:
    """Send until done, the client disconnects or `timeout` seconds pass. Raises what `sending` raises."""
    await run_until_first_ends(sending, wait_for_disconnect(receive), timeout=timeout)


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        continue
