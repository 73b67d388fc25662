"""Assets as objects: each is a ConfigMap, so Kubernetes' rights decide which users may read and change it.

A project's assets are in its namespace, all others in kube-public, where only cluster admins may write. Since users can
write anything into a ConfigMap, unreadable ones are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rowlock import objects
from rowlock.kinds import CONFIG_MAP
from rowlock.objects import Object
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.runai_json import TENANT

LABEL = "rowlock.dev/asset"
"""The label of every ConfigMap that is an asset; its value is the kind."""
SHARED_NAMESPACE = "kube-public"
DATA_KEY = "asset.json"
SCOPES = ("system", "tenant", "cluster", "department", "project")
_MAX_NAME, _MAX_DESCRIPTION = 255, 250


@dataclass(frozen=True, slots=True)
class Asset:
    """An asset, template or policy, parsed from its ConfigMap. `scope_id` is the id of a project or department, "" for other scopes."""

    id: str
    kind: str
    name: str
    scope: str
    scope_id: str = ""
    description: str = ""
    namespace: str = ""
    """The namespace of its ConfigMap; "" for a built-in asset."""
    created_by: str = ""
    created_at: str = ""
    updated_by: str = ""
    updated_at: str = ""
    meta: tuple[tuple[str, Any], ...] = ()
    """Further fields of `meta`, as submitted."""
    content: Mapping[str, Any] | None = None
    """The fields beside `meta`: `spec`, and others for templates and policies."""

    @property
    def spec(self) -> dict[str, Any]:
        return dict((self.content or {}).get("spec") or {})

    def is_usable_in(self, project: str, department: str) -> bool:
        """Whether workloads of this project of this department may use it."""
        return {"project": self.scope_id == project, "department": self.scope_id == department}.get(self.scope, True)


def is_policy(kind: str) -> bool:
    """Whether the kind is a policy. Policies of a project are in kube-public too, so that its users cannot change them."""
    return kind.startswith("policy-")


def object_name(identity: str) -> str:
    """The name of the asset's ConfigMap."""
    return f"asset-{identity}"


def to_object(asset: Asset) -> Object:
    """The ConfigMap of an asset."""
    stored = {
        "id": asset.id, "kind": asset.kind, "name": asset.name, "scope": asset.scope, "scopeId": asset.scope_id,
        "description": asset.description, "createdBy": asset.created_by, "createdAt": asset.created_at,
        "updatedBy": asset.updated_by, "updatedAt": asset.updated_at, "meta": dict(asset.meta), "content": asset.content,
    }  # fmt: skip
    metadata = {"name": object_name(asset.id), "namespace": asset.namespace, "labels": {LABEL: asset.kind}}
    data = {DATA_KEY: json.dumps(stored, separators=(",", ":"), ensure_ascii=False)}
    return {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.name, "metadata": metadata, "data": data}


def read_object(config_map: Object) -> Asset | None:
    """The asset of a ConfigMap; None if it is malformed, or if its scope does not match its namespace, so that a project's
    users cannot create assets of the cluster."""
    namespace = objects.namespace(config_map)
    stored = objects.written_json((config_map.get("data") or {}).get(DATA_KEY))
    texts = (
        "id",
        "kind",
        "name",
        "scope",
        "scopeId",
        "description",
        "createdBy",
        "createdAt",
        "updatedBy",
        "updatedAt",
    )
    if not isinstance(stored, dict) or not all(isinstance(stored.get(name), str) for name in texts):
        return None
    is_own_name = objects.name(config_map) == object_name(stored["id"])
    in_project = stored["scope"] == "project" and not is_policy(stored["kind"])
    is_shared = in_project == (namespace != SHARED_NAMESPACE)
    content, meta = stored.get("content"), stored.get("meta")
    if not (is_own_name and is_shared and isinstance(content, dict) and isinstance(meta, dict)):
        return None
    return Asset(
        id=stored["id"], kind=stored["kind"], name=stored["name"], scope=stored["scope"], scope_id=stored["scopeId"],
        description=stored["description"], namespace=namespace, created_by=stored["createdBy"],
        created_at=stored["createdAt"], updated_by=stored["updatedBy"], updated_at=stored["updatedAt"],
        meta=tuple(meta.items()), content=content,
    )  # fmt: skip


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class AssetMeta:
    """The `meta` of a request. `name` and `description` None mean no change."""

    name: str | None
    description: str | None
    scope: str = ""
    scope_id: str = ""
    cluster: str = ""
    others: tuple[tuple[str, Any], ...] = ()


_SUPPORTED = ("training", "workspace", "distributed", "inference", "distFramework")


