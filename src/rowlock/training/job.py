"""The lifecycle of a job, the same for every framework: `reconcile(framework, observed, now) -> Decision`.

A reconcile checks: is the job ours? finished? suspended? resumed? over a limit? If none of these, it creates and counts pods and services
type by type, lets the framework judge the counts, and writes the status. Everything is decided from the observed state, so a restart, a
missed change or a repeated reconcile does no harm.
"""

from __future__ import annotations

from rowlock.api import NOTHING, Decision
from rowlock.objects import is_deleting
from rowlock.training.cleanup import clean_pods, remaining_cleanup_delay, time_to_live
from rowlock.training.conditions import CREATED, FAILED, RUNNING, SUCCEEDED, SUSPENDED
from rowlock.training.defaults import parse_job, run_policy
from rowlock.training.dependents.replicas import sync_pods
from rowlock.training.dependents.services import adopt_services, sync_services
from rowlock.training.framework import Framework
from rowlock.training.limits import exceeded_limit_message, seconds_to_deadline
from rowlock.training.model import DEFAULT, Job, Parity, Replica, group_by_replica_type
from rowlock.training.pod_events import record_pod_events
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
