"""How ranks of a job on a real cluster failed, from the statuses of its pods and the ends of their logs, deleted pods included.

A status has the container's termination message, which is torch's error file if `TORCHELASTIC_ERROR_FILE` points to it. `rowlock why` shows
this for ended ranks; running ranks are examined by `rank_observer.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.archive.reading import read_archived_log
from rowlock.archive.records import LogRecord
from rowlock.diagnosis.error_reports import parse_report_text
from rowlock.diagnosis.log_errors import find_error, last_words
from rowlock.diagnosis.root_cause import (
    RankFailure,
    ending_signal,
    group_incidents,
    incident_sentence,
    is_requested_stop,
    root_cause,
)
from rowlock.diagnosis.tracebacks import LoggedError
from rowlock.errors import ApiError
from rowlock.kube_evidence import good_ends
from rowlock.objects import Object
from rowlock.rest.run_history.failed_runs import failed_runs_of
from rowlock.workloads import pods as ranks
from rowlock.workloads.frameworks import main_container_name, replica_specs
from rowlock.workloads.pods import EndedRun, ended_runs

_TAIL_LINES = 200
_TAIL_BYTES = 64 << 10
_READ_TIMEOUT = 5.0
"""Timeout in seconds for reading all logs together, so that a node that does not answer cannot block the caller."""
_MAX_LOGS = 64
_STOP_SIGNALS = (128 + 9, 128 + 15)
_UNREADABLE = (FileNotFoundError, sqlite3.Error, OSError, UnusableArchive)
"""Why the archive has no answer: there is none yet, or it reports its problem itself."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """A run of a pod's container that ended with a non-zero exit code. `times`: how often an init container has ended so."""

    pod: Object
    run: EndedRun
    times: int = 1

    @property
    def life(self) -> tuple[str, str, int]:
        return objects.uid(self.pod), self.run.container, self.run.number


def find_bad_ends(pod: Object, earlier: Iterable[EndedRun] = ()) -> Iterator[ContainerEnd]:
    """The failed runs in the pod's status, which has the last two runs of each container, and those of `earlier` that it has no more. Of an
    init container, which its node starts again and again, only the last."""
    told = [run for run in ended_runs(pod) if run.terminated.get("exitCode")]
    known = {(run.container, run.number) for run in told}
    runs = [*told, *(run for run in earlier if (run.container, run.number) not in known)]
    inits = {run.container: run for run in sorted((r for r in runs if r.is_init), key=lambda r: r.number)}
    for run in runs:
        if not run.is_init:
            yield ContainerEnd(pod, run)
    for run in inits.values():
        yield ContainerEnd(pod, run, run.number + 1)


