"""Keeps background work at work: an error costs one look, never the server.

A look is a coroutine that works until it is cancelled (diagnosis, the GPU watch, measures, the proxy). When it raises,
that is logged once with its traceback, counted, and the look begins anew after a while that doubles, as keys of a
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
"""Seconds before the second and the last of many attempts; a look that worked for longer than the last begins anew."""
REPEAT_INTERVAL = 60.0
"""Seconds between two lines about the same error."""
_MOST_ERRORS = 1000
"""Different errors that are remembered; with more, all are told anew."""

log = logging.getLogger("rowlock.supervisor")


@dataclass(slots=True)
class _Repeats:
    """How often an error came since it was last told of."""

    told_at: float
    count: int = 0


@dataclass(eq=False)
class ErrorLog:
    """Tells of an error once with its traceback, and then how often it came again, at most once a minute."""

    clock: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)
    """Errors so far, by what raised them."""
    _seen: dict[tuple[str, type[BaseException], str], _Repeats] = field(default_factory=dict)

    def report(self, subject: str, error: BaseException, consequence: str) -> None:
        """`subject` is what raised `error`, of a few kinds; `consequence` what follows from it, in words."""
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
    """Where it was raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


ERRORS = ErrorLog()
"""Of this process."""


def back_off(failures: int, first: float = FIRST_DELAY, longest: float = MAX_DELAY) -> float:
    """Seconds before the next attempt after so many failures (from 1): `first`, doubled each time, up to `longest`."""
    return float(min(first * 2 ** min(failures - 1, 30), longest))


class ContainedTaskGroup(asyncio.TaskGroup):
    """A task group whose tasks end alone: an error in one is reported and ends neither the others nor the group."""

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
    """Run `work` until it returns; whenever it raises, again after a while. Cancellation passes through."""
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
