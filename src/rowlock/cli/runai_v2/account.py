"""`login`, `auth`, `config`, `kubeconfig`, `version`, `upgrade`: the logged-in user, and the settings of the command line."""

from __future__ import annotations

import json
import os
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import data_dir, prepare_data_dir, read_config, update_config
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import show, show_json
from rowlock.cli.runai_v2.tables import show_yaml
from rowlock.cli.server_json import read_server_json, running_server

_SETTINGS = {
    "output": "table", "interactive": "enabled", "auto_update": "disabled", "list_format_align": "enabled",
}  # fmt: skip
"""The settings of `config set`, with their defaults."""


def show_token(line: CommandLine) -> None:
    """Print the token itself, or in the form of a kubectl exec plugin."""
    server = client.connect(line)
    token = server.token()
    if line.output == "plaintext":
        show(token)
        return
    credential = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "spec": {"interactive": False},
        "status": {"token": token},
    }
    print(json.dumps(credential))


# ---------------------------------------------------------------- config


def set_config(line: CommandLine) -> None:
    """Store settings in the data directory."""
    given = {name: getattr(line, name) for name in _SETTINGS if name in line.given_flags}
    given |= _server_elsewhere(line)
    if not given:
        raise CommandError("`runai config set` needs something to set; `runai config set --help` lists it", 2)
    if given.get("auto_update") == "enabled":
        raise CommandError("rowlock never updates itself: `pip install -U rowlock` does")
    if given.get("list_format_align") == "disabled":
        raise CommandError("lists are always aligned: --json and --yaml are for programs")
    update_config(line, **given)
    show("configuration updated successfully")


def _server_elsewhere(line: CommandLine) -> dict[str, Any]:
    """The settings of a server on another machine: its URL, and its CA certificate, which is copied into the data directory.
    Raises CommandError."""
    if not line.cp_url and not line.ca_file:
        return {}
    if not (line.cp_url or "").startswith("https://"):
        raise CommandError("--cp-url is the address of a server: https://HOST:PORT", 2)
    directory = data_dir(line)
    if running_server(directory):
        raise CommandError(
            f"{directory} is the data directory of a server of its own: take another with --data-dir DIR"
        )
    if line.ca_file:
        import shutil

        prepare_data_dir(directory)
        try:
            shutil.copyfile(os.path.expanduser(line.ca_file), os.path.join(directory, "ca.crt"))
        except OSError as error:
            raise CommandError(f"--ca-file {line.ca_file} cannot be read ({error.strerror})") from None
    return {"control_plane": {"url": line.cp_url.rstrip("/")}}


def describe_config(line: CommandLine) -> None:
    """Show the stored settings."""
    values = _config_values(line)
    if line.json:
        show_json(values)
    elif line.yaml:
        show_yaml(values)
    else:
        show("\n".join(f"{name}: {value}" for name, value in values.items()))


def _config_values(line: CommandLine) -> dict[str, Any]:
    config = read_config(line)
    server = read_server_json(data_dir(line)) or {}
    return {
        "dataDirectory": data_dir(line),
        "controlPlaneUrl": server.get("url") or (config.get("control_plane") or {}).get("url") or "",
        "project": config.get("project") or "default",
        "cluster": (config.get("cluster") or {}).get("name") or "rowlock",
        **{_camel_case(name): config.get(name) or default for name, default in _SETTINGS.items()},
    }


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def generate_config(line: CommandLine) -> None:
    """Write the settings to a file, as JSON or YAML by its extension."""
    if not line.file:
        raise CommandError("`runai config generate` needs a file: -f FILE.json or -f FILE.yaml", 2)
    values = _config_values(line)
    if line.file.endswith((".yaml", ".yml")):
        import yaml

        text = yaml.safe_dump(values, sort_keys=False)
    else:
        text = json.dumps(values, indent=1) + "\n"
    with open(line.file, "w", encoding="utf-8") as file:
        file.write(text)
    show(f"configuration written to {line.file}")


# ---------------------------------------------------------------- kubeconfig, version


def _rename_user(config: dict[str, Any], name: str) -> None:
    """Give the entry of the current context's user another name."""
    context: dict[str, Any] = next(
        (one["context"] for one in config.get("contexts") or () if one["name"] == config.get("current-context")), {}
    )
    for user in config.get("users") or ():
        if user["name"] == context.get("user"):
            user["name"] = context["user"] = name
            return


def set_kubeconfig(line: CommandLine) -> None:
    """Add the cluster to kubectl's configuration as the current context; other entries stay."""
    import yaml

    source = str(
        (read_server_json(data_dir(line)) or {}).get("kubeconfig") or os.path.join(data_dir(line), "kubeconfig")
    )
    try:
        with open(source, encoding="utf-8") as file:
            ours = yaml.safe_load(file)
    except FileNotFoundError:
        raise CommandError(
            f"there is no kubeconfig in {data_dir(line)} yet: it is written by the first `rowlock up`"
        ) from None
    target = (os.environ.get("KUBECONFIG") or "").partition(os.pathsep)[0] or os.path.expanduser("~/.kube/config")
    if os.path.realpath(target) == os.path.realpath(source):
        show(f"kubeconfig {target} is this cluster's own: nothing to set")
        return
    try:
        with open(target, encoding="utf-8") as file:
            theirs = yaml.safe_load(file) or {}
    except FileNotFoundError:
        theirs = {"apiVersion": "v1", "kind": "Config"}
    except yaml.YAMLError as error:
        raise CommandError(f"{target} is not YAML, and was left as it is: {error}") from None
    if line.username:
        _rename_user(ours, line.username)
    for kind in ("clusters", "users", "contexts"):
        names = {entry["name"] for entry in ours.get(kind) or ()}
        theirs[kind] = [e for e in theirs.get(kind) or () if e["name"] not in names] + list(ours.get(kind) or ())
    theirs["current-context"] = ours.get("current-context")
    os.makedirs(os.path.dirname(target) or ".", mode=0o700, exist_ok=True)
    temporary = f"{target}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(theirs, file, sort_keys=False)
    os.replace(temporary, target)
    show(f"kubeconfig {target} has the context {ours.get('current-context')}")
