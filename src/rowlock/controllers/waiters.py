"""Tasks that wait for a condition, and check it again after each change of its subject.

`run_until_first_ends` runs several coroutines until the first ends: a lease and the work under it, an answer and its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Subject = TypeVar("Subject", bound=Hashable)


class Waiters(Generic[Subject]):
    """Waiting tasks by subject: the key of an object, or the uid of a job."""

    def __init__(self) -> None:
        self._events: dict[Subject, set[asyncio.Event]] = {}

    def wake(self, subject: Subject) -> None:
        """The subject has changed: let its waiters check their conditions again."""
        for event in self._events.get(subject, ()):
            event.set()

    async def wait_until(self, subject: Subject, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `condition()` holds, asking at once and after each change. False after `timeout` seconds."""
        if condition():
            return True
        event = asyncio.Event()
        self._events.setdefault(subject, set()).add(event)
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await event.wait()
                    event.clear()
            return True
        except TimeoutError:
            return condition()
        finally:
            self._events[subject].discard(event)
            if not self._events[subject]:
                del self._events[subject]


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
