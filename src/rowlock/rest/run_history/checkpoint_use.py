"""Makes sure that only one job at a time writes to a checkpoint directory."""

from __future__ import annotations

from rowlock import objects
from rowlock.errors import Conflict
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.frameworks import checkpoint_writers, checkpoints_owner, shared_checkpoints_sentence


def ensure_checkpoints_are_free(cache: InformerCache, job: Object) -> None:
    """Raises Conflict when another unfinished job uses the checkpoint directory: two jobs would overwrite each other's
    files."""
    owner, uid = checkpoints_owner(job), objects.uid(job)
    if not owner:
        return
    jobs = (other for one in cache.job_uids() if one != uid and (other := cache.job(one)) is not None)
    near = (one for one in jobs if objects.namespace(one) == objects.namespace(job) and not objects.is_deleting(one))
    if other := next(checkpoint_writers(owner, near), None):
        raise Conflict(f"{objects.name(job)} cannot run now: {shared_checkpoints_sentence(other)}")
