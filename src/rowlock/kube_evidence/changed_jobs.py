"""Which jobs have changed since somebody looked, for those who look at each job again when it has."""

from __future__ import annotations

import asyncio

from rowlock.rest.informers import InformerCache


class ChangedJobs:
    """Uids of jobs, each once, in the order of their first change since they were taken. For one reader."""

    def __init__(self, cache: InformerCache) -> None:
        self._cache = cache
        self._changed: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        cache.subscribe(self.note)

    def note(self, uid: str) -> None:
        """Something about this job has changed; "" stands for what belongs to none."""
        if uid:
            self._changed[uid] = None
            self._wakeup.set()

    def note_all(self) -> None:
        """All that the cache knows, as a start needs it."""
        for uid in self._cache.job_uids():
            self.note(uid)

    async def take(self, gather: float = 0.0) -> list[str]:
        """Wait for a change, and `gather` seconds for more."""
        await self._wakeup.wait()
        if gather:
            await asyncio.sleep(gather)
        self._wakeup.clear()
        taken, self._changed = list(self._changed), {}
        return taken
