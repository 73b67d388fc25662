"""Which changes of a batch/v1 Job, and which values of its status, are refused. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rowlock import objects
from rowlock.documents.field_errors import (
    Causes,
    duplicate_value,
    immutable_field,
    invalid_value,
    required_value,
)
from rowlock.objects import Object, is_condition_true
from rowlock.training.batch_job.admission.spec_rules import INDEXED, Show, omitted_value
from rowlock.training.batch_job.indexes import format_problem, parse
from rowlock.training.batch_job.model import is_finished

_FREE_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates")


def job_update_causes(old: Object, new: Object, show: Show) -> Causes:
    """Errors of an update: most fields of a Job are immutable, except parallelism, limits and suspension."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    yield from _completions_causes(before.get("completions"), after)
    yield from _fixed_causes("selector", before, after)
    template = after.get("template") or {}
    if template != _template_to_keep(old, template):
        yield immutable_field("spec.template", show("PodTemplateSpec", template))
    yield from _fixed_causes("completionMode", before, after)
    yield from _fixed_causes("podFailurePolicy", before, after, partial(show, "PodFailurePolicy"))
    yield from _fixed_causes("backoffLimitPerIndex", before, after)
    yield from _fixed_causes("managedBy", before, after)
    yield from _fixed_causes("successPolicy", before, after, partial(show, "SuccessPolicy"))


def _fixed_causes(
    field: str, before: dict[str, Any], after: dict[str, Any], show: Callable[[Any], Any] | None = None
) -> Causes:
    value = after.get(field)
    if value != before.get(field):
        yield immutable_field(f"spec.{field}", show(value) if show and value is not None else value)


def _completions_causes(before: int | None, after: dict[str, Any]) -> Causes:
    completions = after.get("completions")
    if completions == before:
        return
    if after.get("completionMode") != INDEXED:
        yield immutable_field("spec.completions", completions)
    elif completions is not None and completions != after.get("parallelism"):
        yield invalid_value("spec.completions", completions, "can only be modified in tandem with spec.parallelism")


def _template_to_keep(old: Object, new_template: dict[str, Any]) -> dict[str, Any]:
    """The template that the update must keep. Placement fields, labels and annotations may change until the Job first starts."""
    kept = objects.dig(old, "spec.template", {})
    if not objects.dig(old, "spec.suspend", False) or objects.dig(old, "status.startTime"):
        return dict(kept)
    wanted_spec, kept_spec = new_template.get("spec") or {}, dict(kept.get("spec") or {})
    for field in _FREE_WHILE_SUSPENDED:
        kept_spec = _with_value(kept_spec, field, wanted_spec.get(field))
    wanted_affinity, affinity = wanted_spec.get("affinity"), dict(kept_spec.get("affinity") or {})
    affinity = _with_value(affinity, "nodeAffinity", (wanted_affinity or {}).get("nodeAffinity"))
    kept_spec = _with_value(kept_spec, "affinity", affinity or (None if wanted_affinity is None else {}))
    metadata = dict(kept.get("metadata") or {})
    for field in ("labels", "annotations"):
        metadata = _with_value(metadata, field, (new_template.get("metadata") or {}).get(field))
    return {**kept, "metadata": metadata, "spec": kept_spec}


