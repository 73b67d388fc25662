"""A recorder that waits, because another server of the same cluster records: what it remembers, and how its readers are served.

Every server sees every change. What happened in the seconds in which nobody recorded, because a leader died, is noted by those that
wait; a minute later it is forgotten, since somebody has recorded it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping

from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.recorder import RunRecorder

RunElected = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Runs a work for as long as this process is the one that does it, again and again until cancelled."""
MEMORY = 60.0
"""Seconds for which deletions are remembered at least: longer than it takes to replace a leader that died."""
_PATIENCE = 3.0
"""Seconds that a reader waits for the record of a deletion that this server has seen."""
_ASK_AGAIN = 0.2
_SETTLE = 2.0


class Standby:
    """Beside the recorder of a server that may have to wait."""

    def __init__(self, recorder: RunRecorder, cache: InformerCache, archive: Archive) -> None:
        self._recorder, self._cache, self._archive = recorder, cache, archive
        self._given_up: set[str] = set()
        """Deletions whose record no reader waits for any more: it is there, or did not come."""

    async def run(self) -> None:
        """Forget what others have recorded, until cancelled."""
        earlier: dict[str, bool] = {}
        while True:
            await asyncio.sleep(MEMORY)
            earlier = self.forget_recorded(earlier)

    def forget_recorded(self, earlier: Mapping[str, bool]) -> dict[str, bool]:
        """Forget the jobs that were noted, or have gone, before the last look, which returned `earlier`. Those that stay: uid →
        whether the job has gone."""
        if self._recorder.is_recording:
            return {}
        noted = {uid: self._cache.job(uid) is None for uid in self._recorder.noted_jobs()}
        kept = {uid: gone for uid, gone in noted.items() if uid not in earlier or gone > earlier[uid]}
        self._recorder.keep_notes(kept)
        self._given_up &= kept.keys()
        return kept

    async def catch_up(self, uid: str = "") -> None:
        """Before a read: as `RunRecorder.catch_up`, or until the recording server has written the deletions that this one has
        seen, three seconds at most."""
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
        marks = ", ".join("?" * len(uids))
        try:
            rows = await self._archive.read(
                database.read_headers, f"WHERE uid IN ({marks}) AND deleted IS NOT NULL", uids
            )
        except (OSError, sqlite3.Error, UnusableArchive):
            return []  # the archive says itself what is wrong with it
        return [row.uid for row in rows]
