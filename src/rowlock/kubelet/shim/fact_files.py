"""Facts on disk: small JSON files that are written atomically; and the identity of a process, its pid and its start time."""

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.shim.shim_request import ShimRequest

_STAT_BYTES = 4096
"""More than /proc/PID/stat has: 52 numbers and a name of 64 characters at most."""


def write_fact(
    path: str, fact: dict[str, Any], *, durable: bool = False, on_written: Callable[[], None] | None = None
) -> None:
    """Writes a JSON file atomically; replaces whatever a program has put in its place. Raises OSError.

    `on_written` is called before the file is synced: the callee makes the fact durable in another place (the store)."""
    temporary = f"{path}.{own_pid()}.new"
    fd = _create_file(temporary)
    try:
        _write_all(fd, json.dumps(fact).encode())
        if durable and on_written is None:
            os.fsync(fd)
        rename_over(temporary, path)
        if on_written is not None:
            on_written()
            os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)


def rename_over(source: str, path: str) -> None:
    """Renames a file to `path`, replacing even a directory that a program has put there."""
    try:
        os.rename(source, path)
    except IsADirectoryError:
        beneath.remove_path(path)
        os.rename(source, path)


def write_new_file(path: str, fact: dict[str, Any]) -> None:
    """Writes a JSON file under a name that is not read before the file is complete."""
    fd = _create_file(path)
    try:
        _write_all(fd, json.dumps(fact).encode())
    finally:
        os.close(fd)


def _create_file(path: str) -> int:
    """Creates a file. What lies there, perhaps a FIFO or a link, is removed, never opened or followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        beneath.remove_path(path)
        return os.open(path, flags, 0o600)


def _write_all(fd: int, data: bytes) -> None:
    """Writes everything: a nearly full disk takes a part, and the next write raises OSError."""
    while data:
        data = data[os.write(fd, data) :]


def create_writable(path: str) -> None:
    """Creates an empty file that any user may write, in place of whatever lies there."""
    beneath.remove_path(path)
    fd = _create_file(path)
    try:
        os.fchmod(fd, 0o666)
    finally:
        os.close(fd)


UNCREATED = "uncreated"
"""Name of the fact that an engine could not create the container, and `why`. It does not count as a run, and is tried again."""


def run_fact_path(request: ShimRequest, name: str) -> str:
    """The path of a fact of this run."""
    return f"{request.directory}/{name}.{request.number}"


def own_pid() -> int:
    """The pid of this process as the server sees it; in a PID namespace `os.getpid` returns another one. Valid until the
    container's own /proc is mounted."""
    try:
        return int(os.readlink("/proc/self"))
    except OSError:  # no /proc: there are no such namespaces, either
        return os.getpid()


def ticks(pid: int) -> int:
    """The start of a process in clock ticks since boot; with the pid it is its identity. 0 = ended, or unknown."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(fd, _STAT_BYTES).rpartition(b")")[2].split(None, 20)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
