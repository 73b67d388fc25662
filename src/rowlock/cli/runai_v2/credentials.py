"""`runai my-credential`: the caller's own credentials, which no other user can use; and `runai credential create`: those of a project,
stored as Secrets. Secret values come from a file, from stdin or from --item.
"""

from __future__ import annotations

import re
import sys
from typing import Any
from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import find_project
from rowlock.cli.output import show
from rowlock.cli.runai_v2.tables import Column, show_list, show_yaml, slice_items

_PATH = "/api/v1/me/credentials"
_FIELDS: dict[str, tuple[dict[str, str], str]] = {
    "genericSecret": ({"key": "key", "value": "value"}, "value"),
    "dockerRegistry": ({"user": "user", "password": "password", "url": "url"}, "password"),
    "ngcApiKey": ({"ngc-api-key": "ngc_api_key"}, "ngc-api-key"),
    "password": ({"user": "user", "password": "password"}, "password"),
    "accessKey": ({"access-key-id": "accessKeyId", "secret-access-key": "secretAccessKey"}, "secret-access-key"),
}
"""Type → (key of an item → field of the request; the key whose value is secret and may come from --secret-file)."""
_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "Name", lambda one: one["name"]),
    Column("type", "Type", lambda one: one["type"]),
    Column("keys", "Keys", lambda one: ", ".join(one["spec"]["keys"])),
    Column("createdAt", "Creation Time", lambda one: one["createdAt"]),
    Column("description", "Description", lambda one: one["description"] or "", 0, False),
    Column("updatedAt", "Last Updated", lambda one: one["updatedAt"], 0, False),
    Column("id", "Id", lambda one: one["id"], 0, False),
)


def list_own(line: CommandLine) -> int:
    """List the caller's own credentials, without their secret values."""
    body = client.connect(line).get(_PATH, **({"type": line.type} if line.type else {}))
    return show_list(line, _COLUMNS, slice_items(line, body["credentials"]), body)


def describe(line: CommandLine) -> None:
    """Show one of the caller's credentials, without its secret values."""
    show_yaml(client.connect(line).get(_own_path(line)))


def create(line: CommandLine) -> None:
    """Store a credential of the caller. Its values come from --item, the secret one also from --secret-file."""
    if not line.type:
        raise CommandError(f"say what it is: --type {'|'.join(_FIELDS)}", 2)
    known, secret_key = _FIELDS[line.type]
    items = [_parse_item(text, line.type, known) for text in line.item or [""]]
    if len(items) > 1 and line.type != "genericSecret":
        raise CommandError(
            f"a credential of the type {line.type} has one --item: write its keys with commas between", 2
        )
    lacking = [item for item in items if secret_key not in item]
    if len(lacking) > 1:
        raise CommandError(
            f"--secret-file has one {secret_key}, but {len(lacking)} items lack it: write it into the others", 2
        )
    if lacking:
        lacking[0][secret_key] = read_secret(line)
    elif line.secret_file:
        raise CommandError(f"--secret-file and --item both say the {secret_key}: leave one of them out", 2)
    for item in items:
        if absent := [key for key in known if not item.get(key)]:
            raise CommandError(f"a credential of the type {line.type} needs {absent[0]}: --item {absent[0]}=…", 2)
    fields = [{known[key]: value for key, value in item.items()} for item in items]
    spec: dict[str, Any] = {"keyValuePairs": fields} if line.type == "genericSecret" else fields[0]
    name = line.word("name")
    body = {"name": name, "type": line.type, "spec": spec} | (
        {"description": line.description} if line.description else {}
    )
    client.connect(line).post(_PATH, body)
    show(f"my-credential {name} created successfully")


def _parse_item(text: str, kind: str, known: dict[str, str]) -> dict[str, str]:
    """Parse `user=ana,password=a,b`: a comma ends a value only if a known key follows it. Raises CommandError."""
    names = "|".join(re.escape(key) for key in known)
    item: dict[str, str] = {}
    for part in re.split(rf",(?=(?:{names})=)", text) if text else []:
        key, equals, value = part.partition("=")
        if key not in known or not equals or key in item:
            raise CommandError(f"an --item of the type {kind} is {','.join(f'{one}=…' for one in known)}, not {key}", 2)
        item[key] = value
    return item


def delete(line: CommandLine) -> None:
    """Delete one of the caller's credentials. Workloads that use it keep its values."""
    client.connect(line).delete(_own_path(line))
    show(f"my-credential {line.word('name')} deleted successfully")


def _own_path(line: CommandLine) -> str:
    return f"{_PATH}/{quote(line.word('name'), safe='')}"


_SHARED_PATH = "/api/v1/asset/credentials"


def create_shared(line: CommandLine) -> None:
    """Store a credential of the project."""
    given = {"user": line.user, "url": line.url, "accessKeyId": line.access_key_id, "key": line.key}
    needed = {
        "access-key": ("accessKeyId",), "password": ("user",), "docker-registry": ("user", "url"), "generic-secret": ("key",),
        "ngc-api-key": (),
    }[line.type]  # fmt: skip
    flags = {"accessKeyId": "--access-key-id"}
    for field, value in given.items():
        flag = flags.get(field, f"--{field}")
        if field in needed and not value:
            raise CommandError(f"a credential of the type {line.type} needs {flag}", 2)
        if value and field not in needed:
            raise CommandError(f"{flag} is not for credentials of the type {line.type}: leave it out", 2)
    secret = read_secret(line)
    if line.type == "generic-secret":
        spec: dict[str, Any] = {"keyValuePairs": [{"key": line.key, "value": secret}]}
    else:
        hidden = {"access-key": "secretAccessKey", "ngc-api-key": "ngc_api_key"}.get(line.type, "password")
        spec = {field: given[field] for field in needed} | {hidden: secret}
    server, name = client.connect(line), line.word("name")
    meta = {"name": name, "scope": "project", "projectId": find_project(server, project(line))["id"]}
    server.post(f"{_SHARED_PATH}/{line.type}", {"meta": meta, "spec": spec})
    show(f"credential {name} created successfully")


def read_secret(line: CommandLine) -> str:
    """The content of --secret-file (`-`: stdin) without the final newline. Raises CommandError when it is missing or empty."""
    if not line.secret_file:
        raise CommandError("what is secret is read from a file: --secret-file FILE (- reads stdin)", 2)
    try:
        if line.secret_file == "-":
            text = sys.stdin.read()
        else:
            with open(line.secret_file, encoding="utf-8") as file:
                text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{line.secret_file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not text.strip():
        raise CommandError(f"{line.secret_file} is empty: it must have what is secret")
    return text.removesuffix("\n")
