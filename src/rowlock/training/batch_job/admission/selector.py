"""What a batch/v1 Job gets when it is made: labels of its own on its pods, and the selector that finds them. Pure."""

from __future__ import annotations

from rowlock.objects import Object, dig, labels, name, uid, with_field

CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
_UID_LABELS = (CONTROLLER_UID_LABEL, "controller-uid")
_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


def with_generated_selector(job: Object) -> Object:
    """The Job with its selector, unless it brings its own. Labels of the client's stay: validation judges them."""
    if dig(job, "spec.manualSelector", False):
        return job
    template_labels = {**generated_labels(job), **(dig(job, "spec.template.metadata.labels") or {})}
    job = with_field(job, "spec.template.metadata.labels", template_labels)
    matched = {CONTROLLER_UID_LABEL: uid(job), **(dig(job, "spec.selector.matchLabels") or {})}
    return with_field(job, "spec.selector.matchLabels", matched)


def with_template_labels(job: Object, submitted: Object) -> Object:
    """A Job that was `submitted` without labels has those of its pods. A real server says so when it reads the Job again: they are
    not validated as the Job's own."""
    template_labels = dig(job, "spec.template.metadata.labels")
    return (
        job if labels(submitted) or not template_labels else with_field(job, "metadata.labels", dict(template_labels))
    )


def generated_labels(job: Object) -> dict[str, str]:
    """The labels that the pods of a Job with a generated selector must have."""
    return {**dict.fromkeys(_UID_LABELS, uid(job)), **dict.fromkeys(_NAME_LABELS, name(job))}
