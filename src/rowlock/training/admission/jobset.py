"""JobSet's webhooks: the defaults of a new set, and what the validating webhook refuses, in its words.

The API server checks the kind's schema before or after this. Values quoted in messages are formatted by a function of the API server, as Go
formats its structs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rowlock.errors import Cause
from rowlock.objects import Object, dig, name

WEBHOOK = "vjobset.kb.io"
FAILURE_REASONS = (
    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy",
)  # fmt: skip
PLACEMENT_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of a pod template that may change while the set is suspended, as may its labels and annotations."""
_MAX_LABEL = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NOT_A_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_TOO_LONG = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[^/].*")

Printer = Callable[[Any], str]


def default_jobset(jobset: Object) -> Object:
    """A new set with the defaults of the mutating webhook."""
    spec = dict(jobset.get("spec") or {})
    spec["successPolicy"] = spec.get("successPolicy") or {"operator": "All"}
    spec["startupPolicy"] = spec.get("startupPolicy") or {"startupPolicyOrder": "AnyOrder"}
    switches = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    spec["network"] = {**switches, **(spec.get("network") or {})}
    if spec.get("replicatedJobs"):
        spec["replicatedJobs"] = [_default_job(job) for job in spec["replicatedJobs"]]
    if rules := dig(spec, "failurePolicy.rules", None):
        named = [
            rule if rule.get("name") else {**rule, "name": f"failurePolicyRule{n}"} for n, rule in enumerate(rules)
        ]
        spec["failurePolicy"] = {**spec["failurePolicy"], "rules": named}
    if policies := spec.get("volumeClaimPolicies"):
        kept = {"retentionPolicy": {"whenDeleted": "Delete"}}
        spec["volumeClaimPolicies"] = [
            policy if policy.get("retentionPolicy") else {**policy, **kept} for policy in policies
        ]
    return {**jobset, "spec": spec}


def _default_job(job: Mapping[str, Any]) -> dict[str, Any]:
    template = job.get("template") or {}
    spec = template.get("spec") or {}
    pods = spec.get("template") or {}
    pod_spec = {"restartPolicy": "OnFailure", **{k: v for k, v in (pods.get("spec") or {}).items() if v is not None}}
    job_spec = {"completionMode": "Indexed", **spec, "template": {**pods, "spec": pod_spec}}
    return {**job, "template": {**template, "spec": job_spec}}


def review_jobset(old: Object | None, new: Object, show_jobs: Printer) -> list[Cause]:
    """Why a set that is created (`old` is None) or changed is refused; [] if it is admitted."""
    return list(_creation_causes(new, show_jobs) if old is None else _update_causes(old, new, show_jobs))


