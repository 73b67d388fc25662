"""Reads the hours of runs from the archive. Called in a thread, since a week may have ten thousand runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.archive import database
from rowlock.archive.records import RunRecord
from rowlock.errors import BadRequest
from rowlock.objects import Object
from rowlock.workloads import compute, runai_json
from rowlock.workloads.figures.hours import Hours, Window, hold_of, steps_of, waited_seconds, wasted_seconds
from rowlock.workloads.figures.usage_series import UsageSeries
from rowlock.workloads.run_options.time_limit import end_reason

Place = tuple[str, str, str]
"""Namespace, its uid, and kind: runs with the same ones are visible to the same callers."""


class RunHours(NamedTuple):
    """The hours of one run."""

    id: str
    name: str
    project: str
    user: str
    created: float
    hours: Hours


@dataclass(frozen=True, slots=True)
class Nodes:
    """What is known of the nodes: the memory of a card in MiB by node ("" = any other), and which have simulated GPUs."""

    card_memory: Mapping[str, int]
    simulated: Collection[str]

    def gpus(self, pod: Object) -> float:
        """How many GPUs a pod requests; 0 if it says so in words that nobody understands."""
        node = str(objects.dig(pod, "spec.nodeName", ""))
        try:
            return float(compute.pod_gpus(pod, self.card_memory.get(node, self.card_memory.get("", 0))))
        except (BadRequest, ValueError, ArithmeticError):
            return 0.0


def read_places(connection: sqlite3.Connection, window: Window) -> list[Place]:
    """Where the runs of the window are. Raises sqlite3.Error."""
    where, values = _in_window(window)
    sql = f"SELECT DISTINCT namespace, namespace_uid, kind FROM runs WHERE {where}"
    return [tuple(row) for row in connection.execute(sql, values)]


def read_hours(
    connection: sqlite3.Connection,
    window: Window,
    places: Sequence[Place] | None,
    nodes: Nodes,
    live: Mapping[str, UsageSeries],
) -> list[RunHours]:
    """The hours of all runs of the window, in these places (None = everywhere). `live`: the usage of running pods, by uid, which the
    archive may not have yet. Raises sqlite3.Error, UnusableArchive."""
    where, values = _in_window(window)
    if places is not None:
        where += (
            " AND EXISTS (SELECT 1 FROM json_each(?) AS place WHERE namespace = json_extract(place.value, '$[0]')"
            " AND namespace_uid = json_extract(place.value, '$[1]') AND kind = json_extract(place.value, '$[2]'))"
        )
        values.append(json.dumps(places))
    return [
        _hours_of(connection, record, window, nodes, live)
        for record in database.read_runs(connection, f"WHERE {where}", values)
    ]


def _in_window(window: Window) -> tuple[str, list[Any]]:
    """The runs that may have held something then: also those that have ended, as long as their pods may still run."""
    return "created <= ? AND (deleted IS NULL OR deleted >= ?)", [window.end, window.begin]


def _hours_of(
    connection: sqlite3.Connection, record: RunRecord, window: Window, nodes: Nodes, live: Mapping[str, UsageSeries]
) -> RunHours:
    job, lives = record.body.get("job") or {}, record.body.get("lives") or {}
    gone = min(record.deleted or window.end, window.end)
    ended = record.finished or record.deleted
    has_failed = record.phase == "Failed" and not end_reason(job)
    hours = Hours(waited=waited_seconds(record.body.get("phases") or (), min(ended or window.end, window.end), window))
    holds = []
    for pod in database.read_pods(connection, record.uid):
        gpus, hold = nodes.gpus(pod.body), hold_of(pod.body, pod.deleted, gone)
        if gpus and hold is not None:
            holds.append((pod, gpus, hold))
            hours.is_simulated = hours.is_simulated or objects.dig(pod.body, "spec.nodeName", "") in nodes.simulated
    usage = _usage_by_pod(connection, record.uid, live, {pod.pod_uid for pod, _, _ in holds}) if holds else {}
    for pod, gpus, hold in holds:
        wasted = wasted_seconds(pod.body, hold, lives.get(pod.name) or {}, window, has_run_failed=has_failed)
        steps = (step for body in usage.get(pod.pod_uid, {}).values() for step in steps_of(body))
        hours.add_pod(gpus, hold, steps, wasted, window)
    if ended is None or ended >= window.begin or hours.held:
        hours.runs, hours.failed_runs = 1, int(has_failed and (ended or 0.0) >= window.begin)
    user = runai_json.creator(job) if job else ""
    return RunHours(record.id, record.name, record.project, user, record.created, hours)


def _usage_by_pod(
    connection: sqlite3.Connection, run_uid: str, live: Mapping[str, UsageSeries], pods: Collection[str]
) -> dict[str, dict[float, dict[str, Any]]]:
    """Uid of a pod → the begin of each of its series → the series."""
    found: dict[str, dict[float, dict[str, Any]]] = {}
    for body in _bodies(connection, run_uid, live, pods):
        found.setdefault(str(body.get("pod")), {})[float(body.get("start") or 0.0)] = body
    return found


def _bodies(
    connection: sqlite3.Connection, run_uid: str, live: Mapping[str, UsageSeries], pods: Collection[str]
) -> Iterator[dict[str, Any]]:
    for _, _, body in database.read_samples(connection, run_uid):
        yield body
    for uid in pods:
        if (series := live.get(uid)) is not None:
            yield {"pod": uid, **series.to_json()}
