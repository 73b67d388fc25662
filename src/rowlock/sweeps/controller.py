"""`SweepController`: reconciles sweeps, after their own changes and those of their jobs; and when rights change, all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rowlock import kinds, objects
from rowlock.api import NOTHING, Change, Decision, Record, View
from rowlock.kinds import Kind
from rowlock.objects import Key
from rowlock.sweeps.reconcile import EVENT_SOURCE, ObservedSweep, has_ended, reconcile
from rowlock.sweeps.run_stops import is_stopped_with_sweep
from rowlock.sweeps.sweep import Sweep, SweepSubmitter, index_of, is_sweep, object_name, read_object
from rowlock.training.job_changes import owner_keys

MayCreate = Callable[[SweepSubmitter, Kind, str], bool]
"""(submitter, kind of job, namespace) → whether the submitter may create such jobs there."""


@dataclass(slots=True)
class _Known:
    """What is kept of a sweep between two looks; a start begins anew, with every object as a change."""

    uid: str
    sweep: Sweep | None
    """None if this server has not sealed it."""
    runs: dict[int, bool] = field(default_factory=dict)
    """Number → whether it has ended, of the runs that exist. Ended jobs are many, and not decoded again for each look."""
    suspended: set[int] = field(default_factory=set)
    """Those that were suspended with the sweep."""


class SweepController:
    """Makes the jobs of sweeps."""

    name = "sweep"
    kinds: tuple[Kind, ...] = (kinds.CONFIG_MAP, *kinds.JOBS, *kinds.RBAC)

    def __init__(self, key: bytes, may_create: MayCreate) -> None:
        """`key`: that with which the server seals sweeps."""
        self._key, self._may_create = key, may_create
        self._known: dict[Key, _Known] = {}

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The sweep itself; the one that owns the changed job, or waits for its name; all sweeps after a change of rights."""
        if change.kind in kinds.RBAC:
            return list(self._known)
        if change.kind is kinds.CONFIG_MAP:
            return self._note_sweep(view, change)
        owners = [key for key in dict.fromkeys(owner_keys(kinds.CONFIG_MAP, change)) if key in self._known]
        for key in owners:
            self._note_run(self._known[key], change)
        if change.type == "Deleted" and not owners:
            stem = objects.name(change.object).rpartition("-")[0]
            owners = [Key(objects.namespace(change.object), object_name(stem))]
        return [key for key in owners if key in self._known]

    def _note_sweep(self, view: View, change: Change) -> tuple[Key, ...]:
        config_map, key = change.object, objects.key(change.object)
        if change.type == "Deleted" or not is_sweep(config_map):
            return () if self._known.pop(key, None) is None else (key,)
        before, sweep = self._known.get(key), read_object(config_map, self._key)
        if before is not None and before.uid == objects.uid(config_map):
            before.sweep = sweep
        else:
            known = self._known[key] = _Known(objects.uid(config_map), sweep)
            for job in view.by_owner(sweep.kind, known.uid) if sweep else ():
                if objects.namespace(job) == key.namespace:
                    self._note_run(known, Change("Added", 0, None, job))
        return (key,)

    def _note_run(self, known: _Known, change: Change) -> None:
        job, sweep = change.object, known.sweep
        if sweep is None or not objects.is_controlled_by(job, known.uid) or (index := index_of(job, sweep)) is None:
            return
        known.suspended.discard(index)
        if change.type == "Deleted":
            known.runs.pop(index, None)
            return
        known.runs[index] = has_ended(job)
        if is_stopped_with_sweep(job) and not known.runs[index]:
            known.suspended.add(index)

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one sweep."""
        config_map, known = view.get(kinds.CONFIG_MAP, *key), self._known.get(key)
        if config_map is None or known is None or known.uid != objects.uid(config_map):
            return NOTHING  # it is gone, or its change is still to come
        sweep = known.sweep
        if sweep is None:
            text = "This sweep was not written by this server, or was changed since: it makes no runs. `rowlock sweep` submits a new one"
            return Decision((Record(config_map, "Warning", "NotSealed", text, EVENT_SOURCE),))

        def is_taken(name: str) -> bool:
            found = (view.get(kind, key.namespace, name) for kind in kinds.WORKLOADS)
            return any(job is not None and not objects.is_controlled_by(job, known.uid) for job in found)

        may_create = self._may_create(sweep.submitter, sweep.kind, key.namespace)
        return reconcile(ObservedSweep(config_map, sweep, dict(known.runs), is_taken, may_create, set(known.suspended)))
