"""The lifecycle of a job, the same for every framework: `reconcile(framework, observed, now) -> Decision`.

A reconcile checks: is the job ours? finished? suspended? resumed? over a limit? If none of these, it creates and counts pods and services
type by type, lets the framework judge the counts, and writes the status. Everything is decided from the observed state, so a restart, a
missed change or a repeated reconcile does no harm. After a job's end, cleanPodPolicy says which pods are deleted, and
ttlSecondsAfterFinished when the job is.

Two limits fail a whole job: backoffLimit and activeDeadlineSeconds. As in the operator, and despite its name, backoffLimit counts in-place
restarts of containers in running pods, summed over the job; with 0, a failed pod too. For a job that was submitted through rowlock it
counts the job's restarts: the number of failures of the rank that failed most often.
"""

from __future__ import annotations

from rowlock.api import NOTHING, Decision
from rowlock.objects import Object, dig, is_deleting, phase, seconds
from rowlock.training.conditions import CREATED, FAILED, RUNNING, SUCCEEDED, SUSPENDED
from rowlock.training.defaults import parse_job, run_policy
from rowlock.training.dependents.replicas import sync_pods
from rowlock.training.dependents.services import adopt_services, sync_services
from rowlock.training.framework import Framework
from rowlock.training.model import DEFAULT, TYPE_LABEL, Job, Parity, Replica, group_by_replica_type
from rowlock.training.pod_events import is_active, record_pod_events
from rowlock.training.reconcile_context import Observed, ReconcileContext


def reconcile(framework: Framework, observed: Observed, now: float, parity: Parity = DEFAULT) -> Decision:
    """The writes for one job, and when to reconcile it again."""
    if framework.respects_managed_by and not run_policy(observed.job.get("spec") or {}).is_managed_by_us:
        return NOTHING
    validation_error = framework.validate(observed.job.get("spec") or {})
    job = parse_job(framework, observed.job)
    context = ReconcileContext(job, observed, now, parity)
    if validation_error:
        context.record_kind_event(
            "Warning", "FailedValidation", f"{framework.kind.name} failed validation because {validation_error}"
        )
        return context.finish_without_status()
    if not job.replicas or is_deleting(observed.job) or _has_no_containers(job):
        return NOTHING
    if observed.as_created:
        context.set_condition(CREATED, "Created", f"{framework.kind.name} {job.name} is created.")
    framework.sync_other_objects(context)
    if context.has_condition(SUCCEEDED) or context.has_condition(FAILED):
        return _reconcile_finished(context)
    if job.policy.suspend:
        return _reconcile_suspended(context)
    if context.has_condition(SUSPENDED):
        _resume_job(context)
    return _reconcile_active(framework, context)


def _has_no_containers(job: Job) -> bool:
    """Whether a replica type has no containers, on which the operator's defaulting fails, so that such a job is left alone. Webhooks refuse
    such jobs, but scaling a job without Workers creates one."""
    templates = (replica.template for replica in job.replicas.values() if job.framework.port.number)
    return any(not (template.get("spec") or {}).get("containers") for template in templates)


def _reconcile_finished(context: ReconcileContext) -> Decision:
    ttl_remaining = time_to_live(context)
    if ttl_remaining is not None and ttl_remaining <= 0:
        clean_pods(context, context.job.policy.clean_pod_policy)
        context.delete_job()
        return context.finish_without_status()
    cleanup_wait = remaining_cleanup_delay(context)
    if cleanup_wait is None:
        clean_pods(context, context.job.policy.clean_pod_policy)
    if context.has_condition(SUCCEEDED):
        for counts in context.counts.values():
            counts["succeeded"] = counts.get("succeeded", 0) + counts.pop("active", 0)
    return context.finish(ttl_remaining if cleanup_wait is None else cleanup_wait)


def _reconcile_suspended(context: ReconcileContext) -> Decision:
    clean_pods(context, "All")
    for counts in context.counts.values():
        counts["active"] = 0
    message = f"{context.job.framework.kind.name} {context.job.name} is suspended."
    if context.has_condition(RUNNING):
        context.set_condition(RUNNING, "Suspended", message, "False")
    if not context.has_condition(SUSPENDED):
        context.set_condition(SUSPENDED, "Suspended", message)
    context.record_kind_event("Normal", "Suspended", message)
    return context.finish()


def _resume_job(context: ReconcileContext) -> None:
    message = f"{context.job.framework.kind.name} {context.job.name} is resumed."
    context.set_condition(SUSPENDED, "Resumed", message, "False")
    context.set_start_time(restart=True)
    context.record_kind_event("Normal", "Resumed", message)


def _reconcile_active(framework: Framework, context: ReconcileContext) -> Decision:
    record_pod_events(context)
    limit_message = exceeded_limit_message(context)
    if limit_message:
        return _fail_over_limit(context, limit_message)
    if framework.adopts_services:
        adopt_services(context)
    if framework.custom_sync:
        if not framework.custom_sync(context):
            return context.finish_without_status(stuck=True)
    else:
        services = group_by_replica_type(context.observed.services)
        for replica in _rotated_replicas(context):
            sync_pods(context, replica, context.pods.get(replica.label, []))
            sync_services(context, replica, services.get(replica.label, []))
    context.is_concluding = True
    framework.update_job_status(context)
    if context.parity.no_late_pods and context.has_condition(SUCCEEDED):
        context.withdraw_new_pods()  # a rank created now would be cleaned up at once, or stay for ever
    deadline_remaining = seconds_to_deadline(context) if context.parity.deadline_timer else None
    return context.finish(
        None if context.has_condition(SUCCEEDED) or context.has_condition(FAILED) else deadline_remaining
    )


