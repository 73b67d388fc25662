"""Schedules, by equality with what robfig/cron 3.0.1 says of them, which Kubernetes uses (`tests/data/README.md`)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

import pytest
from tests.evidence import DATA

from rowlock.training.cron_job.fields import ScheduleError
from rowlock.training.cron_job.schedule import parse
from rowlock.training.cron_job.zones import UTC_ZONE, Zone, ZoneError, load_zone

ROWS = json.loads((DATA / "cron-schedules.json").read_text(encoding="utf-8"))


def answer(text: str, zone: str, moment: int) -> str | list[int]:
    try:
        schedule = parse(text, load_zone(zone))
    except ScheduleError as error:
        return str(error)
    due: list[int] = []
    while len(due) < 5 and (found := schedule.next(due[-1] if due else moment)) is not None:
        due.append(found)
    return due


@pytest.mark.parametrize("kind", [str, list])
def test_every_schedule_is_due_or_refused_as_recorded(kind: type) -> None:
    rows = [row for row in ROWS if isinstance(row[3], kind)]
    different = [[row, found] for row in rows if (found := answer(*row[:3])) != row[3]]
    assert len(rows) > 40
    assert not different


def test_the_latest_is_the_last_that_next_reaches() -> None:
    skipped = set[tuple[str, str]]()
    for text, zone, moment, due in ROWS:
        if isinstance(due, list) and len(due) > 1 and not text.startswith("@every"):
            schedule = parse(text, load_zone(zone))
            assert schedule.latest(moment, due[0] - 1) is None, text
            for earlier, later in pairwise(due):
                assert schedule.latest(moment, later) == later, text
                if (found := schedule.latest(moment, later - 0.5)) != earlier:
                    skipped.add((text, zone))
                    assert found is not None and earlier < found < later
    assert skipped == {("@yearly", "America/Havana")}, (
        "only there the library steps over a year, at clocks that skip midnight"
    )


def test_the_latest_of_every_so_often_counts_from_the_time_before() -> None:
    schedule = parse("@every 90s", UTC_ZONE)
    assert [schedule.latest(1000.7, until) for until in (1089.9, 1090, 1179.9, 1180.5, 10**9)] == [
        None, 1090, 1090, 1180, 1000 + (10**9 - 1000) // 90 * 90
    ]  # fmt: skip


class SkipsADay(tzinfo):
    """A made-up zone: ten hours behind until 10 June 2027 would begin, then fourteen ahead, so that day does not exist."""

    CHANGE = datetime(2027, 6, 10, 10, tzinfo=UTC)

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        return timedelta(hours=-10 if dt.replace(tzinfo=None) < datetime(2027, 6, 10) else 14)

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta()

    def tzname(self, dt: datetime | None) -> str:
        return "made up"

    def fromutc(self, dt: datetime) -> datetime:
        return dt + timedelta(hours=-10 if dt.replace(tzinfo=UTC) < self.CHANGE else 14)


def test_a_search_ends_where_a_zone_skips_a_day_or_nothing_is_ever_due() -> None:
    skips = Zone(SkipsADay())
    assert [skips.clock(int(SkipsADay.CHANGE.timestamp()) + more).day for more in (-1, 0)] == [9, 11]
    before, next_year = datetime(2027, 6, 1, tzinfo=UTC), datetime(2028, 6, 9, 22, tzinfo=UTC)
    assert parse("0 12 10 6 *", skips).next(before.timestamp()) == next_year.timestamp()
    for text in ("0 0 31 2 *", ", * * * *", "* * , * *", "* * , * ,", "0 0 30 2 *"):
        assert parse(text, skips).next(1_800_000_000) is None
    assert parse("0 0 , * 1", UTC_ZONE).next(1_800_000_000) == 1_800_230_400


@pytest.mark.parametrize("moment", [253_402_300_798, -62_135_596_800, 10**12, -(10**12)])
def test_the_ends_of_time_are_no_error(moment: int) -> None:
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        assert parse("0 0 29 2 *", load_zone(zone)).next(moment) in (None, -62_004_096_000) or moment < 0


@pytest.mark.parametrize("name", ["Nowhere", "Europe", "europe/berlin!", "zone1970.tab", "a\0b"])
def test_no_zone(name: str) -> None:
    with pytest.raises(ZoneError, match="unknown time zone"):
        load_zone(name)


@pytest.mark.parametrize("name", ["../UTC", "/UTC", "\\UTC"])
def test_a_zone_is_no_path(name: str) -> None:
    with pytest.raises(ZoneError, match="invalid location name"):
        load_zone(name)


def test_a_schedule_of_a_hundred_thousand_parts_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a schedule has at most 10000 characters, this one 600013"):
        parse(",".join(["0-59/1"] * 85_715) + "  * * * *", UTC_ZONE)
