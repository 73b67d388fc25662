"""`runai environment|compute|datasource|template`: list, describe, create and delete assets."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.lookups import find_project
from rowlock.cli.output import show
from rowlock.cli.runai_v2.flags import STANDARD, TEMPLATE
from rowlock.cli.runai_v2.submit import framework_of
from rowlock.cli.runai_v2.tables import Column, show_list, show_yaml, slice_items
from rowlock.cli.submit.assets import data_sources
from rowlock.cli.submit.flags import ANY_FRAMEWORK
from rowlock.cli.submit.request import request_specs
from rowlock.cli.submit.sending import message_in_flags
from rowlock.submit_fields import flag_names

_PATHS = {
    "environment": "/api/v1/asset/environment",
    "compute": "/api/v1/asset/compute",
    "datasource": "/api/v1/asset/datasource",
    "template": "/api/v1/workload-templates",
    "credential": "/api/v1/asset/credentials",
}

_SOURCE_PATHS = {
    "pvc": "pvc", "hostPath": "host-path", "nfs": "nfs", "git": "git", "s3": "s3", "config-map": "config-map",
    "secret-volume": "secrets",
}  # fmt: skip
"""Kind of data source → last part of its REST path."""
_CREDENTIAL_PATHS = {
    "accessKey": "access-key", "password": "password", "dockerRegistry": "docker-registry", "genericSecret": "generic-secret",
    "ngcApiKey": "ngc-api-key",
}  # fmt: skip
_WORKLOAD_PATHS = {"Distributed": "distributed", "Training": "trainings", "Workspace": "workspaces"}
_BELOW = {"datasource": _SOURCE_PATHS, "template": _WORKLOAD_PATHS, "credential": _CREDENTIAL_PATHS}
"""Kind of asset → kind or type → last part of its REST path."""
_SOURCE_KINDS = {"configMapVolume": "config-map", "secretVolume": "secret-volume"}
"""Field below `spec.storage` → kind of data source, where the names differ."""
_CREDENTIAL_FIELDS = {"accessKeySecret": "accessKeyAssetId", "secret": "credentialAssetId"}
"""Field of a submit that names a Secret → field of a data source that names the credential."""
_SCOPE_PLACES = {"scope", "description", "project", "data_dir"}


def _noun(line: CommandLine) -> str:
    return next(word for word in line.verb.split() if word in _PATHS)


def _scope_type(asset: dict[str, Any]) -> str:
    return str(asset["meta"].get("scopeType") or asset["meta"].get("scope"))


def _workload_type(asset: dict[str, Any]) -> str:
    return str(asset["meta"].get("workloadType") or asset["meta"].get("kind") or "")


COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "Name", lambda a: a["meta"]["name"]),
    Column("scopeType", "Scope", _scope_type),
    Column("workloadType", "Workload Type", lambda a: a["meta"].get("workloadType") or ""),
    Column("createdAt", "Creation Time", lambda a: a["meta"]["createdAt"]),
    Column("kind", "Kind", _workload_type, 0, False),
    Column("description", "Description", lambda a: a["meta"].get("description") or "", 0, False),
    Column("createdBy", "Created By", lambda a: a["meta"]["createdBy"], 0, False),
    Column("id", "Id", lambda a: a["meta"]["id"], 0, False),
)


def assets_of(server: client.ServerClient, noun: str, project_name: str = "") -> list[dict[str, Any]]:
    """The assets that a project may use; without a project, all that the caller may see."""
    if noun != "template":
        query = {"complyToProject": find_project(server, project_name)["id"]} if project_name else {}
        return list(server.get(_PATHS[noun], **query)["entries"])
    entries, offset = list[dict[str, Any]](), 0
    while True:
        body = server.get(_PATHS[noun], limit=500, offset=offset)
        entries += body["entries"]
        offset = body["pagination"]["nextOffset"]
        if offset is None:
            break
    identity = find_project(server, project_name)["id"] if project_name else ""
    return [a for a in entries if not identity or _scope_type(a) != "project" or a["meta"]["scopeId"] == identity]


def list_assets(line: CommandLine) -> int:
    """List assets of one sort, or templates."""
    server = client.connect(line)
    items = assets_of(server, _noun(line), "" if line.all else project(line))
    return show_list(line, COLUMNS, slice_items(line, items))


def named_asset(line: CommandLine, server: client.ServerClient) -> dict[str, Any]:
    """The asset with the name or id on the command line. The narrowest scope (the project) wins. Raises CommandError."""
    noun, name = _noun(line), line.word("name")
    assets = assets_of(server, noun, project(line))
    order = ("project", "department", "cluster", "tenant", "system")
    assets.sort(key=lambda asset: order.index(_scope_type(asset)))
    asset = next((one for one in assets if name in (one["meta"]["id"], one["meta"]["name"])), None)
    if asset is None:
        names = [one["meta"]["name"] for one in assets]
        raise CommandError(
            f"{noun} {name} was not found.{suggest_nearest(name, names)} `runai {noun} list` shows them."
        )
    return asset


def describe(line: CommandLine) -> None:
    """Show an asset or a template with all fields that are set."""
    asset = named_asset(line, client.connect(line))
    meta = {name: value for name, value in asset["meta"].items() if value not in (None, False)}
    show_yaml({**asset, "meta": meta})


def create(line: CommandLine) -> int:
    """Create an environment or a compute resource from the flags of a submit that belong to it."""
    noun, name, server = _noun(line), line.word("name"), client.connect(line)
    spec, _ = request_specs(line, 2, "")
    security = spec.pop("security", {})
    asset_spec = spec.get("compute", {}) if noun == "compute" else spec | security
    return _post(line, server, _PATHS[noun], {"meta": _asset_meta(line, server, name), "spec": asset_spec})


def create_data_source(line: CommandLine) -> int:
    """Create a data source from the one flag of a submit that mounts a volume."""
    spec, _ = request_specs(line, 2, "")
    volumes = [(place, item) for place, items in spec.get("storage", {}).items() for item in items]
    if len(volumes) != 1:
        flags = (
            "--host-path, --existing-pvc, --new-pvc, --configmap-map-volume, --secret-volume, --nfs, --git-sync, --s3"
        )
        raise CommandError(f"a data source is one volume, but {len(volumes)} are given: give one of {flags}", 2)
    (place, item), server = volumes[0], client.connect(line)
    item = {_CREDENTIAL_FIELDS.get(name, name): value for name, value in item.items()}
    path = f"{_PATHS['datasource']}/{_SOURCE_PATHS[_SOURCE_KINDS.get(place, place)]}"
    return _post(line, server, path, {"meta": _asset_meta(line, server, line.word("name")), "spec": item})


def create_template(line: CommandLine) -> int:
    """Create a template from the flags of a submit."""
    is_distributed = line.type == "distributed"
    fields = {"distributedFramework": framework_of(line)} if is_distributed else {}
    if not is_distributed:
        of_one_pod = {flag.dest for flag in (*STANDARD, *TEMPLATE[:1])}
        for flag in TEMPLATE:
            if flag.dest in line.given_flags and flag.dest not in of_one_pod | _SCOPE_PLACES:
                name = flag.names.split()[-1]
                raise CommandError(f"{name} is for distributed workloads: leave it out, or --type {line.type}", 2)
    spec, master = request_specs(line, 2, ANY_FRAMEWORK if is_distributed else "Standard")
    server, name = client.connect(line), line.word("name")
    asset_meta = _asset_meta(line, server, name)
    scope_id = asset_meta.pop("projectId", None) or asset_meta.pop("departmentId", None)
    meta = {"scopeType": asset_meta.pop("scope"), **asset_meta} | ({"scopeId": str(scope_id)} if scope_id else {})
    body = {"meta": meta, "spec": spec | fields} | ({"master": {"spec": master}} if master else {})
    if sources := data_sources(line):
        body["assets"] = {"datasources": sources}
    return _post(line, server, f"{_PATHS['template']}/{_WORKLOAD_PATHS[line.type.capitalize()]}", body)


def _asset_meta(line: CommandLine, server: client.ServerClient, name: str) -> dict[str, Any]:
    """The `meta` of the request: the name and the scope on the command line."""
    meta: dict[str, Any] = {"name": name, "scope": line.scope}
    if line.scope == "project":
        meta["projectId"] = find_project(server, project(line))["id"]
    if line.description:
        meta["description"] = line.description
    if line.scope == "department":
        meta["departmentId"] = find_project(server, project(line))["parent"]["id"]
    return meta


def _post(line: CommandLine, server: client.ServerClient, path: str, body: dict[str, Any]) -> int:
    try:
        server.post(path, body)
    except client.StatusError as refusal:
        raise CommandError(message_in_flags(refusal, flag_names(2, line.given_flags))) from None
    show(f"{_noun(line)} {body['meta']['name']} created successfully")
    return 0


def delete(line: CommandLine) -> None:
    """Delete an asset, a template or a credential; workloads keep its values."""
    server, noun = client.connect(line), _noun(line)
    asset = named_asset(line, server)
    below = _BELOW.get(noun, {}).get(_workload_type(asset), "")
    server.delete("/".join(part for part in (_PATHS[noun], below, asset["meta"]["id"]) if part))
    show(f"{noun} {asset['meta']['name']} deleted successfully")
