"""Events of runs: finds an event's run, and keeps events that arrive before the recorder has looked at their run."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from rowlock import kinds, objects
from rowlock.api import Api
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError, Expired, Forbidden, NotFound
from rowlock.objects import Object
from rowlock.rest.event_index import pages_of_events
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.run_notes import RunNotes

_RETRY = 5.0
log = logging.getLogger(__name__)


async def follow_events(api: Api, note: Callable[[Object], None]) -> None:
    """Call `note` with all Events that are there, and with each that is written, until cancelled or forbidden."""
    while True:
        try:
            revision = await _read_events(api, note)
            async for change in api.watch(kinds.EVENT, since=revision):
                if change.type in ("Added", "Modified"):
                    note(change.object)
        except Expired:
            await asyncio.sleep(random.uniform(0.5, 1.5))  # spread the restarts of expired watches
        except (Forbidden, NotFound) as error:
            log.warning("events are not archived: %s", error.message)
            return
        except ApiError:
            await asyncio.sleep(_RETRY * random.uniform(0.75, 1.25))


async def _read_events(api: Api, note: Callable[[Object], None]) -> int:
    """Note the existing Events. Returns the revision of the list."""
    revision, budget = 0, TurnBudget()
    async for page in pages_of_events(api):
        for event in page.items:
            await budget.pause_if_due()
            note(event)
        revision = page.revision
    return revision


def run_of_event(event: Object, pod_owners: Mapping[str, str], cache: InformerCache) -> str:
    """The uid of the job that an event is about; "" for a pod of no known job. `pod_owners`: uid of a pod → uid of its job."""
    regarding = event.get("involvedObject") or {}
    uid, kind = str(regarding.get("uid") or ""), regarding.get("kind")
    if kind == "Pod":
        if (owner := pod_owners.get(uid)) is not None:
            return owner
        name = str(regarding.get("name") or "")
        return next(iter(cache.uids_named(str(regarding.get("namespace") or ""), name.rsplit("-", 2)[0])), "")
    return str(regarding.get("name") or "")[-36:] if kind == "PodGroup" else uid


class EarlyEvents:
    """Events of runs that the recorder has not looked at yet; at most `limit`, to bound memory in a storm of events."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit, self._count = limit, 0
        self._events: dict[str, list[Object]] = {}
        self._expected: list[str] = []
        self._one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def expect(self, uid: str) -> AsyncIterator[None]:
        """Enter while the notes of this job's run are being found, which may wait for the archive. Serialized, because two concurrent looks
        at a job would create two notes, and events would be lost in the discarded one."""
        self._expected.append(uid)
        try:
            async with self._one_at_a_time:
                yield
        finally:
            self._expected.remove(uid)

    def are_expected(self, uid: str) -> bool:
        """Whether a look at this job is in progress or waiting."""
        return uid in self._expected

    def keep(self, uid: str, event: Object) -> None:
        """Keep an event for the run of this job, unless there are too many."""
        if self._count < self._limit:
            self._events.setdefault(uid, []).append(event)
            self._count += 1

    def take(self, uid: str) -> list[Object]:
        """Remove and return the events kept for this job, in order of arrival."""
        taken = self._events.pop(uid, [])
        self._count -= len(taken)
        return taken


class LeavingRuns:
    """Runs that were deleted while their containers ran: events about how these end arrive after the job is gone."""

    def __init__(self, seconds: float = 120.0) -> None:
        """`seconds`: how long events are accepted beyond the pod's termination grace period."""
        self._seconds = seconds
        self._notes: dict[str, RunNotes] = {}

    def keep(self, notes: RunNotes) -> list[str]:
        """Keep the notes under the uids of those pods that have not ended. Returns the uids of all its pods."""
        for uid, pod in notes.pods.items():
            if objects.phase(pod) not in objects.FINAL_PHASES:
                self._notes[uid] = notes
                grace = float(objects.dig(pod, "spec.terminationGracePeriodSeconds") or 0)
                asyncio.get_running_loop().call_later(self._seconds + grace, self._notes.pop, uid, None)
        return list(notes.pods)

    def notes_of(self, event: Object) -> RunNotes | None:
        """The notes of the run whose pod the event is about, or None."""
        return self._notes.get(str((event.get("involvedObject") or {}).get("uid") or ""))
