"""A standby recorder, while another server of the same cluster records: what it keeps, and how its readers are served.

Every server sees every change. Standbys note what happens, so that nothing is lost in the seconds after a leader dies: jobs here, pods in
`seen_pods.py`. Notes are dropped a minute later, when a leader has recorded the changes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping

from rowlock import objects
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.recorder import RunRecorder
from rowlock.rest.run_history.seen_pods import LOOK, SeenPods

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
