"""Run several coroutines until the first ends, then cancel the others: a lease and the work under it, an answer and its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def run_until_first_ends(*works: Awaitable[object], timeout: float | None = None) -> None:
    """Run all of these at once until one of them ends, or for `timeout` seconds, and cancel the others. Raises the error of the first
    that failed."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
