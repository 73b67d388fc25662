"""`runai credential`: credentials of the project, stored as Secrets. Secret values come from a file or stdin, never from arguments."""

from __future__ import annotations

import sys
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import find_project
from rowlock.cli.output import show
from rowlock.cli.runai_v2.assets import named_asset

_PATH = "/api/v1/asset/credentials"
_KIND_PATHS = {
    "accessKey": "access-key", "password": "password", "dockerRegistry": "docker-registry", "genericSecret": "generic-secret",
    "ngcApiKey": "ngc-api-key",
}  # fmt: skip
"""Kind of credential → last part of its REST path."""


def create(line: CommandLine) -> int:
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
    server.post(f"{_PATH}/{line.type}", {"meta": meta, "spec": spec})
    show(f"credential {name} created successfully")
    return 0


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


def delete(line: CommandLine) -> int:
    """Delete a credential and its Secret."""
    server = client.connect(line)
    credential = named_asset(line, server)
    server.delete(f"{_PATH}/{_KIND_PATHS[credential['meta']['kind']]}/{credential['meta']['id']}")
    show(f"credential {credential['meta']['name']} deleted successfully")
    return 0
