"""Who wants to know of changes in the informer cache: subscribers hear of each, and requests wait for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeListeners:
    """A change is named by the uid of its job (or other owner); "" stands for what may concern any."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[str], None]] = []
        self._events: dict[str, set[asyncio.Event]] = {}

    def subscribe(self, note_change: Callable[[str], None]) -> None:
        """Call `note_change` from now on with the uid of each change."""
        self._subscribers.append(note_change)

    def notify(self, uid: str) -> None:
        """Something of the job `uid` has changed."""
        for note_change in self._subscribers:
            note_change(uid)
        for name in {uid, ""}:
            for event in self._events.get(name, ()):
                event.set()

    async def wait_until(self, uid: str, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `condition()` holds, checking after each change of the job ("": of any). False after `timeout` seconds."""
        event = asyncio.Event()
        self._events.setdefault(uid, set()).add(event)
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await event.wait()
                    event.clear()
            return True
        except TimeoutError:
            return condition()
        finally:
            self._events[uid].discard(event)
            if not self._events[uid]:
                del self._events[uid]
