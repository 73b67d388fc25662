"""What the API server says of a CronJob before it is stored: its schedule, time zone, name and what its template may not have. Pure.

FieldNumbers paths in causes are relative to a rule's argument; `apiserver/validation/batch_jobs.py` calls these rules.
"""

from __future__ import annotations

import re
from typing import Any

from rowlock import objects
from rowlock.documents.field_errors import Causes, invalid_value, not_supported, required_value
from rowlock.training.cron_job.fields import ScheduleError
from rowlock.training.cron_job.schedule import parse
from rowlock.training.cron_job.zones import UTC_ZONE, ZoneError, load_zone

_MAX_NAME = 63 - len("-12345678.9")
"""Characters of a name, so that those of its Jobs, with the minute of their start, have 63 at most."""
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}", re.ASCII)


def cron_name(cron: dict[str, Any]) -> Causes:
    """A new CronJob leaves room for the end of its Jobs' names."""
    if len(objects.name(cron)) > _MAX_NAME:
        yield invalid_value(".metadata.name", objects.name(cron), f"must be no more than {_MAX_NAME} characters")


def cron_schedule(spec: dict[str, Any]) -> Causes:
    """The schedule is one that the controller can read, without a time zone in it."""
    text = spec.get("schedule") or ""
    if not text:
        yield required_value(".schedule")
        return
    try:
        parse(text, UTC_ZONE)
    except ScheduleError as error:
        yield invalid_value(".schedule", text, str(error))
    if "TZ" in text:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid_value(".schedule", text, why)


def cron_time_zone(spec: dict[str, Any]) -> Causes:
    """The time zone is one of the machine's table, by its own name."""
    called = spec.get("timeZone")
    if called is None:
        return
    if not called:
        yield invalid_value(".timeZone", called, "timeZone must be nil or non-empty string")
        return
    for part in called.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            yield invalid_value(".timeZone", called, f"unknown time zone {called}")
            return
    if called.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield invalid_value(".timeZone", called, why)
    if called != "Local":
        try:
            load_zone(called)
        except ZoneError as error:
            yield invalid_value(".timeZone", called, str(error))


def cron_job_selector(spec: dict[str, Any]) -> Causes:
    """The template of a Job has no selector: each Job gets its own."""
    if spec.get("selector") is not None:
        yield invalid_value(".selector", spec["selector"], "`selector` will be auto-generated")
    if spec.get("manualSelector"):
        yield not_supported(".manualSelector", True, ("nil", "false"))
