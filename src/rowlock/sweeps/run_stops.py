"""The patches that suspend runs of a sweep, early or with the whole sweep, and that resume those of a sweep that goes on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.workloads.frameworks import is_suspended
from rowlock.workloads.phase import EARLY_STOP_ANNOTATION, STOPPED_BY_ANNOTATION, STOPPED_WITH_SWEEP_ANNOTATION

Json = dict[str, Any]


def patch_early_stop(kind: Kind, reason: str) -> Json:
    """Suspends a run because others are better."""
    notes = {EARLY_STOP_ANNOTATION: reason, STOPPED_BY_ANNOTATION: "rowlock sweep --stop asha"}
    return _patch(kind, notes, suspended=True)


def patch_stop(kind: Kind, sweep: str) -> Json:
    """Suspends a run until its sweep is resumed."""
    notes = {STOPPED_WITH_SWEEP_ANNOTATION: sweep, STOPPED_BY_ANNOTATION: f"rowlock sweep stop {sweep} --now"}
    return _patch(kind, notes, suspended=True)


def patch_resume(kind: Kind) -> Json:
    """Resumes a run that was suspended with its sweep."""
    return _patch(kind, {STOPPED_WITH_SWEEP_ANNOTATION: None, STOPPED_BY_ANNOTATION: None}, suspended=False)


def is_stopped_with_sweep(job: Object) -> bool:
    """Whether it is a run that was suspended with its sweep, and nobody has resumed it."""
    return STOPPED_WITH_SWEEP_ANNOTATION in objects.annotations(job) and is_suspended(job)


def _patch(kind: Kind, notes: Mapping[str, str | None], *, suspended: bool) -> Json:
    policy = {"suspend": suspended}
    return {"metadata": {"annotations": dict(notes)}, "spec": {"runPolicy": policy} if kind in kinds.JOBS else policy}
