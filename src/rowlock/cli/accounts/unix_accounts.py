"""`project create|update --unix-account NAME`: pods of the project run as that user of this machine, who may submit to it."""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.grammar import CommandError

if TYPE_CHECKING:
    from rowlock.answers.cluster import Project

ANNOTATION = "rowlock.dev/unix-account"
_RULES = "/api/v1/authorization/access-rules"
_PREFIX = "unix:"
"""Prefix of the name of a user who logs in with a Unix account."""


class UnixUser(NamedTuple):
    """A user of this machine, with all groups that it is a member of."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def annotation(self) -> str:
        """The ids as `id` prints them; the server parses this text (`system/unix_accounts.py`)."""
        return f"{self.name} uid={self.uid} gid={self.gid} groups={','.join(map(str, self.groups))}"


def find_account(name: str) -> UnixUser:
    """The Unix account of this name. Raises CommandError when this machine has none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise CommandError(
            f"this machine has no user {name}: `getent passwd` lists them, `useradd -m {name}` makes one", 2
        ) from None
    return UnixUser(
        entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid)))
    )


def group_names(account: UnixUser) -> str:
    """The groups of the account for messages: names, or numbers where a group has no name."""
    names = {entry.gr_gid: entry.gr_name for entry in grp.getgrall()}
    return ", ".join(names.get(gid, str(gid)) for gid in account.groups)


def assign(server: client.ServerClient, project: Project, account: UnixUser) -> None:
    """Make pods of the project run as this account, and allow its user to submit to the project. The user of the
    project's earlier account loses that right."""
    path = f"/api/v1/namespaces/{project['status']['namespace']}"
    item = server.get(path)
    annotations = item["metadata"].setdefault("annotations", {})
    _remove_rules_of_earlier_users(server, project, account)
    annotations[ANNOTATION] = account.annotation()
    server.call("PUT", path, body=item)
    rule = {
        "subjectId": f"{_PREFIX}{account.name}", "subjectType": "user", "roleName": "editor", "scopeType": "project",
        "scopeId": project["id"],
    }  # fmt: skip
    try:
        server.post(_RULES, rule)
    except client.StatusError as refusal:
        if refusal.status != 409:  # the user has this rule already
            raise


def _remove_rules_of_earlier_users(server: client.ServerClient, project: Project, account: UnixUser) -> None:
    """Remove the rules of earlier users: otherwise they could still submit programs that run as the new account."""
    for rule in client.list_all(server, _RULES, "accessRules"):
        subject = str(rule["subjectId"])
        own_scope = rule["scopeType"] == "project" and rule["scopeName"] == project["name"]
        if (
            own_scope
            and rule["subjectType"] == "user"
            and subject.startswith(_PREFIX)
            and subject != f"{_PREFIX}{account.name}"
        ):
            server.delete(f"{_RULES}/{quote(str(rule['id']), safe='')}")


def describe(project: str, account: UnixUser) -> str:
    """One line that tells what has changed."""
    return (
        f"Its pods run as {account.name} (uid {account.uid}, groups {group_names(account)}), who may submit there:"
        f" `rowlock run -p {project} -- …`"
    )
