"""`server.json` in a data directory: which server runs there, and whether its process is still alive."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from rowlock.cli.context import data_dir_flag
from rowlock.cli.grammar import CommandError

_PF_EXITING, _SIGKILL_MASK = 0x4, 1 << 8


def is_dying(stat: Sequence[bytes], status: str) -> bool:
    """Whether a process is dead or about to be: it is a zombie, exiting, or has SIGKILL pending. `stat`: the fields of /proc/PID/stat
    after the process name. `status`: the text of /proc/PID/status."""
    pending = (int(row.split()[1], 16) for row in status.splitlines() if row.startswith(("SigPnd:", "ShdPnd:")))
    return stat[0] in (b"Z", b"X") or bool(int(stat[6]) & _PF_EXITING) or any(mask & _SIGKILL_MASK for mask in pending)


def is_alive(server_json: dict[str, Any]) -> bool:
    """Whether the process that wrote this server.json still runs. A dying process does not count, nor does a newer process that
    reuses the pid. A process of another user counts, although this user cannot signal it."""
    pid = int(server_json.get("pid") or 0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = file.read()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = file.read().strip()
    except OSError:
        return not os.path.isdir("/proc/self")  # without /proc, rely on the signal alone
    if is_dying(fields, status):
        return False
    if "startTicks" not in server_json:
        return True  # an older rowlock wrote no start time: rely on the pid alone
    return (server_json["startTicks"], server_json.get("bootId", boot_id)) == (int(fields[19]), boot_id)


def read_server_json(directory: str) -> dict[str, Any] | None:
    """The content of server.json; None when the file is missing or damaged, or names another directory."""
    try:
        with open(os.path.join(directory, "server.json"), encoding="utf-8") as file:
            server_json = json.load(file)
    except PermissionError:
        raise CommandError(
            f"{directory} belongs to somebody else: choose another with --data-dir or ROWLOCK_DATA_DIR"
        ) from None
    except (OSError, ValueError):
        return None
    if not isinstance(server_json, dict) or "url" not in server_json:
        return None
    status = os.stat(directory)
    if server_json.get("directory", f"{status.st_dev}:{status.st_ino}") != f"{status.st_dev}:{status.st_ino}":
        return None  # the directory is a copy: that server belongs to the original
    return server_json


def describe_copy(directory: str) -> str:
    """A hint that the directory is a copy and the server of the original still runs; "" in all other cases."""
    try:
        with open(os.path.join(directory, "server.json"), encoding="utf-8") as file:
            server_json = json.load(file)
        if read_server_json(directory) is not None or not is_alive(server_json):
            return ""
        original = str(server_json["flags"]["data_dir"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return (
        f" ({directory} is a copy of {original}, whose server, pid {server_json.get('pid')}, goes on;"
        f" `rowlock down{data_dir_flag(original)}` stops that one)"
    )


def running_server(directory: str) -> dict[str, Any] | None:
    """The content of server.json if its server runs, else None."""
    server_json = read_server_json(directory)
    return server_json if server_json and is_alive(server_json) else None
