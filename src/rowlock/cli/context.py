"""The context of a command: the data directory, and the project selected in it, for both `rowlock` and `runai`; and the flags of
`exec`, `attach` and `port-forward`, which are the same in both.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any

from rowlock.cli.grammar import CommandError, Flag

DATA_DIR = Flag(
    "--data-dir", "text", "the cluster's data directory (default: $ROWLOCK_DATA_DIR or ~/.rowlock)", value="DIR"
)
PROJECT = Flag("-p --project", "text", "the project (default: the selected one)", value="NAME")
JSON = Flag("--json", "switch", "print JSON")
LISTEN_FLAGS = (
    Flag(
        "--listen-host",
        "text",
        "where the browser comes back to from the identity provider (default: 127.0.0.1)",
        value="HOST",
    ),
    Flag("--listen-port", "int", "the port there, if the provider must know it (default: a free one)", value="PORT"),
)
"""Flags for logins at an identity provider."""
DEFAULT_PROJECT = "default"


def named_data_dir(line: Any) -> str:
    """The data directory that a flag or the environment names, or "". Run:ai's variable for it counts for `runai` only."""
    named = getattr(line, "data_dir", None) or getattr(line, "config_path", None)
    elsewhere = os.environ.get("RUNAI_CLI_CONFIG_PATH") if getattr(line, "program", "") == "runai" else None
    return str(named or os.environ.get("ROWLOCK_DATA_DIR") or elsewhere or "")


def data_dir(line: Any) -> str:
    """The data directory: the flag, the environment, else `~/.rowlock`."""
    return os.path.abspath(os.path.expanduser(named_data_dir(line) or "~/.rowlock"))


def data_dir_flag(directory: str) -> str:
    """The `--data-dir` flag that a printed command needs, with a leading blank; "" when the directory is the default."""
    if os.path.abspath(directory) == data_dir(None):
        return ""
    import shlex

    return f" --data-dir {shlex.quote(directory)}"


def context_flags(line: Any) -> str:
    """The flags (data directory, project) that a printed command needs so that it acts on the same cluster and project."""
    project_name = project(line)
    selected = str(read_config(line).get("project") or DEFAULT_PROJECT)
    return (f" -p {project_name}" if project_name != selected else "") + data_dir_flag(data_dir(line))


def typed_command(line: Any) -> str:
    """The command line as it was typed, quoted for a shell."""
    import shlex

    return shlex.join([line.program, *line.argv])


def prepare_data_dir(directory: str) -> None:
    """Create the data directory with mode 0700. Raises CommandError when it is not writable."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK | os.X_OK) else "Permission denied"
        if reason and os.statvfs(directory).f_flag & os.ST_RDONLY:
            reason = os.strerror(errno.EROFS)
    except OSError as error:
        reason = "it is a file" if os.path.isfile(directory) else str(error.strerror)
    if reason:
        advice = "remount it for writing, or choose" if reason == os.strerror(errno.EROFS) else "choose"
        text = f"{directory} cannot be the data directory ({reason}): {advice} another with --data-dir DIR"
        raise CommandError(text)


def read_config(line: Any) -> dict[str, Any]:
    """The settings that the command lines keep in the data directory; {} when there are none."""
    path = os.path.join(data_dir(line), "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read ({error}); remove it, and select your project again") from None
    return values if isinstance(values, dict) else {}


def update_config(line: Any, **values: Any) -> None:
    """Store these values. The file is replaced atomically, so that no reader sees half of it."""
    directory = data_dir(line)
    prepare_data_dir(directory)
    path = os.path.join(directory, "config.json")
    merged = {**read_config(line), **values}
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(merged, file, indent=1)
    os.replace(file.name, path)


def project(line: Any) -> str:
    """The project of the command: the flag, else the selected project, else the default one."""
    name = getattr(line, "project", None)
    return str(name or read_config(line).get("project") or DEFAULT_PROJECT)


EXEC_FLAGS = (
    Flag("-i --stdin", "switch", "pass your input to the command"),
    Flag("-t --tty", "switch", "run the command in a terminal"),
)
ATTACH_FLAGS = (
    Flag("--no-stdin", "switch", "do not pass your input to the program"),
    Flag("--no-tty", "switch", "do not connect your terminal"),
)
PORT_FORWARD_FLAGS = (
    Flag("--port", "list", "a local port and a port of the pod", value="LOCAL:REMOTE"),
    Flag("--address", "text", "the local address to listen on", "localhost", value="ADDRESS"),
)
CONTAINER = Flag("-c --container", "text", "the container (default: the first one)", value="NAME")
