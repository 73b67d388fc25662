"""What is recorded about a write that the API refused."""

from __future__ import annotations

from rowlock.api import Create, Record, Update
from rowlock.controllers.writer import Step, records_for
from rowlock.errors import Conflict, Forbidden
from rowlock.kinds import CONFIG_MAP
from rowlock.objects import Object

JOB: Object = {"metadata": {"name": "job", "namespace": "default"}}


def record(longest_error: int = 0) -> Record:
    return Record(JOB, "Warning", "CreationFailed", "it failed: {error}", "toy", longest_error=longest_error)


def test_a_refused_update_is_told() -> None:
    (told,) = records_for(Step(Update(CONFIG_MAP, JOB, failure_records=(record(),))), Forbidden("not today"))
    assert told.message == "it failed: not today"


def test_a_conflict_is_not_told() -> None:
    """The decision is made again from what is there now."""
    assert not records_for(Step(Update(CONFIG_MAP, JOB, failure_records=(record(),))), Conflict("changed meanwhile"))


def test_a_long_refusal_is_cut_at_its_own_length() -> None:
    (told,) = records_for(Step(Create(CONFIG_MAP, JOB, (record(longest_error=5),))), Forbidden("0123456789"))
    assert told.message == "it failed: 01234 ..."
