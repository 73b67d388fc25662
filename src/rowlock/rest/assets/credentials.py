"""Credentials: `/api/v1/asset/credentials/<kind>`. Each is a Secret of its project, and a ConfigMap that describes it.

Creating, changing and deleting one needs the same right on the Secret. No answer contains the secret values.
"""

from __future__ import annotations

from typing import Any

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Cause, NotFound
from rowlock.rest.assets.asset_store import (
    ACCEPTED,
    change_asset,
    create_asset,
    delete_asset,
    find_asset,
    project_name,
)
from rowlock.rest.assets.assets import list_assets
from rowlock.rest.call import Endpoint, JsonResult, RestCall
from rowlock.workloads.assets.asset_objects import (
    Asset,
    AssetMeta,
    asset_json,
    object_name,
    parse_body,
    parse_meta,
)
from rowlock.workloads.assets.credentials import (
    CREDENTIAL_WORDS,
    EXISTING,
    CredentialKind,
    Data,
    check_secret_name,
    credential_json,
    secret_name,
)
from rowlock.workloads.body_fields import Fields

_OPTIONS = WriteOptions(manager="rowlock")


def _answer(call: RestCall, asset: Asset) -> dict[str, Any]:
    body = asset_json(asset, call.context.cache.cluster, project_name(call, asset))
    return {**body, "spec": credential_json(asset.spec)}


def _is_of(row: CredentialKind, asset: Asset) -> bool:
    return asset.kind == row.kind


async def list_all(call: RestCall) -> Any:
    """GET /asset/credentials: credentials of every kind; `spec` nests the fields under the kind's word, as in Run:ai's API."""
    entries = list_assets(call, frozenset(CREDENTIAL_WORDS))
    return {"entries": [{**one, "spec": {one["meta"]["kind"]: credential_json(one["spec"])}} for one in entries]}


def endpoints(row: CredentialKind) -> dict[str, Endpoint]:
    """The endpoints below `/api/v1/asset/credentials/<path>` for one kind."""

    async def index(call: RestCall) -> Any:
        """GET /asset/credentials/KIND: the credentials of a kind that the filters leave. Raises BadRequest."""
        entries = list_assets(call, frozenset({row.kind}))
        return {"entries": [{**one, "spec": credential_json(one["spec"])} for one in entries]}

    async def create(call: RestCall) -> Any:
        """POST /asset/credentials/KIND: create a credential with a new or an existing Secret. Raises BadRequest, AlreadyExists,
        Forbidden."""
        call.validate_query()
        top, errors = parse_body(await call.json(), "meta", "spec")
        meta = parse_meta(top, template=False, new=True)
        _check_meta(top.object("meta"), meta)
        data = row.check_spec(top.get("spec"), errors)
        errors.raise_if_any()
        stored = row.stored_spec(top.object("spec").values, meta.name or "")
        return JsonResult(202, _answer(call, await _create(call, row, meta, stored, data)))

    async def show(call: RestCall) -> Any:
        """GET /asset/credentials/KIND/{id}: one credential, without its secret. Raises NotFound."""
        call.validate_query()
        return _answer(call, find_asset(call, lambda asset: _is_of(row, asset)))

    async def update(call: RestCall) -> Any:
        """PUT /asset/credentials/KIND/{id}: change name, description or values; only pods that start later get
        the new values. The Secret keeps its name. Raises NotFound,
        BadRequest."""
        call.validate_query()
        asset = find_asset(call, lambda one: _is_of(row, one))
        top, errors = parse_body(await call.json(), "meta", "spec")
        meta = parse_meta(top, template=False, new=False)
        data, spec = None, asset.spec
        if top.get("spec") is not None:
            data = row.check_spec(top.get("spec"), errors)
            spec = row.stored_spec(top.object("spec").values, secret_name(asset))
            if EXISTING in asset.spec or data is None:
                errors.add("spec", "immutable", "a Secret that exists is changed itself, with kubectl.")
        errors.raise_if_any()
        if data is not None:
            secret = row.to_secret(asset, data, {})
            patch = {"data": secret["data"]}
            api = call.context.api
            await api.patch(kinds.SECRET, asset.namespace, secret_name(asset), patch, type="merge", options=_OPTIONS)
        return JsonResult(202, _answer(call, await change_asset(call, asset, meta, {"spec": spec})))

    async def delete(call: RestCall) -> Any:
        """DELETE /asset/credentials/KIND/{id}: delete it and the Secret made for it; running pods keep the values. Raises NotFound."""
        call.validate_query()
        asset = find_asset(call, lambda one: _is_of(row, one))
        call.require("delete", kinds.SECRET, asset.namespace)
        if EXISTING not in asset.spec:
            await _delete_secret(call, asset)
        await delete_asset(call, asset)
        return JsonResult(202, ACCEPTED)

    return {"index": index, "create": create, "show": show, "update": update, "delete": delete}


def _check_meta(body: Fields, meta: AssetMeta) -> None:
    if meta.scope not in ("project", ""):
        text = "must be project: a credential is a Secret, which lies in one project. Make it in each project that needs it."
        body.add_error("scope", "options", text)
    if meta.name:
        check_secret_name(body, "name", meta.name)


async def _create(
    call: RestCall, row: CredentialKind, meta: AssetMeta, spec: dict[str, Any], data: Data | None
) -> Asset:
    """Create the asset and its Secret, which it owns; on an error neither is left. Raises AlreadyExists, BadRequest."""
    project = call.context.cache.project(meta.scope_id)
    if project is not None:
        call.require("create", kinds.SECRET, project.namespace)
        await _check_secret(call, project.namespace, spec)
    asset = await create_asset(call, row.kind, meta, {"spec": spec})
    if data is None:
        return asset
    api = call.context.api
    try:
        owner = await api.get(kinds.CONFIG_MAP, asset.namespace, object_name(asset.id))
        await api.create(kinds.SECRET, row.to_secret(asset, data, objects.owner_reference(owner)), options=_OPTIONS)
    except BaseException as error:
        await delete_asset(call, asset)
        if isinstance(error, AlreadyExists):
            raise AlreadyExists(_name_conflict(asset.name)) from None
        raise
    return asset


def _name_conflict(name: str) -> str:
    return f"the project has a Secret {name!r} already: name it in {EXISTING}, or choose another name"


async def _check_secret(call: RestCall, namespace: str, spec: dict[str, Any]) -> None:
    """Raises BadRequest if the spec names a Secret that does not exist."""
    existing = spec.get(EXISTING)
    if not existing:
        return
    try:
        await call.context.api.get(kinds.SECRET, namespace, str(existing))
    except NotFound:
        message = f"there is no Secret {existing!r} in the namespace {namespace}."
        raise BadRequest(message, causes=[Cause("unknown", message, f"spec.{EXISTING}")]) from None


async def _delete_secret(call: RestCall, asset: Asset) -> None:
    try:
        await call.context.api.delete(kinds.SECRET, asset.namespace, secret_name(asset))
    except NotFound:
        return  # it was deleted already
