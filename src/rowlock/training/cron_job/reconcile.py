"""One reconcile of one CronJob: its status, the Jobs of earlier starts that are deleted, and the Job of the start that is due.

A turn either writes the status that its Jobs show, or makes room for a start (Replace), or makes a Job; the change that it writes is the
reason for the next turn. The Job and `lastScheduleTime` are one commit of the embedded store. Where a crash came between them, the Job is
found by its name and becomes active with its time: no start is made twice. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rowlock.api import Create, Decision, Delete, DeleteOptions, Record, Update, Write
from rowlock.kinds import BATCH_JOB, CRON_JOB
from rowlock.objects import Object, dig, is_controlled_by, is_deleting, name, namespace, seconds, timestamp, uid
from rowlock.training.cron_job import starts
from rowlock.training.cron_job.fields import ScheduleError
from rowlock.training.cron_job.model import (
    EVENT_SOURCE,
    ObservedCronJob,
    build_job,
    end_of,
    is_made_by,
    job_name,
    reference,
    start_of,
)
from rowlock.training.cron_job.schedule import Schedule
from rowlock.training.cron_job.zones import Zone, ZoneError

_BACKGROUND = DeleteOptions(propagation="Background")
_LONGEST_SLEEP = 60.0
"""Seconds after which the clock is read again at the latest: it may have been set, and a laptop may have slept."""


@dataclass(slots=True)
class Memory:
    """What is kept of one CronJob between two looks; after a restart it begins anew."""

    rhythm: object = None
    """Its schedule and time zone at the last look."""
    not_before: float = 0.0
    """When they were changed: starts of the new schedule before that are not due."""
    told: dict[str, int] = field(default_factory=dict)
    """Reason of an event about a start → the last start that it was recorded for."""
    unexpected: set[str] = field(default_factory=set)
    """Uids of the Jobs that are there and that `UnexpectedJob` was recorded for."""

    def note_rhythm(self, rhythm: object, now: float) -> None:
        """A new schedule begins now: what it would have started before is not missed."""
        if self.rhythm not in (None, rhythm):
            self.not_before = now
        self.rhythm = rhythm


@dataclass(slots=True)
class _Look:
    observed: ObservedCronJob
    memory: Memory
    now: float
    writes: list[Write] = field(default_factory=list)

    def record(self, level: str, reason: str, message: str) -> None:
        self.writes.append(_event(self.observed.object, level, reason, message))

    def record_once(self, start: int, level: str, reason: str, message: str) -> None:
        """An event about a start, which is looked at until the next one."""
        if self.memory.told.get(reason) != start:
            self.memory.told[reason] = start
            self.record(level, reason, message)

    def record_unexpected(self, job: Object) -> None:
        """An event about a Job that was not made for a start, as `kubectl create job --from` makes them."""
        if uid(job) not in self.memory.unexpected:
            self.memory.unexpected.add(uid(job))
            text = f"Saw a job that the controller did not create or forgot: {name(job)}"
            self.record("Warning", "UnexpectedJob", text)

    def delete(self, job: Object) -> None:
        cron = self.observed.object
        failure = _event(cron, "Warning", "FailedDelete", "Deleted job: {error}")
        self.writes.append(Delete(BATCH_JOB, namespace(cron), name(job), _BACKGROUND, (failure,)))
        self.record("Normal", "SuccessfulDelete", f"Deleted job {name(job)}")

    def decision(self, schedule: Schedule | None = None, status: Object | None = None) -> Decision:
        """`schedule`: when to look again; `status`: the new status, if it differs."""
        cron = self.observed.object
        if status is not None and status != (cron.get("status") or {}):
            self.writes.append(Update(CRON_JOB, {**cron, "status": status}, "status"))
        wait = starts.seconds_until_next(schedule, self.now) if schedule else None
        return Decision(tuple(self.writes), None if wait is None else min(wait, _LONGEST_SLEEP))


def _event(cron: Object, level: str, reason: str, message: str) -> Record:
    return Record(cron, "Warning" if level == "Warning" else "Normal", reason, message, EVENT_SOURCE)


def reconcile(
    observed: ObservedCronJob, find_job: Callable[[str], Object | None], memory: Memory, now: float, local: Zone
) -> Decision:
    """The writes for a CronJob, and when to look at it again. `find_job`: a Job of its namespace by name; `local`: the zone of schedules
    that name none."""
    look = _Look(observed, memory, now)
    deleted = _clean_up(look)
    status = _status_of_jobs(look, deleted, find_job)
    if status != (observed.object.get("status") or {}):
        return look.decision(status=status)
    if is_deleting(observed.object):
        return look.decision()
    try:
        schedule = observed.schedule(local)
    except ZoneError as error:
        look.record("Warning", "UnknownTimeZone", f'invalid timeZone: "{observed.spec.get("timeZone")}": {error}')
        return look.decision()
    except ScheduleError as error:
        text = f'unparseable schedule: "{observed.spec.get("schedule")}" : {error}'
        look.record("Warning", "UnparseableSchedule", text)
        return look.decision()
    memory.note_rhythm((observed.spec.get("schedule"), observed.spec.get("timeZone")), now)
    if observed.spec.get("suspend"):
        return look.decision()
    return _start(look, schedule, find_job)


# ---------------------------------------------------------------- the Jobs that are there


def _clean_up(look: _Look) -> set[str]:
    """Delete the oldest ended Jobs beyond the limits; their uids."""
    deleted = set[str]()
    for limit, type_ in (("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")):
        kept = look.observed.spec.get(limit)
        ended = [job for job in look.observed.jobs if end_of(job) == type_ and not is_deleting(job)]
        if kept is None or len(ended) <= kept:
            continue
        for job in sorted(ended, key=_age)[: len(ended) - kept]:
            look.delete(job)
            deleted.add(uid(job))
    return deleted


def _age(job: Object) -> tuple[bool, float, str]:
    started = dig(job, "status.startTime")
    return started is None, seconds(started), name(job)


def _status_of_jobs(look: _Look, deleted: set[str], find_job: Callable[[str], Object | None]) -> Object:
    """The status that the Jobs show: which are active, the last start, the last success."""
    observed = look.observed
    status: Object = dict(observed.object.get("status") or {})
    active = [ref for ref in observed.active if ref.get("uid") not in deleted]
    for job in observed.jobs:
        is_listed = any(ref.get("uid") == uid(job) for ref in active)
        end, start = end_of(job), start_of(job) if is_made_by(job, observed.object) else None
        if not end and not is_listed and not is_deleting(job):
            if start is None:
                look.record_unexpected(job)
            else:
                active.append(reference(job))
                _note_latest(status, "lastScheduleTime", timestamp(start))
        elif end and is_listed:
            active = [ref for ref in active if ref.get("uid") != uid(job)]
            look.record("Normal", "SawCompletedJob", f"Saw completed job: {name(job)}, condition: {end}")
        if end == "Complete":
            _note_latest(status, "lastSuccessfulTime", dig(job, "status.completionTime"))
    known = {uid(job) for job in observed.jobs}
    look.memory.unexpected.intersection_update(known)
    for ref in [ref for ref in active if ref.get("uid") not in known]:
        if (there := find_job(str(ref.get("name")))) is not None and uid(there) == ref.get("uid"):
            continue  # it has lost its owner, in a deletion that leaves the Jobs
        look.record("Normal", "MissingJob", f"Active job went missing: {ref.get('name')}")
        active.remove(ref)
    return {**{k: v for k, v in status.items() if k != "active"}, **({"active": active} if active else {})}


def _note_latest(status: Object, field_name: str, time: str | None) -> None:
    if time and seconds(time) > seconds(status.get(field_name)):
        status[field_name] = time


# ---------------------------------------------------------------- the start that is due


def _start(look: _Look, schedule: Schedule, find_job: Callable[[str], Object | None]) -> Decision:
    observed, now = look.observed, look.now
    deadline = observed.spec.get("startingDeadlineSeconds")
    window = float(deadline) if deadline is not None else float("inf")
    try:
        start = starts.due_start(schedule, max(observed.last_start, look.memory.not_before), now, window)
    except ScheduleError as error:
        look.record("Warning", "InvalidSchedule", f"invalid schedule: {observed.spec.get('schedule')} : {error}")
        return look.decision()
    if start is None:
        return look.decision(schedule)
    if start.time + window < now:
        look.record_once(
            start.time, "Warning", "MissSchedule", f"Missed scheduled time to start a job: {_rfc1123(start.time)}"
        )
        return look.decision(schedule)
    if start.missed > starts.MANY:
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        look.record_once(start.time, "Warning", "TooManyMissedTimes", text)
    policy = observed.spec.get("concurrencyPolicy")
    if policy == "Forbid" and observed.active:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        look.record_once(start.time, "Normal", "JobAlreadyActive", text)
        return look.decision(schedule)
    if policy == "Replace" and observed.active:
        return _make_room(look)
    return _make_job(look, schedule, start.time, find_job)


def _make_room(look: _Look) -> Decision:
    """Delete the active Jobs; the next turn makes the new one."""
    listed = {ref.get("uid") for ref in look.observed.active}
    for job in look.observed.jobs:
        if uid(job) in listed and not is_deleting(job):
            look.delete(job)
    status = {k: v for k, v in (look.observed.object.get("status") or {}).items() if k != "active"}
    return look.decision(status=status)


def _make_job(look: _Look, schedule: Schedule, start: int, find_job: Callable[[str], Object | None]) -> Decision:
    cron = look.observed.object
    called = job_name(cron, start)
    there = find_job(called)
    if there is not None and not is_controlled_by(there, uid(cron)):
        text = f'Error creating job: jobs.batch "{called}" already exists, and this CronJob did not make it; delete it or rename one of them'
        look.record_once(start, "Warning", "FailedCreate", text)
        return look.decision(schedule)
    if there is None:
        failure = _event(cron, "Warning", "FailedCreate", "Error creating job: {error}")
        look.writes.append(Create(BATCH_JOB, build_job(look.observed, start), (failure,)))
        look.record("Normal", "SuccessfulCreate", f"Created job {called}")
    status = {**(cron.get("status") or {}), "lastScheduleTime": timestamp(start)}
    return look.decision(schedule, status)


def _rfc1123(t: int) -> str:
    """`Mon, 02 Jan 2006 15:04:05 +0000`, in English whatever the locale."""
    text = timestamp(t)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[(t // 86_400 + 3) % 7]
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{day}, {text[8:10]} {months[int(text[5:7]) - 1]} {text[:4]} {text[11:19]} +0000"
