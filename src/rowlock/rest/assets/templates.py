"""Templates of whole submits: `/api/v1/workload-templates`, with a path below it for each type of workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rowlock.errors import BadRequest
from rowlock.rest.assets.asset_store import (
    ACCEPTED,
    change_asset,
    create_asset,
    delete_asset,
    find_asset,
    require_changeable,
)
from rowlock.rest.call import Endpoint, JsonResult, RestCall
from rowlock.workloads import list_query, submission
from rowlock.workloads.assets.asset_kinds import ASSET_KINDS
from rowlock.workloads.assets.asset_objects import SCOPES, Asset, parse_body, parse_meta, template_json
from rowlock.workloads.assets.expansion import merge
from rowlock.workloads.body_fields import Fields

TYPES = {"distributed": "Distributed", "trainings": "Training", "workspaces": "Workspace"}
"""The last word of a path and the type of workload that its templates make."""
_CONTENT = ("spec", "assets", "masterSpecSameAsWorker", "master")
_OF_ANY_TYPE = 2
"""The first so many fields of `_CONTENT` are allowed in templates of every type."""


def _is_template(asset: Asset) -> bool:
    return asset.kind.startswith("template-")


_READERS: list_query.Readers[Asset] = {
    "name": lambda asset: asset.name,
    "scopeType": lambda asset: asset.scope,
    "scopeId": lambda asset: asset.scope_id,
    "workloadType": lambda asset: asset.kind.removeprefix("template-").capitalize(),
    "createdAt": lambda asset: asset.created_at,
    "createdBy": lambda asset: asset.created_by,
    "updatedAt": lambda asset: asset.updated_at,
    list_query.SEARCH: lambda asset: f"{asset.name}\n{asset.description}".lower(),
}


_CHOICES = {"scopeType": SCOPES, "workloadType": tuple(TYPES.values())}


def _template_json(call: RestCall, asset: Asset) -> dict[str, Any]:
    """The template, with the error that a submit with it would get, since this server may refuse an old template."""
    shown = template_json(asset, call.context.cache.cluster)
    try:
        _check_content(asset.content or {}, shown["meta"]["workloadType"])
    except BadRequest as refusal:
        shown["runnable"] = {"isRunnable": False, "issue": refusal.message}
    return shown


def _select_templates(call: RestCall, kind: str = "") -> tuple[Sequence[Asset], list_query.Query]:
    rows = [one for one in call.context.cache.assets() if _is_template(one) and (not kind or one.kind == kind)]
    return list_query.select(call.query, rows, _READERS, choices=_CHOICES)


def _list_body(call: RestCall, kind: str = "") -> dict[str, Any]:
    rows, query = _select_templates(call, kind)
    page, next_offset = list_query.page_of(rows, query)
    pagination = {"limit": query.limit, "offset": query.offset, "nextOffset": next_offset}
    return {"entries": [_template_json(call, one) for one in page], "pagination": pagination}


async def index(call: RestCall) -> Any:
    """GET /workload-templates: of every type, filtered, sorted and paged. Raises BadRequest."""
    return _list_body(call)


async def count(call: RestCall) -> Any:
    """GET /workload-templates/count: how many templates the filters leave."""
    return {"count": len(_select_templates(call)[0])}


async def show_any(call: RestCall) -> Any:
    """GET /workload-templates/{id}: of any type. Raises NotFound."""
    call.validate_query()
    return _template_json(call, find_asset(call, _is_template))


async def name_availability(call: RestCall) -> Any:
    """GET /workload-templates/name-availability: whether a template's name is free in a scope. Raises BadRequest."""
    query = call.validate_query("templateName", "scopeType", "scopeId")
    name = query.get("templateName", "")
    if not name:
        raise BadRequest("templateName says which name is meant")
    wanted = {"scope": query.get("scopeType"), "scope_id": query.get("scopeId")}
    taken = [one for one in call.context.cache.assets() if _is_template(one) and one.name == name]
    taken = [one for one in taken if all(value in (None, getattr(one, field)) for field, value in wanted.items())]
    return {"available": not taken}


