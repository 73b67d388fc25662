"""Ends jobs that have run for their `--max-time`. The recorder's phases say how long a job has run, also before this server started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.controllers.job_timers import JobTimers
from rowlock.controllers.turn_budget import OnePerTurn
from rowlock.errors import ApiError, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.run_options.time_limit import end_patch, end_reason, max_time_of, seconds_run

log = logging.getLogger(__name__)

_RETRY = 5.0
_OPTIONS = WriteOptions(manager="rowlock")
_COUNTED = frozenset({"Running", "Degraded"})


class TimeLimits:
    """One timer for each job with a limit that runs."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._timers = JobTimers("the end of a job")
        self._turns = OnePerTurn()

    def consider(self, notes: RunNotes) -> None:
        """Set, move or remove the timer of a run whose notes have changed."""
        self._timers.forget(notes.record.uid)
        job = notes.job
        if job is not None and not end_reason(job) and (left := self._seconds_left(notes, job)) is not None:
            self._set_timer(notes, left)

    def stop(self) -> None:
        """Forget all timers: this server records no longer, and another one does."""
        self._timers.stop()

    def _set_timer(self, notes: RunNotes, seconds: float) -> None:
        self._timers.look_in(seconds, notes.record.uid, partial(self._look, notes))

    async def _look(self, notes: RunNotes) -> None:
        job = notes.job
        if job is None or (left := self._seconds_left(notes, job)) is None:
            return
        if left > 0:
            self._set_timer(notes, left)
            return
        await self._end(notes, job)

    def _seconds_left(self, notes: RunNotes, job: Object) -> float | None:
        """How long the job may still run; None if it has no limit or does not run now."""
        limit = max_time_of(job)
        if limit is None or notes.record.phase not in _COUNTED:
            return None
        return limit - seconds_run(notes.phases, self._clock())

    async def _end(self, notes: RunNotes, job: Object) -> None:
        await self._turns.wait()  # thousands may have begun together
        try:
            patch = end_patch(job, max_time_of(job) or 0.0)
            await self._api.patch(kinds.by_object(job), *objects.key(job), patch, type="merge", options=_OPTIONS)
        except (NotFound, Conflict):
            return  # it is gone; or another job has its name
        except ApiError as error:
            log.warning("%s has run for its --max-time and cannot be stopped yet: %s", objects.name(job), error.message)
            self._set_timer(notes, _RETRY)
