"""`project create|update --unix-account NAME`: pods of the project run as that user of this machine, who may submit to it."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Any, NamedTuple
from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.grammar import CommandError

ANNOTATION = "rowlock.dev/unix-account"
_RULES = "/api/v1/authorization/access-rules"
_PREFIX = "unix:"
"""Before the name of a user who logs in by who he is."""


class UnixUser(NamedTuple):
    """A user of this machine, with all groups that it is a member of."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def annotation(self) -> str:
        """As `id` prints it; the server reads it back (`system/unix_accounts.py`)."""
        return f"{self.name} uid={self.uid} gid={self.gid} groups={','.join(map(str, self.groups))}"


def find_account(name: str) -> UnixUser:
    """Raises CommandError for a name that this machine does not know."""
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
    """For people: the groups by name, where they have one."""
    names = {entry.gr_gid: entry.gr_name for entry in grp.getgrall()}
    return ", ".join(names.get(gid, str(gid)) for gid in account.groups)


def assign(server: client.ServerClient, project: dict[str, Any], account: UnixUser) -> None:
    """Pods of the project run as the account from now on, and the user of that name may submit there; who had the project before
    may not any more."""
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
        if refusal.status != 409:  # the user has that rule already
            raise


def _remove_rules_of_earlier_users(server: client.ServerClient, project: dict[str, Any], account: UnixUser) -> None:
    """Else they would run programs as the new account."""
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
    """What has changed, in a line."""
    return (
        f"Its pods run as {account.name} (uid {account.uid}, groups {group_names(account)}), who may submit there:"
        f" `rowlock run -p {project} -- …`"
    )
