"""Listeners for changes in the informer cache: subscribers are called at each change, requests wait for a condition."""

from __future__ import annotations

from collections.abc import Callable

from rowlock.controllers.waiters import Waiters


class ChangeListeners:
    """A change is identified by the uid of its job (or other owner); "" means any job may be affected."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[str], None]] = []
        self._waiters = Waiters[str]()

    def subscribe(self, note_change: Callable[[str], None]) -> None:
        """Call `note_change` from now on with the uid of each change."""
        self._subscribers.append(note_change)

    def notify(self, uid: str) -> None:
        """Something of the job `uid` has changed."""
        for note_change in self._subscribers:
            note_change(uid)
        if uid:
            self._waiters.wake(uid)
        self._waiters.wake("")

    async def wait_until(self, uid: str, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `condition()` holds, checking after each change of the job ("": of any). False after `timeout` seconds."""
        return await self._waiters.wait_until(uid, condition, timeout)
