"""podFailurePolicy and successPolicy: how a failed pod affects its Job, and which successes are enough. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.objects import Object, dig
from rowlock.objects import name as name_of
from rowlock.objects import namespace as namespace_of
from rowlock.training.batch_job import indexes
from rowlock.training.batch_job.indexes import Indexes
from rowlock.training.batch_job.model import SUCCESS_CRITERIA_MET, BatchJob, Ending


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """How a failed pod counts. `message`: why the whole Job fails; "" if it does not."""

    is_counted: bool = True
    fails_index: bool = False
    message: str = ""


def judge_failure(pod: Object, rules: Sequence[Object] | None) -> FailureVerdict:
    """Judge a failed pod by the first matching rule; without one it counts as failed."""
    for number, rule in enumerate(rules or ()):
        cause = _matching_cause(pod, rule)
        if not cause:
            continue
        action = rule.get("action")
        if action == "FailJob":
            return FailureVerdict(message=f"{cause} matching FailJob rule at index {number}")
        return FailureVerdict(is_counted=action != "Ignore", fails_index=action == "FailIndex")
    return FailureVerdict()


def _matching_cause(pod: Object, rule: Object) -> str:
    where = f"{namespace_of(pod)}/{name_of(pod)}"
    requirement = rule.get("onExitCodes")
    if requirement is not None:
        for field in ("containerStatuses", "initContainerStatuses"):
            for status in dig(pod, f"status.{field}") or ():
                code = dig(status, "state.terminated.exitCode", 0)
                if _matches_code(requirement, str(status.get("name")), code):
                    return f"Container {status.get('name')} for pod {where} failed with exit code {code}"
        return ""
    wanted = {(p.get("type"), p.get("status")) for p in rule.get("onPodConditions") or ()}
    for condition in dig(pod, "status.conditions") or ():
        if (condition.get("type"), condition.get("status")) in wanted:
            return f"Pod {where} has condition {condition.get('type')}"
    return ""


def _matches_code(requirement: Object, container: str, code: int) -> bool:
    """Whether a container's exit code matches. Code 0 never matches, even with NotIn."""
    if code == 0 or requirement.get("containerName") not in (None, container):
        return False
    return (code in (requirement.get("values") or ())) == (requirement.get("operator") == "In")


def success_ending(job: BatchJob, succeeded: Indexes) -> Ending | None:
    """The ending by the first success rule that these indexes satisfy; None if there is none."""
    for number, rule in enumerate(job.success_rules if succeeded else ()):
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        if text is not None:
            wanted = indexes.parse(str(text), job.completions or 0)
            there = wanted.overlap(succeeded)
            satisfied = bool(wanted) and (there == len(wanted) or (count is not None and there >= count))
        else:
            satisfied = count is not None and len(succeeded) >= count
        if satisfied:
            return Ending(SUCCESS_CRITERIA_MET, "SuccessPolicy", f"Matched rules at index {number}")
    return None
