"""Environments, compute resources and data sources: `/api/v1/asset/<kind>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.errors import BadRequest
from rowlock.rest.assets.asset_store import (
    ACCEPTED,
    change_asset,
    create_asset,
    delete_asset,
    find_asset,
    project_name,
    require_changeable,
)
from rowlock.rest.call import Endpoint, JsonResult, RestCall
from rowlock.workloads.assets.asset_kinds import ASSET_KINDS, AssetKind
from rowlock.workloads.assets.asset_objects import Asset, asset_json, parse_body, parse_meta
from rowlock.workloads.body_fields import Fields

_FILTERS = ("name", "scope", "projectId", "departmentId", "clusterId", "complyToProject")


def _asset_json(call: RestCall, asset: Asset) -> dict[str, Any]:
    return asset_json(asset, call.context.cache.cluster, project_name(call, asset))


def list_assets(call: RestCall, kinds: frozenset[str]) -> list[dict[str, Any]]:
    """The assets of these kinds that the filters leave, as JSON. Raises BadRequest."""
    query = call.validate_query(*_FILTERS)
    cache = call.context.cache
    fitting = None
    if wanted := query.get("complyToProject"):
        fitting = cache.project(wanted)
        if fitting is None:
            raise BadRequest(f"complyToProject: there is no project {wanted[:60]!r}.")
    filters = {name: value for name, value in query.items() if name in _FILTERS[:-1]}
    entries = []
    for asset in cache.assets():
        if asset.kind not in kinds or (fitting and not asset.is_usable_in(fitting.id, fitting.department)):
            continue
        body = _asset_json(call, asset)
        if all(str(body["meta"][name]) == value for name, value in filters.items()):
            entries.append(body)
    return entries


def endpoints(row: AssetKind) -> dict[str, Endpoint]:
    """The endpoints below `/api/v1/asset/<path>` for one kind."""

    async def index(call: RestCall) -> Any:
        """GET /asset/KIND: the assets of a kind that the filters leave. Raises BadRequest."""
        return {"entries": list_assets(call, frozenset({row.kind}))}

    async def create(call: RestCall) -> Any:
        """POST /asset/KIND: create an asset in a scope. Raises BadRequest, AlreadyExists, Forbidden."""
        call.validate_query()
        top, errors = parse_body(await call.json(), "meta", "spec")
        meta = parse_meta(top, template=False, new=True)
        row.check_spec(top.get("spec"), errors)
        _check_credential(call, row, top)
        errors.raise_if_any()
        asset = await create_asset(call, row.kind, meta, {"spec": dict(top.object("spec").values)})
        return JsonResult(202, _asset_json(call, asset))

    async def show(call: RestCall) -> Any:
        """GET /asset/KIND/{id}: one asset. Raises NotFound."""
        call.validate_query()
        return _asset_json(call, find_asset(call, lambda asset: asset.kind == row.kind))

    async def update(call: RestCall) -> Any:
        """PUT /asset/KIND/{id}: change name, description or spec; omitted fields stay. Raises NotFound, BadRequest, Conflict."""
        call.validate_query()
        asset = require_changeable(find_asset(call, lambda one: one.kind == row.kind))
        top, errors = parse_body(await call.json(), "meta", "spec")
        meta = parse_meta(top, template=False, new=False)
        if top.get("spec") is not None:
            row.check_spec(top.get("spec"), errors)
            _check_credential(call, row, top)
        errors.raise_if_any()
        content = {"spec": dict(top.object("spec").values)} if top.get("spec") is not None else asset.content or {}
        return JsonResult(202, _asset_json(call, await change_asset(call, asset, meta, content)))

    async def delete(call: RestCall) -> Any:
        """DELETE /asset/KIND/{id}: delete an asset; workloads keep its values. Raises NotFound, Conflict."""
        call.validate_query()
        await delete_asset(call, find_asset(call, lambda asset: asset.kind == row.kind))
        return JsonResult(202, ACCEPTED)

    return {"index": index, "create": create, "show": show, "update": update, "delete": delete}


def _check_credential(call: RestCall, row: AssetKind, top: Fields) -> None:
    """Add an error to the body's errors if the credential that a data source names is missing or of the wrong kind."""
    field, body = row.credential, top.get("spec")
    if field is None or not isinstance(body, Mapping):
        return
    spec, known = top.object("spec"), call.context.cache.assets()
    fitting = {word for asset in known if asset.kind in field.kinds for word in (asset.id, asset.name)}
    for name in field.names:
        if (word := spec.text(name)) and word not in fitting:
            kinds = " or ".join(field.kinds)
            spec.add_error(name, "unknown", f"there is no credential {word[:80]!r} of the kind {kinds}.")


async def data_sources(call: RestCall) -> Any:
    """GET /asset/datasource: data sources of every kind."""
    return {"entries": list_assets(call, frozenset(row.kind for row in ASSET_KINDS if row.storage))}
