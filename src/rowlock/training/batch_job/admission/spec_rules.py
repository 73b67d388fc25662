"""The rules of batch/v1 Jobs that compare fields: modes, limits, policies, selectors. Pure.

Field paths in causes are relative to a rule's argument. Rules of single fields are rows of `apiserver/validation/rules.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from rowlock import objects
from rowlock.documents.field_errors import (
    Causes,
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    invalid_values,
    label_key_problems,
    not_supported,
    required_value,
    subdomain_problems,
    too_long,
)
from rowlock.errors import Cause
from rowlock.selectors import from_label_selector
from rowlock.training.batch_job.admission.selector import generated_labels
from rowlock.training.batch_job.indexes import format_problem

Show = Callable[[str, dict[str, Any]], Any]
"""(name of a batch/v1 type, value) → the value as error messages show it, with Go's fields."""
INDEXED, NON_INDEXED = "Indexed", "NonIndexed"
_MAX_PARALLELISM = _MAX_FAILED_INDEXES = _MANY_COMPLETIONS = 100_000
_MAX_OF_MANY = 10_000
"""Maximum of parallel pods, and of failed indexes, in a Job with more than `_MANY_COMPLETIONS`."""
_MAX_RULES, _MAX_EXIT_CODES, _MAX_CONDITIONS = 20, 255, 20
_MAX_INDEXES_TEXT, _MAX_MANAGER = 64 * 1024, 63
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def omitted_value(field: str, why: str) -> Cause:
    """An error about an invalid value that is not shown."""
    return Cause("FieldValueInvalid", f"Invalid value: {why}", field)


def _too_many(field: str, count: int, limit: int) -> Cause:
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def job_labels(job: dict[str, Any]) -> Causes:
    """A generated selector and its labels must be unchanged."""
    selector = objects.dig(job, "spec.selector")
    if objects.dig(job, "spec.manualSelector", False) or selector is None:
        return
    expected = generated_labels(job)
    template_labels = objects.dig(job, "spec.template.metadata.labels") or {}
    for key, value in expected.items():
        field = f".spec.template.metadata.labels[{key}]"
        if key not in template_labels:
            yield required_value(field, f"must be '{value}'")
        elif template_labels[key] != value:
            yield invalid_value(field, dict(sorted(template_labels.items())), f"must be '{value}'")
    matcher = from_label_selector(selector)
    if matcher is not None and not matcher.matches(expected):
        yield invalid_value(".spec.selector", _sorted_selector(selector), "`selector` not auto-generated")


def _sorted_selector(selector: dict[str, Any]) -> dict[str, Any]:
    """The selector as Go prints it, with sorted map keys."""
    return {k: dict(sorted(v.items())) if k == "matchLabels" else v for k, v in selector.items()}


def job_hostnames(job: dict[str, Any]) -> Causes:
    completions = objects.dig(job, "spec.completions")
    if objects.dig(job, "spec.completionMode") != INDEXED or not completions or completions < 0:
        return
    hostname = f"{objects.name(job)}-{completions - 1}"
    if dns_label_problems(hostname):
        why = f"will not able to create pod with invalid DNS label: {hostname}"
        yield invalid_value(".metadata.name", objects.name(job), why)


