"""Refuses new and resumed jobs while the server is being stopped: their processes would outlive it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rowlock import kinds, objects
from rowlock.errors import Unavailable
from rowlock.kinds import Kind
from rowlock.objects import Object


class Draining:
    """Whether the server is being stopped; shared by the REST API, which sets it, and the admission chain."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -math.inf

    @property
    def is_active(self) -> bool:
        return self._clock() < self._until

    def begin(self, seconds: float) -> None:
        """Drain for so many seconds; a server that is not stopped by then accepts jobs again."""
        self._until = self._clock() + seconds

    def check_create(self, kind: Kind, obj: Object) -> None:
        """Raise Unavailable while draining, for a job of any kind and for a pod, if they are no part of another job."""
        if self.is_active and (kind in kinds.JOBS or (kind in _MAY_BE_PARTS and not _is_part(obj))):
            raise Unavailable("the server is being stopped and takes no new jobs: submit again when it is back")

    def check_update(self, kind: Kind, old: Object, new: Object) -> None:
        """Raise Unavailable while draining, for a job that is resumed."""
        if kind in kinds.WORKLOADS and self.is_active and not _is_part(new):
            field = "spec.runPolicy.suspend" if kind in kinds.JOBS else "spec.suspend"
            was_suspended, is_suspended = (objects.dig(job, field) for job in (old, new))
            if was_suspended and not is_suspended:
                raise Unavailable("the server is being stopped and resumes no jobs: resume it when it is back")


_MAY_BE_PARTS = frozenset({kinds.POD, *kinds.WORKLOADS})


def _is_part(obj: Object) -> bool:
    """Whether the object belongs to a job that is there already. A CronJob's Job is a new one."""
    owners = objects.dig(obj, "metadata.ownerReferences")
    return isinstance(owners, list) and any(
        isinstance(owner, dict) and owner.get("kind") != kinds.CRON_JOB.name for owner in owners
    )
