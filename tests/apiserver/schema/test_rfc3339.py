"""Times as a real server reads them: what it refuses, in whose words, and what it makes of an offset."""

from __future__ import annotations

import pytest

from rowlock.apiserver.schema import rfc3339
from rowlock.errors import BadRequest

FORMS = ": not an RFC 3339 time such as 2006-01-02T15:04:05.000000Z"


@pytest.mark.parametrize(
    ("given", "second"),
    [
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.999Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05,5Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T3:04:05Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05+02:30", "2024-01-02T00:34:05Z"),
        ("2024-12-31T23:04:05-01:00", "2025-01-01T00:04:05Z"),
    ],
)
def test_a_time_is_kept_in_utc_to_the_second(given: str, second: str) -> None:
    assert rfc3339.normalise_time(given) == second


def test_a_finer_time_has_six_decimals() -> None:
    assert rfc3339.normalise_micro_time("2024-01-02T03:04:05.123456+02:00") == "2024-01-02T01:04:05.123456Z"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("2024-01-02T03:04:05Z", FORMS),
        ("2024-01-02T03:04:05.123Z", FORMS),
        ("2024-01-02T03:04:05.1234567Z", FORMS),
        ("2024-01-02", FORMS),
        ("x", FORMS),
        ("2024-02-03T05:04:05.000000ZZ", FORMS),
        ("2024-13-02T03:04:05.000000Z", ": month out of range"),
        ("2024-02-30T03:04:05.000000Z", ": day out of range"),
        ("2024-02-03T25:04:05.000000Z", ": hour out of range"),
    ],
)
def test_what_is_no_time_is_refused(given: str, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        rfc3339.normalise_micro_time(given)
    assert refused.value.message == f'parsing time "{given}"{said}'
