"""Questions about a Job's pod: whether it has failed, its index, when it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock.objects import (
    FINAL_PHASES,
    Object,
    condition,
    dig,
    is_condition_true,
    is_deleting,
    is_digits,
    meta,
    phase,
    seconds,
)
from rowlock.objects import annotations as annotations_of
from rowlock.training.batch_job.model import (
    FAILURES_ANNOTATION,
    IGNORED_FAILURES_ANNOTATION,
    INDEX_KEY,
    TRACKING_FINALIZER,
    BatchJob,
)

PREEMPTION_REASON = "PreemptionByScheduler"


def is_over(pod: Object) -> bool:
    """Whether its containers have ended for good."""
    return phase(pod) in FINAL_PHASES


def is_active(pod: Object) -> bool:
    """Whether the pod has neither ended nor is being deleted; a pending pod is active, too."""
    return not is_over(pod) and not is_deleting(pod)


def is_terminating(pod: Object) -> bool:
    return not is_over(pod) and is_deleting(pod)


def is_ready(pod: Object) -> bool:
    return is_condition_true(pod, "Ready")


def is_tracked(pod: Object) -> bool:
    """Whether the pod has the tracking finalizer, so its end is still to be counted."""
    return TRACKING_FINALIZER in (meta(pod).get("finalizers") or ())


def is_preempted(pod: Object) -> bool:
    """Whether the scheduler evicted the pod for another gang; it then counts neither as failed nor as succeeded."""
    disruption = condition(pod, "DisruptionTarget") if is_deleting(pod) else None
    return bool(disruption and disruption.get("status") == "True" and disruption.get("reason") == PREEMPTION_REASON)


def has_failed(pod: Object, job: BatchJob) -> bool:
    """Whether the pod counts as failed. A terminating pod does (its kubelet may be gone), unless the Job replaces only failed pods."""
    if phase(pod) == "Failed":
        return not is_preempted(pod)
    return is_terminating(pod) and not job.replaces_only_failed and not is_preempted(pod)


def index_of(pod: Object, job: BatchJob) -> int | None:
    """The pod's completion index; None if it is absent or not below the Job's completions."""
    text = annotations_of(pod).get(INDEX_KEY, "")
    index = int(text) if is_digits(text) else -1
    return index if 0 <= index < (job.completions or 0) else None


def counts_for(pod: Object, job: BatchJob) -> bool:
    """Whether the pod's end counts: in an Indexed Job only with a valid index."""
    return not job.is_indexed or index_of(pod, job) is not None


def index_failures(pod: Object) -> tuple[int, int]:
    """(counted, ignored) failures of the pod's index before this pod."""
    counted, ignored = (
        int(text) if is_digits(text) else 0
        for text in (annotations_of(pod).get(key, "0") for key in (FAILURES_ANNOTATION, IGNORED_FAILURES_ANNOTATION))
    )
    return counted, ignored


def container_statuses(pod: Object) -> list[dict[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def restart_count(pod: Object) -> int:
    return sum(int(c.get("restartCount") or 0) for c in container_statuses(pod))


def finished_at(pod: Object) -> float:
    """When the pod ended (seconds since the epoch): by its containers, else when it became not ready, else when it was deleted."""
    ends = [dig(c, "state.terminated.finishedAt") for c in dig(pod, "status.containerStatuses") or ()]
    if ends and all(ends):
        return max(map(seconds, ends))
    ready = condition(pod, "Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return seconds(ready["lastTransitionTime"])
    if is_deleting(pod):
        return seconds(meta(pod)["deletionTimestamp"]) - int(meta(pod).get("deletionGracePeriodSeconds") or 0)
    return seconds(meta(pod).get("creationTimestamp"))


def removal_order(pod: Object) -> tuple[Any, ...]:
    """A sort key: pods whose removal loses least come first (without a node, not running, not ready, ready for a short time, young)."""
    ready_since = seconds((condition(pod, "Ready") or {}).get("lastTransitionTime")) if is_ready(pod) else 0.0
    return (
        bool(dig(pod, "spec.nodeName")),
        {"Pending": 0, "Unknown": 1}.get(phase(pod) or "Pending", 2),
        is_ready(pod),
        -ready_since,
        -max((int(c.get("restartCount") or 0) for c in container_statuses(pod)), default=0),
        -seconds(meta(pod).get("creationTimestamp")),
    )


def surplus(pods: Iterable[Object], job: BatchJob, at_least: int) -> list[Object]:
    """Active pods to remove: those without a valid index, duplicates of an index, and others until there are `at_least` so many."""
    removed: list[Object] = []
    kept: list[Object] = []
    if job.is_indexed:
        by_index: dict[int | None, list[Object]] = {}
        for pod in pods:
            by_index.setdefault(index_of(pod, job), []).append(pod)
        for index, some in by_index.items():
            ordered = sorted(some, key=removal_order)
            last = len(ordered) if index is None else len(ordered) - 1
            removed += ordered[:last]
            kept += ordered[last:]
    else:
        kept = list(pods)
    missing = max(0, at_least - len(removed))
    return removed + sorted(kept, key=removal_order)[:missing]
