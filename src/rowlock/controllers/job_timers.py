"""`JobTimers`: for each job at most one look that is due, run as a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

_LONGEST_SLEEP = 86_400.0


class JobTimers:
    """Looks by the uid of their job. One that is due later than in a day is due in a day: each look asks anew what there is to do."""

    def __init__(self, name: str) -> None:
        """`name`: what the tasks are called."""
        self._name = name
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def are_idle(self) -> bool:
        """Whether no look is due or under way."""
        return not self._timers and not self._tasks

    def look_in(self, seconds: float, uid: str, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Look at this job in so many seconds, in place of the look that was due."""
        self.forget(uid)
        delay = min(max(0.0, seconds), _LONGEST_SLEEP)
        self._timers[uid] = asyncio.get_running_loop().call_later(delay, self._begin, uid, look)

    def forget(self, uid: str) -> None:
        """No look is due any more; one under way goes on."""
        if timer := self._timers.pop(uid, None):
            timer.cancel()

    def stop(self) -> None:
        """Forget all looks, and end those under way."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._timers.clear()

    def _begin(self, uid: str, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._timers.pop(uid, None)
        task = asyncio.create_task(look(), name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
