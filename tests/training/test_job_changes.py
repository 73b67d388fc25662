"""How often a job is decided on."""

from __future__ import annotations

from rowlock.api import Create, Decision, Patch
from rowlock.kinds import POD
from rowlock.training.job_changes import settled


def test_a_large_job_settles_unless_it_goes_on_creating() -> None:
    change = Decision((Patch(POD, "a", "b", {}),), requeue_after=3.0)
    assert settled(change, 2) == change
    assert settled(change, 1000) == Decision(change.writes, requeue_after=3.0, settle=0.25)
    creating = Decision((Create(POD, {}),))
    assert settled(creating, 1000) == creating
