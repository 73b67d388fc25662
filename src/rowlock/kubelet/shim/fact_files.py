"""Facts on disk: small JSON files that are there whole or not at all, and what makes a process itself and no other.

Standard library only: shims write them.
"""

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
    """A JSON file that is there whole or not at all; whatever a program has put in its place goes.

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
    """Gives a file the name `path`; a directory that a program has put there goes."""
    try:
        os.rename(source, path)
    except IsADirectoryError:
        beneath.remove_path(path)
        os.rename(source, path)


def write_new_file(path: str, fact: dict[str, Any]) -> None:
    """A JSON file of a name that nobody looks for until it is whole."""
    fd = _create_file(path)
    try:
        _write_all(fd, json.dumps(fact).encode())
    finally:
        os.close(fd)


def _create_file(path: str) -> int:
    """A new file: what lies there, a FIFO or a link perhaps, is neither opened nor followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        beneath.remove_path(path)
        return os.open(path, flags, 0o600)


def _write_all(fd: int, data: bytes) -> None:
    """A disk that is nearly full takes a part; the next write says that it is full."""
    while data:
        data = data[os.write(fd, data) :]


def create_writable(path: str) -> None:
    """An empty file that any user may write; nothing that lies there already is used."""
    beneath.remove_path(path)
    fd = _create_file(path)
    try:
        os.fchmod(fd, 0o666)
    finally:
        os.close(fd)


UNCREATED = "uncreated"
"""The fact of a run whose container an engine could not create: `why`. There was no run, and it is tried again."""


def run_fact_path(request: ShimRequest, name: str) -> str:
    """Where a fact of this run of a container lies."""
    return f"{request.directory}/{name}.{request.number}"


def own_pid() -> int:
    """The pid of this process as the server sees it: in a PID namespace of its own `os.getpid` says another one. /proc is
    the machine's until the container's mounts are made."""
    try:
        return int(os.readlink("/proc/self"))
    except OSError:  # no /proc: there are no such namespaces, either
        return os.getpid()


def ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid its identity. 0 = gone, or cannot be known."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(fd, _STAT_BYTES).rpartition(b")")[2].split(None, 20)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
