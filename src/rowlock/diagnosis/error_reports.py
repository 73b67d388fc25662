"""torch's error reports, as programs under `@record` and torchrun write them into `TORCHELASTIC_ERROR_FILE`.

`{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": …, "timestamp": "1700000000"}}}`. On a cluster the file may be the
container's `/dev/termination-log`, of which a kubelet keeps the last 4096 bytes: the end of the call stack and the time.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.log_lines import shorten
from rowlock.diagnosis.tracebacks import LoggedError

MAX_REPORT_BYTES = 256 * 1024
"""torch's error files are some KiB long: a traceback."""
_MAX_TEXT = 64 * 1024
_MAX_TIME = 253_402_300_800
"""The year 10000, in seconds since 1970: later times cannot be formatted."""
_SECONDS = re.compile(r"[0-9]{1,12}")
_CUT_END = re.compile(r'", "timestamp": "([0-9]{1,12})"[^"\n]*(?:"errorCode": -?[0-9]{1,9})?\}{0,3}\s*$')
_TRACEBACK = "Traceback (most recent call last):\n"


def parse_error_report(report: object) -> LoggedError | None:
    """The error in a parsed report; None when it has none. The report is untrusted: programs may write anything there."""
    message = _field(report, "message")
    if isinstance(message, str) and message:
        return _first_line_error(message)
    if not isinstance(message, dict) or not message:
        return None
    extra = _field(message, "extraInfo")
    error = find_error(_clean(_field(extra, "py_callstack"))) or _first_line_error(_field(message, "message"))
    return _at(error, str(_field(extra, "timestamp")))


def parse_report_text(text: str) -> LoggedError | None:
    """The error in a report that is text, also one whose beginning was cut off. None for any other text."""
    try:
        return parse_error_report(json.loads(text))
    except (ValueError, RecursionError):
        return _parse_cut_report(text[-_MAX_TEXT:])


def _parse_cut_report(text: str) -> LoggedError | None:
    end = _CUT_END.search(text)
    if end is None:
        return None
    call_stack = text[: end.start()].partition("\\n")[2]  # the cut may have left half an escape sequence
    try:
        lines = json.loads(f'"{call_stack}"')
    except (ValueError, RecursionError):
        return None
    error = find_error(_TRACEBACK + _clean(lines))
    return error and _at(error, end[1])


def _at(error: LoggedError, timestamp: str) -> LoggedError:
    """The error with the report's timestamp; 0 when the timestamp is invalid."""
    at = int(timestamp) if _SECONDS.fullmatch(timestamp) else 0
    return replace(error, at=float(at if at < _MAX_TIME else 0))


def _first_line_error(message: object) -> LoggedError:
    """The error in the first line of a message such as `ValueError: no`, shortened for sentences and events."""
    kind, _, text = _clean(message).partition("\n")[0].partition(":")
    return LoggedError(shorten(kind), shorten(text.strip()))


def _field(fields: object, name: str) -> Any:
    return fields.get(name) if isinstance(fields, dict) else None


def _clean(text: object) -> str:
    """At most `_MAX_TEXT` characters, with lone surrogates replaced; "" for anything but a string."""
    return text[:_MAX_TEXT].encode(errors="replace").decode() if isinstance(text, str) else ""
