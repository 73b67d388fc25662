"""Figures of a workload over time: `GET /api/v1/workloads/{id}/metrics`."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.errors import BadRequest, Unsupported
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.workloads import find_workload
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.figures.gauges import GAUGES, NOT_MEASURED

DEFAULT_SAMPLES, MAX_SAMPLES = 20, 1000


async def show(call: RestCall) -> Any:
    """GET /workloads/{id}/metrics: what the workload held at points of time; 207 where one of the types is not measured here.
    Raises NotFound, BadRequest."""
    query = call.validate_query("metricType", "start", "end", "numberOfSamples")
    workload = find_workload(call)
    types = _parse_types(query.get("metricType", ""))
    times = _parse_times(query)
    usage = call.context.usage
    if usage is None:
        raise Unsupported("this server keeps no figures over time")
    samples = usage.samples(objects.uid(workload.job), times)
    measurements = []
    for name in types:
        index = GAUGES.index(name) if name in GAUGES else None
        values = [
            {"value": f"{gauges[index].normalize():f}", "timestamp": objects.timestamp(time)}
            for time, gauges in zip(times, samples, strict=True)
            if gauges is not None and index is not None
        ]
        measurements.append({"type": name, "labels": {}, "values": values})
    return JsonResult(207 if set(types) & set(NOT_MEASURED) else 200, {"measurements": measurements})


def _parse_types(text: str) -> list[str]:
    types, known = list(dict.fromkeys(filter(None, text.split(",")))), (*GAUGES, *NOT_MEASURED)
    if not types:
        raise BadRequest(f"metricType says what is asked for, separated by commas: {', '.join(known)}.")
    for name in types:
        if name not in known:
            raise BadRequest(f"metricType: there is no {name[:60]!r}.{did_you_mean(name, known)}")
    return types


def _parse_times(query: dict[str, str]) -> list[float]:
    """The points of time from `start` to `end`, both included."""
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
