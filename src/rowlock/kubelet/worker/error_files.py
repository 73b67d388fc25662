"""torch's own account of a failure: where a program of another user leaves it (`TORCHELASTIC_ERROR_FILE`).

The server's user writes it beside the run's facts, `error.N.json`. Another user cannot enter the data directory: it gets
a directory of its own for the run, mounted where it can. (A file alone would not do: torch removes an older one first,
and what is mounted cannot be removed.)
"""

import os
from pathlib import Path
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.worker.security_context import Account

MOUNT_PATH = "/run/rowlock/errors"
"""Where such a program sees its directory."""
FILE_NAME = "error.json"


def directory_of_run(container_directory: Path, number: int) -> Path:
    """Of the run with this number."""
    return container_directory / f"errors.{number}"


def make_mount(container_directory: Path, number: int, account: Account) -> dict[str, Any]:
    """Makes the run's directory, which is that user's alone, and returns it as a mount."""
    directory = directory_of_run(container_directory, number)
    container_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    beneath.remove_path(str(directory))
    directory.mkdir(mode=0o700)
    os.chown(directory, account.uid, account.gid, follow_symlinks=False)
    return {"source": str(directory), "target": MOUNT_PATH, "volume": "errors", "read_only": False}
