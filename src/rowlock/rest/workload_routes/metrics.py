"""Metrics over time: `GET /api/v1/workloads/{id}/metrics` and `GET /api/v1/workloads/{id}/pods/{pod}/metrics`.

The usage of pods comes from the sampler while they exist, from the archive afterwards.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.archive import database
from rowlock.archive.database import UnusableArchive
from rowlock.errors import BadRequest, NotFound, Unsupported
from rowlock.objects import Object
from rowlock.rest.call import AppContext, JsonResult, RestCall
from rowlock.rest.run_history.past_workloads import PastRun, catch_up, find_past
from rowlock.rest.workloads import find_workload
from rowlock.workloads import compute
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.figures.gauges import GAUGES, MEANS, MEASURED, NOT_MEASURED, POD_TYPES
from rowlock.workloads.figures.usage_series import UsageSeries

DEFAULT_SAMPLES, MAX_SAMPLES = 20, 1000
SAMPLE_PARAMETERS = ("metricType", "start", "end", "numberOfSamples")
_PER_GPU = "_PER_GPU"
Values = Sequence[float | Decimal | None]


async def show(call: RestCall) -> Any:
    """GET /workloads/{id}/metrics: what the workload held and used over time; status 207 when one of the types has no
    values. Raises NotFound, BadRequest."""
    query = call.validate_query(*SAMPLE_PARAMETERS)
    workload = find_workload(call)
    types, times = parse_types(query, (*GAUGES, *MEASURED, *NOT_MEASURED)), parse_times(query)
    usage = call.context.usage
    if usage is None:
        raise Unsupported("this server keeps no figures over time")
    gauges = usage.samples(objects.uid(workload.job), times)
    found: dict[str, Values] = {
        name: [None if row is None else row[number] for row in gauges]
        for number, name in enumerate(GAUGES)
        if name in types
    }
    found |= await _measure(call, objects.uid(workload.job), list(workload.pods), types, times)
    return answer_series(types, times, found)


async def show_past(call: RestCall, run: PastRun) -> Any:
    """The same for a deleted workload: only the usage of its pods, because allocations are not archived."""
    query = call.validate_query(*SAMPLE_PARAMETERS)
    types, times = parse_types(query, (*GAUGES, *MEASURED, *NOT_MEASURED)), parse_times(query)
    return answer_series(types, times, await _measure(call, run.record.uid, [], types, times))


async def show_pod(call: RestCall) -> Any:
    """GET /workloads/{id}/pods/{pod}/metrics: the usage of one pod, by name or uid; that of a deleted pod comes from the
    archive. Raises NotFound, BadRequest."""
    query = call.validate_query(*SAMPLE_PARAMETERS)
    workload = find_workload(call)
    asked, pods = str(call.path["pod"]), list(workload.pods)
    pod = next((pod for pod in pods if asked in (objects.name(pod), objects.uid(pod))), None)
    uid = objects.uid(workload.job)
    if pod is None:
        pod = await _find_gone_pod(call, uid, asked)
    if pod is None:
        names = [objects.name(pod) for pod in pods]
        raise NotFound(
            f"the workload {objects.name(workload.job)} has no pod {asked[:253]!r}.{did_you_mean(asked, names)}"
        )
    gpus = compute.pod_gpus(pod, workload.card_memory(str(objects.dig(pod, "spec.nodeName") or "")))
    types, times = parse_types(query, POD_TYPES), parse_times(query)
    return await _answer_pod(call, uid, pod, types, times, has_one_gpu=gpus <= 1)


async def _find_gone_pod(call: RestCall, run_uid: str, asked: str) -> Object | None:
    """The record of a deleted pod of an existing workload, which was suspended, or whose pod restarted under another name."""
    await catch_up(call, run_uid)
    run = await find_past(call, run_uid)
    return next((pod.body for pod in run.pods if asked in (pod.name, pod.pod_uid)), None) if run is not None else None


async def show_past_pod(call: RestCall, run: PastRun) -> Any:
    """The same for a deleted workload."""
    query = call.validate_query(*SAMPLE_PARAMETERS)
    asked = str(call.path["pod"])
    body = next((pod.body for pod in run.pods if asked in (pod.name, pod.pod_uid)), None)
    if body is None:
        raise NotFound(f"the run {run.record.name} had no pod {asked[:253]!r}.")
    types, times = parse_types(query, POD_TYPES), parse_times(query)
    return await _answer_pod(call, run.record.uid, body, types, times, has_one_gpu=compute.pod_gpus(body, 0) <= 1)


async def _answer_pod(
    call: RestCall, run_uid: str, pod: Object, types: list[str], times: list[float], *, has_one_gpu: bool
) -> Any:
    plain = [name.removesuffix(_PER_GPU) for name in types]
    found = await _measure(call, run_uid, [pod], plain, times, objects.name(pod))
    found |= {name + _PER_GPU: values for name, values in found.items() if has_one_gpu}
    return answer_series(types, times, found)


async def _measure(
    call: RestCall, run_uid: str, pods: list[Object], types: list[str], times: list[float], *names: str
) -> dict[str, Values]:
    """The values by type, without types that have no values."""
    known = [name for name in dict.fromkeys(types) if name in MEASURED]
    if not known:
        return {}
    series = await read_series(call.context, run_uid, pods, *names)
    measured = await measure(known, series, times)
    return {name: values for name, values in measured.items() if any(value is not None for value in values)}


def answer_series(types: list[str], times: list[float], found: Mapping[str, Values]) -> JsonResult:
    """Run:ai's measurements; status 207 when one of the types is missing in `found`."""
    measurements = []
    for name in types:
        values = [
            {"value": _number(value), "timestamp": objects.timestamp(time)}
            for time, value in zip(times, found.get(name, [None] * len(times)), strict=True)
            if value is not None
        ]
        measurements.append({"type": name, "labels": {}, "values": values})
    return JsonResult(200 if all(name in found for name in types) else 207, {"measurements": measurements})


