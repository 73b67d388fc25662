"""The scheduler's admission checks of pods, jobs, queues and PodGroups.

On a real cluster KAI's webhooks check pods and queues; a job whose pods they would refuse is admitted there and hangs
without a pod. Here the job itself is refused at once. What a real cluster admits but never schedules (a missing queue, a
pod larger than any node) is admitted here too, with a warning that kubectl prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.api import View, WriteOptions
from rowlock.errors import Cause, Forbidden, forbidden
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.scheduling import ownership
from rowlock.scheduling.admission import (
    denial_message,
    duration_warnings,
    group_causes,
    queue_causes,
    queue_warning,
    share_refusal,
    share_warning,
)
from rowlock.scheduling.model import from_objects
from rowlock.scheduling.model.pod_requests import node_pool
from rowlock.scheduling.model.scheduler_identity import EMBEDDED
from rowlock.training.batch_job.gang import runs_together
from rowlock.training.batch_job.model import parse_batch_job
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.jobset.model import pods_at_a_time, replicas
from rowlock.training.pod_group import queue_of
from rowlock.workloads.feasibility import never_fits_message, too_many_pods_message, too_many_waiting_message

REVIEWED_KINDS = frozenset({kinds.POD, kinds.QUEUE, kinds.POD_GROUP, *kinds.OTHER_POD_GROUPS, *kinds.WORKLOADS})
_OF_JOBS = frozenset({kinds.BATCH_JOB, kinds.JOB_SET, kinds.TRAIN_JOB})


def causes(kind: Kind, new: Object, view: View | None) -> Iterator[Cause]:
    """What is wrong with a Queue or a PodGroup, one cause per field."""
    if kind is kinds.QUEUE:
        yield from queue_causes(new, lambda name: view.get(kinds.QUEUE, "", name) if view else None)
    elif kind is kinds.POD_GROUP:
        yield from group_causes(new)


def review(
    kind: Kind, old: Object | None, new: Object, options: WriteOptions, view: View | None, *, now: float = 0.0
) -> None:
    """Raise Forbidden for pods, and jobs with pods, that request impossible GPU shares; add warnings for other problems."""
    annotations = objects.annotations(new)
    is_told = kind in REVIEWED_KINDS and kind is not kinds.QUEUE
    if is_told and (old is None or annotations != objects.annotations(old)):
        options.warnings.extend(duration_warnings(annotations))
    if kind in kinds.OTHER_POD_GROUPS and old is None:
        options.warnings.append(
            f"nothing here places pods by a PodGroup of {kind.group}: a gang is one of {kinds.POD_GROUP.api_version}"
            " (docs/scheduler.md), and each JobSet and TrainJob is one by itself"
        )
    if kind is kinds.POD:
        if old is None:
            _check_gpu_share(annotations, new.get("spec") or {}, "metadata.annotations", options)
            _warn_pod(new, options, view)
    elif kind in FRAMEWORKS and (old is None or old.get("spec") != new.get("spec")):
        for path, template in _pod_templates(kind, new):
            wanted = (template.get("metadata") or {}).get("annotations") or {}
            _check_gpu_share(wanted, template.get("spec") or {}, f"{path}.metadata.annotations", options)
        if view is not None:
            _check_pod_count(kind, new, view)
        if old is None and view is not None:
            _warn_job(kind, new, options, view, now)
    elif kind in _OF_JOBS and view is not None and (old is None or old.get("spec") != new.get("spec")):
        _check_counts(kind, new, view)


def check_ownership(kind: Kind, old: Object | None, new: Object, options: WriteOptions, view: View | None) -> None:
    """Raise Forbidden for another project's queue, and for fields that only the scheduler may write."""
    if options.may_use_queue is None or kind not in ownership.KINDS or view is None:
        return
    namespace = view.get(kinds.NAMESPACE, "", objects.namespace(new)) if kind.namespaced else None
    if why := ownership.refusal(kind, old, new, namespace, options.may_use_queue):
        raise forbidden(kind.plural, objects.name(new), why, kind.group)


def _check_gpu_share(annotations: Mapping[str, str], spec: Mapping[str, Any], path: str, options: WriteOptions) -> None:
    if why := share_refusal(annotations, spec, path):
        raise Forbidden(denial_message(why))
    if text := share_warning(annotations, path):
        options.warnings.append(text)


def _check_pod_count(kind: Kind, job: Object, view: View) -> None:
    if message := too_many_pods_message(parse_job(FRAMEWORKS[kind], job).total_replicas, view.all(kinds.NODE)):
        raise Forbidden(denial_message(message))


def _check_counts(kind: Kind, obj: Object, view: View) -> None:
    """Refuse more pods at a time than nodes could ever hold together, or keep waiting: their controllers would make them all."""
    together, in_all = _pods_at_a_time(kind, obj)
    nodes = view.all(kinds.NODE)
    if message := too_many_pods_message(together, nodes) or too_many_waiting_message(in_all, nodes):
        raise Forbidden(denial_message(message))


def _pods_at_a_time(kind: Kind, obj: Object) -> tuple[int, int]:
    """(pods of the largest gang, all pods at a time; a Job without pods counts as one)."""
    if kind is kinds.TRAIN_JOB:
        nodes = int(objects.dig(obj, "spec.trainer.numNodes", 1))
        return nodes, nodes
    if kind is kinds.BATCH_JOB:
        count = pods_at_a_time(obj.get("spec") or {})
        return (count if runs_together(parse_batch_job(obj)) else 0), count
    jobs = objects.dig(obj, "spec.replicatedJobs", None) or ()
    counts = [(replicas(job), pods_at_a_time(objects.dig(job, "template.spec", {}))) for job in jobs]
    return max((each * pods for each, pods in counts), default=0), sum(each * max(1, pods) for each, pods in counts)


def _pod_templates(kind: Kind, job: Object) -> Iterator[tuple[str, Object]]:
    field = FRAMEWORKS[kind].replicas
    for role, replica in (objects.dig(job, f"spec.{field}") or {}).items():
        yield f"spec.{field}.{role}.template", (replica or {}).get("template") or {}


def _warn_pod(pod: Object, options: WriteOptions, view: View | None) -> None:
    """Warn of a missing queue that the pod itself names. Pods of jobs inherit theirs; they are created by the thousand."""
    queue = next((q for label in from_objects.QUEUE_LABELS if (q := objects.labels(pod).get(label))), "")
    if queue and view is not None and not EMBEDDED.is_foreign(pod) and view.get(kinds.QUEUE, "", queue) is None:
        options.warnings.append(queue_warning(queue, lambda _: None, ()))


def _warn_job(kind: Kind, job: Object, options: WriteOptions, view: View, now: float) -> None:
    training_job = parse_job(FRAMEWORKS[kind], job)
    queue = queue_of(training_job, view.get(kinds.NAMESPACE, "", training_job.namespace))
    text = queue_warning(queue, lambda name: view.get(kinds.QUEUE, "", name), view.all(kinds.QUEUE))
    if text:
        options.warnings.append(text)
    for path, template in _pod_templates(kind, job):
        text = never_fits_message(template, view.all(kinds.NODE), now, node_pool(job))
        if text:
            options.warnings.append(f"{path}: {text}")
