"""The recorder: writes changed jobs, with all that is known about them, to the archive.

It reads the informer cache shortly after a change; a job with many pods less often, so that a thousand pods cost no more
than one. The archive queues writes, so nothing here waits for a disk. It works on any `Api`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from rowlock import objects
from rowlock.api import Api
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.controllers.supervisor import ERRORS, supervise
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.retries import Retries
from rowlock.rest.run_history.run_events import EarlyEvents, LeavingRuns, follow_events, run_of_event
from rowlock.rest.run_history.run_notes import (
    RunNotes,
    has_failed,
    new_notes,
    notes_of_record,
    stage_of,
    without_deletion,
)
from rowlock.rest.run_history.start_orders import StartOrders
from rowlock.rest.run_history.time_limits import TimeLimits
from rowlock.workloads import history
from rowlock.workloads.phase import TERMINAL, phase_and_message
from rowlock.workloads.projects import Project

log = logging.getLogger(__name__)

_FIRST_LOOK, _LATEST_LOOK = 0.05, 0.25
"""Seconds for which changes are collected before the recorder looks at them, the least and the most."""
_GATHER_PER_RUN = 0.005
"""Seconds added for each job of the last turn, so that each is recorded less often when many jobs change at once."""
_LOOK_PER_POD = 0.0005
"""Seconds between two looks at a job, per pod of the job."""
_WRITE_DELAY = 1.0
"""Seconds for which changes of a run are collected before it is written; a shorter run is written once, at its end."""
_WRITE_DELAY_PER_POD = 0.002
_RUNS_PER_TURN = 8
_SETTLE = 2.0
"""Most seconds that a reader waits for the archive's thread."""
_LINGER = 60.0
"""Seconds for which a finished run stays in memory, because other ranks still end and events still arrive."""
_NO_DIAGNOSIS: dict[str, Any] = {"incidents": [], "verdict": None, "ranks": [], "remarks": []}
DELETED = "Deleted"


