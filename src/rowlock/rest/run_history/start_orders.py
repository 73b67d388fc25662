"""Starts jobs that waited for others, or for a time (`--after`, `--start-after`). Level, not edge: each look asks what is."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from functools import partial

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.controllers.job_timers import JobTimers
from rowlock.controllers.supervisor import ERRORS
from rowlock.controllers.turn_budget import OnePerTurn
from rowlock.errors import ApiError, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.frameworks import is_suspended
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.run_options.start_order import (
    BLOCKED_ANNOTATION,
    Awaited,
    awaited_jobs,
    order_sentence,
    start_patch,
    start_time,
)

log = logging.getLogger(__name__)

_RETRY = 5.0
_OPTIONS = WriteOptions(manager="rowlock")


class StartOrders:
    """The jobs that wait for their turn."""

    def __init__(self, api: Api, cache: InformerCache, archive: Archive, clock: Callable[[], float]) -> None:
        self._api, self._cache, self._archive, self._clock = api, cache, archive, clock
        self._waiting: dict[str, frozenset[str]] = {}
        """Uid of a job that waits → uids of those that it waits for."""
        self._followers: dict[str, set[str]] = {}
        """The same from the other end."""
        self._turns = OnePerTurn()
        self._timers = JobTimers("the order of jobs")

    def consider(self, notes: RunNotes) -> None:
        """Look at a run whose notes have changed: it waits, or others may wait for its end."""
        uid = notes.record.uid
        if self._note(uid):
            self._look_soon(uid)
        if notes.record.phase in TERMINAL or notes.record.deleted is not None:
            for other in sorted(self._followers.get(uid, ())):
                self._look_soon(other)

    def stop(self) -> None:
        """Forget everything: this server records no longer, and another one does."""
        self._timers.stop()
        self._waiting.clear()
        self._followers.clear()

    def _note(self, uid: str) -> bool:
        """Whether the job waits, noted for the ends of those that it waits for."""
        for awaited in self._waiting.pop(uid, ()):
            self._followers[awaited].discard(uid)
            if not self._followers[awaited]:
                del self._followers[awaited]
        job = self._cache.job(uid)
        if job is None or not _waits(job):
            return False
        self._waiting[uid] = frozenset(one.uid for one in awaited_jobs(job))
        for awaited in self._waiting[uid]:
            self._followers.setdefault(awaited, set()).add(uid)
        return True

    def _look_soon(self, uid: str, delay: float = 0.0) -> None:
        self._timers.look_in(delay, uid, partial(self._look, uid))

    async def _look(self, uid: str) -> None:
        await self._turns.wait()  # thousands may wait for the same one
        if not self._note(uid):
            return
        job = self._cache.job(uid)
        assert job is not None
        try:
            await self._start_or_wait(uid, job)
        except (NotFound, Conflict):
            return  # it is gone; or another job has its name
        except (ApiError, sqlite3.Error, OSError, UnusableArchive) as error:
            log.warning("whether %s may start is asked again: %s", objects.name(job), error)
            self._look_soon(uid, _RETRY)
        except Exception as error:  # noqa: BLE001 (a malformed object must not affect other jobs)
            ERRORS.report("the order of jobs", error, "the job waits")

    async def _start_or_wait(self, uid: str, job: Object) -> None:
        for awaited in awaited_jobs(job):
            phase = await self._phase_of(awaited, objects.namespace(job))
            if phase not in ("Completed", "Failed", "Deleted"):
                return
            if awaited.must_succeed and phase != "Completed":
                await self._note_blocker(job, awaited)
                return
        left = start_time(job) - self._clock()
        if left > 0:
            self._look_soon(uid, left)
            return
        await self._patch(job, start_patch(job))

    async def _phase_of(self, awaited: Awaited, namespace: str) -> str:
        """The phase of an awaited job of this namespace; of one that is gone, as the archive has it: "Deleted" if it had not ended. Other
        namespaces have no job that it could wait for, whatever uid somebody writes into the annotation."""
        if (job := self._cache.job(awaited.uid)) is not None:
            return self._cache.phase(awaited.uid) if objects.namespace(job) == namespace else "Deleted"
        await self._archive.settle(_RETRY)
        try:
            found = await self._archive.read(
                database.read_headers, "WHERE uid = ? AND namespace = ?", (awaited.uid, namespace)
            )
        except FileNotFoundError:
            return "Deleted"
        return found[0].phase if found and found[0].phase in TERMINAL else "Deleted"

    async def _note_blocker(self, job: Object, awaited: Awaited) -> None:
        if BLOCKED_ANNOTATION not in objects.annotations(job):
            notes = {BLOCKED_ANNOTATION: awaited.name}
            await self._patch(job, {"metadata": {"uid": objects.uid(job), "annotations": notes}})

    async def _patch(self, job: Object, patch: Object) -> None:
        await self._api.patch(kinds.by_object(job), *objects.key(job), patch, type="merge", options=_OPTIONS)


def _waits(job: Object) -> bool:
    return is_suspended(job) and bool(order_sentence(job)) and not objects.is_deleting(job)
