"""Policies at a submit: imposed assets and defaults are added before the body is parsed, and the rules are checked
afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.rest.call import RestCall
from rowlock.workloads.assets.asset_objects import Asset
from rowlock.workloads.policies import policy as policies
from rowlock.workloads.policies.policy import EffectivePolicy


def policies_around(call: RestCall, word: str, project: str = "", department: str = "") -> list[Asset]:
    """The policies of one workload type that apply to a project and its department; without either, those of the cluster."""
    kind = policies.kind_of(word)
    return [one for one in call.context.cache.assets() if one.kind == kind and one.is_usable_in(project, department)]


def policy_of_submit(call: RestCall, body: Any, workload_type: str) -> EffectivePolicy | None:
    """The policy for this submit; None when there is none. A distributed workload of one pod counts as a training or a
    workspace."""
    if not isinstance(body, Mapping):
        return None
    spec = body.get("spec")
    if workload_type == "Distributed" and isinstance(spec, Mapping) and spec.get("noWorkers"):
        workload_type = "Workspace" if spec.get("category") == "Build" else "Training"
    word = next(word for word, title in policies.TYPES.items() if title == workload_type)
    project = call.context.cache.project(str(body.get("projectId") or ""))
    found = policies_around(call, word, project.id, project.department) if project is not None else []
    return policies.effective_policy(found) if found else None


def impose_assets(policy: EffectivePolicy, body: Mapping[str, Any]) -> dict[str, Any]:
    """The submit's body with the data sources that the policy imposes."""
    assets = body.get("assets") if isinstance(body.get("assets"), Mapping) else {}
    assert isinstance(assets, Mapping)
    named = list(assets.get("datasources") or ())
    missing = [
        one for one in policy.imposed if one not in [item.get("id") for item in named if isinstance(item, Mapping)]
    ]
    if not missing:
        return dict(body)
    return {**body, "assets": {**assets, "datasources": [*named, *({"id": one} for one in missing)]}}
