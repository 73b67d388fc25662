"""A standby recorder, while another server of the same cluster records: what it keeps, and how its readers are served.

Every server sees every change. When the recording leader is killed, its notes are lost, and jobs and pods come and go until the next
leader is elected. So a standby notes what happens to jobs, looks at the pods of changed jobs as the recorder does, and keeps deleted pods
for a while. Notes are dropped a minute later, when a leader has recorded the changes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from rowlock import objects
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.recorder import RunRecorder

RunElected = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Runs a coroutine function whenever this process is the leader, and cancels it when it is not; until cancelled."""
MEMORY = 60.0
"""Least seconds for which deletions are kept; longer than it takes to replace a dead leader."""
_MOST_DELETIONS = 2_000
"""Most deletions kept for longer while the archive cannot be read, since then perhaps no server can write to it."""
_PATIENCE = 3.0
"""Most seconds that a reader waits for the record of a deletion that this server has seen."""
_ASK_AGAIN = 0.2
_SETTLE = 2.0


class Standby:
    """The standby state of a server's recorder."""

    def __init__(
        self, recorder: RunRecorder, cache: InformerCache, archive: Archive, clock: Callable[[], float] = time.time
    ) -> None:
        self._recorder, self._cache, self._archive, self._clock = recorder, cache, archive, clock
        self._pods = SeenPods(cache, clock)
        recorder.recall_pods = self._recall_pods
        self._given_up: set[str] = set()
        """Deletions that readers no longer wait for: they were recorded, or the wait timed out."""

    async def run(self) -> None:
        """Look at pods, and drop what the leader has recorded, until cancelled."""
        loop = asyncio.get_running_loop()
        earlier: dict[str, bool] = {}
        next_forget, was_recording, recorded_at = loop.time() + MEMORY, True, loop.time()
        while True:
            if not self._recorder.is_recording:
                recorded_at = loop.time()
                if was_recording:
                    self._pods.begin()
                await self._pods.look()
            elif loop.time() - recorded_at > MEMORY:  # the recorder has looked at all jobs by now
                self._pods.stop()
            was_recording = self._recorder.is_recording
            await asyncio.sleep(LOOK)
            if loop.time() >= next_forget:
                next_forget = loop.time() + MEMORY
                earlier = self.forget_recorded(earlier)

    def forget_recorded(self, earlier: Mapping[str, bool]) -> dict[str, bool]:
        """Drop the notes of jobs that were already noted, or already deleted, at the last call, which returned `earlier`. While the archive
        has a problem, the latest deletions are kept. Returns the kept ones: uid → whether the job was deleted."""
        if self._recorder.is_recording:
            return {}
        noted = {uid: not self._cache.has_job(uid) for uid in self._recorder.noted_jobs()}
        kept = {uid: gone for uid, gone in noted.items() if uid not in earlier or gone > earlier[uid]}
        if self._archive.problem:
            held = [uid for uid, gone in noted.items() if gone]
            kept |= dict.fromkeys(held[-_MOST_DELETIONS:], True)
        else:
            self._pods.forget(self._clock() - MEMORY)
        self._recorder.keep_notes(kept)
        self._given_up &= kept.keys()
        return kept

    async def _recall_pods(self, uid: str) -> list[tuple[Object, float]]:
        """The deleted pods of this job whose deletion is not in the archive, and when they were deleted."""
        gone = self._pods.gone_pods(uid)
        if not gone:
            return []
        try:
            records = await self._archive.read(database.read_pods, uid)
        except (OSError, sqlite3.Error, UnusableArchive):
            records = []  # the archive reports its own problems
        known = {record.pod_uid for record in records if record.deleted is not None}
        return [(pod, when) for pod, when in gone if objects.uid(pod) not in known]

    async def catch_up(self, uid: str = "") -> None:
        """Before a read: while recording, as `RunRecorder.catch_up`; else wait until the leader has written the deletions seen here,
        three seconds at most."""
        if self._recorder.is_recording:
            return await self._recorder.catch_up(uid)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while True:
            await self._archive.settle(_SETTLE)
            noted = self._recorder.noted_jobs() - self._given_up
            gone = [one for one in noted if self._cache.job(one) is None]
            written = await self._written_deletions(gone)
            self._given_up.update(written)
            if len(written) == len(gone) or self._archive.problem:
                return None
            if loop.time() >= deadline:
                self._given_up.update(gone)
                return None
            await asyncio.sleep(_ASK_AGAIN)

    async def _written_deletions(self, uids: list[str]) -> list[str]:
        if not uids:
            return []
        try:
            return await self._archive.read(database.read_deleted, uids)
        except (OSError, sqlite3.Error, UnusableArchive):
            return []  # the archive reports its own problems


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