def _with_value(fields: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    rest = {k: v for k, v in fields.items() if k != field}
    return rest if value is None else {**rest, field: value}


# ---------------------------------------------------------------- status


def job_status_causes(old: Object, new: Object, show: Show) -> Causes:
    """Errors of a status update. Most rules apply only to changed fields, so that a wrong status can be repaired in steps."""
    yield from _number_causes(new.get("status") or {})
    yield from _ending_causes(old, new)
    yield from _finished_causes(old, new, show)
    yield from _index_causes(old, new)
    yield from _transition_causes(old, new)


def _number_causes(status: dict[str, Any]) -> Causes:
    for field in ("active", "succeeded", "failed", "ready", "terminating"):
        if status.get(field, 0) < 0:
            yield invalid_value(f"status.{field}", status[field], "must be greater than or equal to 0")
    seen = set[str]()
    for field in ("succeeded", "failed"):
        for number, uid in enumerate(objects.dig(status, f"uncountedTerminatedPods.{field}") or ()):
            at = f"status.uncountedTerminatedPods.{field}[{number}]"
            if not uid:
                yield invalid_value(at, uid, "must not be empty")
            elif uid in seen:
                yield duplicate_value(at, uid)
            seen.add(uid)


def _is_changed(old: Object, new: Object, *fields: str) -> bool:
    return any(objects.dig(old, f"status.{f}") != objects.dig(new, f"status.{f}") for f in fields)


def _flips(old: Object, new: Object, *types: str) -> bool:
    return any(is_condition_true(old, t) != is_condition_true(new, t) for t in types)


def _ending_causes(old: Object, new: Object) -> Causes:
    """How a Job may end: Failed after FailureTarget, Complete after SuccessCriteriaMet, never both."""
    complete, failed, target, met = (
        is_condition_true(new, t) for t in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
    )
    at, status = "status.conditions", new.get("status") or {}
    if complete and failed and _flips(old, new, "Complete", "Failed"):
        yield omitted_value(at, "cannot set Complete=True and Failed=true conditions")
    if complete and target and _flips(old, new, "Complete", "FailureTarget"):
        yield omitted_value(at, "cannot set Complete=True and FailureTarget=true conditions")
    ended, started = status.get("completionTime"), status.get("startTime")
    if _flips(old, new, "Complete") or _is_changed(old, new, "completionTime"):
        if ended and not complete:
            why = "cannot set completionTime when there is no Complete=True condition"
            yield invalid_value("status.completionTime", ended, why)
        if complete and not ended:
            yield required_value("status.completionTime", "completionTime is required for Complete jobs")
    if ended and started and _is_changed(old, new, "completionTime", "startTime"):
        if objects.seconds(ended) < objects.seconds(started):
            yield invalid_value("status.completionTime", ended, "must be equal to or after `startTime`")
    if failed and not target and (_flips(old, new, "Failed") or _is_changed(old, new, "failedIndexes")):
        yield omitted_value(at, "cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met and _flips(old, new, "Complete", "SuccessCriteriaMet"):
        yield omitted_value(at, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if met and failed:
        yield omitted_value(at, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and target:
        yield omitted_value(at, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if objects.dig(new, "spec.successPolicy") and complete and not met:
        why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        yield omitted_value(at, why)


def _finished_causes(old: Object, new: Object, show: Show) -> Causes:
    status, finished = new.get("status") or {}, is_finished(new)
    ends = is_finished(old) != finished
    if finished:
        if status.get("active", 0) > 0 and (ends or _is_changed(old, new, "active")):
            yield invalid_value("status.active", status["active"], "active>0 is invalid for finished job")
        is_empty = objects.dig(new, "spec.suspend", False) and objects.dig(new, "spec.completions") == 0
        if not status.get("startTime") and not is_empty and (ends or _is_changed(old, new, "startTime")):
            yield required_value("status.startTime", "startTime is required for finished job")
        uncounted = status.get("uncountedTerminatedPods") or {}
        if any(uncounted.values()) and (ends or _is_changed(old, new, "uncountedTerminatedPods")):
            shown = show("UncountedTerminatedPods", uncounted)
            yield invalid_value("status.uncountedTerminatedPods", shown, "must be empty for finished job")
        if status.get("terminating", 0) > 0 and (ends or _is_changed(old, new, "terminating")):
            yield invalid_value(
                "status.terminating", status["terminating"], "terminating>0 is invalid for finished job"
            )
    if status.get("ready", 0) > status.get("active", 0) and _is_changed(old, new, "ready", "active"):
        yield invalid_value("status.ready", status["ready"], "cannot set more ready pods than active")


def _index_causes(old: Object, new: Object) -> Causes:
    status, spec = new.get("status") or {}, new.get("spec") or {}
    completed, failed = status.get("completedIndexes", ""), status.get("failedIndexes")
    completions = spec.get("completions")
    if _is_changed(old, new, "completedIndexes"):
        if completions is not None and (problem := format_problem(completed, completions)[1]):
            yield invalid_value("status.completedIndexes", completed, f"error parsing completedIndexes: {problem}")
        if completed and spec.get("completionMode") != INDEXED:
            why = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield invalid_value("status.completedIndexes", completed, why)
    if failed is None:
        return
    if _is_changed(old, new, "failedIndexes"):
        limited = spec.get("backoffLimitPerIndex") is not None
        if completions is not None and limited and (problem := format_problem(failed, completions)[1]):
            yield invalid_value("status.failedIndexes", failed, f"error parsing failedIndexes: {problem}")
        if not limited:
            why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            yield invalid_value("status.failedIndexes", failed, why)
    if completions is not None and _is_changed(old, new, "failedIndexes", "completedIndexes"):
        done = parse(completed, completions)
        both = [
            max(a, c) for a, b in done.intervals for c, d in parse(failed, completions).intervals if a <= d and c <= b
        ]
        if both:
            why = f"failedIndexes and completedIndexes overlap at index: {both[0]}"
            yield invalid_value("status.failedIndexes", failed, why)


def _transition_causes(old: Object, new: Object) -> Causes:
    """Changes of the status that cannot be reverted."""
    before, after, spec = old.get("status") or {}, new.get("status") or {}, new.get("spec") or {}
    for ending in ("Failed", "Complete", "FailureTarget"):
        if is_condition_true(old, ending) and not is_condition_true(new, ending):
            yield omitted_value("status.conditions", f"cannot disable the terminal {ending}=True condition")
    can_shrink = spec.get("completionMode") == INDEXED and spec.get("completions") == spec.get("parallelism")
    for field in ("failed", *(() if can_shrink else ("succeeded",))):
        if after.get(field, 0) < before.get(field, 0):
            yield invalid_value(f"status.{field}", after.get(field, 0), f"cannot decrease the {field} counter")
    ended = (before.get("completionTime"), after.get("completionTime"))
    if all(ended) and ended[0] != ended[1]:
        yield immutable_field("status.completionTime", ended[1])
    resumes = (
        is_condition_true(old, "Suspended") and (objects.condition(new, "Suspended") or {}).get("status") == "False"
    )
    if before.get("startTime") and _is_changed(old, new, "startTime") and not spec.get("suspend") and not resumes:
        yield required_value("status.startTime", "startTime cannot be removed for unsuspended job")
    if is_condition_true(old, "SuccessCriteriaMet") and not is_condition_true(new, "SuccessCriteriaMet"):
        yield omitted_value("status.conditions", "cannot disable the SuccessCriteriaMet=True condition")