def endpoints(path: str) -> dict[str, Endpoint]:
    """The endpoints below `/api/v1/workload-templates/<path>`."""
    workload_type = TYPES[path]
    kind = f"template-{workload_type.lower()}"
    allowed = ("meta", *(_CONTENT if workload_type == "Distributed" else _CONTENT[:_OF_ANY_TYPE]))

    async def list_templates(call: RestCall) -> Any:
        """GET /workload-templates/TYPE: templates of a type, filtered, sorted and paged. Raises BadRequest."""
        return _list_body(call, kind)

    async def create(call: RestCall) -> Any:
        """POST /workload-templates/TYPE: create a template in a scope. Raises BadRequest, AlreadyExists, Forbidden."""
        call.validate_query()
        top, errors = parse_body(await call.json(), *allowed)
        meta = parse_meta(top, template=True, new=True)
        content = _content(call, top)
        errors.raise_if_any()
        _check_content(content, workload_type)
        return JsonResult(202, _template_json(call, await create_asset(call, kind, meta, content)))

    async def show(call: RestCall) -> Any:
        """GET /workload-templates/TYPE/{id}: one template. Raises NotFound."""
        call.validate_query()
        return _template_json(call, find_asset(call, lambda asset: asset.kind == kind))

    async def replace_template(call: RestCall) -> Any:
        """PUT /workload-templates/TYPE/{id}: replace the content. Raises NotFound, BadRequest, Conflict."""
        return await _change(call, {})

    async def patch_template(call: RestCall) -> Any:
        """PATCH /workload-templates/TYPE/{id}: merge the body into the content. Raises NotFound, BadRequest, Conflict."""
        asset = find_asset(call, lambda one: one.kind == kind)
        return await _change(call, asset.content or {})

    async def _change(call: RestCall, base: Mapping[str, Any]) -> Any:
        call.validate_query()
        asset = require_changeable(find_asset(call, lambda one: one.kind == kind))
        top, errors = parse_body(await call.json(), *allowed)
        meta = parse_meta(top, template=True, new=False)
        content = merge(base, _content(call, top))
        errors.raise_if_any()
        _check_content(content, workload_type)
        return JsonResult(202, _template_json(call, await change_asset(call, asset, meta, content)))

    async def delete(call: RestCall) -> Any:
        """DELETE /workload-templates/TYPE/{id}: delete a template; workloads keep its values. Raises NotFound."""
        call.validate_query()
        await delete_asset(call, find_asset(call, lambda asset: asset.kind == kind))
        return JsonResult(202, ACCEPTED)

    return {
        "index": list_templates, "create": create, "show": show, "replace": replace_template, "patch": patch_template,
        "delete": delete,
    }  # fmt: skip


def _content(call: RestCall, top: Fields) -> dict[str, Any]:
    master = top.object("master")
    master.allow_only("spec")
    assets = top.object("assets")
    _check_sources(call, assets)
    return {
        "spec": dict(top.object("spec").values),
        **({"assets": dict(assets.values)} if top.get("assets") is not None else {}),
        **({"master": {"spec": dict(master.object("spec").values)}} if top.get("master") is not None else {}),
        **({"masterSpecSameAsWorker": top.flag("masterSpecSameAsWorker")} if top.get("masterSpecSameAsWorker") is not None else {}),
    }  # fmt: skip


def _check_sources(call: RestCall, assets: Fields) -> None:
    """Add errors for assets other than data sources, and for unknown ones. Whether a project may use them is checked at each submit."""
    assets.allow_only("datasources")
    kinds = {row.kind for row in ASSET_KINDS if row.storage}
    known = {
        (kind, word)
        for one in call.context.cache.assets()
        if one.kind in kinds
        for word in (one.id, one.name)
        for kind in (one.kind, "")
    }
    for item in assets.items("datasources"):
        item.allow_only("id", "kind")
        word, kind = item.text("id"), item.text("kind")
        if (kind, word) not in known:
            item.add_error(
                "id", "unknown", f"there is no data source {word[:80]!r}{f' of the kind {kind[:40]}' if kind else ''}."
            )


def _check_content(content: Mapping[str, Any], workload_type: str) -> None:
    """Check the content by parsing it as a submit, with a placeholder image when the template has none. Raises
    BadRequest with the template's own mistakes."""
    body: dict[str, Any] = {"name": "template", "projectId": "any", "spec": {"image": "any", **content.get("spec", {})}}
    if workload_type == "Distributed":
        master = (content.get("master") or {}).get("spec")
        same = content.get("masterSpecSameAsWorker")
        submission.parse_submission({**body, "masterSpec": master, "masterSpecSameAsWorker": same})
    else:
        submission.parse_standard_submission(body, "Build" if workload_type == "Workspace" else "Train")
