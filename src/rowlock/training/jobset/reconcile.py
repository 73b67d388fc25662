"""One reconcile of one JobSet: its status, whether it has ended, and which Jobs are created, deleted, suspended and resumed.

The order is the JobSet controller's: an ended set deletes its running Jobs; Jobs of earlier restarts are deleted; failures are judged
before successes; only then is anything created. The status is written last, so it is not written if a create is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rowlock.api import NOTHING, Create, Decision, Delete, DeleteOptions, Patch, Record, Update, Write
from rowlock.kinds import BATCH_JOB, JOB_SET, PERSISTENT_VOLUME_CLAIM, SERVICE
from rowlock.objects import (
    Object,
    condition,
    copy_json,
    dig,
    is_condition_true,
    is_deleting,
    labels,
    name,
    namespace,
    seconds,
)
from rowlock.training.dependents.pods import pods_per_look
from rowlock.training.jobset import policies
from rowlock.training.jobset.dependencies import is_in_order, unmet_dependencies
from rowlock.training.jobset.jobs import SetNumbers, claims_of, job_name, service_of
from rowlock.training.jobset.model import (
    COMPLETED,
    CONTROLLER,
    FAILED,
    REPLICATED_JOB_KEY,
    RESTARTING,
    STARTED,
    STARTING,
    SUSPENDED,
    Json,
    ObservedSet,
    SetOutcome,
    has_host_names,
    is_finished,
    pods_at_a_time,
    replicas,
)

SOURCE = "jobset"
_FOREGROUND = DeleteOptions(propagation="Foreground")
_PLACEMENT = ("nodeSelector", "tolerations", "schedulingGates")


def reconcile(observed: ObservedSet, now: float) -> Decision:
    """The writes for a set, and when to reconcile it again."""
    jobset = observed.jobset
    if is_deleting(jobset) or observed.spec.get("managedBy", CONTROLLER) != CONTROLLER:
        return NOTHING
    outcome = SetOutcome(copy_json(jobset.get("status") or {}), now)
    outcome.status["replicatedJobsStatus"] = _counts(observed)
    outcome.status.setdefault("restarts", 0)
    if (ended := _end(jobset)) is not None:
        return _clean_up(observed, outcome, ended)
    writes: list[Write] = [
        Delete(BATCH_JOB, namespace(job), name(job), _FOREGROUND)
        for job in observed.earlier_jobs()
        if not is_deleting(job)
    ]
    if not observed.is_suspended and policies.all_ready(observed, outcome):
        outcome.set_condition(RESTARTING, False, "JobsReady", "all jobs are ready")
    if failed := observed.failed_jobs():
        policies.judge_failure(observed, failed, outcome)
    elif policies.has_succeeded(observed):
        policies.complete(outcome)
    else:
        writes += _make(observed, outcome)
    return Decision((*writes, *_report(observed, outcome)))


def has_ended(jobset: Object) -> bool:
    return _end(jobset) is not None


def _end(jobset: Object) -> Json | None:
    """The True condition Completed or Failed; None if the set has not ended."""
    return next((condition(jobset, type_) for type_ in (COMPLETED, FAILED) if is_condition_true(jobset, type_)), None)


def _clean_up(observed: ObservedSet, outcome: SetOutcome, ended: Json) -> Decision:
    jobset = observed.jobset
    writes: list[Write] = [
        Delete(BATCH_JOB, namespace(job), name(job), _FOREGROUND)
        for job in observed.jobs
        if not is_finished(job) and not is_deleting(job)
    ]
    writes += _report(observed, outcome)
    ttl = observed.spec.get("ttlSecondsAfterFinished")
    if ttl is None:
        return Decision(tuple(writes))
    left = seconds(ended.get("lastTransitionTime")) + ttl - outcome.now
    if left > 0:
        return Decision(tuple(writes), requeue_after=left)
    return Decision((*writes, Delete(JOB_SET, namespace(jobset), name(jobset), _FOREGROUND)))


def _counts(observed: ObservedSet) -> list[Json]:
    """The replicatedJobsStatus: numbers of Jobs by state, sorted by name in descending order as in the real controller."""
    counts = {
        job["name"]: {"name": job["name"], "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        for job in observed.replicated_jobs
    }
    for job in observed.current_jobs():
        count = counts.get(labels(job).get(REPLICATED_JOB_KEY, ""))
        if count is None:
            continue
        for field in _places(job):
            count[field] += 1
    return [counts[key] for key in sorted(counts, reverse=True)]


def _places(job: Object) -> Iterator[str]:
    if is_condition_true(job, "Complete"):
        yield "succeeded"
        return
    if is_condition_true(job, "Failed"):
        yield "failed"
        return
    spec, status = job.get("spec") or {}, job.get("status") or {}
    if status.get("succeeded", 0) + status.get("ready", 0) >= pods_at_a_time(spec):
        yield "ready"
    if status.get("active", 0) > 0:
        yield "active"
    if spec.get("suspend"):
        yield "suspended"


def _make(observed: ObservedSet, outcome: SetOutcome) -> Iterator[Write]:
    jobset = observed.jobset
    if has_host_names(jobset) and not observed.has_service:
        refused = Record(jobset, "Warning", "HeadlessServiceCreationFailed", "{error}", SOURCE)
        yield Create(SERVICE, service_of(jobset), (refused,))
    for claim in claims_of(jobset):
        if name(claim) not in observed.claims:
            refused = Record(jobset, "Warning", "PVCCreationFailed", "{error}", SOURCE)
            yield Create(PERSISTENT_VOLUME_CLAIM, claim, (refused,))
    has_order = is_in_order(jobset)
    all_started = True
    counts = {one["name"]: one for one in outcome.status["replicatedJobsStatus"]}
    sizes = {one["name"]: replicas(one) for one in observed.replicated_jobs}
    own = _unfinished_jobs(observed)
    missing = _MissingJobs(observed)
    for position, job in enumerate(observed.replicated_jobs):
        jobs = own.get(job["name"], ())
        if observed.is_suspended:
            yield from _suspend(jobs)
        if any(unmet_dependencies(job, counts, sizes)):
            continue
        yield from missing.take(position)
        if observed.is_suspended:
            continue
        yield from _resume(jobs, job)
        if has_order and any(map(_completes_next, jobs)):
            all_started = False
            break
        if has_order and not _has_started(job, counts):
            outcome.lower(STARTED)
            outcome.set_condition(
                STARTING, True, "InOrderStartupPolicyInProgress", "in order startup policy is in progress"
            )
            all_started = False
            break
    if observed.is_suspended:
        outcome.set_condition(RESTARTING, False, "JobSetSuspended", "jobset is suspended")
        outcome.set_condition(SUSPENDED, True, "SuspendedJobs", "jobset is suspended")
    elif all_started:
        outcome.set_condition(SUSPENDED, False, "ResumeJobs", "jobset is resumed")
        if has_order:
            outcome.lower(STARTING)
            outcome.set_condition(
                STARTED, True, "InOrderStartupPolicyCompleted", "in order startup policy has completed"
            )


def _has_started(job: Json, counts: Mapping[str, Json]) -> bool:
    count = counts[job["name"]]
    return bool(count["ready"] + count["failed"] + count["succeeded"] >= replicas(job))


def _completes_next(job: Object) -> bool:
    """Whether the next write to the Job is its condition Complete. The success policy is judged then, before anything is said about the start."""
    return is_condition_true(job, "SuccessCriteriaMet") and not dig(job, "status.terminating", 0)


MAX_JOBS_PER_LOOK = 100
"""Maximum of Jobs that one reconcile creates; the next one, which they wake, continues."""


class _MissingJobs:
    """The Jobs that one reconcile of a set creates."""

    def __init__(self, observed: ObservedSet) -> None:
        self._observed, self._taken = observed, {name(one) for one in observed.jobs}
        is_blocking = dig(observed.jobset, "spec.failurePolicy.restartStrategy", "") == "BlockingRecreate"
        self._room = 0 if is_blocking and observed.earlier_jobs() else MAX_JOBS_PER_LOOK
        self._numbers = SetNumbers(observed.jobset)

    def take(self, position: int) -> Iterator[Write]:
        """Those of one replicated job, as far as there is room."""
        jobset, job = self._observed.jobset, self._observed.replicated_jobs[position]
        room = min(self._room, pods_per_look(dig(job, "template.spec.template", {})))
        for index in range(replicas(job)) if room else ():
            if (wanted := job_name(jobset, job, index)) in self._taken:
                continue
            message = f'job "{wanted}" creation failed with error: {{error}}'
            refused = Record(jobset, "Warning", "JobCreationFailed", message, SOURCE)
            yield Create(BATCH_JOB, self._numbers.job_of(position, index, self._observed.restarts), (refused,))
            room, self._room = room - 1, self._room - 1
            if room <= 0:
                return


def _unfinished_jobs(observed: ObservedSet) -> dict[str, list[Object]]:
    """The current Jobs that have not ended, by their replicated job."""
    found: dict[str, list[Object]] = {}
    for one in observed.current_jobs():
        if not is_finished(one):
            found.setdefault(labels(one).get(REPLICATED_JOB_KEY, ""), []).append(one)
    return found


def _suspend(jobs: Iterable[Object]) -> Iterator[Write]:
    for one in jobs:
        if not dig(one, "spec.suspend", False):
            yield Patch(BATCH_JOB, namespace(one), name(one), {"spec": {"suspend": True}})


def _resume(jobs: Iterable[Object], job: Json) -> Iterator[Write]:
    """Resume suspended Jobs with the set's placement fields. These can change only once the Job's startTime is cleared."""
    for one in jobs:
        if not dig(one, "spec.suspend", False):
            continue
        if dig(one, "status.startTime", None):
            yield Patch(BATCH_JOB, namespace(one), name(one), {"status": {"startTime": None}}, subresource="status")
        template: dict[str, Any] = _placement(dig(job, "template.spec.template", {}), dig(one, "spec.template", {}))
        change = {"suspend": False, **({"template": template} if template else {})}
        yield Patch(BATCH_JOB, namespace(one), name(one), {"spec": change})


def _placement(wanted: Json, present: Json) -> Json:
    """A merge patch with the parts of the set's pod template that a resumed Job takes over."""
    metadata = {
        part: wanted["metadata"][part] for part in ("labels", "annotations") if dig(wanted, f"metadata.{part}", None)
    }
    spec: Json = {}
    for part in _PLACEMENT:
        value, before = dig(wanted, f"spec.{part}", None), dig(present, f"spec.{part}", None)
        if isinstance(value, list):
            spec[part] = [*(one for one in before or () if one not in value), *value]
        elif value:
            spec[part] = value
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def _report(observed: ObservedSet, outcome: SetOutcome) -> Iterator[Write]:
    jobset = observed.jobset
    if outcome.status != (jobset.get("status") or {}):
        yield Update(JOB_SET, {**jobset, "status": outcome.status}, "status")
    for event in outcome.events:
        kind: Any = event.type
        yield Record(jobset, kind, event.reason, event.message, SOURCE)
