"""Stops the running pods of a failed job that was submitted through rowlock, unless the submit set a cleanPodPolicy.

When a job has failed, training operator 1.9.4 leaves its pods: they hold their GPUs, and with `OnFailure` their node starts the failed
program again and again. Several servers may do this at once: the patch is always the same.
"""

from __future__ import annotations

import asyncio
import logging

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.errors import ApiError, NotFound
from rowlock.gangs.evictions import failed_job_patch
from rowlock.rest.informers import InformerCache

log = logging.getLogger(__name__)
_RETRY_S = 5.0


class FailedJobs:
    """One per server of a real cluster. `run` for as long as it works."""

    def __init__(self, api: Api, cache: InformerCache) -> None:
        self._api, self._cache = api, cache
        self._changed = ChangedJobs(cache)

    async def run(self) -> None:
        """Run until cancelled."""
        self._changed.note_all()
        while True:
            for uid in await self._changed.take():
                if not await self._stop(uid):  # retried later, so that other jobs do not wait
                    asyncio.get_running_loop().call_later(_RETRY_S, self._changed.note, uid)

    async def _stop(self, uid: str) -> bool:
        """Patch the job if it has failed. False if that must be retried."""
        job = self._cache.job(uid)
        patch = failed_job_patch(job) if job is not None and not objects.is_deleting(job) else None
        if job is None or patch is None:
            return True
        try:
            place = kinds.by_object(job), objects.namespace(job), objects.name(job)
            await self._api.patch(*place, patch, options=WriteOptions(manager="rowlock"))
        except NotFound:
            return True
        except ApiError as error:
            log.warning("pods of the failed job %s/%s go on: %s", *place[1:], error.message)
            return False
        log.info("%s/%s has failed, and what still ran of it is stopped", *place[1:])
        return True


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
