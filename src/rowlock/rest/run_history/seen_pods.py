"""The pods of jobs as a standby server saw them last: pods that went while no server recorded are still known.

When the leader of the archive is killed, its notes are lost, and pods come and go until the next one leads. A standby therefore looks at
the pods of changed jobs, as the recorder does, and remembers pods that have gone for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rowlock import objects
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache

LOOK = 0.25
"""Seconds between two looks at jobs that have changed."""
MOST_GONE = 2_000
"""Pods that have gone and are remembered; the first of them are forgotten first. One takes some kilobytes."""


@dataclass(slots=True)
class SeenPod:
    """`gone`: when it was not there any more; None = it is."""

    pod: Object
    gone: float | None = None


class SeenPods:
    """What a server that waits has seen of pods. Those that are there are the cache's own objects, and take no room."""

    def __init__(self, cache: InformerCache, clock: Callable[[], float]) -> None:
        self._cache, self._clock = cache, clock
        self._jobs: dict[str, dict[str, SeenPod]] = {}
        self._gone: dict[tuple[str, str], None] = {}
        """Job and pod, in the order in which they went."""
        self._changed: dict[str, None] = {}
        self._is_watching = False
        cache.subscribe(self._note_change)

    def _note_change(self, uid: str) -> None:
        if uid and self._is_watching:
            self._changed[uid] = None

    def begin(self) -> None:
        """Look at all jobs: nothing was noted until now."""
        self.stop()
        self._is_watching = True
        self._changed = dict.fromkeys(self._cache.job_uids())

    def stop(self) -> None:
        """Forget everything, and note nothing."""
        self._jobs, self._gone, self._changed, self._is_watching = {}, {}, {}, False

    async def look(self) -> None:
        """At what has changed; others get their turn between two jobs."""
        for uid in list(self._changed):
            self.look_at(uid)
            await asyncio.sleep(0)

    def look_at(self, uid: str) -> None:
        """At the pods of one job."""
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
        """Those that had gone by then: they were recorded."""
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
        """Pods of this job that have gone, as they were seen last, and when they went."""
        if self._is_watching:
            self.look_at(uid)
        return [(one.pod, one.gone) for one in self._jobs.get(uid, {}).values() if one.gone is not None]
