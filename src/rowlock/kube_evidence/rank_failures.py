"""How ranks of a job on a real cluster failed, from the statuses of its pods and the ends of their logs, deleted pods included.

A status has the container's termination message, which is torch's error file if `TORCHELASTIC_ERROR_FILE` points to it. `rowlock why` shows
this for ended ranks; running ranks are examined by `rank_observer.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.diagnosis.error_reports import parse_report_text
from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.log_lines import last_line
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
from rowlock.objects import Object
from rowlock.workloads import pods as ranks
from rowlock.workloads.frameworks import replica_specs

_TAIL_LINES = 200
_TAIL_BYTES = 64 << 10
_READ_TIMEOUT = 5.0
"""Timeout in seconds for reading all logs together, so that a node that does not answer cannot block the caller."""
_MAX_LOGS = 64
_STOP_SIGNALS = (128 + 9, 128 + 15)


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """A run of a container that ended with a non-zero exit code."""

    pod: Object
    container: str
    number: int
    state: dict[str, Any]
    is_current: bool


def find_bad_ends(pod: Object) -> Iterator[ContainerEnd]:
    """The failed runs in the pod's status, which has the last two runs of each container."""
    for status in objects.dig(pod, "status.containerStatuses", []):
        count = int(status.get("restartCount") or 0)
        for word, number in (("state", count), ("lastState", count - 1)):
            end = (status.get(word) or {}).get("terminated")
            if end and end.get("exitCode"):
                yield ContainerEnd(pod, str(status.get("name")), number, end, is_current=word == "state")


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
        ends = [end for pod in pods.values() for end in find_bad_ends(pod)]
        tails = await self._read_tails(uid, ends[:_MAX_LOGS])
        failures = [
            _failure_of(job, end, tail)
            for end, tail in zip(ends, [*tails, *[""] * (len(ends) - len(tails))], strict=True)
        ]
        count = sum(int(spec.get("replicas", 1)) for spec in replica_specs(job).values())
        incidents = [_incident_json(incident, count) for incident in group_incidents(failures)]
        return {"incidents": incidents, "verdict": None, "ranks": [], "remarks": []}

    async def _gone_pods(self, job_uid: str) -> list[Object]:
        try:
            return [record.body for record in await self._archive.read(database.read_pods, job_uid)]
        except (FileNotFoundError, sqlite3.Error, OSError, UnusableArchive):
            return []  # there is no archive yet, or it reports its problem itself

    async def _read_tails(self, job_uid: str, ends: list[ContainerEnd]) -> list[str]:
        """The end of each log; "" if it cannot be read within `_READ_TIMEOUT`."""
        tasks = [asyncio.create_task(self._read_tail(job_uid, end)) for end in ends]
        if tasks:
            await asyncio.wait(tasks, timeout=_READ_TIMEOUT)
        for task in tasks:
            task.cancel()
        return [task.result() if task.done() and not task.cancelled() else "" for task in tasks]

    async def _read_tail(self, job_uid: str, end: ContainerEnd) -> str:
        options = LogOptions(
            end.container, tail=_TAIL_LINES, timestamps=True, previous=not end.is_current, owner=job_uid
        )
        text = b""
        try:
            async for chunk in self._api.log(objects.namespace(end.pod), objects.name(end.pod), options):
                text = (text + chunk)[-_TAIL_BYTES:]
        except (ApiError, sqlite3.Error, OSError):
            return ""
        return text.decode(errors="replace")


def _failure_of(job: Object, end: ContainerEnd, log: str) -> RankFailure:
    state, pod = end.state, end.pod
    code, reason = int(state["exitCode"]), str(state.get("reason") or "")
    message = str(state.get("message") or "")
    error = _find_end_error(log, message, ending_signal(code, int(state.get("signal") or 0)))
    label = ranks.rank_label(job, pod)
    if reason not in (
        "OOMKilled",
        "StartError",
    ):  # the kubelet's own words, where it ended the pod: Evicted, DeadlineExceeded…
        told = objects.dig(pod, "status", {}) if end.is_current else {}
        reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
    is_main = objects.dig(pod, "spec.containers", [{}])[0].get("name") == end.container
    return RankFailure(
        rank=label if is_main else f"container {end.container} of {label}",
        pod=objects.name(pod),
        node=str(objects.dig(pod, "spec.nodeName", "")),
        code=code,
        started=objects.seconds(state.get("startedAt")),
        finished=objects.seconds(state.get("finishedAt")),
        run=end.number,
        signal=int(state.get("signal") or 0),
        stopped=objects.is_deleting(pod) and code in _STOP_SIGNALS and reason != "OOMKilled",
        reason=reason,
        message=message if reason else "",
        trouble=error,
        said="" if error else last_line(log),
    )


def _find_end_error(log: str, message: str, signal: int) -> LoggedError | None:
    """The error of an ended run, from its log and its termination message. The latter may be torch's error file, which has the time only to
    the second; so if the log has the same error, the log's version is returned."""
    logged, reported = find_error(log, signal), parse_report_text(message)
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