def _number(value: float | Decimal) -> str:
    """A number as text without an exponent, which every client can parse."""
    exact = value if isinstance(value, Decimal) else Decimal(f"{value:.6g}")
    return f"{exact.normalize():f}"


def parse_types(query: dict[str, str], known: Sequence[str]) -> list[str]:
    """The metric types of the parameter `metricType`. Raises BadRequest."""
    types = list(dict.fromkeys(filter(None, query.get("metricType", "").split(","))))
    if not types:
        raise BadRequest(f"metricType says what is asked for, separated by commas: {', '.join(known)}.")
    for name in types:
        if name not in known:
            raise BadRequest(f"metricType: there is no {name[:60]!r}.{did_you_mean(name, known)}")
    return types


def parse_times(query: dict[str, str]) -> list[float]:
    """The sample times from `start` to `end`, both included, in Unix seconds. Raises BadRequest."""
    try:
        start, end = (objects.seconds(query[name].replace(" ", "+")) for name in ("start", "end"))
    except (KeyError, ValueError):
        raise BadRequest("start and end are needed, two RFC 3339 times such as 2026-01-02T03:04:05Z.") from None
    text = query.get("numberOfSamples") or str(DEFAULT_SAMPLES)
    count = int(text) if objects.is_digits(text) and len(text) < 5 else 0
    if not 1 <= count <= MAX_SAMPLES:
        raise BadRequest(f"numberOfSamples must be between 1 and {MAX_SAMPLES}, but is {text[:60]!r}.")
    if end < start:
        raise BadRequest("end must not lie before start.")
    return [start + (end - start) * number / max(1, count - 1) for number in range(count)]


Points = list[float | None]


async def read_series(context: AppContext, run_uid: str, pods: Iterable[Object], name: str = "") -> list[UsageSeries]:
    """The usage series of all pods that the run ever had (or of those with this name): its existing `pods`, and archived
    ones."""
    held: dict[tuple[str, float], UsageSeries] = {}
    for pod in pods:
        if name in ("", objects.name(pod)) and context.pod_usage is not None:
            series = context.pod_usage.series(objects.uid(pod))
            if series is not None:
                held[objects.name(pod), series.start] = series.copy()
    return [*held.values(), *await _read_archived(context, run_uid, name, frozenset(held))]


async def _read_archived(
    context: AppContext, run_uid: str, pod: str, held: frozenset[tuple[str, float]]
) -> list[UsageSeries]:
    """The archived series, without pods in `held`. Unreadable ones are left out; the archive reports its own errors."""
    if context.archive is None:
        return []

    def read(connection: sqlite3.Connection) -> list[UsageSeries]:
        rows = database.read_samples(connection, run_uid, pod=pod, without=held)
        return [series for _, _, body in rows if (series := _series_of(body)) is not None]

    try:
        return await context.archive.read(read)
    except (FileNotFoundError, sqlite3.Error, OSError, UnusableArchive):
        return []


def _series_of(body: dict[str, Any]) -> UsageSeries | None:
    try:
        return UsageSeries.from_json(body)
    except (KeyError, ValueError, TypeError):
        return None


async def measure(types: Sequence[str], series: list[UsageSeries], times: list[float]) -> dict[str, Points]:
    """The values of these types of `MEASURED` at these times, over all series; in a thread, because there may be
    thousands."""
    return await asyncio.to_thread(lambda: {name: _combine(name, series, times) for name in types})


def _combine(name: str, series: list[UsageSeries], times: list[float]) -> Points:
    sums, counts = [0.0] * len(times), [0] * len(times)
    for one in series:
        for number, value in enumerate(one.averages(MEASURED[name], times)):
            if value is not None:
                sums[number] += value
                counts[number] += 1
    return [
        (total / count if name in MEANS else total) if count else None
        for total, count in zip(sums, counts, strict=True)
    ]