def parse_meta(top: Fields, *, template: bool, new: bool) -> AssetMeta:
    """Parse the `meta` of an asset or template (whose scope fields have other names). A change has no scope. Mistakes are added to the
    errors."""
    meta = top.object("meta")
    if top.get("meta") is None and new:
        top.add_error("meta", "required", "an asset needs a name and a scope.")
    scope_names = ("scopeType", "scopeId") if template else ("scope", "clusterId", "departmentId", "projectId")
    others = () if template else ("workloadSupportedTypes", "private", "autoDelete")
    refused = {"private": (False, "users who may read a project's ConfigMaps read its assets"),
               "autoDelete": (False, "an asset stays until somebody deletes it")}  # fmt: skip
    names = ("name", "description", *(scope_names if new else ()))
    meta.allow_only(*names, *(name for name in others if new and name not in refused), refused=refused if new else {})
    name = None if meta.get("name") is None else meta.text("name")
    if (new and name is None) or name == "" or len(name or "") > _MAX_NAME:
        meta.add_error("name", "required", f"an asset needs a name of 1 to {_MAX_NAME} characters.")
    description = None if meta.get("description") is None else meta.text("description")
    if len(description or "") > _MAX_DESCRIPTION:
        meta.add_error("description", "max", f"at most {_MAX_DESCRIPTION} characters are allowed.")
    supported = meta.object("workloadSupportedTypes")
    supported.allow_only(*_SUPPORTED)
    kept = (("workloadSupportedTypes", dict(supported.values)),) if supported.values else ()
    if not new:
        return AssetMeta(name, description)
    scope = meta.choice(scope_names[0], *SCOPES)
    if not scope or scope == "system":
        meta.add_error(scope_names[0], "required", "must be one of project, department, cluster and tenant.")
    cluster = meta.text("scopeId") if template and scope == "cluster" else meta.text("clusterId")
    return AssetMeta(name, description, scope, _scope_id(meta, scope, template), cluster, kept)


def _scope_id(meta: Fields, scope: str, template: bool) -> str:
    """The id of the project or department; Run:ai writes that of a project as a number."""
    if scope not in ("project", "department"):
        return ""
    field = "scopeId" if template else f"{scope}Id"
    value = meta.get(field)
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else meta.text(field)
    if not text:
        meta.add_error(field, "required", f"says which {scope}.")
    return text


# ---------------------------------------------------------------- answers


def asset_json(asset: Asset, cluster: str, project_name: str) -> dict[str, Any]:
    """Run:ai's JSON of an asset."""
    return {
        "meta": {
            "id": asset.id,
            "kind": asset.kind,
            "name": asset.name,
            "description": asset.description or None,
            "scope": asset.scope,
            "clusterId": cluster if asset.scope == "cluster" else None,
            "departmentId": asset.scope_id if asset.scope == "department" else None,
            "projectId": _number(asset.scope_id) if asset.scope == "project" else None,
            "projectName": project_name or None,
            "tenantId": TENANT,
            "private": False,
            "autoDelete": False,
            **_author_json(asset),
            **dict(asset.meta),
        },
        "spec": asset.spec,
    }


def template_json(asset: Asset, cluster: str) -> dict[str, Any]:
    """Run:ai's JSON of a template: specs of workers and master, and whether it can run."""
    content, spec = dict(asset.content or {}), asset.spec
    scope_ids = {"cluster": cluster, "tenant": str(TENANT), "system": str(TENANT)}
    return {
        "meta": {
            "id": asset.id,
            "name": asset.name,
            "description": asset.description or None,
            "workloadType": asset.kind.removeprefix("template-").capitalize(),
            "scopeType": asset.scope,
            "scopeId": asset.scope_id or scope_ids.get(asset.scope, ""),
            "clusterId": cluster,
            "departmentId": asset.scope_id if asset.scope == "department" else None,
            "projectId": _number(asset.scope_id) if asset.scope == "project" else None,
            **_author_json(asset),
        },
        "spec": spec,
        "assets": content.get("assets"),
        "masterSpecSameAsWorker": content.get("masterSpecSameAsWorker"),
        "master": content.get("master"),
        "runnable": {"isRunnable": bool(spec.get("image")), "issue": None if spec.get("image") else "it has no image"},
        "combinedSpec": spec,
        "combinedMasterSpec": (content.get("master") or {}).get("spec"),
    }


def _author_json(asset: Asset) -> dict[str, str]:
    return {
        "createdBy": asset.created_by,
        "createdAt": asset.created_at,
        "updatedBy": asset.updated_by,
        "updatedAt": asset.updated_at,
    }


def _number(text: str) -> int | None:
    return int(text) if objects.is_digits(text) else None


def parse_body(body: Any, *allowed: str) -> tuple[Fields, BodyErrors]:
    """The fields of a request's body, and its errors; other fields than `allowed` are an error."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only(*allowed)
    return top, errors


BUILT_IN: tuple[Asset, ...] = tuple(
    Asset(
        id=f"00000000-0000-4000-9000-{number:012}", kind="compute", name=name, scope="system", created_by="rowlock",
        updated_by="rowlock", content={"spec": spec},
    )
    for number, (name, spec) in enumerate(
        (
            ("small-fraction", {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.1, "cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}),
            ("half-gpu", {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5, "cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}),
            ("one-gpu", {"gpuDevicesRequest": 1, "cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}),
            ("cpu-only", {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}),
        ),
        1,
    )
)  # fmt: skip
"""The compute resources that Run:ai's documentation assumes to exist."""


def all_assets(config_maps: Iterable[Object], project_ids: Mapping[str, str], created: str) -> list[Asset]:
    """The built-in assets, created with the cluster, then all others by name. Assets of projects are included only if the project
    exists (`project_ids`: namespace → id)."""
    read = (read_object(config_map) for config_map in config_maps)
    found = sorted((asset for asset in read if asset), key=lambda asset: (asset.name, asset.id))
    placed = [
        replace(asset, scope_id=project_ids[asset.namespace]) if asset.namespace in project_ids else asset
        for asset in found
        if asset.scope != "project" or asset.namespace in project_ids
        or (is_policy(asset.kind) and asset.scope_id in project_ids.values())
    ]  # fmt: skip
    return [*(replace(one, created_at=created, updated_at=created) for one in BUILT_IN), *placed]
