"""Reconciles the pods of one replica type: creates missing ones, deletes surplus ones, and counts.

A slot is an index within the type. A failure affects one pod: peers are never restarted. Pods are counted as they were when the reconcile
began, so a pod that is now deleted for a restart still counts as failed.
"""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.kinds import POD
from rowlock.objects import FINAL_PHASES, Object, is_deleting, is_digits, labels, name, namespace, phase
from rowlock.training.conditions import FAILED, RESTARTING
from rowlock.training.dependents.pods import pod_of, pods_per_look
from rowlock.training.model import INDEX_LABEL, MIN_RETRYABLE_EXIT_CODE, UNKNOWN_EXIT_CODE, Rank, Replica
from rowlock.training.reconcile_context import ReconcileContext

ObjectsByIndex = dict[int, list[Object]]
_MOST_PHANTOMS = 10_000


def group_by_index(items: list[Object]) -> ObjectsByIndex:
    """Objects by their index label; those without a valid one are dropped."""
    by_index: ObjectsByIndex = {}
    for item in items:
        text = labels(item).get(INDEX_LABEL, "")
        if is_digits(text):
            by_index.setdefault(int(text), []).append(item)
    return by_index


def slots(by_index: ObjectsByIndex, replica: Replica, no_phantoms: bool) -> Iterator[int]:
    """The indexes to reconcile, in order: those of the replicas and those of objects. Without `no_phantoms` at least one, and also those
    between, as in the operator; but not up to any number that a label may have."""
    wanted = replica.count if no_phantoms else max(replica.count, 1, min(max(by_index, default=-1) + 1, _MOST_PHANTOMS))
    yield from range(wanted)
    yield from sorted(index for index in by_index if index >= wanted)


def sync_pods(context: ReconcileContext, replica: Replica, pods: list[Object]) -> None:
    """Reconcile the pods of one type. `pods`: the pods with its label."""
    context.reset_counts(replica)
    pods_by_index, room = group_by_index(pods), pods_per_look(replica.template)
    for index in slots(pods_by_index, replica, context.parity.no_phantoms):
        existing = pods_by_index.get(index, [])
        if not existing:
            if room and (index < replica.count or not context.parity.no_phantoms):
                room -= 1
                _create_pod(context, Rank(context.job, replica, index))
        elif len(existing) == 1:
            if index >= replica.count:
                context.delete(POD, existing[0])
            _observe_pod(context, replica, existing[0])


def _create_pod(context: ReconcileContext, rank: Rank) -> None:
    warn_restart_policy(context, rank.replica, "SetPodTemplateRestartPolicy")
    context.create_owned(POD, pod_of(rank))


def warn_restart_policy(context: ReconcileContext, replica: Replica, reason: str) -> None:
    """Write an event that the template's own restartPolicy is ignored. (MPIJob's reason is spelled differently.)"""
    if (replica.template.get("spec") or {}).get("restartPolicy"):
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        context.record_event("Warning", reason, text)


def exit_code(pod: Object, container: str) -> int | None:
    """The exit code of the container of that name; None if it has not terminated."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if status.get("name") == container and terminated is not None:
            return int(terminated.get("exitCode") or 0)
    return None


def _observe_pod(context: ReconcileContext, replica: Replica, pod: Object) -> None:
    code = exit_code(pod, context.job.framework.container)
    if code is not None:
        context.record_event("Normal", "ExitedWithCode", f"Pod: {namespace(pod)}.{name(pod)} exited with code {code}")
    if phase(pod) == "Failed":
        _handle_failed_pod(context, replica, pod, UNKNOWN_EXIT_CODE if code is None else code)
    count_pod(context.counts[replica.type], pod)


def count_pod(counts: dict[str, int], pod: Object) -> None:
    """Count one pod by its phase. A running pod that is being deleted already counts as failed."""
    pod_phase = phase(pod)
    if pod_phase == "Running":
        counts["failed" if is_deleting(pod) else "active"] += 1
    elif pod_phase in FINAL_PHASES:
        counts[pod_phase.lower()] += 1


def _handle_failed_pod(context: ReconcileContext, replica: Replica, pod: Object, code: int) -> None:
    is_exit_code_policy = replica.restart_policy == "ExitCode"
    job = context.job
    if replica.restart_policy in ("OnFailure", "Always") or (is_exit_code_policy and code >= MIN_RETRYABLE_EXIT_CODE):
        message = f"job {job.name} is restarting because {replica.type} replica(s) failed."
        context.delete(POD, pod)
        context.record_kind_event("Warning", "Restarting", message)
        context.set_condition(RESTARTING, "Restarting", message)
    elif is_exit_code_policy:
        message = f'job "{job.name}" is failing because "{replica.type}" replica(s) failed.'
        context.record_kind_event("Warning", "Failed", message)
        context.set_condition(FAILED, "Failed", message)
