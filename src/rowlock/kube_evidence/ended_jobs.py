"""Stops the pods that remain of an ended job that was submitted through rowlock, unless the submit set a cleanPodPolicy.

When a job has ended, training operator 1.9.4 leaves its pods: they hold their GPUs. With `OnFailure` the node of a failed job starts the
program again and again, and a worker that came late waits in its init container for a master that has gone. The other ranks of a job that
succeeded get the time to end by themselves. Several servers may do this at once: the patch is always the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.errors import ApiError, NotFound
from rowlock.gangs.evictions import clean_up_patch, remaining_grace
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.phase import FAILURE_ANNOTATION, first_failure

log = logging.getLogger(__name__)
_RETRY_S = 5.0


class EndedJobs:
    """One per server of a real cluster. `run` for as long as it works."""

    def __init__(self, api: Api, cache: InformerCache, clock: Callable[[], float] = time.time) -> None:
        self._api, self._cache, self._clock = api, cache, clock
        self._changed = ChangedJobs(cache)

    async def run(self) -> None:
        """Run until cancelled."""
        self._changed.note_all()
        while True:
            for uid in await self._changed.take():
                if seconds := await self._look(uid):  # later, so that other jobs do not wait
                    asyncio.get_running_loop().call_later(seconds, self._changed.note, uid)

    async def _look(self, uid: str) -> float:
        """Stop what remains of the job if its time has come. Returns the seconds after which to look again; 0 if a change will tell."""
        job = self._cache.job(uid)
        patch = clean_up_patch(job) if job is not None and not objects.is_deleting(job) else None
        if job is None or patch is None:
            return 0
        if objects.is_condition_true(job, "Succeeded"):
            if all(map(_has_ended, self._cache.own_pods(uid))):
                return 0
            if remaining := remaining_grace(job, self._clock()):
                return remaining
        elif failure := first_failure(self._cache.pods_of(uid)):  # what the pods tell goes with them
            patch = {**patch, "metadata": {"annotations": {FAILURE_ANNOTATION: failure}}}
        return await self._stop(job, patch)

    async def _stop(self, job: Object, patch: Object) -> float:
        try:
            place = kinds.by_object(job), objects.namespace(job), objects.name(job)
            await self._api.patch(*place, patch, options=WriteOptions(manager="rowlock"))
        except NotFound:
            return 0
        except ApiError as error:
            log.warning("pods of the ended job %s/%s go on: %s", *place[1:], error.message)
            return _RETRY_S
        log.info("%s/%s has ended, and what still ran of it is stopped", *place[1:])
        return 0


def _has_ended(pod: Object) -> bool:
    return objects.is_deleting(pod) or objects.dig(pod, "status.phase") in ("Succeeded", "Failed")


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
