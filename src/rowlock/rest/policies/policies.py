"""`/api/v2/policy`: policies of distributed workloads, trainings and workspaces; one per type and scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from rowlock import kinds
from rowlock.errors import BadRequest, NotFound
from rowlock.objects import is_digits
from rowlock.rest.assets.asset_store import change_asset, create_asset, delete_asset, project_name
from rowlock.rest.call import Endpoint, RestCall
from rowlock.rest.inventory.scopes import require_department, require_project
from rowlock.rest.policies.enforcement import policies_around
from rowlock.workloads.assets.asset_objects import Asset, AssetMeta, parse_body, parse_meta
from rowlock.workloads.assets.expansion import merge
from rowlock.workloads.policies import policy as policies
from rowlock.workloads.runai_json import TENANT

_PLACE = ("scope", "projectId", "departmentId", "clusterId")
_CHANGE_FLAGS = ("validateOnly", "approveClusterDeletion")


def _meta_json(call: RestCall, policy: Asset) -> dict[str, Any]:
    return {
        "id": policy.id, "tenantId": TENANT, "name": policy.name, "scope": policy.scope,
        "clusterId": call.context.cache.cluster,
        "projectId": int(policy.scope_id) if policy.scope == "project" and is_digits(policy.scope_id) else None,
        "projectName": project_name(call, policy) or None,
        "departmentId": policy.scope_id if policy.scope == "department" else None,
        "createdBy": policy.created_by, "createdAt": policy.created_at,
        "updatedBy": policy.updated_by, "updatedAt": policy.updated_at,
    }  # fmt: skip


def _policy_json(call: RestCall, policy: Asset, word: str) -> dict[str, Any]:
    """A policy as JSON, with the effective policy of its scope (itself and those of the enclosing scopes)."""
    project = call.context.cache.project(policy.scope_id) if policy.scope == "project" else None
    department = project.department if project else policy.scope_id if policy.scope == "department" else ""
    around = policies_around(call, word, project.id if project else "", department)
    effective = policies.effective_policy(around or [policy])
    flat = word != "distributed"
    trees = {"defaults": effective.defaults, "rules": effective.rules}
    whole: dict[str, Any] = {part: tree.get("worker", {}) if flat else dict(tree) for part, tree in trees.items()}
    if effective.imposed:
        whole["imposedAssets"] = list(effective.imposed) if flat else {"worker": list(effective.imposed)}
    content = (policy.content or {}).get("policy") or {}
    updated = max(one.updated_at for one in effective.sources)
    return {"meta": _meta_json(call, policy), "policy": content, "effective": whole, "effectiveUpdatedAt": updated}


def _place(query: Mapping[str, str]) -> tuple[str, str]:
    """(scope, id of the project or department) of a query. Raises BadRequest."""
    scope = query.get("scope") or next(
        (s for s in ("project", "department", "cluster") if query.get(f"{s}Id")), "tenant"
    )
    if scope not in ("tenant", "cluster", "department", "project"):
        raise BadRequest(f"scope: there is no scope {scope[:40]!r}; there are project, department, cluster and tenant")
    return scope, query.get(f"{scope}Id", "") if scope in ("project", "department") else ""


def _find(call: RestCall, word: str, scope: str, scope_id: str) -> Asset | None:
    kind = policies.kind_of(word)
    wanted = call.context.cache.project(scope_id) if scope == "project" else None
    identity = wanted.id if wanted else scope_id
    found = (one for one in call.context.cache.assets() if one.kind == kind and one.scope == scope)
    return next((one for one in found if scope in ("tenant", "cluster") or one.scope_id == identity), None)


def _require_policy(call: RestCall, word: str, query: Mapping[str, str]) -> Asset:
    scope, scope_id = _place(query)
    policy = _find(call, word, scope, scope_id)
    if policy is None:
        where = f"the {scope} {scope_id}".rstrip()
        raise NotFound(f"Resource id not found: {where} has no {word} policy. GET /api/v2/policy lists all.")
    return policy


async def index(call: RestCall) -> Any:
    """GET /policy: every policy that the caller may see, by type and scope. Raises BadRequest."""
    query = call.validate_query("workloadType", "includeFallbackPolicies", *_PLACE)
    word = (query.get("workloadType") or "").lower()
    if word and word not in policies.TYPES:
        raise BadRequest(f"workloadType: there is no type {word[:40]!r}; there are {', '.join(policies.TYPES)}")
    scope, scope_id = _place(query) if any(query.get(name) for name in _PLACE) else ("", "")
    rows = []
    for name in (word,) if word else policies.TYPES:
        for one in call.context.cache.assets():
            fits = not scope or (one.scope == scope and one.scope_id in ("", scope_id))
            if one.kind == policies.kind_of(name) and fits:
                status = {"clusters": [], "validation": {"status": "valid", "errors": []}}
                rows.append({"type": name, "meta": _meta_json(call, one), "status": status})
    return {"policies": rows}


async def _write(
    call: RestCall, word: str, content_of: Callable[[Asset | None, dict[str, Any]], dict[str, Any]]
) -> Any:
    """Parse a request and store the resulting policy; with validateOnly=true only parse it."""
    call.validate_query(*_CHANGE_FLAGS)
    is_only_checked = call.flag("validateOnly")
    top, errors = parse_body(await call.json(), "meta", "policy")
    meta = parse_meta(top, template=False, new=True)
    written = policies.check_policy(top.object("policy"), word)
    errors.raise_if_any()
    scope_id = _checked_scope(call, meta)
    current = _find(call, word, meta.scope, scope_id)
    content = {"policy": content_of(current, written)}
    if is_only_checked:
        shown = current or Asset(
            id=call.context.new_id(),
            kind=policies.kind_of(word),
            name=meta.name or "",
            scope=meta.scope,
            scope_id=scope_id,
        )
        return _policy_json(call, replace(shown, content=content), word)
    if current is None:
        current = await create_asset(call, policies.kind_of(word), meta, content)
    else:
        current = await change_asset(call, current, meta, content)
    return _policy_json(call, current, word)


def _checked_scope(call: RestCall, meta: AssetMeta) -> str:
    """The id of the project or department of the scope. Raises BadRequest when it does not exist."""
    if meta.scope == "project":
        return require_project(call, meta.scope_id, "meta.projectId").id
    if meta.scope == "department":
        return require_department(call, meta.scope_id, "meta.departmentId")
    return meta.scope_id


def endpoints(word: str) -> dict[str, Endpoint]:
    """The endpoints at `/api/v2/policy/<word>`."""

    async def show(call: RestCall) -> Any:
        """GET /policy/TYPE: the policy of a scope, and the effective policy there. Raises NotFound, BadRequest."""
        return _policy_json(call, _require_policy(call, word, call.validate_query(*_PLACE)), word)

    async def overwrite(call: RestCall) -> Any:
        """PUT /policy/TYPE: replace the policy of a scope. Raises BadRequest, Forbidden."""
        return await _write(call, word, lambda _, written: written)

    async def change(call: RestCall) -> Any:
        """PATCH /policy/TYPE: merge the body into the policy of a scope. Raises BadRequest, Forbidden."""

        def merge_into(current: Asset | None, written: dict[str, Any]) -> dict[str, Any]:
            return merge(((current.content if current else None) or {}).get("policy") or {}, written)

        return await _write(call, word, merge_into)

    async def delete(call: RestCall) -> Any:
        """DELETE /policy/TYPE: delete the policy of a scope. Raises NotFound, Forbidden."""
        query = call.validate_query(*_PLACE, "approveClusterDeletion")
        policy = _require_policy(call, word, query)
        call.require("delete", kinds.CONFIG_MAP, policy.namespace)
        await delete_asset(call, policy)
        return Response(status_code=204)

    return {"show": show, "overwrite": overwrite, "change": change, "delete": delete}
