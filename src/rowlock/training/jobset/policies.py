"""A set's success policy and failure policy: when it has succeeded, has failed, or restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.objects import Object, condition, is_condition_true, labels, name
from rowlock.training.jobset.model import (
    COMPLETED,
    FAILED,
    REPLICATED_JOB_KEY,
    RESTARTING,
    Event,
    ObservedSet,
    SetOutcome,
    replicas,
)
from rowlock.training.jobset.patterns import OutOfSteps, PatternSteps, is_found

_FAIL, _RESTART, _RESTART_FREELY = "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"
_ACTION_REASONS = {
    _RESTART: "RestartJobSetFailurePolicyAction",
    _RESTART_FREELY: "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
}


def has_succeeded(observed: ObservedSet) -> bool:
    """Whether the success policy is met: all Jobs that count are complete, or any."""
    policy = observed.spec.get("successPolicy") or {}
    targets = set(policy.get("targetReplicatedJobs") or (job["name"] for job in observed.replicated_jobs))
    complete = [
        job
        for job in observed.current_jobs()
        if is_condition_true(job, "Complete") and labels(job).get(REPLICATED_JOB_KEY) in targets
    ]
    if not complete or policy.get("operator") == "Any":
        return bool(complete)
    return len(complete) >= sum(replicas(job) for job in observed.replicated_jobs if job["name"] in targets)


def complete(outcome: SetOutcome) -> None:
    outcome.set_condition(RESTARTING, False, "JobSetCompleted", "jobset completed successfully")
    outcome.set_condition(COMPLETED, True, "AllJobsCompleted", "jobset completed successfully")
    outcome.status["terminalState"] = "Completed"


def _fail(outcome: SetOutcome, reason: str, message: str) -> None:
    outcome.set_condition(RESTARTING, False, "JobSetFailed", "jobset failed")
    outcome.set_condition(FAILED, True, reason, message)
    outcome.status["terminalState"] = "Failed"


def judge_failure(observed: ObservedSet, failed: list[Object], outcome: SetOutcome) -> None:
    """Apply the failure policy: fail or restart the set. `failed`: its failed Jobs, in the order of their failures."""
    policy = observed.spec.get("failurePolicy")
    if policy is None:
        message = f"jobset failed due to one or more job failures (first failed job: {name(failed[0])})"
        _fail(outcome, "FailedJobs", message)
        return
    try:
        rule, job = _first_rule(policy, failed)
    except OutOfSteps:
        why = "the patterns of its failure policy (onJobFailureMessagePatterns) are too long to search: use fewer or simpler ones"
        _fail(outcome, "FailurePolicyTooLong", f"jobset failed, and {why} (first failed job: {name(failed[0])})")
        return
    action = rule.get("action", _RESTART) if rule else _RESTART
    message = f"applying {action} failure policy action (first failed job: {name(job)})"
    if action == _FAIL:
        _fail(outcome, "FailJobSetFailurePolicyAction", message)
        return
    counted = int(outcome.status.get("restartsCountTowardsMax", 0))
    if action == _RESTART and counted >= int(policy.get("maxRestarts", 0)):
        why = f"jobset failed due to reaching max number of restarts (first failed job: {name(job)})"
        _fail(outcome, "ReachedMaxRestarts", why)
        return
    outcome.status["restarts"] = observed.restarts + 1
    if action == _RESTART:
        outcome.status["restartsCountTowardsMax"] = counted + 1
    outcome.events.append(Event("Warning", _ACTION_REASONS[action], message))
    reason = f"FailurePolicy_{rule.get('name', '')}" if rule else "DefaultFailurePolicy"
    outcome.set_condition(RESTARTING, True, reason, message)


def _first_rule(policy: Mapping[str, Any], failed: list[Object]) -> tuple[Mapping[str, Any] | None, Object]:
    """(the first rule that a failed Job matches, that Job); (None, the first failed Job) if no rule matches. Raises OutOfSteps."""
    steps = PatternSteps()
    for rule in policy.get("rules") or ():
        for job in failed:
            steps.take(1)
            if _applies(rule, job, steps):
                return rule, job
    return None, failed[0]


def _applies(rule: Mapping[str, Any], job: Object, steps: PatternSteps) -> bool:
    why = condition(job, "Failed") or {}
    targets = rule.get("targetReplicatedJobs") or ()
    reasons, patterns = rule.get("onJobFailureReasons") or (), rule.get("onJobFailureMessagePatterns") or ()
    if targets and labels(job).get(REPLICATED_JOB_KEY) not in targets:
        return False
    if reasons and why.get("reason") not in reasons:
        return False
    return not patterns or any(is_found(pattern, str(why.get("message") or ""), steps) for pattern in patterns)


def all_ready(observed: ObservedSet, outcome: SetOutcome) -> bool:
    """Whether every Job of the current restart is ready or has succeeded."""
    counts = {one["name"]: one for one in outcome.status.get("replicatedJobsStatus") or ()}
    return all(
        counts[job["name"]]["ready"] + counts[job["name"]]["succeeded"] >= replicas(job)
        for job in observed.replicated_jobs
    )