def _creation_causes(new: Object, show_jobs: Printer) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    jobs = spec.get("replicatedJobs") or []
    names = {job["name"] for job in jobs}
    for target in dig(spec, "successPolicy.targetReplicatedJobs", None) or ():
        if target not in names:
            yield _internal(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs")
    subdomain = dig(spec, "network.subdomain", "")
    if subdomain:
        for problem in _label_problems(subdomain):
            yield _invalid("spec.network.subdomain", subdomain, problem)
    if (manager := spec.get("managedBy")) is not None:
        yield from managed_by_causes("spec.managedBy", manager)
    yield from _name_causes(name(new), jobs)
    yield from _dependency_causes(jobs)
    yield from _failure_policy_causes(spec.get("failurePolicy") or {}, names)
    if coordinator := spec.get("coordinator"):
        yield from _coordinator_causes(coordinator, jobs)
    yield from _claim_causes(spec, jobs, show_jobs)


def managed_by_causes(field: str, manager: str) -> Iterator[Cause]:
    """Why `manager` is not a valid name of a controller."""
    if not _DOMAIN_PATH.fullmatch(manager):
        yield _invalid(field, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
    if len(manager) > _MAX_LABEL:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {_MAX_LABEL} bytes", field)


def _name_causes(set_name: str, jobs: list[dict[str, Any]]) -> Iterator[Cause]:
    for index, job in enumerate(jobs):
        field, longest = f"spec.replicatedJobs[{index}].name", f"{set_name}-{job['name']}-{job.get('replicas', 1) - 1}"
        for problem in _label_problems(longest, _TOO_LONG.format("job")):
            yield _invalid(field, longest, problem)
        spec = dig(job, "template.spec", {})
        completions = spec.get("completions")
        if spec.get("completionMode") == "Indexed" and completions is not None:
            pod = f"{longest}-{completions - 1}-abcde"
            for problem in _label_problems(pod, _TOO_LONG.format("pod")):
                yield _invalid(field, longest, problem)


def _label_problems(text: str, too_long: str = "must be no more than 63 characters") -> list[str]:
    return [too_long] * (len(text) > _MAX_LABEL) + [_NOT_A_LABEL] * (not _LABEL.fullmatch(text))


def _dependency_causes(jobs: list[dict[str, Any]]) -> Iterator[Cause]:
    known = set[str]()
    for index, job in enumerate(jobs):
        known.add(job["name"])  # including itself, as in the real one: such a job never starts
        if index == 0 and job.get("dependsOn"):
            yield _internal("DependsOn can't be set for the first ReplicatedJob")
        for dependency in job.get("dependsOn") or ():
            if dependency["name"] not in known:
                yield _internal(f"replicatedJob: {job['name']} cannot depend on replicatedJob: {dependency['name']}")


def _failure_policy_causes(policy: Mapping[str, Any], names: set[str]) -> Iterator[Cause]:
    if policy.get("restartStrategy") == "InPlaceRestart":
        yield _internal("InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled")
    rules_by_name = dict[str, list[int]]()
    for index, rule in enumerate(policy.get("rules") or ()):
        rules_by_name.setdefault(rule.get("name", ""), []).append(index)
        for target in rule.get("targetReplicatedJobs") or ():
            if target not in names:
                why = "in failure policy does not appear in .spec.ReplicatedJobs"
                yield _internal(f"invalid replicatedJob name '{target}' {why}")
        for reason in rule.get("onJobFailureReasons") or ():
            if reason not in FAILURE_REASONS:
                why = "in failure policy is not a recognized job failure reason"
                yield _internal(f"invalid job failure reason '{reason}' {why}")
        if rule.get("action") in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
            yield _internal(
                "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when RestartJob "
                "feature gate is disabled"
            )
    for rule_name, indices in rules_by_name.items():
        if len(indices) > 1:
            which = " ".join(map(str, indices))
            yield _internal(
                f"rule names are not unique, rules with indices [{which}] all have the same name '{rule_name}'"
            )


def _coordinator_causes(coordinator: Mapping[str, Any], jobs: list[dict[str, Any]]) -> Iterator[Cause]:
    wanted, job_index = coordinator.get("replicatedJob", ""), coordinator.get("jobIndex", 0)
    pod_index = coordinator.get("podIndex", 0)
    job = next((job for job in jobs if job["name"] == wanted), None)
    if job is None:
        yield _internal(f"coordinator replicatedJob {wanted} does not exist")
        return
    spec = dig(job, "template.spec", {})
    if not 0 <= job_index < job.get("replicas", 1):
        yield _internal(f"coordinator job index {job_index} is invalid for replicatedJob {wanted}")
    elif spec.get("completionMode") != "Indexed" or spec.get("completions") is None:
        yield _internal("job for coordinator pod must be indexed completion mode, and completions number must be set")
    elif not 0 <= pod_index < spec["completions"]:
        yield _internal(
            f"coordinator pod index {pod_index} is invalid for replicatedJob {wanted} job index {job_index}"
        )


def _claim_causes(spec: Mapping[str, Any], jobs: list[dict[str, Any]], show_jobs: Printer) -> Iterator[Cause]:
    mounted = {
        mount.get("name")
        for job in jobs
        for part in ("containers", "initContainers")
        for container in dig(job, f"template.spec.template.spec.{part}", None) or ()
        for mount in container.get("volumeMounts") or ()
    }
    for policy in spec.get("volumeClaimPolicies") or ():
        for template in policy.get("templates") or ():
            if (claim := name(template)) not in mounted:
                why = f"replicatedJob containers don't have a matching volumeMount: {claim} from VolumeClaimPolicies"
                yield Cause("FieldValueInvalid", f"Invalid value: {show_jobs(jobs)}: {why}", "spec.replicatedJobs")


def _update_causes(old: Object, new: Object, show_jobs: Printer) -> Iterator[Cause]:
    before, after = dig(old, "spec.replicatedJobs", None) or [], dig(new, "spec.replicatedJobs", None) or []
    if any(dig(jobset, "spec.suspend", False) for jobset in (old, new)) and len(before) == len(after):
        after = [_with_placement_of(was, job) for was, job in zip(before, after, strict=True)]
    if show_jobs(before) != show_jobs(after):
        yield Cause(
            "FieldValueInvalid", f"Invalid value: {show_jobs(after)}: field is immutable", "spec.replicatedJobs"
        )
    manager = dig(new, "spec.managedBy", None)
    if dig(old, "spec.managedBy", None) != manager:
        shown = "null" if manager is None else f'"{manager}"'
        yield Cause("FieldValueInvalid", f"Invalid value: {shown}: field is immutable", "spec.managedBy")


def _with_placement_of(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new job with the old placement fields in its pod template: any remaining difference is refused."""
    before, after = (dig(job, "template.spec.template", {}) for job in (old, new))
    spec = {k: v for k, v in (after.get("spec") or {}).items() if k not in PLACEMENT_FIELDS}
    spec |= {k: v for k, v in (before.get("spec") or {}).items() if k in PLACEMENT_FIELDS}
    metadata = {k: v for k, v in (after.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    metadata |= {k: v for k, v in (before.get("metadata") or {}).items() if k in ("labels", "annotations")}
    template = new.get("template") or {}
    pods = {**after, "metadata": metadata, "spec": spec}
    return {**new, "template": {**template, "spec": {**(template.get("spec") or {}), "template": pods}}}


def _invalid(field: str, value: str, why: str) -> Cause:
    return Cause("FieldValueInvalid", f'Invalid value: "{value}": {why}', field)


def _internal(why: str) -> Cause:
    return Cause("InternalError", f"Internal error: {why}", "<nil>")
