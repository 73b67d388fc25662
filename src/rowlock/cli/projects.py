"""`project create|list|set|update|delete`: a project is a namespace and a queue; one is selected."""

from __future__ import annotations

import sys
from typing import Any

from rowlock.cli import client
from rowlock.cli.grammar import Line, Refused, nearest
from rowlock.cli.output import ask, number, show, show_json, table
from rowlock.cli.place import project, remember

PATH = "/api/v1/org-unit/projects"


def every(server: client.Server) -> list[dict[str, Any]]:
    return client.pages(server, PATH, "projects")


def find(server: client.Server, name: str) -> dict[str, Any]:
    """Raises Refused with the nearest name."""
    found = every(server)
    for one in found:
        if one["name"] == name:
            return dict(one)
    names = [one["name"] for one in found]
    hint = f"{nearest(name, names)} `rowlock project list` shows them, `rowlock project create {name}` makes it."
    raise Refused(f"project {name} was not found.{hint}")


def _resources(line: Line) -> dict[str, Any]:
    if line.gpus is None:
        return {}
    if line.gpus < 0:
        raise Refused(f"--gpus must be no less than 0, but is {line.gpus:g}", 2)
    return {"resources": [{"nodePool": {"id": "default"}, "gpu": {"deserved": line.gpus}}]}


def create(line: Line) -> int:
    name = line.word("name")
    made = client.connect(line).post(PATH, {"name": name, **_resources(line)})
    if line.json:
        show_json(made)
    else:
        show(f"Project {name} created (namespace {made['status']['namespace']}, {_quota(made)}).")
    return 0


def update(line: Line) -> int:
    name, server = line.word("name"), client.connect(line)
    if line.gpus is None:
        raise Refused("say what to change: `rowlock project update NAME --gpus Q`", 2)
    made = server.call("PUT", f"{PATH}/{find(server, name)['id']}", body=_resources(line))
    if line.json:
        show_json(made)
    else:
        show(f"Project {name} changed ({_quota(made)}).")
    return 0


def _quota(one: dict[str, Any]) -> str:
    quota = one["totalResources"]["gpuQuota"]
    return "GPUs without bound" if quota < 0 else f"{number(quota)} GPU{'' if quota == 1 else 's'}"


def index(line: Line) -> int:
    found = every(client.connect(line))
    if line.json:
        show_json(found)
        return 0
    selected = project(line)
    rows = []
    for one in found:
        quota = one["totalResources"]["gpuQuota"]
        used = one["status"]["quotaStatus"]["allocated"]["gpu"]
        star = " (selected)" if one["name"] == selected else ""
        rows.append((one["name"] + star, one["status"]["namespace"], "-" if quota < 0 else number(quota), number(used)))
    show(table(("PROJECT", "NAMESPACE", "GPU QUOTA", "GPUS USED"), rows))
    return 0


def select(line: Line) -> int:
    name = line.word("name")
    find(client.connect(line), name)
    remember(line, project=name)
    show(f"project {name} configured successfully")
    return 0


def delete(line: Line) -> int:
    name, server = line.word("name"), client.connect(line)
    one = find(server, name)
    if not line.yes and sys.stdin.isatty():
        if ask(f"Delete project {name} and everything in it? [y/N] ") not in ("y", "yes"):
            raise Refused("Nothing was deleted.")
    server.delete(f"{PATH}/{one['id']}")
    show(f"Project {name} deleted.")
    return 0
