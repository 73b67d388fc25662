"""What the operator knows of a training framework: a job kind, and the lifecycle steps specific to it.

All kinds share one lifecycle (`job.py`). What differs between PyTorch, TensorFlow and the others is data and a few small functions in one
frozen `Framework`. A new framework is one file in `frameworks/` that creates it, and one line in `frameworks/registry.py`.
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
    """A job kind with its specific lifecycle steps."""

    update_job_status: Callable[[ReconcileContext], None]
    """Sets the job's conditions (Running, Succeeded, Failed) from its replicaStatuses."""
    custom_sync: Callable[[ReconcileContext], bool] | None = None
    """Replaces the usual creation and counting of pods; returns False to stop without updating the status."""
    sync_other_objects: Callable[[ReconcileContext], None] = do_nothing
    """Reconciles objects besides pods and services, in every state of the job."""
