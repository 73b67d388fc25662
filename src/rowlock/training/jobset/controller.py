"""`JobSetController`: reconciles JobSets, after changes of a set, its Jobs, its Service or its claims."""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.api import NOTHING, Change, Decision, View
from rowlock.kinds import BATCH_JOB, JOB_SET, PERSISTENT_VOLUME_CLAIM, SERVICE, Kind
from rowlock.objects import Key, Object, is_controlled_by, key, name, namespace, uid
from rowlock.training.job_changes import owner_keys
from rowlock.training.jobset.jobs import claims_of
from rowlock.training.jobset.model import ObservedSet, subdomain
from rowlock.training.jobset.reconcile import reconcile


class JobSetController:
    """Creates the Jobs of sets. It keeps no state."""

    name = "jobset-controller"
    kinds: tuple[Kind, ...] = (JOB_SET, BATCH_JOB, SERVICE, PERSISTENT_VOLUME_CLAIM)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The set itself, or the set that owns the changed object."""
        if change.kind is JOB_SET:
            return (key(change.object),)
        return tuple(dict.fromkeys(owner_keys(JOB_SET, change)))

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one set."""
        jobset = view.get(JOB_SET, key.namespace, key.name)
        return NOTHING if jobset is None else self.decide_about(view, jobset, now)

    def decide_about(self, view: View, jobset: Object, now: float) -> Decision:
        """Reconcile a set that has its defaults."""
        space = namespace(jobset)
        jobs = [job for job in view.by_owner(BATCH_JOB, uid(jobset)) if is_controlled_by(job, uid(jobset))]
        wanted = [name(claim) for claim in claims_of(jobset)]
        claims = frozenset(one for one in wanted if view.get(PERSISTENT_VOLUME_CLAIM, space, one) is not None)
        has_service = view.get(SERVICE, space, subdomain(jobset)) is not None
        return reconcile(ObservedSet(jobset, jobs, has_service, claims), now)
