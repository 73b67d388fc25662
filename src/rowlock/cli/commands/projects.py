"""`project create|list|set|update|delete`: a project is a namespace and a queue; one is selected."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.accounts import unix_accounts
from rowlock.cli.context import DEFAULT_PROJECT, project, read_config, update_config
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import PROJECTS, find_project, read_projects
from rowlock.cli.output import ask, format_number, show, show_json, show_result, table, tell

if TYPE_CHECKING:
    from rowlock.answers.cluster import Project


def _quota_request(line: CommandLine) -> dict[str, Any]:
    if line.gpus is None:
        return {}
    return {"resources": [{"nodePool": {"id": "default"}, "gpu": {"deserved": _amount(line.gpus, "--gpus")}}]}


_QUOTA_FLAGS = {"deserved": "--gpus", "limit": "--gpu-limit", "overQuotaWeight": "--gpu-over-quota-weight"}
"""Field of a project's GPU resources → the flag of `update` that sets it."""


def _new_quota(line: CommandLine, project: Project) -> list[dict[str, Any]]:
    """The request body with the GPU fields that the flags set; other GPU fields keep their values."""
    current: dict[str, Any] = next((dict(pool["gpu"]) for pool in project["resources"]), {})
    kept = {name: current[name] for name in _QUOTA_FLAGS if current.get(name) is not None}
    return [{"nodePool": {"id": "default"}, "gpu": {**kept, **_asked_quota(line)}}]


def _asked_quota(line: CommandLine) -> dict[str, float]:
    """The GPU fields that the flags of `update` set. Raises CommandError."""
    given = {"deserved": line.gpus, "limit": line.gpu_limit, "overQuotaWeight": line.gpu_over_quota_weight}
    return {name: _amount(text, _QUOTA_FLAGS[name]) for name, text in given.items() if text is not None}


def _amount(text: str, flag: str) -> float:
    """Parse a number of at least 0, or `unlimited` as -1, except for the weight. Raises CommandError."""
    if text == "unlimited" and flag != _QUOTA_FLAGS["overQuotaWeight"]:
        return -1
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        word = "" if flag == _QUOTA_FLAGS["overQuotaWeight"] else ", or unlimited"
        raise CommandError(f"{flag} must be a number no less than 0{word}, but is {text[:40]!r}", 2)
    return number


def _unix_account(line: CommandLine) -> unix_accounts.UnixUser | None:
    return unix_accounts.find_account(line.unix_account) if line.unix_account else None


def create(line: CommandLine) -> int:
    name, account = line.word("name"), _unix_account(line)
    server = client.connect(line)
    created = server.post(PROJECTS, {"name": name, **_quota_request(line)})
    if account:
        unix_accounts.assign(server, created, account)
    made = f"Project {name} created (namespace {created['status']['namespace']}, {_format_quota(created)})."
    return show_result(line, created, made, unix_accounts.describe(name, account) if account else "")


def update(line: CommandLine) -> int:
    name, account, quota = line.word("name"), _unix_account(line), _asked_quota(line)
    if not quota and not account:
        flags = ", ".join(_QUOTA_FLAGS.values())
        raise CommandError(f"say what to change of {name}: one of {flags}, or --unix-account NAME", 2)
    server = client.connect(line)
    updated = found = find_project(server, name)
    if quota:
        updated = server.call("PATCH", f"{PROJECTS}/{found['id']}/resources", body=_new_quota(line, found))
    if account:
        unix_accounts.assign(server, found, account)
    changed = f"Project {name} changed ({_format_quota(updated)})."
    return show_result(line, updated, changed, unix_accounts.describe(name, account) if account else "")


def _format_quota(item: Project) -> str:
    quota = item["totalResources"]["gpuQuota"]
    return "unlimited GPUs" if quota < 0 else f"{format_number(quota)} GPU{'' if quota == 1 else 's'}"


def index(line: CommandLine) -> None:
    projects = read_projects(client.connect(line))
    if line.json:
        show_json(projects)
        return
    selected = project(line)
    rows = []
    for item in projects:
        quota = item["totalResources"]["gpuQuota"]
        used_gpus = item["status"]["quotaStatus"]["allocated"]["gpu"]
        star = " (selected)" if item["name"] == selected else ""
        is_broken = item["status"]["phase"] == "NotReady"
        figures = (
            ("no queue", "") if is_broken else ("-" if quota < 0 else format_number(quota), format_number(used_gpus))
        )
        rows.append((item["name"] + star, item["status"]["namespace"], *figures))
    show(table(("PROJECT", "NAMESPACE", "GPU QUOTA", "GPUS USED"), rows))
    for item in projects:
        if item["status"]["phase"] == "NotReady":
            tell(
                f"Project {item['name']}: {item['status']['phaseMessage']} Its jobs wait until it has one: "
                f"`rowlock project update {item['name']} --gpus Q` (its quota, or unlimited) makes it anew."
            )


def select(line: CommandLine) -> int:
    name = line.word("name")
    find_project(client.connect(line), name)
    update_config(line, project=name)
    return show_result(line, {"name": name, "result": "selected"}, f"project {name} configured successfully")


def delete(line: CommandLine) -> int:
    name, server = line.word("name"), client.connect(line)
    item = find_project(server, name)
    if not line.yes and sys.stdin.isatty():
        if ask(f"Delete project {name} and everything in it? [y/N] ") not in ("y", "yes"):
            raise CommandError("Nothing was deleted.")
    server.delete(f"{PROJECTS}/{item['id']}")
    show_result(line, {"name": name, "result": "deleted"}, f"Project {name} deleted.")
    if read_config(line).get("project") == name != DEFAULT_PROJECT:
        update_config(line, project=None)
        tell(f"It was selected; now {DEFAULT_PROJECT} is: `rowlock project set NAME` selects another.")
    return 0
