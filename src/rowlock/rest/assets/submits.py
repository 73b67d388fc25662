"""Submits that name a template or assets: their values, and those of the policy, are merged into the body before
anything else is read."""

from __future__ import annotations

import functools
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
    """The body with the values of the template and assets that it names, and the policy's defaults. Only assets count that the
    project may use and the caller may see. Raises BadRequest with one cause per asset that is not found."""
    cache = call.context.cache
    word = str(body.get("projectId") or "") if isinstance(body, Mapping) else ""
    project = cache.project(word)

    @functools.cache
    def usable_assets() -> dict[tuple[str, str], Asset]:
        """(kind, name or id) → asset. Ids win over names; of several assets with a name, the one with the narrowest scope wins."""
        usable = [one for one in cache.assets() if project and one.is_usable_in(project.id, project.department)]
        nearest_last = sorted(
            usable, key=lambda asset: ("system", "tenant", "cluster", "department", "project").index(asset.scope)
        )
        return {(one.kind, one.name): one for one in nearest_last} | {(one.kind, one.id): one for one in usable}

    def find(kind: str, id_or_name: str) -> Asset | None:
        return usable_assets().get((kind, id_or_name))

    policy = enforcement.policy_of_submit(call, body, workload_type)
    if policy is None:
        return expand_submit(body, workload_type, find)
    expanded = expand_submit(enforcement.impose_assets(policy, body), workload_type, find)
    whole = add_defaults(policy, expanded.body)
    return ExpandedSubmit(whole, expanded.references, lambda: check_submit(policy, expanded.body, whole))


def registry_secrets(call: RestCall, project: Project) -> tuple[str, ...]:
    """The Secrets of the project's docker registry credentials, with which every pod of the project pulls images."""
    return tuple(
        secret_name(asset)
        for asset in call.context.cache.assets()
        if asset.kind == REGISTRY and asset.is_usable_in(project.id, project.department)
    )
