"""Policies as written, and the effective policy of a project: the narrowest scope wins, field by field; requests override defaults.

Policies of distributed workloads have sections `worker` and `master`, those of trainings and workspaces are flat. Rules for
workers also apply to the master, unless the policy has other rules for the master.
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
"""Last word of a policy's path → workload type."""
PARTS = ("defaults", "rules", "imposedAssets")
_SCOPES = ("tenant", "cluster", "department", "project")
_ROLES = ("worker", "master")


def kind_of(word: str) -> str:
    """The asset kind of a policy."""
    return f"policy-{word}"


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The combined policies of all scopes for a project's workloads of one type."""

    defaults: Mapping[str, Mapping[str, Any]]
    rules: Mapping[str, Mapping[str, Any]]
    imposed: tuple[str, ...]
    sources: tuple[Asset, ...]
    """The policies combined, the narrowest scope first."""


def check_policy(body: Fields, word: str) -> dict[str, Any]:
    """Check the `policy` of a request, and return the part to store. Defaults are parsed like a submit. Mistakes are added to the errors."""
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
    """Replace Run:ai's form of lists in defaults, `{"instances": [...]}`, by the plain lists of a submit."""
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
    """Combine the policies of one type that apply to a project."""
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
    """The submit, with the policy's defaults for fields that it does not set."""
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
    """Check a submit (`whole` with defaults, `asked` without). Raises BadRequest with one cause per violated rule, which names its policy."""
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
    """A description of the narrowest policy with a rule for the field."""
    plain = field.removeprefix("masterSpec.")
    for one in policy.sources:
        rules = ((one.content or {}).get("policy") or {}).get("rules") or {}
        trees = [rules.get(role) for role in _ROLES] if one.kind == kind_of("distributed") else [rules]
        if any(policy_rules.dig(tree, plain) is not None for tree in trees):
            return f'policy "{one.name}" of the {one.scope}'
    return "policy"
