"""`role list|show` and `access-rule create|list|delete`: who may do what."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import find_project
from rowlock.cli.output import format_age, show_result, table

ROLES, RULES = "/api/v1/authorization/roles", "/api/v1/authorization/access-rules"
_SUBJECTS = {"user": "user", "group": "group", "application": "app", "service_account": "service-account"}
"""Flag → the subject type of the REST API."""


def roles(line: CommandLine) -> int:
    found = client.connect(line).get(ROLES)
    rows = [(role["name"], role["id"], role["description"]) for role in found]
    return show_result(line, found, table(("ROLE", "ID", "WHAT IT MAY"), rows))


def show_role(line: CommandLine) -> int:
    role = client.connect(line).get(f"{ROLES}/{quote(line.word('role'), safe='')}")
    return show_result(
        line,
        role,
        f"Role:         {role['name']} (id {role['id']})\nMay:          {role['description']}",
        f"ClusterRole:  {role['clusterRole']} (`kubectl describe clusterrole {role['clusterRole']}` shows each right)",
    )


def create(line: CommandLine) -> int:
    given = [(kind, getattr(line, flag)) for flag, kind in _SUBJECTS.items() if getattr(line, flag)]
    if len(given) != 1:
        raise CommandError("say whom the rule is for: one of --user, --group, --application, --service-account", 2)
    if not line.role:
        raise CommandError("say which role: --role admin, editor or viewer (`rowlock role list`)", 2)
    if bool(line.project) == bool(line.all_projects):
        raise CommandError("say where: either -p PROJECT or --all-projects", 2)
    server, (kind, name) = client.connect(line), given[0]
    body: dict[str, Any] = {"subjectType": kind, "subjectId": name, "roleName": line.role, "scopeType": "cluster"}
    if line.project:
        body |= {"scopeType": "project", "scopeId": find_project(server, line.project)["id"]}
    made = server.post(RULES, body)
    where = f"project {made['scopeName']}" if line.project else "all projects"
    return show_result(line, made, f"{name} has the role {made['roleName']} in {where} (access rule {made['id']}).")


def index(line: CommandLine) -> int:
    rules = client.list_all(client.connect(line), RULES, "accessRules")
    rules = [
        rule
        for rule in rules
        if (not line.user or (rule["subjectType"], rule["subjectId"]) == ("user", line.user))
        and (not line.project or (rule["scopeType"], rule["scopeName"]) == ("project", line.project))
    ]
    rows = [
        (
            rule["id"], rule["subjectType"], rule["subjectId"], rule["roleName"],
            rule["scopeName"] if rule["scopeType"] == "project" else "(all projects)", format_age(rule["createdAt"]),
        )
        for rule in rules
    ]  # fmt: skip
    return show_result(line, rules, table(("ID", "TYPE", "SUBJECT", "ROLE", "PROJECT", "AGE"), rows))


def delete(line: CommandLine) -> int:
    identity = line.word("id")
    client.connect(line).delete(f"{RULES}/{quote(identity, safe='')}")
    return show_result(line, {"id": identity, "result": "deleted"}, f"Access rule {identity} deleted.")
