"""torch's error files, whole and as a kubelet leaves them: cut at the front."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import pytest

from rowlock.diagnosis.error_reports import parse_error_report, parse_report_text
from rowlock.diagnosis.tracebacks import LoggedError


def report_of_an_error(text: str, **more: object) -> str:
    """As torch's `ErrorHandler.record_exception` writes it; torchrun adds the exit code."""

    def load(path: str) -> None:
        raise ValueError(text)

    try:
        load("a")
    except ValueError as error:
        extra = {"py_callstack": traceback.format_exc(), "timestamp": "1700000000"}
        return json.dumps({"message": {"message": f"ValueError: {error}", "extraInfo": extra, **more}})
    raise AssertionError("it was raised")


def test_a_whole_report() -> None:
    error = parse_report_text(report_of_an_error('no "batch" at C:\\x\n ü'))
    assert error is not None and error.place.endswith(" in load") and error.place.startswith("test_error_reports.py:")
    assert (error.kind, error.text, error.at, error.secondary) == ("ValueError", 'no "batch" at C:\\x', 1.7e9, False)
    assert parse_error_report({"message": "KeyError: 'x'"}) == LoggedError("KeyError", "'x'")


@pytest.mark.parametrize("more", [{}, {"errorCode": -9}])
def test_a_report_that_lost_its_beginning_still_names_the_error(more: dict[str, object]) -> None:
    """Cut anywhere before the last call; nothing wrong is read from what is cut later."""
    text = report_of_an_error('no "batch" ü', **more)
    whole, last_call = parse_report_text(text), text.rindex("\\n  File")
    assert whole is not None
    for start in range(1, last_call):
        assert parse_report_text(text[start:]) == whole, text[start:]
    for start in range(last_call, len(text)):
        found = parse_report_text(text[start:])
        assert found is None or (found.kind, found.text, found.at) == (whole.kind, whole.text, whole.at), text[start:]


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "7", "Traceback (most recent call last):\nValueError: x", '{"message": 7}', '{"message": {}', "[" * 100_000,
        'x\\nValueError: x\\n", "timestamp": "x"}}}', 'x\\n\\ud8\\n", "timestamp": "12"}}}',
        'x\\n"\\nValueError: y\\n", "timestamp": "12"}}}',
    ],
)  # fmt: skip
def test_other_text_is_no_report(text: str) -> None:
    assert parse_report_text(text) is None


@pytest.mark.parametrize("wrap", [lambda text: {"message": text}, lambda text: {"message": {"message": text}}])
def test_a_long_message_is_shortened_to_a_line(wrap: Callable[[str], object]) -> None:
    assert parse_error_report(wrap("KeyError: 'x'\nand more: of it")) == LoggedError("KeyError", "'x'")
    for text in ("E: " + "x" * 70_000, "E" * 70_000):
        assert len(str(parse_error_report(wrap(text)))) < 400


def test_times_that_nobody_can_write_down_are_unknown() -> None:
    extra = {"timestamp": "999999999999"}
    error = parse_error_report({"message": {"message": "E: x", "extraInfo": extra}})
    assert error == LoggedError("E", "x", 0.0)
