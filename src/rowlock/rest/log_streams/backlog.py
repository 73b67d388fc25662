"""The order of the lines that several logs already contain when a client begins to follow them: by time.

A followed log does not say where its existing lines end. So the time of each log's last line is read first; until all logs have
reached theirs, the oldest of their next lines is sent first. After that lines are sent as they arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rowlock import objects
from rowlock.objects import Object

_SILENCE_S = 1.0
"""Seconds without a line after which a log's backlog counts as read: its last line may be unfinished, or removed."""
Life = tuple[str, int]
"""One run of a rank's container: see `attempt` in `logs.py`."""


class BacklogOrder:
    """Followers await their turn before they send a line, and report when it is sent. `ends`: the time stamp of the last line of each
    participating log, as text that sorts by time."""

    def __init__(self, ends: Mapping[Life, bytes]) -> None:
        self._ends = dict(ends)
        self._heads: dict[Life, bytes] = {}
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return not self._ends

    async def wait_for_turn(self, life: Life, stamp: bytes) -> None:
        """Wait until no participating log can have an older line than this one."""
        if life in self._ends:
            self._heads[life] = stamp
            self._wake()
        while self._ends and not self._is_next(life, stamp):
            self._changed.clear()
            try:
                async with asyncio.timeout(
                    _SILENCE_S
                ):  # waits in this task: a new task would miss changes before it starts
                    await self._changed.wait()
            except TimeoutError:
                self._leave_silent()

    def note_told(self, life: Life, stamp: bytes) -> None:
        """The line has been sent. With the last line of its backlog, a log stops participating."""
        self._heads.pop(life, None)
        if life in self._ends and stamp >= self._ends[life]:
            self.leave(life)

    def leave(self, life: Life) -> None:
        """This log stops participating, because its backlog has been sent or it has ended."""
        self._heads.pop(life, None)
        if self._ends.pop(life, None) is not None:
            self._wake()

    def _is_next(self, life: Life, stamp: bytes) -> bool:
        if life not in self._ends:
            return False  # a new line waits until all backlogs have been sent
        return self._heads.keys() == self._ends.keys() and stamp == min(self._heads.values())

    def _leave_silent(self) -> None:
        for life in self._ends.keys() - self._heads.keys():
            self.leave(life)

    def _wake(self) -> None:
        self._changed.set()


def started_before(pod: Object, moment: float) -> bool:
    """Whether a container of the pod started before this moment, in its current or last run."""
    for status in objects.dig(pod, "status.containerStatuses", []):
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            for facts in state.values():
                began = (facts or {}).get("startedAt")
                if began and objects.seconds(began) < moment:
                    return True
    return False
