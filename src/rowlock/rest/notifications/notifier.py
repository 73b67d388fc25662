"""Tells what happens to runs. It subscribes to the recorder of runs and keeps nothing of its own: what was told stands on the job.

A job's annotation names the Secret with the address (`workloads/run_options/notify.py`); `rowlock up --notify` names one for all jobs. What was told, or
given up, is noted as an annotation of the job when the receiver has answered. So the next server, also another replica, tells what the
last one did not, and a message comes twice only if a server dies between the answer and the note: its `id` is the same then.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.archive import redaction
from rowlock.archive.records import RunRecord
from rowlock.controllers.supervisor import ERRORS
from rowlock.documents.notify_address import NotifyAddress, parse_notify_address
from rowlock.errors import ApiError, Conflict, Forbidden, NotFound
from rowlock.objects import Object
from rowlock.rest.notifications.lanes import STALE, Delivery, Lanes
from rowlock.rest.notifications.message import make_message
from rowlock.rest.notifications.notices import Notice, notice_of_event, notices_of_phases
from rowlock.rest.notifications.settings import NotifySettings, judge_of_operator
from rowlock.rest.notifications.webhook import Judge
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.run_options.notify import EVENTS, NOTIFIED_ANNOTATION, NOTIFY_ANNOTATION, UNTOLD_ANNOTATION

log = logging.getLogger(__name__)

_MOST_RUNS, _MOST_NEWS, _LOOKED_AT = 50_000, 10_000, 4
_MARKS = 20
"""Keys of notices kept on a job, the newest: older things are not told anyway (`STALE`)."""
_READERS = 8
"""Runs whose Secrets are read at a time."""
_LONGEST_NOTE = 4_000
"""Characters that are read of an annotation: anybody who may change the job may write a longer one."""
_RETRY = 5.0
_GAP = 60.0
"""Seconds between two notices of the same kind from Events of a run: anybody may write Events."""
_OPTIONS = WriteOptions(manager="rowlock")


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """An address to which things of a run are told. `name` stands before its marks: "" for the job's own, `*` for the operator's."""

    name: str
    address: NotifyAddress
    key: str
    events: frozenset[str]
    judge: Judge


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
    """Marks of those that were told or given up, the oldest first."""
    last_event: dict[str, float] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Notifier:
    """Tells what happens to runs; `run` does the work."""

    def __init__(
        self, api: Api, settings: NotifySettings, clock: Callable[[], float], lanes: Lanes | None = None
    ) -> None:
        self._api, self._settings, self._clock, self.lanes = api, settings, clock, lanes or Lanes(clock)
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._news: asyncio.Queue[tuple[_Run, Notice | None]] = asyncio.Queue(_MOST_NEWS)
        self._operator = (
            NotifyTarget("*", settings.address, settings.key, frozenset(EVENTS), judge_of_operator)
            if settings.address
            else None
        )

    # ------------------------------------------------------------ what the recorder calls

    def is_owed(self, job: Object) -> bool:
        """Whether the end of this job, which is completely recorded, may not have been told."""
        if not self._concerns(job) or objects.end_time(job, (), self._clock()) + STALE < self._clock():
            return False
        marks = {mark.lstrip("*") for mark in _marks(job)}
        return not marks & {"failed", "completed"}

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
        return self._operator is not None or NOTIFY_ANNOTATION in objects.annotations(job)

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
                async with run.reading:
                    is_read = await self._read_target(run)
                if not is_read and (notice is None or notice.at + STALE > self._clock()):
                    asyncio.get_running_loop().call_later(_RETRY, self._put, run, notice)
                elif notice is not None:
                    await self._send(run, notice)
            except Exception as error:  # noqa: BLE001 (a malformed object must not affect other runs)
                ERRORS.report("a notification", error, "it is left out")

    async def _read_target(self, run: _Run) -> bool:
        """Read the address of the job's own notifications from its Secret, once. False if the cluster does not answer."""
        name = objects.annotations(run.job).get(NOTIFY_ANNOTATION)
        if run.is_read or not name:
            return True
        try:
            secret = await self._api.get(kinds.SECRET, objects.namespace(run.job), name)
            run.own = self._target_of(_read_values(secret))
        except Forbidden:
            await self._note(
                run, "", "this server may not read Secrets: `rowlock manifests --credentials` has the right"
            )
        except (NotFound, ValueError) as error:
            await self._note(run, "", f"the Secret {name} has no usable address: {error}")
        except ApiError:
            return False
        run.is_read = True
        return True

    def _target_of(self, data: Mapping[str, str]) -> NotifyTarget:
        """Raises ValueError."""
        events = frozenset(filter(None, data.get("on", "").split(","))) or frozenset(EVENTS)
        return NotifyTarget(
            "", parse_notify_address(data.get("url", "")), data.get("key", ""), events, self._settings.judge_of_job
        )

    async def _send(self, run: _Run, notice: Notice) -> None:
        for target in filter(None, (run.own, self._operator)):
            mark = f"{target.name}{notice.key}"
            if notice.event not in target.events or mark in run.told or mark in _marks(run.job):
                continue
            safe = Notice(notice.key, notice.event, notice.at, redaction.redact(notice.sentence, run.secrets))
            message = make_message(safe, run.record, target.key)
            done = partial(self._note, run, mark, about=f"{notice.event}, to {target.address.origin}: ")
            no_room = self.lanes.put(
                Delivery(run.record.namespace, target.address, message, target.judge, notice.at, done)
            )
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
        if reason and not mark.startswith("*"):
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


def _read_values(secret: Object) -> dict[str, str]:
    """The values of a Secret as text. Raises ValueError."""
    return {str(name): b64decode(str(value)).decode() for name, value in (secret.get("data") or {}).items()}
