"""The recorder's notes about one run, and the archive record made from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import msgspec

from rowlock import objects
from rowlock.archive import database, redaction
from rowlock.archive.database import Statement
from rowlock.archive.records import PhaseStep, PodRecord, RunRecord
from rowlock.diagnosis.remarks import EVENT_REASONS
from rowlock.objects import Object
from rowlock.rest.run_history.failed_runs import FailedRuns, note_failed_runs
from rowlock.workloads import history, runai_json
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION, TERMINAL
from rowlock.workloads.projects import Project
from rowlock.workloads.run_options.marks import NO_MARKS, Marks, marks_of

MAX_EVENTS = 500
"""Most events kept of a run, the newest ones."""
MAX_PHASES = 2000
_REMARKS = frozenset(EVENT_REASONS.values())


@dataclass(slots=True)
class RunNotes:
    """A run that has not ended, or has not been written completely."""

    record: RunRecord
    phases: list[PhaseStep] = field(default_factory=list)
    event_texts: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    """Uid → event, oldest first, as JSON, which takes a tenth of the memory of objects."""
    wait_sentence: str = ""
    """The last reason given for the job's waiting."""
    pods: dict[str, Object] = field(default_factory=dict)
    """The pods as they were last seen, by uid."""
    lives: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    """Pod's name → its lives (uid/restart number) → when it was seen running and seen ended."""
    failed_runs: FailedRuns = field(default_factory=dict)
    is_remarked: bool = False
    """Whether an event reports that something is wrong with its result."""
    secrets: list[str] = field(default_factory=list)
    project: Project | None = None
    job: Object | None = None
    group: Object | None = None
    next_look: float = 0.0
    changed_pods: dict[str, tuple[Object, float | None]] = field(default_factory=dict)
    """Pods whose current state is not in the archive yet, by uid: (pod, time of deletion)."""
    is_changed: bool = True
    """Whether something is not in the archive yet."""
    is_write_due: bool = False
    """Whether a timer is set to write it."""
    is_explained: bool = False
    marks: Marks = NO_MARKS
    """What people wrote on it, as the archive has it."""

    def note_phase(self, at: float, phase: str, message: str) -> bool:
        """Add a phase if it differs from the last one; returns whether it did."""
        if self.phases and self.phases[-1].phase == phase:
            return False
        self.phases.append(PhaseStep(at, phase, message))
        del self.phases[:-MAX_PHASES]
        self.record.phase = phase
        self.is_changed = True
        return True

    def phase_time(self, phase: str, job: Object, pods: Iterable[Object], now: float) -> float:
        """When the phase that is seen `now` began (Unix seconds)."""
        if phase in TERMINAL:
            return self.end_time(job, pods, now)
        return self.start_time(pods, now) if phase == "Running" else now

    def end_time(self, job: Object, pods: Iterable[Object], now: float) -> float:
        """When the job ended (Unix seconds), but not before its last phase began."""
        return self._after_last_phase(objects.end_time(job, pods, now), now)

    def start_time(self, pods: Iterable[Object], now: float) -> float:
        """When the job began to run (Unix seconds), but not before its last phase began. After a server was down this is not `now`:
        the end of a job that ended meanwhile lies between."""
        return self._after_last_phase(objects.start_time(pods, now), now)

    def _after_last_phase(self, at: float, now: float) -> float:
        return max(at, self.phases[-1].at) if self.phases and self.phases[-1].at <= now else at

    def note_event(self, event: Object) -> None:
        """Add an event. Skips those that repeat the gang's reason for waiting for each pod, which would displace all others."""
        self.wait_sentence = history.wait_sentence(event) or self.wait_sentence
        if history.is_echo(event, (self.wait_sentence,)):
            return
        self.is_remarked = self.is_remarked or event.get("reason") in _REMARKS
        uid = objects.uid(event)
        self.event_texts.pop(uid, None)
        self.event_texts[uid] = msgspec.json.encode(without_bookkeeping(event))
        while len(self.event_texts) > MAX_EVENTS:
            self.event_texts.popitem(last=False)
        self.is_changed = True

    def events(self) -> list[Object]:
        """The kept events, without managed fields, oldest first."""
        return [msgspec.json.decode(text) for text in self.event_texts.values()]

    def deletion_sentence(self, phase: str, namespace: Object | None) -> str:
        """The verdict of a run that was deleted in this phase; names the command that deleted it, if known. `namespace`: the job's, as it
        is now; None when that is gone."""
        by = objects.annotations(self.job).get(STOPPED_BY_ANNOTATION) if self.job else None
        how = f" by `{by}`" if by else ""
        if not by and (objects.is_deleting(namespace) if namespace else self.record.namespace_uid):
            how = f" with its namespace {self.record.namespace}"
        return f"It was deleted{how} while it was {phase.lower()}."

    @property
    def is_doubtful(self) -> bool:
        """Whether it completed, but an event reports that something is wrong with its result."""
        return self.is_remarked and self.record.phase == "Completed"

    def had_trouble(self) -> bool:
        """Whether the run failed, had restarts or a doubtful result, so that the verdict needs evidence from its ranks."""
        record = self.record
        return (
            self.is_remarked
            or record.attempts > 1
            or record.phase == "Failed"
            or any(has_failed(pod) for pod in self.pods.values())
        )

    def note_pod(self, uid: str, pod: Object, deleted: float | None) -> None:
        """Note a pod that has reached another stage or was deleted."""
        self.changed_pods[uid] = (pod, deleted)
        self.is_changed = True

    def note_life(self, pod: Object, now: float) -> None:
        """Note which lives of a pod's first container began and ended, including restarts between two looks; and which runs failed."""
        self.is_changed = note_failed_runs(self.failed_runs, pod) or self.is_changed
        for status in objects.dig(pod, "status.containerStatuses", [])[:1]:
            state, count = status.get("state") or {}, int(status.get("restartCount") or 0)
            if not count and not state.keys() & {"running", "terminated"}:
                continue
            lives = self.lives.setdefault(objects.name(pod), {})
            for number in range(count + 1):
                life = lives.setdefault(f"{objects.uid(pod)}/{number}", [now, None])
                if life[1] is None and (number < count or "terminated" in state):
                    life[1] = now
            if len(lives) > self.record.attempts:
                self.record.attempts = len(lives)

    def end_lives(self, pod: Object, now: float) -> None:
        """Note the end of all lives of a deleted pod."""
        for name, life in self.lives.get(objects.name(pod), {}).items():
            if name.startswith(objects.uid(pod)) and life[1] is None:
                life[1] = now

    def take_objects(self, job: Object, group: Object | None, project: Project, cluster: str) -> None:
        """Store the current state of the job, its pod group and its project."""
        if job is not self.job:
            if self.job is None or objects.meta(self.job).get("generation") != objects.meta(job).get("generation"):
                self.secrets = redaction.secret_values(job.get("spec") or {})
            self.job, self.is_changed = job, True
            self.record.body.pop("job", None)  # recorded by an earlier server
        if group is not None and group is not self.group:
            self.group, self.is_changed = group, True
            self.record.body.pop("group", None)
        if project is not self.project:
            self.project = project
            self.record.body["project"] = _project_body(project)
        self.record.body["cluster"] = cluster

    def to_statement(self) -> Statement:
        """A database write of the record's current state; it shares no mutable data with these notes."""
        record = self.record
        body = {
            **record.body,
            "job": without_bookkeeping(self.job) if self.job else record.body.get("job"),
            "group": without_bookkeeping(self.group) if self.group else record.body.get("group"),
            "phases": list(self.phases),
            "events": self.events() if self.secrets else [msgspec.Raw(text) for text in self.event_texts.values()],
            **({"failedRuns": _copy(self.failed_runs)} if self.failed_runs else {}),
            "lives": {name: {life: list(times) for life, times in lives.items()} for name, lives in self.lives.items()},
        }
        return database.put_run(record, redaction.redact(body, self.secrets))

    def take_new_marks(self) -> Statement | None:
        """A database write of what people wrote on the run; None if the archive has it."""
        marks = marks_of(self.job) if self.job is not None else self.marks
        if marks == self.marks:
            return None
        self.marks = marks
        return database.put_marks(self.record.uid, marks._asdict())

    def to_pod_record(self, pod: Object, deleted: float | None) -> PodRecord:
        body = redaction.redact(without_bookkeeping(pod), self.secrets)
        created = objects.seconds(objects.meta(pod).get("creationTimestamp"))
        return PodRecord(objects.uid(pod), self.record.uid, objects.name(pod), created, deleted, body)


