"""Logs that the cluster refuses to show: a right was taken away, or the server's credentials count no longer. Both may come back, and as long as
the pods are there their logs are not lost; so followers ask again, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

ASK_AGAIN_S, LONGEST_S = 5.0, 60.0
"""Seconds between two questions of one namespace; and the longest that one follower waits, however many there are."""
PER_SECOND = 1.0
"""Questions of all namespaces together at most, while fewer followers wait than would take `LONGEST_S`."""


@dataclass(slots=True)
class _Refused:
    """One namespace whose logs are refused."""

    next_question: float
    shown: asyncio.Event = field(default_factory=asyncio.Event)


class LogRefusals:
    """`wait` before a log is asked for again; `note_shown` when there was any other answer."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: the event loop's, unless a test has one."""
        self._clock = clock
        self._refused: dict[str, _Refused] = {}

    def __bool__(self) -> bool:
        """Whether any is refused now."""
        return bool(self._refused)

    def note_shown(self, namespace: str) -> None:
        """The cluster shows logs of this namespace: wake the tasks that wait, so that they ask now."""
        if refused := self._refused.pop(namespace, None):
            refused.shown.set()

    def next_turn(self, namespace: str) -> float:
        """When one more follower, which was refused, asks again."""
        now = self._clock() if self._clock else asyncio.get_running_loop().time()
        refused = self._refused.setdefault(namespace, _Refused(now))
        pause = max(ASK_AGAIN_S, len(self._refused) / PER_SECOND)
        refused.next_question = min(max(refused.next_question, now) + pause, now + LONGEST_S)
        return refused.next_question

    async def wait(self, namespace: str) -> None:
        """Until it is this follower's turn, or logs of the namespace are shown."""
        turn = self.next_turn(namespace)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(turn):
                await self._refused[namespace].shown.wait()
