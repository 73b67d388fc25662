"""The order of what several logs hold already when they begin to be followed: by time, as in a merged log at rest.

A log that is followed does not say where its past ends. So the last line of each is read first, by its time; until all logs have
come so far, the oldest of their next lines goes first. From then on lines are told as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rowlock import objects
from rowlock.objects import Object

_SILENCE_S = 1.0
"""Seconds without a line after which a log counts as read: its last line may be unfinished, or may have been removed."""
Life = tuple[str, int]
"""One life of a rank: `attempt` in `logs.py`."""


class BacklogOrder:
    """Followers ask for their turn before they tell a line, and say when they have told it. `ends`: the time of the last line of each
    log that takes part, as text that sorts by time."""

    def __init__(self, ends: Mapping[Life, bytes]) -> None:
        self._ends = dict(ends)
        self._heads: dict[Life, bytes] = {}
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return not self._ends

    async def wait_for_turn(self, life: Life, stamp: bytes) -> None:
        """Wait until no log that takes part can have an older line than this one."""
        if life in self._ends:
            self._heads[life] = stamp
            self._wake()
        while self._ends and not self._is_next(life, stamp):
            self._changed.clear()
            try:
                async with asyncio.timeout(
                    _SILENCE_S
                ):  # in this task: one of its own would miss what changes before it begins
                    await self._changed.wait()
            except TimeoutError:
                self._leave_silent()

    def note_told(self, life: Life, stamp: bytes) -> None:
        """The line is out; a log that has told its last line of then takes part no longer."""
        self._heads.pop(life, None)
        if life in self._ends and stamp >= self._ends[life]:
            self.leave(life)

    def leave(self, life: Life) -> None:
        """This log takes part no longer: it has told its past, or has ended."""
        self._heads.pop(life, None)
        if self._ends.pop(life, None) is not None:
            self._wake()

    def _is_next(self, life: Life, stamp: bytes) -> bool:
        if life not in self._ends:
            return False  # a line of now waits until the past is told
        return self._heads.keys() == self._ends.keys() and stamp == min(self._heads.values())

    def _leave_silent(self) -> None:
        for life in self._ends.keys() - self._heads.keys():
            self.leave(life)

    def _wake(self) -> None:
        self._changed.set()


def started_before(pod: Object, moment: float) -> bool:
    """Whether its main container began to run before, in this life or an earlier one."""
    for status in objects.dig(pod, "status.containerStatuses", []):
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            for facts in state.values():
                began = (facts or {}).get("startedAt")
                if began and objects.seconds(began) < moment:
                    return True
    return False
