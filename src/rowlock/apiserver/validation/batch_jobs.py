"""Makes the rules of batch/v1 Jobs in `training/batch_job/admission` available in `rules.txt`. Pure."""

from __future__ import annotations

from typing import Any

from rowlock.apiserver.schema.go_values import go_value
from rowlock.apiserver.validation.rules import Scope, rule
from rowlock.documents.field_errors import Causes
from rowlock.errors import Cause
from rowlock.objects import Object
from rowlock.training.batch_job.admission import spec_rules, updates


def _show(name: str, value: dict[str, Any]) -> Any:
    group = "core" if name == "PodTemplateSpec" else "batch"
    return go_value(f"io.k8s.api.{group}.v1.{name}", value)


@rule
def batch_job(job: dict[str, Any], _: Scope) -> Causes:
    yield from spec_rules.job_labels(job)
    yield from spec_rules.job_hostnames(job)


@rule
def batch_job_spec(spec: dict[str, Any], _: Scope) -> Causes:
    yield from spec_rules.job_modes(spec)
    yield from spec_rules.job_failure_policy(spec)
    yield from spec_rules.job_success_policy(spec, _show)


@rule
def batch_job_pods(spec: dict[str, Any], _: Scope) -> Causes:
    yield from spec_rules.job_template(spec)
    yield from spec_rules.job_selector(spec)


@rule
def batch_job_name(job: dict[str, Any], _: Scope) -> Causes:
    yield from spec_rules.job_name_warnings(job)


def job_update_causes(old: Object, new: Object) -> Causes:
    """The forbidden changes in an update of a Job."""
    return updates.job_update_causes(old, new, _show)


def job_status_causes(old: Object, new: Object) -> list[Cause]:
    """The forbidden changes in a status update of a Job."""
    return list(updates.job_status_causes(old, new, _show))
