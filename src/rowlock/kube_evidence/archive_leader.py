"""One of several servers of a real cluster writes the archive that they share: the holder of a Lease.

The others read what it writes and also follow the pods' logs, so that the next leader has what the last one had not written yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rowlock.api import Api
from rowlock.archive.shared_archive import SharedArchive
from rowlock.controllers.supervisor import supervise
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.kube.leader_election import LeaderElection, LeaseTimes
from rowlock.kube.rights import ARCHIVE_LEASE

log = logging.getLogger(__name__)
OWN_DISK_S = 20.0
"""Seconds that writes to the leader's own disk may fail before it gives up leadership."""
_LOOK_S = 1.0
"""Seconds between two checks of the disk."""

_LAST_WRITES_S = 3.0
"""Seconds for a leader's last writes at the end of its term: another server cannot lead for five more."""


class ArchiveLeader:
    """Takes part in the election for one archive. `identity` is unique to this process."""

    def __init__(self, api: Api, archive: SharedArchive, identity: str, times: LeaseTimes = LeaseTimes()) -> None:
        self._archive = archive
        self.election = LeaderElection(api, ARCHIVE_LEASE, identity, times)

    async def run(self, record: Callable[[], Awaitable[None]]) -> None:
        """Run `record`, which hands runs to the archive, while this process leads; until cancelled."""

        async def lead() -> None:
            try:
                await self._archive.lead()
                await record()
            finally:
                await self._archive.settle(_LAST_WRITES_S)
                self._archive.follow()

        async def take_part() -> None:
            while True:
                while self._archive.own_trouble_s or not await asyncio.to_thread(self._archive.has_room):
                    await asyncio.sleep(_LOOK_S)
                await run_until_first_ends(self.election.run(lead), self._until_disk_is_bad())

        await supervise("the election of who writes the archive", take_part)

    async def _until_disk_is_bad(self) -> None:
        """Return when this machine's disk has failed for `OWN_DISK_S`; a failing shared storage does not count."""
        while self._archive.own_trouble_s < OWN_DISK_S:
            await asyncio.sleep(_LOOK_S)
        log.warning("another server shall write: %s", self._archive.problem)
