"""What a batch/v1 Job gets at creation: unique labels for its pods, and the selector that matches them. Pure."""

from __future__ import annotations

from rowlock.objects import Object, dig, labels, name, uid, with_field

CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
_UID_LABELS = (CONTROLLER_UID_LABEL, "controller-uid")
_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


def with_generated_selector(job: Object) -> Object:
    """The Job with a generated selector, unless manualSelector is set. Labels set by the client stay; validation checks them."""
    if dig(job, "spec.manualSelector", False):
        return job
    template_labels = {**generated_labels(job), **(dig(job, "spec.template.metadata.labels") or {})}
    job = with_field(job, "spec.template.metadata.labels", template_labels)
    matched = {CONTROLLER_UID_LABEL: uid(job), **(dig(job, "spec.selector.matchLabels") or {})}
    return with_field(job, "spec.selector.matchLabels", matched)


def with_template_labels(job: Object, submitted: Object) -> Object:
    """Give a Job that was `submitted` without labels those of its pod template. A real server adds them when it reads the stored Job, so
    they are not validated as the Job's own."""
    template_labels = dig(job, "spec.template.metadata.labels")
    return (
        job if labels(submitted) or not template_labels else with_field(job, "metadata.labels", dict(template_labels))
    )


def generated_labels(job: Object) -> dict[str, str]:
    """The labels that the pods of a Job with a generated selector must have."""
    return {**dict.fromkeys(_UID_LABELS, uid(job)), **dict.fromkeys(_NAME_LABELS, name(job))}
