"""Restarts background tasks that fail: an error never ends the server.

A background task is a coroutine that runs until it is cancelled (diagnosis, the GPU watch, measures, the proxy). When it raises,
the error is logged once with its traceback and counted, and the task restarts with exponential backoff, as keys of a
controller do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

FIRST_DELAY, MAX_DELAY = 1.0, 60.0
"""Seconds before the first restart, and the longest delay; a task that ran for longer than that resets its backoff."""
REPEAT_INTERVAL = 60.0
"""Seconds between two lines about the same error."""
_MOST_ERRORS = 1000
"""Different errors that are remembered; beyond that all are forgotten and logged in full again."""

log = logging.getLogger("rowlock.supervisor")


@dataclass(slots=True)
class _Repeats:
    """How often an error was raised since it was last logged."""

    told_at: float
    count: int = 0


@dataclass(eq=False)
class ErrorLog:
    """Logs an error once with its traceback, and then at most once a minute how often it was repeated."""

    clock: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)
    """Errors so far, by subject."""
    _seen: dict[tuple[str, type[BaseException], str], _Repeats] = field(default_factory=dict)

    def report(self, subject: str, error: BaseException, consequence: str) -> None:
        """Log and count an error. `subject`: what raised it, from a small set of names; `consequence`: what happens now, as text."""
        self.counts[subject] += 1
        key, now = (subject, type(error), _place(error.__traceback__)), self.clock()
        repeats = self._seen.get(key)
        if repeats is None:
            if len(self._seen) >= _MOST_ERRORS:
                self._seen.clear()
            self._seen[key] = _Repeats(now)
            log.error("%s: %s; %s", subject, error or type(error).__name__, consequence, exc_info=error)
            return
        repeats.count += 1
        if now - repeats.told_at >= REPEAT_INTERVAL:
            log.error("%s: %s, %d times more; %s", subject, error, repeats.count, consequence)
            repeats.told_at, repeats.count = now, 0


def _place(trace: TracebackType | None) -> str:
    """File and line where the exception was raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


ERRORS = ErrorLog()
"""The error log of this process."""


def back_off(failures: int, first: float = FIRST_DELAY, longest: float = MAX_DELAY) -> float:
    """Seconds before the next attempt after so many failures (from 1): `first`, doubled each time, up to `longest`."""
    return float(min(first * 2 ** min(failures - 1, 30), longest))


class ContainedTaskGroup(asyncio.TaskGroup):
    """A task group with independent tasks: an error in one is reported and ends neither the others nor the group."""

    def __init__(self, subject: str, errors: ErrorLog = ERRORS) -> None:
        super().__init__()
        self._subject, self._error_log = subject, errors

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override] # narrower: no generators
        """Start a task as `asyncio.TaskGroup` does; its exception is reported and goes no further."""
        return super().create_task(self._contain(coro), **options)

    async def _contain(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except Exception as error:  # noqa: BLE001 (this is what it is for)
            self._error_log.report(self._subject, error, "the others go on")


async def supervise(
    name: str,
    work: Callable[[], Awaitable[None]],
    *,
    errors: ErrorLog = ERRORS,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run `work` until it returns; restart it with backoff whenever it raises. Cancellation passes through."""
    failures = 0
    while True:
        began = errors.clock()
        try:
            await work()
            return
        except Exception as error:  # noqa: BLE001 (this is what it is for)
            failures = 1 if errors.clock() - began > MAX_DELAY else failures + 1
            delay = back_off(failures)
            errors.report(name, error, f"it is tried again after {delay:g} s")
        await sleep(delay)
