"""How tests wait: for a condition, and as long as the busiest machine needs. The test fails with what it waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

PATIENCE = 200.0
"""Seconds. What takes longer never comes: below pytest's own limit of 300 s, which could not say what was missing."""


def until(
    holds: Callable[[], object],
    what: str | Callable[[], str] = "it comes about",
    seconds: float = PATIENCE,
    every: float = 0.01,
) -> None:
    """Ask `holds()` until it is true, with so many seconds between two questions. `what`: the words for the failure, or what makes
    them then."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            _fail(what, seconds)
        time.sleep(every)


async def until_async(
    holds: Callable[[], object],
    what: str | Callable[[], str] = "it comes about",
    seconds: float = PATIENCE,
    every: float = 0.002,
) -> None:
    """The same in an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            _fail(what, seconds)
        await asyncio.sleep(every)


def _fail(what: str | Callable[[], str], seconds: float) -> NoReturn:
    raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
