"""A policy as it is written and as it holds: the nearest scope wins, field by field; the request wins over defaults.

A policy of distributed workloads speaks of `worker` and `master`, one of trainings and workspaces of its one pod. What the
rules say of workers holds for the master, too, unless the policy says something else of the master.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.errors import BadRequest, Cause
from rowlock.submit_fields import WHOLE_JOB
from rowlock.workloads import submission
from rowlock.workloads.assets.asset_objects import Asset
from rowlock.workloads.assets.expansion import merge
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.policies import rules as policy_rules

TYPES = {"distributed": "Distributed", "training": "Training", "workspace": "Workspace"}
"""The last word of a policy's path and the type of workload that it is about."""
PARTS = ("defaults", "rules", "imposedAssets")
_SCOPES = ("tenant", "cluster", "department", "project")
_ROLES = ("worker", "master")


def kind_of(word: str) -> str:
    """What a policy's object calls its kind."""
    return f"policy-{word}"


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """What holds for a project's workloads of one type: of all scopes together."""

    defaults: Mapping[str, Mapping[str, Any]]
    rules: Mapping[str, Mapping[str, Any]]
    imposed: tuple[str, ...]
    sources: tuple[Asset, ...]
    """The policies it is made of, the nearest first."""


def check_policy(body: Fields, word: str) -> dict[str, Any]:
    """The `policy` of a request, as it is kept. Mistakes are noted; what the defaults say is read as a submit would be."""
    body.allow_only(*PARTS, "status")
    roles = _ROLES if word == "distributed" else ("",)
    kept: dict[str, Any] = {}
    for part in ("defaults", "rules"):
        tree = body.object(part)
        if word == "distributed":
            tree.allow_only(*_ROLES)
        for role in roles:
            values = tree.object(role) if role else tree
            if part == "rules":
                policy_rules.check_rules(values.values, values.path, body.errors)
            else:
                _check_defaults(_plain_lists(values.values), values.path, body.errors)
        if tree.values:
            kept[part] = dict(tree.values)
    if body.get("imposedAssets") is not None:
        kept["imposedAssets"] = body.get("imposedAssets")
    imposed = _imposed_ids(kept.get("imposedAssets"))
    if imposed is None:
        body.add_error(
            "imposedAssets", "type", "must be a list of ids of data sources (of `worker`, where workers differ)."
        )
    return kept


def _check_defaults(defaults: Mapping[str, Any], path: str, errors: BodyErrors) -> None:
    try:
        submission.parse_submission(
            {"name": "policy", "projectId": "any", "spec": {"image": "any", **defaults}, "masterSpecSameAsWorker": True}
        )
    except BadRequest as refusal:
        for cause in refusal.causes:
            errors.add(cause.field.replace("spec", path, 1), cause.reason, cause.message)


def _plain_lists(tree: Any) -> Any:
    """Run:ai writes lists of defaults as `{"instances": [...]}`; a submit has the list itself."""
    if isinstance(tree, Mapping):
        if isinstance(tree.get("instances"), list):
            return [_plain_lists(item) for item in tree["instances"]]
        return {name: _plain_lists(value) for name, value in tree.items() if value is not None}
    return tree


def _imposed_ids(imposed: Any) -> tuple[str, ...] | None:
    if isinstance(imposed, Mapping):
        imposed = [one for role in _ROLES for one in imposed.get(role) or ()]
    if imposed is None:
        return ()
    if not isinstance(imposed, list) or not all(isinstance(one, str) for one in imposed):
        return None
    return tuple(dict.fromkeys(imposed))


def effective_policy(policies: Sequence[Asset]) -> EffectivePolicy:
    """What policies of one type, of the scopes around one project, amount to together."""
    ordered = sorted(policies, key=lambda one: _SCOPES.index(one.scope))
    trees: dict[str, dict[str, Any]] = {"defaults": {}, "rules": {}}
    imposed: list[str] = []
    for one in ordered:
        body = (one.content or {}).get("policy") or {}
        for part, tree in trees.items():
            own = _plain_lists(body.get(part) or {}) if part == "defaults" else body.get(part) or {}
            by_role = own if one.kind == kind_of("distributed") else {"worker": own}
            trees[part] = merge(tree, by_role)
        imposed += _imposed_ids(body.get("imposedAssets")) or ()
    return EffectivePolicy(trees["defaults"], trees["rules"], tuple(dict.fromkeys(imposed)), tuple(reversed(ordered)))


def add_defaults(policy: EffectivePolicy, body: Mapping[str, Any]) -> dict[str, Any]:
    """The submit with what the policy says where the submit says nothing."""
    worker, master = (policy.defaults.get(role) or {} for role in _ROLES)
    whole = dict(body)
    if worker:
        spec = body.get("spec")
        whole["spec"] = merge(worker, spec if isinstance(spec, Mapping) else {})
    if master and not body.get("masterSpecSameAsWorker"):
        own = body.get("masterSpec")
        whole["masterSpec"] = merge(master, own if isinstance(own, Mapping) else {})
    return whole


def check_submit(policy: EffectivePolicy, asked: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
    """Raises BadRequest with one cause per rule that is broken, which says whose policy it is."""
    rules, defaults = policy.rules, policy.defaults
    worker_rules = rules.get("worker") or {}
    causes = policy_rules.violations(
        whole.get("spec") or {}, asked.get("spec") or {}, defaults.get("worker") or {}, worker_rules
    )
    if whole.get("masterSpec"):
        of_pods = {name: rule for name, rule in worker_rules.items() if name not in WHOLE_JOB}
        of_master = merge(whole.get("spec") or {}, whole["masterSpec"])
        for cause in policy_rules.violations(
            of_master,
            asked.get("masterSpec") or {},
            defaults.get("master") or {},
            merge(of_pods, rules.get("master") or {}),
        ):
            if cause.reason != "required" or cause not in causes:
                causes.append(Cause(cause.reason, cause.message, f"masterSpec.{cause.field}"))
    if causes:
        named = [Cause(c.reason, f"{c.message} ({_origin(policy, c.field)})", c.field) for c in causes]
        raise BadRequest("; ".join(f"{c.field}: {c.message}" for c in named), causes=named)


def _origin(policy: EffectivePolicy, field: str) -> str:
    """The nearest policy with a rule for the field."""
    plain = field.removeprefix("masterSpec.")
    for one in policy.sources:
        rules = ((one.content or {}).get("policy") or {}).get("rules") or {}
        trees = [rules.get(role) for role in _ROLES] if one.kind == kind_of("distributed") else [rules]
        if any(policy_rules.dig(tree, plain) is not None for tree in trees):
            return f'policy "{one.name}" of the {one.scope}'
    return "policy"
