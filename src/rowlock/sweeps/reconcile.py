"""Which runs of a sweep are made now. Pure: the same sweep and jobs give the same answer.

Runs are made in the order of their numbers, as long as fewer than `maxParallel` of them are unfinished. A run's job has the name that follows
from its number, so that it can be made only once. How many have begun is noted in the ConfigMap after their jobs are there: a crash in between
loses nothing, and a run that a user deletes later is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rowlock import kinds, objects
from rowlock.api import Create, Decision, Patch, Record, Write
from rowlock.objects import Object
from rowlock.sweeps.run_stops import patch_resume, patch_stop
from rowlock.sweeps.sweep import BEGUN_ANNOTATION, Sweep, begun_runs, is_stopped, is_stopped_now
from rowlock.sweeps.template import build_run, longest_run
from rowlock.training.conditions import FAILED, SUCCEEDED
from rowlock.workloads.phase import is_stopped_early

EVENT_SOURCE = "rowlock-sweeps"
MOST_CREATED = 64
"""Most jobs made in one turn; their changes are the reason for the next turn."""
_MOST_CHARACTERS = 500_000
"""About how many characters the jobs made in one turn have together, if there is more than one."""


@dataclass(frozen=True, slots=True)
class ObservedSweep:
    """A sweep and what there is of it."""

    config_map: Object
    sweep: Sweep
    runs: Mapping[int, bool]
    """Number → whether it has ended, of the runs that exist."""
    is_taken: Callable[[str], bool] = lambda _: False
    """Whether a workload that is no run of the sweep has this name."""
    may_create: bool = True
    """Whether the submitter may still make such jobs."""
    suspended: Collection[int] = ()
    """Those of the runs that were suspended with the sweep."""

    @property
    def begun(self) -> int:
        """Runs with a lower number have been made, though not all need still be there."""
        index = min(begun_runs(self.config_map), self.sweep.drawn_count)
        while index in self.runs:
            index += 1
        return index

    @property
    def unfinished_count(self) -> int:
        return sum(not ended for ended in self.runs.values())


def has_ended(job: Object) -> bool:
    """Whether a run's job has succeeded or failed, or the sweep has stopped it early and nobody has let it go on."""
    is_over = objects.is_condition_true(job, SUCCEEDED) or objects.is_condition_true(job, FAILED)
    return is_over or is_stopped_early(job)


def reconcile(observed: ObservedSweep) -> Decision:
    """The jobs that are made now, and the note of how many have begun."""
    config_map, sweep, begun = observed.config_map, observed.sweep, observed.begun
    if objects.is_deleting(config_map):
        return Decision()
    writes: list[Write] = []
    if not is_stopped(config_map) and begun < sweep.drawn_count:
        writes += _create_runs(observed, begun)
    writes += _suspend_or_resume(observed)
    if begun != begun_runs(config_map):
        writes.append(_note_begun(config_map, begun))
    return Decision(tuple(writes))


def _create_runs(observed: ObservedSweep, begun: int) -> list[Write]:
    config_map, sweep = observed.config_map, observed.sweep
    if not observed.may_create:
        user = sweep.submitter.user
        text = f"{user} submitted this sweep and may not create {sweep.kind.plural} in this project any more: no further runs are made"
        return [_warning(config_map, "Forbidden", text)]
    writes: list[Write] = []
    room = sweep.max_parallel - observed.unfinished_count
    if room > 1:
        room = min(room, MOST_CREATED, max(1, _MOST_CHARACTERS // longest_run(sweep)))
    for index in range(begun, sweep.drawn_count):
        if room <= 0:
            break
        if index in observed.runs:
            continue
        if observed.is_taken(sweep.run_name(index)):
            text = f"The name of the next run, {sweep.run_name(index)}, is that of another job: delete that one, and the sweep goes on"
            writes.append(_warning(config_map, "NameTaken", text))
            break
        failure = _warning(config_map, "FailedCreate", f"Error creating run {sweep.run_name(index)}: {{error}}")
        writes.append(Create(sweep.kind, build_run(sweep, config_map, index), (failure,)))
        room -= 1
    return writes


def _suspend_or_resume(observed: ObservedSweep) -> list[Write]:
    """While the sweep is stopped with its runs, those that have not ended are suspended; when it goes on, the same runs do."""
    config_map, sweep = observed.config_map, observed.sweep
    if is_stopped_now(config_map):
        left = [index for index, ended in observed.runs.items() if not ended and index not in observed.suspended]
        changes = {index: patch_stop(sweep.kind, sweep.name) for index in left}
    elif not is_stopped(config_map):
        changes = {index: patch_resume(sweep.kind) for index in observed.suspended}
    else:
        return []
    namespace = objects.namespace(config_map)
    return [Patch(sweep.kind, namespace, sweep.run_name(index), change) for index, change in sorted(changes.items())]


def _note_begun(config_map: Object, begun: int) -> Patch:
    meta = {"uid": objects.uid(config_map), "annotations": {BEGUN_ANNOTATION: str(begun)}}
    return Patch(kinds.CONFIG_MAP, *objects.key(config_map), {"metadata": meta})


def _warning(config_map: Object, reason: str, message: str) -> Record:
    return Record(config_map, "Warning", reason, message, EVENT_SOURCE)
