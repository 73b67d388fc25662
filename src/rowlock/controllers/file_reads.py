"""`FileReads`: reads of files in users' directories, whose file systems may hang; nobody but their user waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from rowlock.controllers.turn_budget import FairTurns
from rowlock.errors import Unavailable

T = TypeVar("T")

_AT_ONCE, _MOST_STUCK = 2, 16
"""Reads at once; and threads whose read has not ended in time, which cannot be ended."""
_PATIENCE = 20.0
"""Seconds that a read may take."""


class FileReads:
    """Each read has a thread of its own, none of those that the server's work shares. One that is not done in time keeps its thread, but
    frees its place for others; its user has no other one until it is done."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        """`patience`: seconds."""
        self._patience, self._turns, self._stuck = patience, FairTurns(_AT_ONCE), set[str]()

    async def take_turn(self, user: str, read: Callable[[], T]) -> T:
        """What `read` returns, when it is this user's turn. Raises Unavailable where files do not answer, and what `read` raises."""
        self._check(user)
        async with self._turns.take(user):
            self._check(user)  # what was before it in the queue may be stuck now
            answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            self._start(user, read, answer)
            try:
                async with asyncio.timeout(self._patience):
                    return await asyncio.shield(answer)
            except TimeoutError:
                if answer.done():
                    return answer.result()
                raise Unavailable(
                    f"the run's directories did not answer within {self._patience:g} s: look at the file system that they lie on"
                ) from None
            finally:
                if not answer.done():  # also when who asked has gone
                    self._stuck.add(user)

    def _check(self, user: str) -> None:
        if user in self._stuck:
            raise Unavailable(
                "an earlier search of yours waits for files that do not answer: ask again when it has ended"
            )
        if len(self._stuck) >= _MOST_STUCK:
            raise Unavailable(f"{len(self._stuck)} searches wait for files that do not answer: ask again later")

    def _start(self, user: str, read: Callable[[], T], answer: asyncio.Future[T]) -> None:
        loop = asyncio.get_running_loop()

        def end(result: T | None, error: BaseException | None) -> None:
            self._stuck.discard(user)
            if error is not None:
                answer.set_exception(error)
                answer.exception()  # read by nobody if who asked has gone
            else:
                answer.set_result(result)  # type: ignore[arg-type] # a T where there is no error

        def work() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = read()
            except Exception as error:  # noqa: BLE001  raised in the task that waits
                failure = error
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                loop.call_soon_threadsafe(end, result, failure)

        threading.Thread(target=work, daemon=True, name="event files").start()
