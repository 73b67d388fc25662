"""The time zone of the server, in which schedules are read that name none: `TZ`, else `/etc/localtime`, else UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

LOCAL_TIME = Path("/etc/localtime")


def read_local_zone(environ: Mapping[str, str], file: Path = LOCAL_TIME) -> tzinfo:
    """The zone that the C library uses, too, where `TZ` is a name; other forms of it are read as UTC, like names that are unknown."""
    if (named := environ.get("TZ")) is not None:
        try:
            return ZoneInfo(named.removeprefix(":")) if named else UTC
        except (OSError, ValueError, KeyError):
            return UTC
    try:
        with file.open("rb") as content:
            return ZoneInfo.from_file(content)
    except (OSError, ValueError):
        return UTC