def _rotated_replicas(context: ReconcileContext) -> list[Replica]:
    """The replica types, starting with another one at each reconcile: if the pods of one type are refused, the others are still created.
    (The operator's order is random.)"""
    types = list(context.job.replicas.values())
    first = context.observed.reconcile_count % len(types)
    return types[first:] + types[:first]


def _fail_over_limit(context: ReconcileContext, message: str) -> Decision:
    context.set_completion_time()
    context.record_kind_event("Normal", "Failed", message)
    context.set_condition(FAILED, "Failed", message)
    clean_pods(context, context.job.policy.clean_pod_policy)
    ttl_remaining = time_to_live(context)
    if ttl_remaining is not None and ttl_remaining <= 0:
        context.delete_job()
        return context.finish_without_status()
    return context.finish(ttl_remaining)


UNFINISHED = ("Running", "Pending")


def clean_pods(context: ReconcileContext, policy: str) -> None:
    """Delete pods and their services by a cleanPodPolicy; an unknown policy acts like All."""
    context.delete_with_services([pod for pod in context.observed.pods if should_delete_pod(policy, pod)])


def should_delete_pod(policy: str, pod: Object) -> bool:
    """Whether a cleanPodPolicy (None, Running, All) deletes this pod; `Running` deletes Pending pods, too."""
    if policy == "None":
        return False
    return policy != "Running" or (phase(pod) or "Pending") in UNFINISHED


def remaining_cleanup_delay(context: ReconcileContext) -> float | None:
    """Seconds for which pods of a job that has just succeeded may still end by themselves; None = clean up now."""
    policy, linger = context.job.policy.clean_pod_policy, context.job.policy.linger
    if linger is None or not context.parity.linger:
        linger = context.parity.linger
    remaining = linger - context.observed.finished_for
    # A bound pod of a submitted job may have ended already, with its status still to come.
    is_submitted = context.job.policy.linger is not None
    has_ending_pods = any(
        (phase(p) == "Running" or (is_submitted and phase(p) != "Failed" and dig(p, "spec.nodeName")))
        and not is_deleting(p)
        and should_delete_pod(policy, p)
        for p in context.observed.pods
    )
    return remaining if remaining > 0.001 and has_ending_pods and context.has_condition(SUCCEEDED) else None


def time_to_live(context: ReconcileContext) -> float | None:
    """Seconds until the finished job is deleted; None = never: without a TTL or completionTime, or while it is suspended, as in the
    operator."""
    ttl = context.job.policy.ttl
    if ttl is None or context.job.policy.suspend or context.completion_time is None:
        return None
    return seconds(context.completion_time) + ttl - context.now


RESTARTABLE = ("OnFailure", "Always", "ExitCode")


def exceeded_limit_message(context: ReconcileContext) -> str:
    """Why the job must fail now; "" if it may continue."""
    if _is_backoff_exceeded(context):
        return f"Job {context.job.name} has failed because it has reached the specified backoff limit"
    remaining = seconds_to_deadline(context)
    if remaining is not None and remaining <= 0:
        return f"Job {context.job.name} has failed because it was active longer than specified deadline"
    return ""


def seconds_to_deadline(context: ReconcileContext) -> float | None:
    """Seconds until the deadline; None if there is none or the job has not started."""
    if context.job.policy.deadline is None or context.start_time is None:
        return None
    return seconds(context.start_time) + context.job.policy.deadline - context.now


def _is_backoff_exceeded(context: ReconcileContext) -> bool:
    limit = context.job.policy.backoff_limit
    if limit is None:
        return False
    if limit > 0 and context.job.policy.counts_job_restarts:
        return max((_pod_failures(pod) for pod in _restartable_pods(context)), default=0) > limit
    failed = sum(phase(p) == "Failed" for p in context.observed.pods)
    active = sum(is_active(p) for p in context.observed.pods)
    counted_failures = sum(c.get("failed", 0) for c in context.counts.values())
    if failed > counted_failures and active != context.job.total_replicas and limit < 1:
        return True
    restarts = _count_restarts(context)
    return restarts > 0 if limit == 0 else restarts >= limit


def _count_restarts(context: ReconcileContext) -> int:
    return sum(_pod_restarts(pod) for pod in _restartable_pods(context))


def _restartable_pods(context: ReconcileContext) -> list[Object]:
    """Running pods of the replica types whose restartPolicy allows restarts."""
    restartable_labels = {r.label for r in context.job.replicas.values() if r.restart_policy in RESTARTABLE}
    return [
        pod
        for pod in context.observed.pods
        if phase(pod) == "Running" and ((pod["metadata"].get("labels") or {}).get(TYPE_LABEL) in restartable_labels)
    ]


def _container_statuses(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _pod_restarts(pod: Object) -> int:
    return sum(int(c.get("restartCount") or 0) for c in _container_statuses(pod))


def _pod_failures(pod: Object) -> int:
    """The pod's container restarts, plus one if a container has failed and is still to be restarted."""
    return _pod_restarts(pod) + any(_awaits_restart(c.get("state") or {}) for c in _container_statuses(pod))


def _awaits_restart(state: Object) -> bool:
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    return waiting.get("reason") == "CrashLoopBackOff" or bool(terminated.get("exitCode"))