class RunRecorder:
    """Records the runs of one server; `run` does the work."""

    def __init__(
        self,
        api: Api,
        cache: InformerCache,
        archive: Archive,
        clock: Callable[[], float],
        *,
        diagnose: Callable[[Object], Awaitable[dict[str, Any]]] | None = None,
        on_news: Callable[[RunNotes, Object | None], None] = lambda notes, event: None,
        is_owed: Callable[[Object], bool] = lambda job: False,
    ) -> None:
        """`on_news` is called after each look at a run, at its verdict, and with each of its Events; `is_owed` says whether somebody must be
        told of the end of a job that is recorded completely."""
        self._api, self._cache, self._archive, self._clock = api, cache, archive, clock
        self._diagnose, self._on_news, self._is_owed = diagnose, on_news, is_owed
        self._runs: dict[str, RunNotes] = {}
        self._known: dict[str, str] = {}
        """Archived runs whose jobs are not deleted: job's uid → phase as written, or "" if there is no verdict yet."""
        self._first_seen: dict[str, Project] = {}
        """Projects of new jobs, by the job's uid, until the recorder looks at them: the project may be deleted first."""
        self._last_states: dict[str, Object] = {}
        """Deleted jobs in their last state until the recorder looks at them: a job may end and be deleted between two looks."""
        self._gone_at: dict[str, float] = {}
        """When jobs were deleted, until the recorder looks at them; that may be long after, if no server was recording."""
        self._pod_owners: dict[str, str] = {}
        self._dirty: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        self._early_events, self._leaving_runs = EarlyEvents(), LeavingRuns()
        self._explaining: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self.is_recording = False
        """False also while another server records; changes are noted then, so that this one can take over at any moment."""
        self.recall_pods: Callable[[str], Awaitable[list[tuple[Object, float]]]] | None = None
        """Returns a job's pods that were deleted while no server recorded, and when; None if there are no other servers."""
        self._followers = (
            TimeLimits(api, clock),
            StartOrders(api, cache, archive, clock),
            Retries(api, cache, diagnose),
        )
        cache.subscribe(self._note_change)

    def _note_change(self, uid: str) -> None:
        if not uid:
            return
        if uid not in self._dirty and uid not in self._runs and uid not in self._known:
            if (project := self._cache.project_of(uid)) is not None:
                self._first_seen[uid] = project
        if (left := self._cache.job_that_left(uid)) is not None:
            self._last_states[uid] = left
        if not self._cache.has_job(uid):
            self._gone_at.setdefault(uid, self._clock())
        self._dirty[uid] = None
        self._wakeup.set()

    async def run(self) -> None:
        """Record until cancelled, then hand everything to the archive. May be called again afterwards."""
        await self._read_known()
        self._dirty |= dict.fromkeys(self._cache.job_uids())
        self.is_recording = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(supervise("the events of runs", self._watch_events))
                tasks.create_task(supervise("the recorder of runs", self._look_forever))
        finally:
            with contextlib.suppress(Exception):  # the server is ending: the last look has been written
                for notes in self._runs.values():
                    self._write(notes)
            self.is_recording = False
            for follower in self._followers:
                follower.stop()
            for task in self._explaining:
                task.cancel()
            self._runs, self._known, self._pod_owners, self._early_events = {}, {}, {}, EarlyEvents()

    async def _read_known(self) -> None:
        gone = [uid for uid in self._first_seen if self._cache.job(uid) is None]
        try:
            headers = await self._archive.read(database.read_headers, "WHERE deleted IS NULL")
            for uid in await self._archive.read(database.read_deleted, gone) if gone else ():
                self._first_seen.pop(uid, None)  # another server has recorded it completely
        except FileNotFoundError:
            return
        except (sqlite3.Error, OSError, UnusableArchive) as error:
            log.warning("earlier runs are not read from the archive: %s", error)
            return
        self._known = {record.uid: record.phase if record.verdict else "" for record in headers}

    # ------------------------------------------------------------ while another server records

    def noted_jobs(self) -> frozenset[str]:
        """The uids of projects' jobs that were seen but not recorded here."""
        return frozenset(self._first_seen)

    def keep_notes(self, uids: Collection[str]) -> None:
        """Drop what was noted about all other jobs, which another server has recorded."""
        everything: tuple[dict[str, Any], ...] = (self._first_seen, self._last_states, self._dirty, self._gone_at)
        for notes in everything:
            for uid in notes.keys() - uids:
                del notes[uid]

    # ------------------------------------------------------------ looks

    async def _look_forever(self) -> None:
        await self._cache.wait_until("", self._cache.knows_runs, None)
        for uid in set(self._known) - set(self._cache.job_uids()):
            self._dirty[uid] = None  # it was deleted while no server ran
        looked = 0
        while True:
            if not self._dirty:
                await self._wakeup.wait()
            self._wakeup.clear()
            await asyncio.sleep(min(_FIRST_LOOK + looked * _GATHER_PER_RUN, _LATEST_LOOK))
            now, looked = self._clock(), 0
            for uid in list(self._dirty):
                notes = self._runs.get(uid)
                if notes is not None and notes.next_look > now:
                    continue
                self._dirty.pop(uid, None)
                try:
                    looked += await self._look(uid)
                except Exception as error:  # noqa: BLE001 (a malformed object must not affect other records)
                    ERRORS.report("the record of a run", error, "it is begun anew at the next change")
                    self._runs.pop(uid, None)
                    self._known.pop(uid, None)
                self._early_events.take(uid)  # of an owner that is not a workload: drop them
                if looked % _RUNS_PER_TURN == 0:
                    await asyncio.sleep(0)

    async def _look(self, uid: str) -> bool:
        """Record what is new about a job. False if there was nothing to do."""
        job, last, gone_at = self._cache.job(uid), self._last_states.pop(uid, None), self._gone_at.pop(uid, None)
        notes = self._runs.get(uid)
        if job is None and notes is None and uid not in self._known and uid not in self._first_seen:
            return False  # the uid of a Queue or a Deployment
        ended = self._known.get(uid) if notes is None and job is not None else None
        if ended in TERMINAL and ended == self._cache.phase(uid):
            if job is None or not self._is_owed(job):
                return False  # everything has been written
            asyncio.get_running_loop().call_later(_LINGER, self._release, uid)
        if notes is None and self._is_new(uid):
            notes = self._keep_run(uid, self._begin_notes(uid, last))
        elif notes is None:
            async with self._early_events.expect(uid):
                notes = self._runs.get(uid) or await self._find_notes(uid, last)
        if notes is None:
            return False
        job = self._cache.job(uid)
        now = self._clock() if job is not None or gone_at is None else gone_at
        state = job or last or self._last_states.get(uid)
        if state is not None and (job is None or objects.is_deleting(job)):
            self._note_missed_end(notes, state, now)
        if job is None:
            self._note_deleted(notes, now)
            return True
        project = self._cache.projects().get(objects.namespace(job))
        if project is None:
            return False
        pods, group = self._cache.own_pods(uid), self._cache.group_of(uid)
        notes.take_objects(job, group, project, self._cache.cluster)
        phase, message = phase_and_message(job, pods, group)
        notes.note_phase(notes.phase_time(phase, job, pods, now), phase, message)
        self._note_pods(notes, pods, now)
        notes.next_look = now + len(pods) * _LOOK_PER_POD
        if phase in TERMINAL:
            if notes.record.finished is None:
                notes.record.finished = notes.phases[-1].at
            if not notes.is_explained:
                self._begin_explaining(notes)
        if notes.is_changed:
            self._write_soon(notes)
        self._inform_followers(notes)
        self._on_news(notes, None)
        return True

    def _inform_followers(self, notes: RunNotes) -> None:
        for follower in self._followers:
            follower.consider(notes)

    def _is_new(self, uid: str) -> bool:
        """Whether the archive cannot have a record of this run, so that notes can begin without reading it."""
        return uid not in self._known and self.recall_pods is None and not self._early_events.are_expected(uid)

    async def _find_notes(self, uid: str, last: Object | None) -> RunNotes | None:
        """The notes of this run, from the archive or new; None if it is not a workload."""
        notes: RunNotes | None = None
        if uid in self._known:
            try:
                records = await self._archive.read(lambda d: list(database.read_runs(d, "WHERE uid = ?", (uid,))))
                notes = notes_of_record(records[0]) if records else None
            except (sqlite3.Error, OSError, UnusableArchive) as error:
                log.debug("the record of %s cannot be read: %s", uid, error)  # the archive's thread reports it
        notes = notes or self._begin_notes(uid, last)
        if notes is not None and self.recall_pods is not None:
            for pod, gone in await self.recall_pods(uid):
                notes.note_life(pod, gone)
                notes.end_lives(pod, gone)
                notes.note_pod(objects.uid(pod), pod, gone)
        return self._keep_run(uid, notes)

    def _begin_notes(self, uid: str, last: Object | None) -> RunNotes | None:
        """Notes of a run; `last`: its job in its last state, if it was deleted. None if it is not a job of a project."""
        job = self._cache.job(uid) or last or self._last_states.get(uid)
        project = self._first_seen.get(uid) or self._cache.project_of(uid)
        if job is None or project is None:
            return None
        namespace = self._cache.namespace(objects.namespace(job))
        notes = new_notes(job, project, objects.uid(namespace) if namespace else "", self._clock())
        notes.take_objects(job, None, project, self._cache.cluster)
        return notes

    def _keep_run(self, uid: str, notes: RunNotes | None) -> RunNotes | None:
        """Keep the notes in memory, and add the events that arrived before them."""
        if notes is not None:
            self._first_seen.pop(uid, None)
            for event in self._early_events.take(uid):
                notes.note_event(event)
                self._on_news(notes, event)
            self._runs[uid] = notes
        return notes

    def _note_pods(self, notes: RunNotes, pods: Any, now: float) -> None:
        present: set[str] = set()
        for pod in pods:
            uid = objects.uid(pod)
            present.add(uid)
            previous = notes.pods.get(uid)
            if previous is pod:
                continue
            notes.pods[uid] = pod
            self._pod_owners[uid] = notes.record.uid
            if has_failed(pod) and not (previous is not None and has_failed(previous)):
                notes.is_explained = False  # a rank may fail after the job has ended
            notes.note_life(pod, now)
            if previous is None or stage_of(previous) != stage_of(pod):
                notes.note_pod(uid, pod, None)
        for uid in notes.pods.keys() - present:
            self._note_pod_gone(notes, uid, now)
            notes.is_explained &= notes.record.phase != "Failed"  # what is stopped after a failure is told, too

    def _note_pod_gone(self, notes: RunNotes, uid: str, now: float) -> None:
        pod = notes.pods.pop(uid)
        notes.end_lives(pod, now)  # its last events may still come
        asyncio.get_running_loop().call_later(_LINGER, self._pod_owners.pop, uid, None)
        notes.note_pod(uid, pod, now)

    def _note_missed_end(self, notes: RunNotes, job: Object, now: float) -> None:
        """For a deleted or terminating job: note how it ended, if it ended since the last look."""
        phase, message = phase_and_message(without_deletion(job), (), None)
        if phase not in TERMINAL or any(step.phase in (phase, "Deleting") for step in notes.phases[-2:]):
            return
        notes.job, ended = job, notes.end_time(job, (), now)
        notes.note_phase(ended, phase, message)
        notes.record.finished = notes.record.finished or ended
        if not notes.is_explained:
            notes.record.verdict = message if phase == "Failed" else ""
            self._begin_explaining(notes)

    def _note_deleted(self, notes: RunNotes, now: float) -> None:
        for uid in self._leaving_runs.keep(notes):
            self._note_pod_gone(notes, uid, now)
        last = next((step.phase for step in reversed(notes.phases) if step.phase != "Deleting"), "")
        if not notes.record.verdict:
            space = self._cache.namespace(notes.record.namespace)
            notes.record.verdict = notes.deletion_sentence(last, space) if last not in TERMINAL else ""
        notes.note_phase(now, DELETED, "")
        notes.record.phase = last if last in TERMINAL else DELETED
        notes.record.deleted = now
        notes.is_changed = True
        self._write(notes)
        self._inform_followers(notes)
        self._runs.pop(notes.record.uid, None)
        self._known.pop(notes.record.uid, None)

    def _write(self, notes: RunNotes) -> None:
        """Hand the changes of these notes to the archive."""
        if not notes.is_changed:
            return
        for pod_uid, (pod, deleted) in notes.changed_pods.items():
            self._archive.put(f"pod/{pod_uid}", database.put_pod(notes.to_pod_record(pod, deleted)))
        self._archive.put(f"run/{notes.record.uid}", notes.to_statement())
        if (marks := notes.take_new_marks()) is not None:
            self._archive.put(f"mark/{notes.record.uid}", marks)
        notes.changed_pods, notes.is_changed = {}, False

    def _write_soon(self, notes: RunNotes) -> None:
        """Write after a delay, together with further changes."""
        if not notes.is_write_due:
            notes.is_write_due = True
            delay = _WRITE_DELAY + len(notes.pods) * _WRITE_DELAY_PER_POD
            asyncio.get_running_loop().call_later(delay, self._write_due, notes)

    def _write_due(self, notes: RunNotes) -> None:
        notes.is_write_due = False
        try:
            self._write(notes)
        except Exception as error:  # noqa: BLE001 (a malformed object must not affect other records)
            ERRORS.report("the record of a run", error, "it is written anew at its next change")

    # ------------------------------------------------------------ verdicts

    def _begin_explaining(self, notes: RunNotes) -> None:
        notes.is_explained = True
        if notes.record.phase == "Completed" and not notes.had_trouble():  # most runs succeed and need no diagnosis
            self._note_answer(notes, history.explain_good_end(notes.record.name, _NO_DIAGNOSIS))
            return
        task = asyncio.create_task(self._explain(notes))
        self._explaining.add(task)
        task.add_done_callback(self._explaining.discard)

    async def _explain(self, notes: RunNotes) -> None:
        """Store the verdict of `why`, and write the finished run."""
        diagnosis = _NO_DIAGNOSIS
        if self._diagnose is not None and notes.job is not None:
            async with self._one_at_a_time:
                try:
                    diagnosis = await self._diagnose(notes.job)
                except Exception:
                    log.exception("the end of the job %s is archived without its diagnosis", notes.record.name)
        workload = self._cache.workload(notes.record.uid)
        if workload is not None:
            self._note_answer(notes, history.explain_workload(workload, diagnosis, notes.events()))
            return
        if diagnosis["incidents"]:
            notes.record.verdict = str(diagnosis["incidents"][-1]["sentence"])
        self._note_answer(notes, None)

    def _note_answer(self, notes: RunNotes, answer: dict[str, Any] | None) -> None:
        uid = notes.record.uid
        if answer is not None:
            notes.record.verdict, notes.record.body["why"] = str(answer["sentence"]), answer
        notes.is_changed = True
        self._on_news(notes, None)
        self._write(notes)
        if notes.record.deleted is None:
            self._known[uid] = notes.record.phase if notes.record.verdict else ""
            asyncio.get_running_loop().call_later(_LINGER, self._release, uid)

    def _release(self, uid: str) -> None:
        """Drop a finished run from memory."""
        if (notes := self._runs.get(uid)) is None:
            return
        if all(objects.phase(pod) in objects.FINAL_PHASES for pod in notes.pods.values()):
            self._write(notes)
            for pod_uid in notes.pods:
                self._pod_owners.pop(pod_uid, None)
            del self._runs[uid]
        else:
            asyncio.get_running_loop().call_later(_LINGER, self._release, uid)

    async def catch_up(self, uid: str = "") -> None:
        """Before a read: write recent deletions, and the current state of one run ("*": of all runs in memory)."""
        gone = [one for one in self._dirty if self._cache.job(one) is None]
        gone = [one for one in gone if one in self._runs or one in self._first_seen]
        new = list(self._first_seen) if uid == "*" else [uid] if uid in self._dirty else []
        for dirty in {*gone, *new}:
            self._dirty.pop(dirty, None)
            await self._look(dirty)
        for notes in list(self._runs.values()) if uid == "*" else filter(None, (self._runs.get(uid),)):
            self._write(notes)
        await self._archive.settle(_SETTLE)

    # ------------------------------------------------------------ events

    async def _watch_events(self) -> None:
        await self._cache.wait_until("", self._cache.knows_runs, None)  # before that, events cannot be matched to jobs
        await follow_events(self._api, self._note_event)

    def _note_event(self, event: Object) -> None:
        uid = run_of_event(event, self._pod_owners, self._cache)
        if (notes := self._runs.get(uid) or self._leaving_runs.notes_of(event)) is not None:
            notes.note_event(event)
            self._on_news(notes, event)
            if notes.is_doubtful and notes.is_explained:
                self._begin_explaining(notes)
            self._write_soon(notes)
        elif uid in self._dirty or self._early_events.are_expected(uid):
            self._early_events.keep(uid, event)
