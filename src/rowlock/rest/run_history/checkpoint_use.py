"""Ensures that only one job at a time writes to a checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from rowlock import objects
from rowlock.errors import Conflict
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.frameworks import checkpoint_writers, checkpoints_owner, shared_checkpoints_sentence

CheckpointReservations = MutableMapping[tuple[str, str], str]
"""Namespace and owner of a checkpoint directory → the job that a request is about to start there."""


@contextmanager
def reserve_checkpoints(cache: InformerCache, reservations: CheckpointReservations, job: Object) -> Iterator[None]:
    """Reserve the checkpoint directory for a job from the check until the `with` block ends, when the cache shows the job as unfinished.
    So the second of two concurrent requests is refused. Raises Conflict if another job uses the directory, or is about to."""
    owner = checkpoints_owner(job)
    if not owner:
        yield
        return
    place = (objects.namespace(job), owner)
    if place in reservations:
        other = reservations[place]
        raise Conflict(
            f"{objects.name(job)} cannot run now: {other} is just being started with the checkpoints it would go on from, and two"
            f" jobs would overwrite each other's: wait until {other} is over, or stop it"
        )
    _ensure_checkpoints_are_free(cache, job, owner)
    reservations[place] = objects.name(job)
    try:
        yield
    finally:
        del reservations[place]


def _ensure_checkpoints_are_free(cache: InformerCache, job: Object, owner: str) -> None:
    """Raises Conflict when another unfinished job uses the checkpoint directory: two jobs would overwrite each other's
    files."""
    uid = objects.uid(job)
    jobs = (other for one in cache.job_uids() if one != uid and (other := cache.job(one)) is not None)
    near = (one for one in jobs if objects.namespace(one) == objects.namespace(job) and not objects.is_deleting(one))
    if other := next(checkpoint_writers(owner, near), None):
        raise Conflict(f"{objects.name(job)} cannot run now: {shared_checkpoints_sentence(other)}")
