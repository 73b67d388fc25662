"""What a training framework is to the operator: a job kind and the steps of a job's life that are its own.

One lifecycle (`job.py`) serves every kind. What differs between PyTorch, TensorFlow and the others is a row of data and
a few small functions, gathered in one frozen `Framework`. A new framework is one file in `frameworks/` that fills it in,
and one line in `frameworks/registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowlock.training.model import JobKind
from rowlock.training.reconcile_context import ReconcileContext


def do_nothing(_: ReconcileContext) -> None:
    """The default of `sync_other_objects`."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework(JobKind):
    """A job kind with the steps of its jobs' life."""

    update_job_status: Callable[[ReconcileContext], None]
    """replicaStatuses → conditions: is it running, succeeded, failed?"""
    custom_sync: Callable[[ReconcileContext], bool] | None = None
    """Makes and counts pods in its own way; False = something is in the way, stop without a status."""
    sync_other_objects: Callable[[ReconcileContext], None] = do_nothing
    """Objects beside pods and services, kept whatever the job's state."""