@lru_cache(64)
def _project_body(project: Project) -> dict[str, Any]:
    """The project as JSON, shared by all its runs and never changed."""
    return {part.name: getattr(project, part.name) for part in fields(project)} | {"quota": None, "limit": None}


def new_notes(job: Object, project: Project, namespace_uid: str, now: float) -> RunNotes:
    """Notes of a run that is seen for the first time."""
    stamp = objects.seconds(runai_json.created_at(job))
    # creation times have whole seconds; finer ones keep runs of one name in order
    created = min(max(now, stamp), stamp + 0.999)
    record = RunRecord(
        objects.uid(job), runai_json.workload_id(job), objects.name(job), objects.namespace(job), namespace_uid,
        project.name, str(job.get("kind")), created,
    )  # fmt: skip
    notes = RunNotes(record)
    notes.note_phase(created, "Creating", "")
    return notes


def notes_of_record(record: RunRecord) -> RunNotes:
    """Notes restored from the record of an earlier server."""
    body = record.body
    notes = RunNotes(record, [PhaseStep(*step) for step in body.pop("phases", None) or ()])
    for event in body.pop("events", None) or ():
        notes.note_event(event)
    notes.lives = body.pop("lives", None) or {}
    notes.failed_runs = body.pop("failedRuns", None) or {}
    notes.is_explained = bool(record.verdict)
    notes.marks = marks_of(body.get("job") or {})
    return notes


def _copy(failed: FailedRuns) -> FailedRuns:
    """Its own dicts; the runs themselves are never changed."""
    return {pod: {name: dict(runs) for name, runs in containers.items()} for pod, containers in failed.items()}


def without_bookkeeping(obj: Object) -> Object:
    """The object without managed fields, which are a third of its size and irrelevant to the run."""
    meta: dict[str, Any] = objects.meta(obj)
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def without_deletion(obj: Object) -> Object:
    """The object without its deletion timestamp."""
    return {**obj, "metadata": {key: value for key, value in objects.meta(obj).items() if key != "deletionTimestamp"}}


def has_failed(pod: Object) -> bool:
    """Whether its phase is Failed."""
    return objects.phase(pod) == "Failed"


def stage_of(pod: Object) -> tuple[Any, ...]:
    """What a pod's record must follow: phase, restarts and terminations, deletion, node."""
    statuses = objects.dig(pod, "status.containerStatuses", [])
    ends = tuple((s.get("restartCount"), "terminated" in (s.get("state") or {})) for s in statuses)
    return objects.phase(pod), ends, objects.is_deleting(pod), objects.dig(pod, "spec.nodeName")
