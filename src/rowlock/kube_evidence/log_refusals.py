"""Logs that the cluster refuses to show, because a right was revoked or the server's credentials are no longer valid. Both may come back,
and the logs are not lost while the pods exist. So followers retry, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

ASK_AGAIN_S, LONGEST_S = 5.0, 60.0
"""Seconds between two retries in one namespace; and the longest wait of one follower, however many there are."""
PER_SECOND = 1.0
"""Maximum rate of retries in all namespaces together. `LONGEST_S` takes precedence when very many followers wait."""


@dataclass(slots=True)
class _Refused:
    """One namespace whose logs are refused."""

    next_question: float
    shown: asyncio.Event = field(default_factory=asyncio.Event)


class LogRefusals:
    """Call `wait` before a refused log is requested again, and `note_shown` after any other answer."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: returns seconds; by default the event loop's time."""
        self._clock = clock
        self._refused: dict[str, _Refused] = {}

    def __bool__(self) -> bool:
        """Whether logs of any namespace are refused now."""
        return bool(self._refused)

    def note_shown(self, namespace: str) -> None:
        """The cluster shows logs of this namespace: wake the tasks that wait, so that they ask now."""
        if refused := self._refused.pop(namespace, None):
            refused.shown.set()

    def next_turn(self, namespace: str) -> float:
        """Schedule the retry of one more refused follower. Returns its time on the clock, in seconds."""
        now = self._clock() if self._clock else asyncio.get_running_loop().time()
        refused = self._refused.setdefault(namespace, _Refused(now))
        pause = max(ASK_AGAIN_S, len(self._refused) / PER_SECOND)
        refused.next_question = min(max(refused.next_question, now) + pause, now + LONGEST_S)
        return refused.next_question

    async def wait(self, namespace: str) -> None:
        """Wait for this follower's turn, or until logs of the namespace are shown again."""
        turn = self.next_turn(namespace)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(turn):
                await self._refused[namespace].shown.wait()
