"""The query of a request for logs, parsed into `LogOptions`."""

from __future__ import annotations

import math
import re

from rowlock import objects
from rowlock.api import LogOptions
from rowlock.errors import BadRequest
from rowlock.rest.call import RestCall

PARAMETERS = (
    "follow", "tail", "tailLines", "since", "sinceSeconds", "sinceTime", "timestamps", "previous", "container",
    "limitBytes", "prefix", "progress", "attempt",
)  # fmt: skip
_POD_PARAMETERS = ("localRank",)
"""Additional parameters for the log of one pod."""
_COUNT = re.compile(r"[0-9]{1,18}")
_MAX_SECONDS = 1e10
_MAX_QUOTED = 60


def parse_log_options(call: RestCall) -> LogOptions:
    """The query as LogOptions. Raises BadRequest."""
    params = call.validate_query(*PARAMETERS, *(_POD_PARAMETERS if "pod" in call.path else ()))
    since = _parse_seconds(params, "sinceSeconds") or _parse_seconds(params, "since")
    since_time = objects.seconds(_check_time(params.get("sinceTime"))) or None
    return LogOptions(
        container=params.get("container", ""),
        follow=parse_bool(params, "follow"),
        previous=parse_bool(params, "previous"),
        tail=parse_count(params, "tail", "tailLines"),
        since=call.context.clock() - since if since is not None else since_time,
        timestamps=parse_bool(params, "timestamps"),
        limit_bytes=parse_count(params, "limitBytes"),
    )


def parse_bool(params: dict[str, str], name: str) -> bool:
    """A parameter that is true or false. Raises BadRequest."""
    value = params.get(name, "false")
    if value not in ("true", "false"):
        raise BadRequest(f"{name} must be true or false, but is {value!r}.")
    return value == "true"


def parse_count(params: dict[str, str], *names: str) -> int | None:
    """The first given of these parameters, a whole number; None if none is given or it is -1. Raises BadRequest."""
    for name in names:
        value = params.get(name)
        if value and value != "-1":
            if not _COUNT.fullmatch(value):
                raise BadRequest(f"{name} must be a whole number from 0 to 10^18 - 1, but is {_quote(value)}.")
            return int(value)
    return None


def _parse_seconds(params: dict[str, str], name: str) -> float | None:
    value = params.get(name)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _MAX_SECONDS:
        raise BadRequest(f"{name} must be a number of seconds no less than 0, but is {_quote(value)}.")
    return number


def _quote(value: str) -> str:
    """The given value, shortened for an error message."""
    return repr(value if len(value) <= _MAX_QUOTED else value[:_MAX_QUOTED] + "…")


def _check_time(text: str | None) -> str | None:
    try:
        objects.seconds(text)
    except ValueError:
        raise BadRequest(f"sinceTime must be an RFC 3339 time, but is {text!r}.") from None
    return text
