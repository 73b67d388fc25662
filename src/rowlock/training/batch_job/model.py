"""What the Job controller reads of a batch/v1 Job, typed; and public names of labels, conditions and reasons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock.objects import Object, condition, dig, is_condition_true, is_deleting
from rowlock.objects import name as name_of
from rowlock.objects import namespace as namespace_of
from rowlock.objects import uid as uid_of
from rowlock.training.batch_job import indexes
from rowlock.training.batch_job.indexes import Indexes

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Finalizer of a Job's pods until they are counted in the Job's status, so that deleted pods are counted, too."""
CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
INDEX_KEY = "batch.kubernetes.io/job-completion-index"
"""Annotation and label with the index of a pod of an Indexed Job."""
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
MANAGED_BY_US = "kubernetes.io/job-controller"
EVENT_SOURCE = "job-controller"

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
FAILURE_TARGET, SUCCESS_CRITERIA_MET = "FailureTarget", "SuccessCriteriaMet"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a Job ends. `type`: SuccessCriteriaMet or FailureTarget, which become Complete and Failed once its pods have ended."""

    type: str
    reason: str
    message: str

    @property
    def is_success(self) -> bool:
        return self.type == SUCCESS_CRITERIA_MET

    @property
    def final_type(self) -> str:
        return COMPLETE if self.is_success else FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """A Job's spec with the API server's defaults; times in seconds, None = not limited."""

    object: Object
    parallelism: int
    completions: int | None
    """None: a work queue, which is complete when all its pods have ended and at least one has succeeded."""
    is_indexed: bool
    backoff_limit: int
    limit_per_index: int | None
    max_failed_indexes: int | None
    deadline: int | None
    ttl: int | None
    is_suspended: bool
    replaces_only_failed: bool
    """Terminating pods are counted and replaced only once they have ended."""
    failure_rules: Sequence[Object] | None
    success_rules: Sequence[Object]
    status: Object = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.object)

    @property
    def namespace(self) -> str:
        return namespace_of(self.object)

    @property
    def uid(self) -> str:
        return uid_of(self.object)

    @property
    def is_deleting(self) -> bool:
        return is_deleting(self.object)

    @property
    def template(self) -> Object:
        return dict(dig(self.object, "spec.template", {}))

    @property
    def restarts_in_place(self) -> bool:
        return bool(dig(self.object, "spec.template.spec.restartPolicy") == "OnFailure")

    def indexes_of(self, field_name: str) -> Indexes:
        """The indexes in `completedIndexes` or `failedIndexes` of the status."""
        return indexes.parse(str(self.status.get(field_name) or ""), self.completions or 0)

    def ending_so_far(self) -> Ending | None:
        """The ending that an earlier reconcile decided, which is final; None if there is none."""
        for type_ in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
            found = condition(self.object, type_)
            if found is not None and found.get("status") == "True":
                return Ending(type_, str(found.get("reason") or ""), str(found.get("message") or ""))
        return None


def parse_batch_job(job: Object) -> BatchJob:
    """Parse a stored Job."""
    spec: dict[str, Any] = job.get("spec") or {}
    failure_policy = spec.get("podFailurePolicy")
    return BatchJob(
        object=job,
        parallelism=int(spec.get("parallelism", 1)),
        completions=spec.get("completions"),
        is_indexed=spec.get("completionMode") == "Indexed",
        backoff_limit=int(spec.get("backoffLimit", 6)),
        limit_per_index=spec.get("backoffLimitPerIndex"),
        max_failed_indexes=spec.get("maxFailedIndexes"),
        deadline=spec.get("activeDeadlineSeconds"),
        ttl=spec.get("ttlSecondsAfterFinished"),
        is_suspended=bool(spec.get("suspend")),
        replaces_only_failed=spec.get("podReplacementPolicy") == "Failed",
        failure_rules=None if failure_policy is None else failure_policy.get("rules") or (),
        success_rules=dig(spec, "successPolicy.rules") or (),
        status=job.get("status") or {},
    )


def is_finished(job: Object) -> bool:
    """Whether a Job is Complete or Failed, both of which are final."""
    return is_condition_true(job, COMPLETE) or is_condition_true(job, FAILED)


def is_ours(job: Object) -> bool:
    """Whether this controller runs the Job, unless `spec.managedBy` names another one."""
    return bool(dig(job, "spec.managedBy", MANAGED_BY_US) == MANAGED_BY_US)