def job_modes(spec: dict[str, Any]) -> Causes:
    """Fields that depend on the completion mode."""
    mode, per_index, max_failed = (spec.get(k) for k in ("completionMode", "backoffLimitPerIndex", "maxFailedIndexes"))
    if max_failed is not None and per_index is None:
        yield required_value(".backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if (manager := spec.get("managedBy")) is not None:
        yield from _domain_path_causes(".managedBy", manager)
        if len(manager) > _MAX_MANAGER:
            yield too_long(".managedBy", _MAX_MANAGER)
    if mode == INDEXED:
        yield from _indexed_causes(spec)
    elif mode not in (None, NON_INDEXED):
        yield not_supported(".completionMode", mode, (NON_INDEXED, INDEXED))
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                yield invalid_value(f".{field}", spec[field], "requires indexed completion mode")


def _indexed_causes(spec: dict[str, Any]) -> Causes:
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
    max_failed = spec.get("maxFailedIndexes")
    if completions is None:
        yield required_value(".completions", "when completion mode is Indexed")
    if parallelism > _MAX_PARALLELISM:
        why = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
        yield invalid_value(".parallelism", parallelism, why)
    if max_failed is not None:
        if completions is not None and max_failed > completions:
            yield invalid_value(".maxFailedIndexes", max_failed, "must be less than or equal to completions")
        if max_failed > _MAX_FAILED_INDEXES:
            yield invalid_value(".maxFailedIndexes", max_failed, f"must be less than or equal to {_MAX_FAILED_INDEXES}")
    if (completions or 0) > _MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        if max_failed is None:
            yield required_value(
                ".maxFailedIndexes", f"must be specified when completions is above {_MANY_COMPLETIONS}"
            )
        why = (
            f"must be less than or equal to {_MAX_OF_MANY} when completions are above {_MANY_COMPLETIONS}"
            " and used with backoff limit per index"
        )
        for field in ("parallelism", "maxFailedIndexes"):
            if (spec.get(field) or 0) > _MAX_OF_MANY:
                yield invalid_value(f".{field}", spec[field], why)


def _domain_path_causes(field: str, text: str) -> Causes:
    host, slash, path = text.partition("/")
    if not text:
        yield required_value(field)
    elif not (host and slash and path):
        yield invalid_value(field, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from invalid_values(field, host, subdomain_problems(host))
        if not re.fullmatch(_HTTP_PATH, path):
            yield invalid_value(field, path, f"Invalid path (regex used for validation is '{_HTTP_PATH}')")


# ---------------------------------------------------------------- policies


def job_failure_policy(spec: dict[str, Any]) -> Causes:
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        rules = policy.get("rules") or []
        if len(rules) > _MAX_RULES:
            yield _too_many(".podFailurePolicy.rules", len(rules), _MAX_RULES)
        for number, entry in enumerate(rules):
            yield from _failure_rule_causes(spec, entry, f".podFailurePolicy.rules[{number}]")
    replacement = spec.get("podReplacementPolicy")
    supported = ("Failed",) if policy is not None else ("Failed", "TerminatingOrFailed")
    if replacement is not None and replacement not in supported:
        yield not_supported(".podReplacementPolicy", replacement, supported)


_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def _failure_rule_causes(spec: dict[str, Any], entry: dict[str, Any], at: str) -> Causes:
    action, codes, conditions = entry.get("action") or "", entry.get("onExitCodes"), entry.get("onPodConditions") or []
    if not action:
        yield required_value(f"{at}.action", f"valid values: {_go_list(_ACTIONS)}")
    elif action not in _ACTIONS:
        yield not_supported(f"{at}.action", action, _ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield invalid_value(f"{at}.action", action, "requires the backoffLimitPerIndex to be set")
    if codes is not None:
        pod = objects.dig(spec, "template.spec", {})
        names = {c.get("name") for field in ("containers", "initContainers") for c in pod.get(field) or ()}
        yield from _exit_code_causes(codes, names, f"{at}.onExitCodes")
    yield from _pod_condition_causes(conditions, f"{at}.onPodConditions")
    if codes is not None and conditions:
        yield omitted_value(at, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield omitted_value(at, "specifying one of OnExitCodes and OnPodConditions is required")


def _go_list(values: Iterable[str]) -> str:
    """A list of strings as Go prints it."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def _exit_code_causes(requirement: dict[str, Any], names: set[Any], at: str) -> Causes:
    operator, container = requirement.get("operator") or "", requirement.get("containerName")
    values = requirement.get("values") or []
    if not operator:
        yield required_value(f"{at}.operator", f"valid values: {_go_list(('In', 'NotIn'))}")
    elif operator not in ("In", "NotIn"):
        yield not_supported(f"{at}.operator", operator, ("In", "NotIn"))
    if container is not None and container not in names:
        why = "must be one of the container or initContainer names in the pod template"
        yield invalid_value(f"{at}.containerName", container, why)
    if not values:
        yield invalid_value(f"{at}.values", None, "at least one value is required")
    elif len(values) > _MAX_EXIT_CODES:
        yield _too_many(f"{at}.values", len(values), _MAX_EXIT_CODES)
    seen = set[int]()
    for number, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid_value(f"{at}.values[{number}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate_value(f"{at}.values[{number}]", value)
        seen.add(value)
    if any(before > after for before, after in pairwise(values)):
        yield invalid_value(f"{at}.values", values, "must be ordered")


def _pod_condition_causes(patterns: list[dict[str, Any]], at: str) -> Causes:
    if len(patterns) > _MAX_CONDITIONS:
        yield _too_many(at, len(patterns), _MAX_CONDITIONS)
    for number, pattern in enumerate(patterns):
        type_ = pattern.get("type") or ""
        yield from invalid_values(f"{at}[{number}].type", type_, label_key_problems(type_))
        if pattern.get("status") not in ("False", "True", "Unknown"):
            yield not_supported(f"{at}[{number}].status", pattern.get("status"), ("False", "True", "Unknown"))


def job_success_policy(spec: dict[str, Any], show: Show) -> Causes:
    policy = spec.get("successPolicy")
    if policy is None:
        return
    if spec.get("completionMode") != INDEXED:
        shown = show("SuccessPolicy", policy)
        yield invalid_value(".successPolicy", shown, "requires indexed completion mode")
        return
    rules = policy.get("rules") or []
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        yield required_value(".successPolicy.rules", why)
    if len(rules) > _MAX_RULES:
        yield _too_many(".successPolicy.rules", len(rules), _MAX_RULES)
    for number, entry in enumerate(rules):
        yield from _success_rule_causes(spec.get("completions") or 0, entry, f".successPolicy.rules[{number}]")


def _success_rule_causes(completions: int, entry: dict[str, Any], at: str) -> Causes:
    indexes, count, total = entry.get("succeededIndexes"), entry.get("succeededCount"), 0
    if indexes is None and count is None:
        yield required_value(at, "at least one of succeededCount or succeededIndexes must be specified")
    if indexes is not None:
        if len(indexes) > _MAX_INDEXES_TEXT:
            yield too_long(f"{at}.succeededIndexes", _MAX_INDEXES_TEXT)
        total, problem = format_problem(indexes, completions)
        if problem:
            yield invalid_value(f"{at}.succeededIndexes", indexes, f"error parsing succeededIndexes: {problem}")
    if count is None:
        return
    field, most = f"{at}.succeededCount", "must be less than or equal to"
    if count < 0:
        yield invalid_value(field, count, "must be greater than or equal to 0")
    if count > completions:
        yield invalid_value(field, count, f"{most} {completions} (the number of specified completions)")
    if indexes is not None and count > total:
        why = f"{most} {total} (the number of indexes in the specified succeededIndexes field)"
        yield invalid_value(field, count, why)


# ---------------------------------------------------------------- the template and the selector


def job_template(spec: dict[str, Any]) -> Causes:
    """Rules for a Job's pod template in addition to those for pods."""
    pod = objects.dig(spec, "template.spec", {})
    policy, field = pod.get("restartPolicy") or "", ".template.spec.restartPolicy"
    if pod.get("ephemeralContainers"):
        yield forbidden_field(".template.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
    if policy in ("", "Always"):
        yield required_value(field, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(field, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid_value(field, policy, 'only "Never" is supported when podFailurePolicy is specified')


def job_selector(spec: dict[str, Any]) -> Causes:
    """The selector must match the template's labels; a missing selector matches nothing."""
    selector = spec.get("selector")
    matcher = from_label_selector(selector) if selector is not None else None
    template_labels = objects.dig(spec, "template.metadata.labels")
    if selector is None or (matcher is not None and not matcher.matches(template_labels or {})):
        shown = dict(sorted(template_labels.items())) if template_labels else None
        yield invalid_value(".template.metadata.labels", shown, "`selector` does not match template `labels`")


def job_name_warnings(job: dict[str, Any]) -> Causes:
    """A warning about a name that is not a valid hostname."""
    if problems := dns_label_problems(objects.name(job)):
        why = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended"
        yield Cause("", f"{why}: [{' '.join(problems)}]", "metadata.name")
