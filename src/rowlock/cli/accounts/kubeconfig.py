"""`rowlock kubeconfig`: a kubeconfig for the owner, for a user of the --users file, or for a user of the machine."""

from __future__ import annotations

import os
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import data_dir, prepare_data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import read_projects
from rowlock.cli.output import show
from rowlock.cli.server_json import is_alive, read_server_json, running_server


def kubeconfig(line: CommandLine) -> int:
    directory = data_dir(line)
    if line.user:
        show(_user_kubeconfig(line, directory))
        return 0
    if shared := _machine_server(line, directory):
        return _show_machine_kubeconfig(line, directory, shared)
    path = str((read_server_json(directory) or {}).get("kubeconfig") or os.path.join(directory, "kubeconfig"))
    if not os.path.exists(path):
        raise CommandError(f"there is no kubeconfig in {directory} yet: it is written by the first `rowlock up`")
    if line.path:
        show(path)
        return 0
    with open(path, encoding="utf-8") as file:
        show(file.read())
    return 0


def _machine_server(line: CommandLine, directory: str) -> client.ServerClient | None:
    """The server for all users of the machine, if the user logs in at its socket and runs no other server; else None."""
    server_json = read_server_json(directory)
    if server_json is not None and is_alive(server_json):
        return None
    shared = client.find_system_server(line)
    return shared if shared is not None and shared.logs_in else None


def _show_machine_kubeconfig(line: CommandLine, directory: str, server: client.ServerClient) -> int:
    """Print a kubeconfig with the credential plugin `runai auth get-token`: it has no secret and never expires."""
    import sys

    runai = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "runai")
    variables = [{"name": name, "value": os.environ[name]} for name in ("ROWLOCK_SYSTEM_DIR",) if os.environ.get(name)]
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": runai if os.access(runai, os.X_OK) else "runai",
        "args": ["auth", "get-token", "--output", "kubeconfig"],
        "env": variables or None,
        "interactiveMode": "Never",
    }
    cluster = {"server": server.url, "certificate-authority": os.path.join(server.directory, "ca.crt")}
    text = _config_text(cluster, "rowlock", {"exec": plugin}, _own_namespace(line, server))
    if not line.path:
        show(text)
        return 0
    prepare_data_dir(directory)
    path = os.path.join(directory, "machine-kubeconfig")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    show(path)
    return 0


def _own_namespace(line: CommandLine, server: client.ServerClient) -> str:
    """The namespace of the selected project, else of the first project that the user may see."""
    projects = read_projects(server)
    chosen = next((one for one in projects if one["name"] == project(line)), None) or next(iter(projects), None)
    return str(chosen["status"]["namespace"]) if chosen else "default"


def read_user_token(directory: str, user: str) -> str:
    """The token of a user of the running server's --users file. Raises CommandError."""
    import csv

    server_json = running_server(directory)
    flags = (server_json or {}).get("flags") or {}
    users = str(flags.get("users") or "")
    if flags.get("kubeconfig") is not None:
        raise CommandError(
            f"users of a real cluster have its tokens: {user} signs in at the page with one (`kubectl create token` prints it)"
        )
    if server_json is None or users in ("", "None"):
        reason = "no server runs" if server_json is None else "the server was started without --users FILE"
        raise CommandError(f"there are no users besides you: {reason}")
    try:
        with open(users, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) > 2 and not row[0].lstrip().startswith("#")]
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be read: {error.strerror}") from None
    tokens = {row[1].strip(): row[0].strip() for row in rows}
    if user not in tokens:
        raise CommandError(f"{users} has no user {user}; there are: {', '.join(sorted(tokens))}")
    return tokens[user]


def _user_kubeconfig(line: CommandLine, directory: str) -> str:
    """A kubeconfig that works on the user's own machine: it contains the CA certificate and the user's token."""
    import base64

    token = read_user_token(directory, line.user)
    server_json = running_server(directory) or {}
    try:
        with open(os.path.join(directory, "ca.crt"), "rb") as file:
            authority = base64.b64encode(file.read()).decode()
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be read: {error.strerror}") from None
    url = next(iter(server_json.get("others") or ()), server_json["url"])
    cluster = {"server": url, "certificate-authority-data": authority}
    return _config_text(cluster, line.user, {"token": token}, "runai-default")


def _config_text(cluster: dict[str, Any], user: str, credentials: dict[str, Any], namespace: str) -> str:
    """A kubeconfig with one context, as JSON, which is YAML too."""
    import json

    context = {"cluster": "rowlock", "user": user, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rowlock",
        "clusters": [{"name": "rowlock", "cluster": cluster}],
        "contexts": [{"name": "rowlock", "context": context}],
        "users": [{"name": user, "user": credentials}],
    }
    return json.dumps(config, indent=2)
