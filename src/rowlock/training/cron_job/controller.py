"""`CronJobController`: reconciles CronJobs, after their changes and those of their Jobs, and when a start is due."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from rowlock.api import NOTHING, Change, Decision, View
from rowlock.kinds import BATCH_JOB, CRON_JOB, Kind
from rowlock.objects import Key, is_controlled_by, key, name, uid
from rowlock.training.cron_job.model import ObservedCronJob
from rowlock.training.cron_job.reconcile import Memory, reconcile
from rowlock.training.cron_job.zones import UTC_ZONE, Zone
from rowlock.training.job_changes import owner_keys


class CronJobController:
    """Makes the Jobs of CronJobs. In memory it keeps which schedule it saw, and which starts it has told of."""

    name = "cronjob"
    kinds: tuple[Kind, ...] = (CRON_JOB, BATCH_JOB)

    def __init__(self, local: Zone = UTC_ZONE) -> None:
        """`local`: the zone of schedules that name none, which is that of the server."""
        self._local = local
        self._memories: dict[str, Memory] = {}

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The CronJob itself, or the one that controls the changed Job."""
        if change.kind is CRON_JOB:
            if change.type == "Deleted":
                self._memories.pop(uid(change.object), None)
            return (key(change.object),)
        return tuple(dict.fromkeys(owner_keys(CRON_JOB, change)))

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one CronJob."""
        cron = view.get(CRON_JOB, key.namespace, key.name)
        if cron is None:
            return NOTHING
        jobs = [job for job in view.by_owner(BATCH_JOB, uid(cron)) if is_controlled_by(job, uid(cron))]
        observed = ObservedCronJob(cron, sorted(jobs, key=name))
        memory = self._memories.setdefault(uid(cron), Memory())
        return reconcile(observed, partial(view.get, BATCH_JOB, key.namespace), memory, now, self._local)
