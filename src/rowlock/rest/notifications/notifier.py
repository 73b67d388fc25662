"""Tells what happens to runs. It subscribes to the recorder of runs and keeps nothing of its own: what was told stands on the job.

A job's annotation names the Secret with the address (`workloads/run_options/notify.py`), its Namespace's that of its project
(`project_address.py`); `rowlock up --notify` names one for all jobs. What was told, or given up, is noted as an annotation of the job when
the receiver has answered. So the next server, also another replica, tells what the last one did not, and a message comes twice only if a
server dies between the answer and the note: its `id` is the same then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.archive import redaction
from rowlock.archive.records import RunRecord
from rowlock.controllers.supervisor import ERRORS
from rowlock.errors import ApiError, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.notifications.lanes import STALE, Delivery, Lanes
from rowlock.rest.notifications.message import make_message
from rowlock.rest.notifications.notices import Notice, notice_of_event, notices_of_phases
from rowlock.rest.notifications.settings import NotifySettings, judge_of_operator
from rowlock.rest.notifications.targets import (
    OF_OPERATOR,
    OF_PROJECT,
    OWN,
    NotifyTarget,
    ProjectTargets,
    UnusableAddress,
    read_secret,
    target_of,
)
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.run_options.notify import EVENTS, NOTIFIED_ANNOTATION, NOTIFY_ANNOTATION, UNTOLD_ANNOTATION

log = logging.getLogger(__name__)

_MOST_RUNS, _MOST_NEWS, _LOOKED_AT = 50_000, 10_000, 4
_MARKS = 30
"""Keys of notices, each with its target, kept on a job, the newest: older things are not told anyway (`STALE`)."""
_READERS = 8
"""Runs whose Secrets are read at a time."""
_LONGEST_NOTE = 4_000
"""Characters that are read of an annotation: anybody who may change the job may write a longer one."""
_RETRY = 5.0
_GAP = 60.0
"""Seconds between two notices of the same kind from Events of a run: anybody may write Events."""
_OPTIONS = WriteOptions(manager="rowlock")


@dataclass(slots=True)
class _Run:
    """What is known about telling one run."""

    record: RunRecord
    job: Object
    secrets: list[str]
    own: NotifyTarget | None = None
    is_read: bool = False
    noticed: set[str] = field(default_factory=set)
    """Keys of the notices that this server has taken on."""
    told: dict[str, None] = field(default_factory=dict)
    """Marks of those that were told or given up, the oldest first: the target's name and the notice's key."""
    last_event: dict[str, float] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Notifier:
    """Tells what happens to runs; `run` does the work."""

    def __init__(
        self,
        api: Api,
        settings: NotifySettings,
        clock: Callable[[], float],
        lanes: Lanes | None = None,
        namespace_of: Callable[[str], Object | None] = lambda name: None,
    ) -> None:
        """`namespace_of` has the Namespaces of the cluster, whose annotations name the addresses of projects."""
        self._projects = ProjectTargets(api, namespace_of, settings)
        self._api, self._settings, self._clock, self.lanes = api, settings, clock, lanes or Lanes(clock)
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._news: asyncio.Queue[tuple[_Run, Notice | None]] = asyncio.Queue(_MOST_NEWS)
        self._operator = (
            NotifyTarget(OF_OPERATOR, settings.address, settings.key, frozenset(EVENTS), judge_of_operator)
            if settings.address
            else None
        )

    # ------------------------------------------------------------ what the recorder calls

    def is_owed(self, job: Object) -> bool:
        """Whether the end of this job, which is completely recorded, may not have been told."""
        ended, marks = objects.end_time(job, (), self._clock()), set(_marks(job))
        if ended + STALE < self._clock():
            return False
        return any(not marks & {f"{name}failed", f"{name}completed"} for name in self._names_of(job, ended))

    def consider(self, notes: RunNotes, event: Object | None) -> None:
        """Tell what is new about a run; `event`: its newest Event, if that is what is new. Does not wait."""
        job = notes.job
        if job is None or not self._concerns(job):
            return
        run = self._runs.get(notes.record.uid)
        is_new = run is None
        record, job = _without_bodies(notes.record, job)
        if run is None:
            run = self._runs[record.uid] = _Run(record, job, notes.secrets)
            self._forget_ended()
        run.record, run.job, run.secrets = record, job, notes.secrets
        if is_new:
            self._put(run, None)  # its Secret is read now: the job may be deleted at its end
        if event is not None:
            notice = notice_of_event(event)
            if notice and abs(notice.at - run.last_event.get(notice.event, 0.0)) >= _GAP:
                run.last_event[notice.event] = notice.at
                self._tell_once(run, notice)
            return
        for notice in notices_of_phases(notes.phases, notes.record.verdict):
            self._tell_once(run, notice)

    def _forget_ended(self) -> None:
        """Forget runs whose end is no news any more, the oldest first; a few at a time, since each new run calls this."""
        for uid, run in list(islice(self._runs.items(), _LOOKED_AT)):
            ended = run.record.deleted or run.record.finished
            if ended is not None and ended + STALE < self._clock():
                del self._runs[uid]
            else:
                self._runs.move_to_end(uid)
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)

    def _concerns(self, job: Object) -> bool:
        return next(self._names_of(job, self._clock()), None) is not None

    def _names_of(self, job: Object, at: float) -> Iterator[str]:
        """The names of the targets that may have to be told what happened `at` this time to the job."""
        if NOTIFY_ANNOTATION in objects.annotations(job):
            yield OWN
        if self._projects.concern(objects.namespace(job), at):
            yield OF_PROJECT
        if self._operator is not None:
            yield OF_OPERATOR

    def _tell_once(self, run: _Run, notice: Notice) -> None:
        if notice.key not in run.noticed and notice.at + STALE > self._clock():
            run.noticed.add(notice.key)
            self._put(run, notice)

    def _put(self, run: _Run, notice: Notice | None) -> None:
        try:
            self._news.put_nowait((run, notice))
        except asyncio.QueueFull:
            log.warning("a notification about %s is left out: %d are waiting", run.record.name, _MOST_NEWS)

    # ------------------------------------------------------------ work

    async def run(self) -> None:
        """Tell things until cancelled; what waits then is left to the next server."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(_READERS):
                    tasks.create_task(self._work())
        finally:
            self.lanes.stop()

    async def _work(self) -> None:
        while True:
            run, notice = await self._news.get()
            try:
                try:
                    async with run.reading:
                        await self._read_own(run)
                    project = await self._read_project(run) if notice is not None else None
                except ApiError:
                    if notice is None or notice.at + STALE > self._clock():
                        asyncio.get_running_loop().call_later(_RETRY, self._put, run, notice)
                    continue
                if notice is not None:
                    await self._send(run, notice, project)
            except Exception as error:  # noqa: BLE001 (a malformed object must not affect other runs)
                ERRORS.report("a notification", error, "it is left out")

    async def _read_own(self, run: _Run) -> None:
        """Read the address of the job's own notifications from its Secret, once. Raises ApiError if the cluster does not answer."""
        name = objects.annotations(run.job).get(NOTIFY_ANNOTATION)
        if run.is_read or not name:
            return
        try:
            values = await read_secret(self._api, objects.namespace(run.job), name, "")
            run.own = target_of(OWN, values, self._settings)
        except UnusableAddress as problem:
            await self._note(run, "", problem.reason)
        except ValueError as error:
            await self._note(run, "", f"the Secret {name} has no usable address: {error}")
        run.is_read = True

    async def _read_project(self, run: _Run) -> NotifyTarget | None:
        """The address of the project as it is now. Raises ApiError if the cluster does not answer."""
        try:
            return await self._projects.find(run.record.namespace, run.record.namespace_uid)
        except UnusableAddress as problem:
            await self._note(run, "", problem.reason)
            return None

    async def _send(self, run: _Run, notice: Notice, project: NotifyTarget | None) -> None:
        for target in filter(None, (run.own, project, self._operator)):
            mark, namespace = f"{target.name}{notice.key}", run.record.namespace
            if notice.event not in target.events or notice.at < target.since:
                continue
            if mark in run.told or mark in _marks(run.job):
                continue
            safe = Notice(notice.key, notice.event, notice.at, redaction.redact(notice.sentence, run.secrets))
            message = make_message(safe, run.record, target.key)
            done = partial(self._note, run, mark, about=f"{notice.event}, to {target.address.origin}: ")
            delivery = Delivery(namespace, target.address, message, target.judge, notice.at, done)
            if target.name == OF_PROJECT:
                delivery = replace(delivery, is_wanted=partial(self._projects.is_current, namespace, target))
            no_room = self.lanes.put(delivery)
            if no_room:
                await done(no_room)

    async def _note(self, run: _Run, mark: str, reason: str, about: str = "") -> None:
        """Note on the job that this was told, or why it was not."""
        if reason:
            log.info(
                "a notification about %s/%s was given up: %s%s", run.record.namespace, run.record.name, about, reason
            )
        if mark:
            run.told[mark] = None
        marks = list(dict.fromkeys((*_marks(run.job), *run.told)))[-_MARKS:]
        notes = {NOTIFIED_ANNOTATION: " ".join(marks)}
        if reason and not mark.startswith(OF_OPERATOR):
            notes[UNTOLD_ANNOTATION] = f"{about}{reason}"
        patch = {"metadata": {"uid": run.record.uid, "annotations": notes}}
        try:
            await self._api.patch(kinds.by_object(run.job), *objects.key(run.job), patch, options=_OPTIONS)
        except (NotFound, Conflict):
            return  # it is deleted; or another job has its name
        except ApiError as error:
            log.info("%s: what was told is not noted: %s", run.record.name, error.message)


def _without_bodies(record: RunRecord, job: Object) -> tuple[RunRecord, Object]:
    """What is kept of a run when it has ended: without what may have a megabyte."""
    notes = objects.annotations(job)
    kept = {
        name: str(notes[name])[:_LONGEST_NOTE] for name in (NOTIFY_ANNOTATION, NOTIFIED_ANNOTATION) if name in notes
    }
    meta = {name: job["metadata"].get(name) for name in ("name", "namespace", "uid")}
    slim: Object = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": {**meta, "annotations": kept}}
    return replace(record, body={}), slim


def _marks(job: Object) -> list[str]:
    return str(objects.annotations(job).get(NOTIFIED_ANNOTATION) or "").split()
