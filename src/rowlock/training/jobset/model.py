"""A JobSet and its Jobs as observed by one reconcile, and the resulting status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.objects import Object, dig, is_condition_true, labels, name, timestamp

PREFIX = "jobset.sigs.k8s.io/"
NAME_KEY = f"{PREFIX}jobset-name"
REPLICATED_JOB_KEY = f"{PREFIX}replicatedjob-name"
RESTART_KEY = f"{PREFIX}restart-attempt"
CONTROLLER = f"{PREFIX}jobset-controller"
COMPLETED, FAILED, SUSPENDED, RESTARTING = "Completed", "Failed", "Suspended", "RestartingJobSet"
STARTING, STARTED = "StartupPolicyInProgress", "StartupPolicyCompleted"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedSet:
    """The observed state: the set, the Jobs that it owns, and which of the names that it needs exist."""

    jobset: Object
    jobs: list[Object]
    has_service: bool
    claims: frozenset[str] = frozenset()
    """Names of the set's volume claims that exist in its namespace."""

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.jobset.get("spec") or {}

    @property
    def replicated_jobs(self) -> list[Json]:
        return list(self.spec.get("replicatedJobs") or ())

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def restarts(self) -> int:
        return int(dig(self.jobset, "status.restarts", 0))

    def current_jobs(self) -> Iterator[Object]:
        """Jobs of the current restart."""
        return (job for job in self.jobs if attempt(job) >= self.restarts)

    def earlier_jobs(self) -> list[Object]:
        """Jobs of earlier restarts."""
        return [job for job in self.jobs if attempt(job) < self.restarts]

    def failed_jobs(self) -> list[Object]:
        """Failed Jobs of the current restart, in the order of their failures."""
        failed = [job for job in self.current_jobs() if is_condition_true(job, "Failed")]
        return sorted(failed, key=lambda job: (_failed_at(job), name(job)))


def _failed_at(job: Object) -> str:
    conditions = dig(job, "status.conditions", None) or ()
    return next((str(c.get("lastTransitionTime") or "") for c in conditions if c.get("type") == "Failed"), "")


def attempt(job: Object) -> int:
    """The restart that created a Job; 0 if its label is malformed."""
    text = labels(job).get(RESTART_KEY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def replicas(job: Mapping[str, Any]) -> int:
    """The number of Jobs of a replicated job."""
    return int(job.get("replicas", 1))


def pods_at_a_time(job_spec: Mapping[str, Any]) -> int:
    """How many pods a Job runs at once."""
    parallelism, completions = int(job_spec.get("parallelism", 1)), job_spec.get("completions")
    return max(0, parallelism if completions is None else min(parallelism, int(completions)))


def is_finished(job: Object) -> bool:
    """Whether a Job is Complete or Failed."""
    return is_condition_true(job, "Complete") or is_condition_true(job, "Failed")


def subdomain(jobset: Object) -> str:
    """The name of the headless Service, which is also the pods' subdomain."""
    return str(dig(jobset, "spec.network.subdomain", "") or name(jobset))


def has_host_names(jobset: Object) -> bool:
    return bool(dig(jobset, "spec.network.enableDNSHostnames", True))


@dataclass(frozen=True, slots=True)
class Event:
    """An event about a set."""

    type: str
    reason: str
    message: str


@dataclass(slots=True)
class SetOutcome:
    """The resulting status and events of a reconcile. `now`: the time of changed conditions (seconds since the epoch)."""

    status: Json
    now: float
    events: list[Event] = field(default_factory=list)

    def condition(self, type_: str) -> Json | None:
        return next((c for c in self.status.get("conditions") or () if c["type"] == type_), None)

    def is_true(self, type_: str) -> bool:
        return (self.condition(type_) or {}).get("status") == "True"

    def set_condition(self, type_: str, is_true: bool, reason: str, message: str) -> None:
        """Set a condition, and add an event if that changes it. A condition that does not exist is not added as False."""
        before, status = self.condition(type_), "True" if is_true else "False"
        if before is None and not is_true:
            return
        if before and (before["status"], before["reason"], before["message"]) == (status, reason, message):
            return
        is_same = before is not None and before["status"] == status
        moment = before["lastTransitionTime"] if before is not None and is_same else timestamp(self.now)
        changed = {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}
        conditions = list(self.status.get("conditions") or ())
        if before is None:
            conditions.append(changed)
        else:
            conditions[conditions.index(before)] = changed
        self.status["conditions"] = conditions
        is_warning = is_true and type_ in (FAILED, RESTARTING)
        self.events.append(Event("Warning" if is_warning else "Normal", reason, message))

    def lower(self, type_: str) -> None:
        """Set an existing condition to False without an event, keeping its reason and message, because another one excludes it."""
        before = self.condition(type_)
        if before is not None and before["status"] == "True":
            conditions = list(self.status["conditions"])
            lowered = {**before, "status": "False", "lastTransitionTime": timestamp(self.now)}
            conditions[conditions.index(before)] = lowered
            self.status["conditions"] = conditions
