"""Remarks on the result of a job of a real cluster whose pods have all succeeded: from the ends of their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowlock.curves import endings
from rowlock.diagnosis import remarks
from rowlock.diagnosis.remarks import Remark
from rowlock.objects import Object
from rowlock.workloads.frameworks import main_container_name
from rowlock.workloads.pods import EndedRun, ended_runs

TAIL_LINES = 2000
"""Lines at the end of each log that are read."""
MAX_RANKS = 16
"""Ranks whose logs are compared."""


def good_run(job: Object, pod: Object) -> EndedRun | None:
    """The run of a pod's main container that ended with exit code 0; None while it runs, or where it failed."""
    name = main_container_name(job, pod)
    runs = [run for run in ended_runs(pod) if run.container == name and run.is_current and not run.is_init]
    return next((run for run in runs if run.terminated.get("exitCode") == 0), None)


def remarks_of_tails(tails: Mapping[str, str]) -> list[Remark]:
    """The remarks on a job. `tails`: rank → the end of its log, ordered by rank. Parses all of them: not for the event loop."""
    found: list[Remark] = []
    places: dict[str, tuple[str, float, float]] = {}
    for rank, text in tails.items():
        curves = endings.read_text(text)
        is_whole = text.count("\n") < TAIL_LINES
        if (point := endings.not_finite_since(curves)) is not None:
            is_first = not is_whole and point.x == curves[point.metric].points[0][0]
            place = f"{point.axis} {point.x:g}{' (or an earlier one)' if is_first else ''}"
            found.append(remarks.non_finite_loss(rank, point.metric, place, point.value))
        elif is_whole and (point := endings.unchanged_since(curves)) is not None:
            found.append(remarks.constant_loss(rank, point.metric, point.value, len(curves[point.metric].points)))
        if (last := endings.last_place(curves)) is not None:
            places[rank] = last[0].axis, last[0].x, last[1]
    lengths = remarks.compare_lengths(places) if len(places) == len(tails) > 1 else None
    if len(tails) > 1 and all(map(remarks.says_only_rank, tails.values())):  # then different ends are expected
        return [remarks.only_ranks(list(tails)), *found[:1]]
    return [*found[:1], *([lengths] if lengths is not None else [])]


def to_json(found: Sequence[Remark]) -> list[dict[str, str]]:
    return [{"kind": remark.kind, "sentence": remark.sentence} for remark in found]
