"""Series of what pods used: bounded, and right however often they were merged."""

from __future__ import annotations

import math

import pytest

from rowlock.workloads.figures.usage_series import UsageSample, UsageSeries, mean_of


def series_of(count: int, step: float = 2.0) -> UsageSeries:
    """Cores: 1 in the first half of the time, 3 in the second."""
    series = UsageSeries(0.0)
    for number in range(1, count + 1):
        series.add(number * step, UsageSample(cpu_cores=1.0 if number <= count // 2 else 3.0, memory_bytes=number))
    return series


@pytest.mark.parametrize("count", [1, 149, 360, 5000, 43_200])
def test_a_long_life_costs_no_more_than_a_short_one(count: int) -> None:
    series = series_of(count)
    body = series.to_json()
    assert len(body["times"]) <= 361 and series.last is not None and series.last[0] == count * 2.0
    assert UsageSeries.from_json(body).to_json() == body
    assert series.averages("cpu_cores", [count * 2.0]) == [3.0]


def test_a_day_is_still_told_apart() -> None:
    series = series_of(43_200)
    early, late = series.averages("cpu_cores", [40_000.0, 80_000.0])
    assert early == pytest.approx(1.0) and late == pytest.approx(3.0, abs=0.2)
    assert series.averages("cpu_cores", [86_390.0, 86_400.0]) == [3.0, 3.0], "the last minutes are as they were taken"


def test_a_moment_between_two_samples_has_the_value_that_holds_there() -> None:
    series = series_of(4)  # samples end at 2, 4, 6, 8
    assert series.averages("cpu_cores", [3.0]) == [1.0] and series.averages("cpu_cores", [5.5]) == [3.0]
    assert series.averages("cpu_cores", [-5.0]) == [None], "before it began"
    assert series.averages("cpu_cores", [9.0, 20.0])[-1] is None, "after its end"
    assert series.averages("memory_bytes", [4.0, 8.0]) == [1.5, 3.5], "the mean since the time before"
    assert series.averages("gpu_utilization", [4.0]) == [None], "nobody measured it"
    assert series.averages("cpu_cores", []) == []


def test_what_was_not_measured_is_no_zero() -> None:
    assert math.isnan(mean_of([math.nan])) and mean_of([math.nan, 2.0, 4.0]) == 3.0
    body = series_of(3).to_json()
    assert "gpu_utilization" not in body["columns"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"start": 0, "times": [1], "columns": {"cpu_cores": [1, 2]}},
        {"start": "x", "times": [], "columns": {}},
        {"start": 0, "times": [1], "columns": {"cpu_cores": ["many"]}},
    ],
)
def test_a_damaged_record_is_refused(body: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        UsageSeries.from_json(body)
