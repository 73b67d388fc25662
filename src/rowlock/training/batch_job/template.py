"""The pods that a Job creates: its template with an owner, the tracking finalizer, and an index. Pure."""

from __future__ import annotations

from typing import Any

from rowlock.objects import Object, owner_reference
from rowlock.objects import labels as labels_of
from rowlock.training.batch_job.model import (
    FAILURES_ANNOTATION,
    IGNORED_FAILURES_ANNOTATION,
    INDEX_KEY,
    TRACKING_FINALIZER,
    BatchJob,
)
from rowlock.training.batch_job.pods import index_failures
from rowlock.training.batch_job.policies import judge_failure
from rowlock.training.pod_group import PREEMPTIBILITY_LABEL, PRIORITY_LABEL, QUEUE_LABELS

SCHEDULING_LABELS = (*QUEUE_LABELS, PRIORITY_LABEL, PREEMPTIBILITY_LABEL)
"""Labels of a Job that the scheduler reads; they are copied to its pods, which may be scheduled one by one."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_PREFIX_LENGTH = 58
"""Maximum length of a pod's name before its five random characters."""


def build_pod(job: BatchJob, index: int | None = None, replaced: Object | None = None) -> Object:
    """A pod to create, for `index` in an Indexed Job. `replaced`: the failed pod of that index, from which the failure counts continue if
    the Job limits them per index."""
    template = job.template
    template_meta, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    labels, annotations = (dict(template_meta.get(key) or {}) for key in ("labels", "annotations"))
    labels = {k: v for k, v in labels_of(job.object).items() if k in SCHEDULING_LABELS} | labels
    if index is not None:
        labels[INDEX_KEY] = annotations[INDEX_KEY] = str(index)
        spec["hostname"] = f"{job.name}-{index}"
        for field in ("containers", "initContainers"):
            if spec.get(field):
                spec[field] = [_with_index_variable(container) for container in spec[field]]
        if job.limit_per_index is not None:
            annotations |= _failure_counts(job, replaced)
    finalizers = [*(template_meta.get("finalizers") or ())]
    if TRACKING_FINALIZER not in finalizers:
        finalizers.append(TRACKING_FINALIZER)
    name_prefix = pod_name_prefix(job.name, index)
    metadata: dict[str, Any] = {"generateName": name_prefix, "namespace": job.namespace, "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    metadata |= {"finalizers": finalizers, "ownerReferences": [owner_reference(job.object)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_name_prefix(job: str, index: int | None) -> str:
    """What the name of a Job's pod begins with; five random characters follow. `index`: None in a Job that is not Indexed."""
    if index is None:
        return f"{job}-"[:_PREFIX_LENGTH]
    name_end = f"-{index}-"
    return job[: _PREFIX_LENGTH - len(name_end)] + name_end


def _with_index_variable(container: Object) -> Object:
    """Append the index variable, unless the container sets it itself."""
    own = container.get("env") or []
    if any(variable.get("name") == INDEX_VARIABLE for variable in own):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
    return {**container, "env": [*own, {"name": INDEX_VARIABLE, "valueFrom": source}]}


def _failure_counts(job: BatchJob, replaced: Object | None) -> dict[str, str]:
    if replaced is None:
        return {FAILURES_ANNOTATION: "0"}
    counted, ignored = index_failures(replaced)
    if judge_failure(replaced, job.failure_rules).is_counted:
        counted += 1
    else:
        ignored += 1
    return {FAILURES_ANNOTATION: str(counted), **({IGNORED_FAILURES_ANNOTATION: str(ignored)} if ignored else {})}
