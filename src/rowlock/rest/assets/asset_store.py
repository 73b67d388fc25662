"""What assets and templates share: they are found, created, changed and deleted as ConfigMaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, Conflict, NotFound
from rowlock.objects import timestamp
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.clusters import check_cluster_id
from rowlock.rest.inventory.scopes import require_department, require_project
from rowlock.selectors import parse_labels
from rowlock.workloads.assets.asset_objects import (
    LABEL,
    SHARED_NAMESPACE,
    Asset,
    AssetMeta,
    is_policy,
    object_name,
    read_object,
    to_object,
)

ACCEPTED = {"code": 202, "message": "Request has been accepted."}
_OPTIONS = WriteOptions(manager="rowlock")


def find_asset(call: RestCall, matches: Callable[[Asset], bool]) -> Asset:
    """The asset with the id in the path that `matches` accepts, if the caller has the route's right to it. Raises NotFound,
    Forbidden."""
    wanted, known = str(call.path["id"]), [asset for asset in call.context.cache.assets() if matches(asset)]
    asset = next((one for one in known if one.id == wanted), None)
    if asset is None:
        raise NotFound(f"Resource id not found: there is no such asset {wanted!r}. The path without the id lists them.")
    if call.right.verb not in ("get", "list") or asset.scope == "project":
        call.require_right(kinds.CONFIG_MAP, asset.namespace or SHARED_NAMESPACE, object_name(asset.id))
    return asset


def require_changeable(asset: Asset) -> Asset:
    """The asset. Raises Conflict if it is built in."""
    if not asset.namespace:
        raise Conflict(f"{asset.name} is built in, and can be neither changed nor deleted: make one of your own")
    return asset


async def create_asset(call: RestCall, kind: str, meta: AssetMeta, content: Mapping[str, Any]) -> Asset:
    """Create an asset in the scope of the request. Raises BadRequest, AlreadyExists, Forbidden."""
    check_cluster_id(call, meta.cluster)
    namespace, scope_id = _home(call, meta, kind)
    name = meta.name or ""
    if _has_namesake(call, kind, name, meta.scope, scope_id):
        raise AlreadyExists(f"{name!r} is the name of another one in this scope; choose another name")
    now = timestamp(call.context.clock())
    asset = Asset(
        id=call.context.new_id(), kind=kind, name=name, scope=meta.scope, scope_id=scope_id, namespace=namespace,
        description=meta.description or "", created_by=call.user, created_at=now, updated_by=call.user, updated_at=now,
        meta=meta.others, content=content,
    )  # fmt: skip
    await call.context.api.create(kinds.CONFIG_MAP, to_object(asset), options=_OPTIONS)
    return asset


def _home(call: RestCall, meta: AssetMeta, kind: str) -> tuple[str, str]:
    """(namespace, id of the project or department) for the scope of the request. Raises BadRequest when it does not exist."""
    if meta.scope == "project":
        project = require_project(call, meta.scope_id, "meta.projectId")
        return SHARED_NAMESPACE if is_policy(kind) else project.namespace, project.id
    call.require("create", kinds.CONFIG_MAP, SHARED_NAMESPACE)
    if meta.scope == "department":
        require_department(call, meta.scope_id, "meta.departmentId")
    return SHARED_NAMESPACE, meta.scope_id


def _has_namesake(call: RestCall, kind: str, name: str, scope: str, scope_id: str) -> bool:
    wanted = (kind, name, scope, scope_id)
    return any((one.kind, one.name, one.scope, one.scope_id) == wanted for one in call.context.cache.assets())


async def change_asset(call: RestCall, asset: Asset, meta: AssetMeta, content: Mapping[str, Any]) -> Asset:
    """Write a new name, description and content. Raises AlreadyExists, Conflict."""
    name = asset.name if meta.name is None else meta.name
    if name != asset.name and _has_namesake(call, asset.kind, name, asset.scope, asset.scope_id):
        raise AlreadyExists(f"{name!r} is the name of another one in this scope; choose another name")
    changed = replace(
        require_changeable(asset), name=name, content=content, updated_by=call.user,
        description=asset.description if meta.description is None else meta.description,
        updated_at=timestamp(call.context.clock()),
    )  # fmt: skip
    patch = {"data": to_object(changed)["data"]}
    api = call.context.api
    await api.patch(kinds.CONFIG_MAP, asset.namespace, object_name(asset.id), patch, type="merge", options=_OPTIONS)
    return changed


async def delete_asset(call: RestCall, asset: Asset) -> None:
    """Delete an asset; workloads that were created with it keep its values. Raises Conflict."""
    require_changeable(asset)
    await call.context.api.delete(kinds.CONFIG_MAP, asset.namespace, object_name(asset.id))


async def delete_assets_of(call: RestCall, scope: str, scope_id: str) -> None:
    """Delete the assets and policies of a deleted department or project, so that a later one of that name does not inherit them."""
    api = call.context.server_api or call.context.api
    page = await api.list(kinds.CONFIG_MAP, SHARED_NAMESPACE, labels=parse_labels(LABEL))
    for asset in map(read_object, page.items):
        if asset is not None and (asset.scope, asset.scope_id) == (scope, scope_id):
            with suppress(NotFound):  # deleted meanwhile by another request
                await api.delete(kinds.CONFIG_MAP, SHARED_NAMESPACE, object_name(asset.id))


def project_name(call: RestCall, asset: Asset) -> str:
    """The name of the project that owns the asset; "" when no project does."""
    project = call.context.cache.project(asset.scope_id) if asset.scope == "project" else None
    return project.name if project is not None else ""
