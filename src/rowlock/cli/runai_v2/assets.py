"""`runai environment|compute|datasource|template`: list, describe, create and delete assets."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client
from rowlock.cli.commands import projects as rowlock_projects
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.output import show
from rowlock.cli.runai_v2.tables import Column, show_list, show_yaml, slice_items
from rowlock.cli.submit.request import request_specs
from rowlock.submit_fields import flag_names

_PATHS = {
    "environment": "/api/v1/asset/environment",
    "compute": "/api/v1/asset/compute",
    "datasource": "/api/v1/asset/datasource",
    "template": "/api/v1/workload-templates",
}


def _noun(line: CommandLine) -> str:
    return next(word for word in line.verb.split() if word in _PATHS)


def _scope_type(asset: dict[str, Any]) -> str:
    return str(asset["meta"].get("scopeType") or asset["meta"].get("scope"))


def _workload_type(asset: dict[str, Any]) -> str:
    return str(asset["meta"].get("workloadType") or asset["meta"].get("kind") or "")


COLUMNS = (
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
    """Those that a project may use; without one, all that the caller sees."""
    if noun != "template":
        query = {"complyToProject": rowlock_projects.find_project(server, project_name)["id"]} if project_name else {}
        return list(server.get(_PATHS[noun], **query)["entries"])
    entries, offset = list[dict[str, Any]](), 0
    while True:
        body = server.get(_PATHS[noun], limit=500, offset=offset)
        entries += body["entries"]
        offset = body["pagination"]["nextOffset"]
        if offset is None:
            break
    identity = rowlock_projects.find_project(server, project_name)["id"] if project_name else ""
    return [a for a in entries if not identity or _scope_type(a) != "project" or a["meta"]["scopeId"] == identity]


def list_assets(line: CommandLine) -> int:
    """List assets of one sort, or templates."""
    server = client.connect(line)
    items = assets_of(server, _noun(line), "" if line.all else project(line))
    return show_list(line, COLUMNS, slice_items(line, items))


def _named_asset(line: CommandLine, server: client.ServerClient) -> dict[str, Any]:
    """The asset of the name (or the id) that the line gives, the project's own first."""
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


def describe(line: CommandLine) -> int:
    """Show an asset or a template, whole."""
    asset = _named_asset(line, client.connect(line))
    meta = {name: value for name, value in asset["meta"].items() if value not in (None, False)}
    show_yaml({**asset, "meta": meta})
    return 0


def create(line: CommandLine) -> int:
    """An environment or a compute resource, from the flags of a submit that belong to it."""
    noun, name, server = _noun(line), line.word("name"), client.connect(line)
    spec, _ = request_specs(line, 2, "")
    security = spec.pop("security", {})
    asset_spec = spec.get("compute", {}) if noun == "compute" else spec | security
    meta: dict[str, Any] = {"name": name, "scope": line.scope}
    if line.scope == "project":
        meta["projectId"] = rowlock_projects.find_project(server, project(line))["id"]
    if line.description:
        meta["description"] = line.description
    if line.scope == "department":
        meta["departmentId"] = rowlock_projects.find_project(server, project(line))["parent"]["id"]
    try:
        server.post(_PATHS[noun], {"meta": meta, "spec": asset_spec})
    except client.StatusError as refusal:
        raise CommandError(client.message_in_flags(refusal, flag_names(2))) from None
    show(f"{noun} {name} created successfully")
    return 0


def delete(line: CommandLine) -> int:
    """Delete an asset or a template; workloads keep its values."""
    server, noun = client.connect(line), _noun(line)
    asset = _named_asset(line, server)
    paths = {"pvc": "pvc", "hostPath": "host-path", "git": "git", "config-map": "config-map"}
    kinds = {"Distributed": "distributed", "Training": "trainings", "Workspace": "workspaces"}
    below = {"datasource": paths, "template": kinds}.get(noun, {}).get(_workload_type(asset), "")
    server.delete("/".join(part for part in (_PATHS[noun], below, asset["meta"]["id"]) if part))
    show(f"{noun} {asset['meta']['name']} deleted successfully")
    return 0
