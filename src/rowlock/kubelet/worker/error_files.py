"""torch's own account of a failure: where a program leaves it (`TORCHELASTIC_ERROR_FILE`) that is not the server's.

The server's user writes it beside the run's facts, `error.N.json`. Another user cannot enter the data directory, and a
container sees nothing of it: they get a directory of their own for the run, mounted where they can see it. (A file alone
would not do: torch removes an older one first, and what is mounted cannot be removed.)
"""

import os
from pathlib import Path

from rowlock.kubelet.files import beneath
from rowlock.kubelet.worker.security_context import Account

MOUNT_PATH = "/run/rowlock/errors"
"""Where such a program sees its directory."""
FILE_NAME = "error.json"
VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""What tells torch where to write."""


def directory_of_run(container_directory: Path, number: int) -> Path:
    """Of the run with this number."""
    return container_directory / f"errors.{number}"


def offer_error_file(
    container_directory: Path, number: int, account: Account | None, *, is_mounted: bool
) -> tuple[str, str]:
    """The directory to mount at MOUNT_PATH, and the path of the file as the program sees it; the directory is "" where
    the program writes into the container's own."""
    if not is_mounted:
        return "", str(container_directory / f"error.{number}.json")
    return make_directory(container_directory, number, account), f"{MOUNT_PATH}/{FILE_NAME}"


def make_directory(container_directory: Path, number: int, account: Account | None) -> str:
    """Makes the run's directory, empty, for that user alone; for every user who sees it mounted, where that is None."""
    directory = directory_of_run(container_directory, number)
    container_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    beneath.remove_path(str(directory))
    directory.mkdir(mode=0o700)
    if account is None:
        directory.chmod(0o777)
    else:
        os.chown(directory, account.uid, account.gid, follow_symlinks=False)
    return str(directory)
