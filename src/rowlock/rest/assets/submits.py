"""Submits that name a template or assets: their values, and those of the policy, are merged into the body before
anything else is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.rest.call import RestCall
from rowlock.rest.policies import enforcement
from rowlock.workloads.assets.asset_objects import Asset
from rowlock.workloads.assets.credentials import REGISTRY, secret_name
from rowlock.workloads.assets.expansion import ExpandedSubmit, expand_submit
from rowlock.workloads.policies.policy import add_defaults, check_submit
from rowlock.workloads.projects import Project


def expand(call: RestCall, body: Any, workload_type: str) -> ExpandedSubmit:
    """The body with the values of the template and assets that it names. The workload's project must be allowed to use them,
    and the caller to see them. Raises BadRequest with one cause per asset that is not found."""
    cache = call.context.cache
    word = str(body.get("projectId") or "") if isinstance(body, Mapping) else ""
    project = cache.project(word)

    def find(kind: str, id_or_name: str) -> Asset | None:
        usable = [
            asset
            for asset in cache.assets()
            if asset.kind == kind and project is not None and asset.is_usable_in(project.id, project.department)
        ]
        by_id = next((asset for asset in usable if asset.id == id_or_name), None)
        nearest_first = sorted(
            usable, key=lambda asset: ("project", "department", "cluster", "tenant", "system").index(asset.scope)
        )
        return by_id or next((asset for asset in nearest_first if asset.name == id_or_name), None)

    policy = enforcement.policy_of_submit(call, body, workload_type)
    if policy is None:
        return expand_submit(body, workload_type, find)
    expanded = expand_submit(enforcement.impose_assets(policy, body), workload_type, find)
    whole = add_defaults(policy, expanded.body)
    return ExpandedSubmit(whole, expanded.references, lambda: check_submit(policy, expanded.body, whole))


def registry_secrets(call: RestCall, project: Project) -> tuple[str, ...]:
    """The Secrets of the project's docker registry credentials: every pod of the project pulls images with them."""
    return tuple(
        secret_name(asset)
        for asset in call.context.cache.assets()
        if asset.kind == REGISTRY and asset.is_usable_in(project.id, project.department)
    )
