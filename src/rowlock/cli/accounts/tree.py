"""Users, roles, access rules and applications as rows of `rowlock`'s commands."""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, JSON
from rowlock.cli.grammar import Command, Flag, Group

_YES = Flag("-y --yes", "switch", "do not ask")
_SUBJECT = (
    Flag("--user", "text", "for this user", value="NAME"),
    Flag("--group", "text", "for everybody in this group", value="NAME"),
    Flag("--application", "text", "for this application", value="NAME"),
    Flag("--service-account", "text", "for this service account", value="NAMESPACE:NAME"),
)
_ROLE = Flag("--role", "text", "the role: `rowlock role list` shows them", value="ROLE")
_PROJECT = Flag("-p --project", "text", "in this project", value="NAME")
USERS = Group("user", "Manage users who log in with a password.", (
    Command("create", "Create a user; the password is asked for, or read from stdin.", "accounts.users:create", "NAME", (DATA_DIR, JSON)),
    Command("list", "List users.", "accounts.users:index", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("passwd", "Set a user's password: it is asked for, or read from stdin. The user's logins end.", "accounts.users:passwd", "NAME", (DATA_DIR, JSON)),
    Command("logout", "End everything that a user is logged in with.", "accounts.users:logout", "NAME", (DATA_DIR, JSON)),
    Command("delete", "Delete a user and the user's access rules. The user's logins end.", "accounts.users:delete", "NAME", (_YES, DATA_DIR, JSON), aliases="rm"),
), aliases="users")  # fmt: skip
ROLES = Group("role", "Show the roles that access rules give.", (
    Command("list", "List roles.", "accounts.access_rules:roles", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("show", "Show a role, and what Kubernetes calls it.", "accounts.access_rules:show_role", "ROLE", (DATA_DIR, JSON)),
), aliases="roles")  # fmt: skip
ACCESS_RULES = Group("access-rule", "Manage access rules: who has which role in which project.", (
    Command("create", "Give a role in one project, or in all.", "accounts.access_rules:create", flags=(
        *_SUBJECT, _ROLE, _PROJECT, Flag("-A --all-projects", "switch", "in all projects"), DATA_DIR, JSON,
    )),
    Command("list", "List access rules.", "accounts.access_rules:index", flags=(
        Flag("--user", "text", "only the rules of this user", value="NAME"), _PROJECT, DATA_DIR, JSON,
    ), aliases="ls"),
    Command("delete", "Take a role away.", "accounts.access_rules:delete", "ID", (DATA_DIR, JSON), aliases="rm"),
), aliases="access-rules")  # fmt: skip
APPLICATIONS = Group("application", "Manage applications: programs that log in with a client id and a secret.", (
    Command("create", "Create an application and print its secret, once.", "accounts.users:create_application", "NAME", (DATA_DIR, JSON)),
    Command("list", "List applications.", "accounts.users:list_applications", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("delete", "Delete an application. Its tokens end.", "accounts.users:delete_application", "NAME", (DATA_DIR, JSON), aliases="rm"),
), aliases="applications app")  # fmt: skip
