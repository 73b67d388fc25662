"""The pods of jobs as a standby server last saw them, so that pods deleted while no server recorded are not lost.

When the recording leader is killed, its notes are lost, and pods come and go until the next leader is elected. A standby therefore looks
at the pods of changed jobs, as the recorder does, and keeps deleted pods for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rowlock import objects
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache

LOOK = 0.25
"""Seconds between two looks at changed jobs."""
MOST_GONE = 2_000
"""Most deleted pods kept; beyond it those deleted first are dropped. One takes some kilobytes."""


@dataclass(slots=True)
class SeenPod:
    """A pod as last seen. `gone`: when its deletion was noticed; None if it exists."""

    pod: Object
    gone: float | None = None


class SeenPods:
    """The pods that a standby server has seen. Existing pods are the cache's own objects and take no extra memory."""

    def __init__(self, cache: InformerCache, clock: Callable[[], float]) -> None:
        self._cache, self._clock = cache, clock
        self._jobs: dict[str, dict[str, SeenPod]] = {}
        self._gone: dict[tuple[str, str], None] = {}
        """(job uid, pod uid) of deleted pods, in order of deletion."""
        self._changed: dict[str, None] = {}
        self._is_watching = False
        cache.subscribe(self._note_change)

    def _note_change(self, uid: str) -> None:
        if uid and self._is_watching:
            self._changed[uid] = None

    def begin(self) -> None:
        """Start noting changes, and look at all jobs first."""
        self.stop()
        self._is_watching = True
        self._changed = dict.fromkeys(self._cache.job_uids())

    def stop(self) -> None:
        """Drop everything, and stop noting changes."""
        self._jobs, self._gone, self._changed, self._is_watching = {}, {}, {}, False

    async def look(self) -> None:
        """Look at all changed jobs; yields to the event loop after each."""
        for uid in list(self._changed):
            self.look_at(uid)
            await asyncio.sleep(0)

    def look_at(self, uid: str) -> None:
        """Look at the pods of one job."""
        self._changed.pop(uid, None)
        present = {objects.uid(pod): pod for pod in self._cache.own_pods(uid)}
        seen = self._jobs.setdefault(uid, {})
        for pod_uid, pod in present.items():
            seen[pod_uid] = SeenPod(pod)
            self._gone.pop((uid, pod_uid), None)
        for pod_uid in seen.keys() - present.keys():
            if seen[pod_uid].gone is None:
                seen[pod_uid].gone = self._clock()
                self._gone[uid, pod_uid] = None
        if not seen:
            del self._jobs[uid]
        while len(self._gone) > MOST_GONE:
            self._forget(*next(iter(self._gone)))

    def forget(self, before: float) -> None:
        """Drop pods deleted before this time (Unix seconds), which have been recorded."""
        for job, pod in list(self._gone):
            gone = self._jobs[job][pod].gone
            if gone is not None and gone <= before:
                self._forget(job, pod)

    def _forget(self, job: str, pod: str) -> None:
        self._gone.pop((job, pod), None)
        self._jobs[job].pop(pod, None)
        if not self._jobs[job]:
            del self._jobs[job]

    def gone_pods(self, uid: str) -> list[tuple[Object, float]]:
        """The deleted pods of this job, as last seen, and when they were deleted (Unix seconds)."""
        if self._is_watching:
            self.look_at(uid)
        return [(one.pod, one.gone) for one in self._jobs.get(uid, {}).values() if one.gone is not None]
