"""Facts on disk: small JSON files that are there whole or not at all, and what makes a process itself and no other.

Standard library only: shims write them.
"""

import json
import os
from collections.abc import Callable
from typing import Any


def write_fact(
    path: str, fact: dict[str, Any], *, durable: bool = False, on_written: Callable[[], None] | None = None
) -> None:
    """A JSON file that is there whole or not at all.

    `on_written` is called before it is on disk for good: who hears of it makes it durable in another place (the store)."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(fact).encode())
        if durable and on_written is None:
            os.fsync(fd)
        os.rename(path + ".new", path)
        if on_written is not None:
            on_written()
            os.fsync(fd)
    finally:
        os.close(fd)


def run_fact_path(spec: dict[str, Any], name: str) -> str:
    """Where a fact of this run of a container lies."""
    return f"{spec['dir']}/{name}.{spec['n']}"


def ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid its identity. 0 = gone, or cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
