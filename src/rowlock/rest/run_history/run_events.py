"""Events of runs: whose an event is, and events that arrive before the recorder has looked at their run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from rowlock import objects
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.run_notes import RunNotes


def run_of_event(event: Object, pod_owners: Mapping[str, str], cache: InformerCache) -> str:
    """The uid of the job that an event is about; "" when it is about no known job. `pod_owners`: uid of a pod → of its job."""
    regarding = event.get("involvedObject") or {}
    uid, kind = str(regarding.get("uid") or ""), regarding.get("kind")
    if kind == "Pod":
        if (owner := pod_owners.get(uid)) is not None:
            return owner
        name = str(regarding.get("name") or "")
        jobs = cache.jobs_named(str(regarding.get("namespace") or ""), name.rsplit("-", 2)[0])
        return objects.uid(jobs[0]) if jobs else ""
    return str(regarding.get("name") or "")[-36:] if kind == "PodGroup" else uid


class EarlyEvents:
    """Events whose run nobody has looked at yet: at most `limit`, so that a storm of them costs no memory."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit, self._count = limit, 0
        self._events: dict[str, list[Object]] = {}
        self._expected: list[str] = []
        self._one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def expect(self, uid: str) -> AsyncIterator[None]:
        """While the notes of this job's run are looked for, and the archive is perhaps waited for. One look at a time: two at one job would
        make two notes of it, and events would be in those that are forgotten."""
        self._expected.append(uid)
        try:
            async with self._one_at_a_time:
                yield
        finally:
            self._expected.remove(uid)

    def are_expected(self, uid: str) -> bool:
        """Whether a look at this job goes on, or waits for its turn."""
        return uid in self._expected

    def keep(self, uid: str, event: Object) -> None:
        """For the run of this job; dropped when there are too many."""
        if self._count < self._limit:
            self._events.setdefault(uid, []).append(event)
            self._count += 1

    def take(self, uid: str) -> list[Object]:
        """What was kept for this job, in the order of arrival; it is kept no longer."""
        taken = self._events.pop(uid, [])
        self._count -= len(taken)
        return taken


class LeavingRuns:
    """Runs that were deleted while programs of theirs ran: how those end is told when the job has gone."""

    def __init__(self, seconds: float = 120.0) -> None:
        """`seconds`: how long their events are waited for, beyond what a pod is given to end."""
        self._seconds = seconds
        self._notes: dict[str, RunNotes] = {}

    def keep(self, notes: RunNotes) -> list[str]:
        """Remembers the notes by those of its pods that have not ended. Returns the uids of all its pods."""
        for uid, pod in notes.pods.items():
            if objects.phase(pod) not in ("Succeeded", "Failed"):
                self._notes[uid] = notes
                grace = float(objects.dig(pod, "spec.terminationGracePeriodSeconds") or 0)
                asyncio.get_running_loop().call_later(self._seconds + grace, self._notes.pop, uid, None)
        return list(notes.pods)

    def notes_of(self, event: Object) -> RunNotes | None:
        """Those of the run whose pod the event is about."""
        return self._notes.get(str((event.get("involvedObject") or {}).get("uid") or ""))
