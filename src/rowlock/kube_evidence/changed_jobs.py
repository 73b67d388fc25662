"""The set of jobs that have changed since a reader last took it."""

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
        """Record that this job, or something that belongs to it, has changed. An empty `uid` is ignored."""
        if uid:
            self._changed[uid] = None
            self._wakeup.set()

    def note_all(self) -> None:
        """Record all jobs in the cache, for a reader's start."""
        for uid in self._cache.job_uids():
            self.note(uid)

    async def take(self, gather: float = 0.0) -> list[str]:
        """Wait for a change, then `gather` seconds for more. Returns the uids of the changed jobs."""
        await self._wakeup.wait()
        if gather:
            await asyncio.sleep(gather)
        self._wakeup.clear()
        taken, self._changed = list(self._changed), {}
        return taken
