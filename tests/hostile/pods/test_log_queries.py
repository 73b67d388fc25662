"""Questions about logs with odd numbers: one sentence and 400, never a fault of the server."""

from __future__ import annotations

import pytest

from rowlock.errors import BadRequest
from rowlock.rest.log_streams.options import _parse_seconds, parse_count


@pytest.mark.parametrize(
    "text", ["1" * 5000, "²", "-5", "1e9", "+1", " 1", "1_0", "٣", "0x1", "9" * 19, "NaN", "a" * 5000]
)
def test_a_count_is_a_number_or_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="tail must be a whole number") as refused:
        parse_count({"tail": text}, "tail")
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "1e999", "1" * 5000, "x" * 5000, "²"])
def test_a_time_is_a_number_or_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="since must be a number of seconds") as refused:
        _parse_seconds({"since": text}, "since")
    assert len(refused.value.message) < 200


def test_numbers_are_taken() -> None:
    assert parse_count({"tail": "10"}, "tail", "tailLines") == 10 and parse_count({"tail": "-1"}, "tail") is None
    assert _parse_seconds({"since": "1.5"}, "since") == 1.5