class KubeDiagnostics:
    """`rest.call.Diagnose` for a real cluster; `diagnostics` implements it for one machine."""

    def __init__(self, api: Api, archive: Archive) -> None:
        self._api, self._archive = api, archive
        self.pods_of: Callable[[str], list[Object]] = lambda job_uid: []
        """Returns the existing pods of a job by its uid. Set to the informer cache's method once there is one."""

    async def diagnose(self, job: Object) -> dict[str, Any]:
        """The incidents of a job: which rank failed first, and which ones after it."""
        uid = objects.uid(job)
        pods = {objects.uid(pod): pod for pod in await self._gone_pods(uid)}
        pods |= {objects.uid(pod): pod for pod in self.pods_of(uid)}
        earlier = await self._earlier_runs(uid)
        ends = [end for key, pod in pods.items() for end in find_bad_ends(pod, earlier.get(key, ()))]
        tails = await self._read_tails(uid, ends[:_MAX_LOGS])
        failures = [
            _failure_of(job, end, tail)
            for end, tail in zip(ends, [*tails, *[""] * (len(ends) - len(tails))], strict=True)
        ]
        count = sum(int(spec.get("replicas", 1)) for spec in replica_specs(job).values())
        incidents = [_incident_json(incident, count) for incident in group_incidents(failures)]
        remarks = await self._remarks_on_end(job, ranks.sort_by_rank(list(pods.values())))
        return {"incidents": incidents, "verdict": None, "ranks": [], "remarks": remarks}

    async def _remarks_on_end(self, job: Object, pods: list[Object]) -> list[dict[str, str]]:
        """What is wrong with the result of a job whose pods have all succeeded."""
        ends = [ContainerEnd(pod, run) for pod in pods if (run := good_ends.good_run(job, pod)) is not None]
        if not ends or len(ends) < len(pods):
            return []
        ends = ends[: good_ends.MAX_RANKS]
        tails = await self._read_tails(objects.uid(job), ends, good_ends.TAIL_LINES)
        texts = {ranks.rank_label(job, end.pod): text for end, text in zip(ends, tails, strict=True)}
        return good_ends.to_json(await asyncio.to_thread(good_ends.remarks_of_tails, texts))

    async def _earlier_runs(self, job_uid: str) -> dict[str, list[EndedRun]]:
        """Uid of a pod → failed runs that were seen in its status, from the archive."""
        try:
            records = await self._archive.read(lambda d: list(database.read_runs(d, "WHERE uid = ?", (job_uid,))))
        except _UNREADABLE:
            return {}
        return failed_runs_of(records[0].body) if records else {}

    async def _gone_pods(self, job_uid: str) -> list[Object]:
        try:
            return [record.body for record in await self._archive.read(database.read_pods, job_uid)]
        except _UNREADABLE:
            return []

    async def _read_tails(self, job_uid: str, ends: list[ContainerEnd], lines: int = _TAIL_LINES) -> list[str]:
        """The end of each log; "" if it cannot be read within `_READ_TIMEOUT`."""
        try:
            records = await self._archive.read(database.read_logs, job_uid) if ends else []
        except _UNREADABLE:
            records = []
        kept = {(record.pod_uid, record.container, record.number): record for record in records}
        tasks = [asyncio.create_task(self._read_tail(job_uid, end, kept.get(end.life), lines)) for end in ends]
        if tasks:
            await asyncio.wait(tasks, timeout=_READ_TIMEOUT)
        for task in tasks:
            task.cancel()
        return [task.result() if task.done() and not task.cancelled() else "" for task in tasks]

    async def _read_tail(self, job_uid: str, end: ContainerEnd, kept: LogRecord | None, lines: int) -> str:
        """The end of the log of one run: `kept` in the archive, or from its node, which has the last two runs."""
        options = LogOptions(
            end.run.container, tail=lines, timestamps=True, previous=not end.run.is_current, owner=job_uid
        )
        text = b""
        try:
            if kept is not None:
                chunks = read_archived_log(self._archive, kept, options)
            else:
                chunks = self._api.log(objects.namespace(end.pod), objects.name(end.pod), options)
            async for chunk in chunks:
                text = (text + chunk)[-_TAIL_BYTES * (lines // _TAIL_LINES) :]
        except (ApiError, *_UNREADABLE):
            return ""
        return text.decode(errors="replace")


def _failure_of(job: Object, end: ContainerEnd, log: str) -> RankFailure:
    state, pod, run = end.run.terminated, end.pod, end.run
    code, reason = int(state["exitCode"]), str(state.get("reason") or "")
    message = str(state.get("message") or "")
    error = _find_end_error(log, message, ending_signal(code, int(state.get("signal") or 0)), code)
    label = ranks.rank_label(job, pod)
    if reason not in (
        "OOMKilled",
        "StartError",
    ):  # the kubelet's own words, where it ended the pod: Evicted, DeadlineExceeded…
        told = objects.dig(pod, "status", {}) if run.is_current else {}
        reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
        if not reason and run.is_current and (disruption := objects.condition(pod, "DisruptionTarget")):
            reason, message = str(disruption.get("reason") or ""), str(disruption.get("message") or "")
    return RankFailure(
        rank=_name_of(job, pod, run, label),
        pod=objects.name(pod),
        node=str(objects.dig(pod, "spec.nodeName", "")),
        code=code,
        started=objects.seconds(state.get("startedAt")),
        finished=objects.seconds(state.get("finishedAt")),
        run=run.number,
        times=end.times,
        signal=int(state.get("signal") or 0),
        stopped=objects.is_deleting(pod) and code in _STOP_SIGNALS and reason != "OOMKilled",
        reason=reason,
        message=message if reason else "",
        trouble=error,
        said="" if error else last_words(log, code),
    )


def _name_of(job: Object, pod: Object, run: EndedRun, label: str) -> str:
    """The rank's label for the main container of its pod; for others, what they are of it."""
    if run.is_init:
        inits = {one.get("name"): one for one in objects.dig(pod, "spec.initContainers", [])}
        is_sidecar = inits.get(run.container, {}).get("restartPolicy") == "Always"
        return f"{'sidecar' if is_sidecar else 'init container'} {run.container} of {label}"
    is_main = main_container_name(job, pod) == run.container
    return label if is_main else f"container {run.container} of {label}"


def _find_end_error(log: str, message: str, signal: int, code: int) -> LoggedError | None:
    """The error of an ended run, from its log and its termination message. The latter may be torch's error file, which has the time only to
    the second; so if the log has the same error, the log's version is returned."""
    logged, reported = find_error(log, signal, code), parse_report_text(message)
    if reported is not None and (logged is None or logged.kind != reported.kind):
        return reported
    return logged or find_error(message)


def _incident_json(incident: list[RankFailure], count: int) -> dict[str, Any]:
    cause = root_cause(incident)
    others = sorted((one for one in incident if one is not cause), key=lambda failure: failure.failed_at)
    return {
        "sentence": incident_sentence(incident, count),
        "at": cause.failed_at,
        "asked": is_requested_stop(incident),
        "deaths": [failure.to_dict() for failure in (cause, *others)],
    }
