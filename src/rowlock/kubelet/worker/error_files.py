"""Where a program writes torch's error file (`TORCHELASTIC_ERROR_FILE`) when it cannot write beside the run's facts.

A program of the server's user writes `error.N.json` there. Another user cannot enter the data directory, and a container
does not see it: they get a directory of their own for the run, mounted where they can see it. (Mounting a single file would
not do: torch first removes an older file, and a mount point cannot be removed.)
"""

import os
from pathlib import Path

from rowlock.kubelet.files import beneath
from rowlock.kubelet.worker.security_context import Account

MOUNT_PATH = "/run/rowlock/errors"
"""Where the program sees its mounted directory."""
FILE_NAME = "error.json"
VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""The variable that tells torch where to write."""


def directory_of_run(container_directory: Path, number: int) -> Path:
    """The error directory of the run with this number."""
    return container_directory / f"errors.{number}"


def offer_error_file(
    container_directory: Path, number: int, account: Account | None, *, is_mounted: bool
) -> tuple[str, str]:
    """Returns the directory to mount at MOUNT_PATH, which it makes, and the file's path as the program sees it. The directory is
    "" if nothing is mounted and the program writes into the container's own."""
    if not is_mounted:
        return "", str(container_directory / f"error.{number}.json")
    return make_directory(container_directory, number, account), f"{MOUNT_PATH}/{FILE_NAME}"


def make_directory(container_directory: Path, number: int, account: Account | None) -> str:
    """Makes the run's directory, empty, accessible to `account` alone; if that is None, to every user who sees the mount."""
    directory = directory_of_run(container_directory, number)
    container_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    beneath.remove_path(str(directory))
    directory.mkdir(mode=0o700)
    if account is None:
        directory.chmod(0o777)
    else:
        os.chown(directory, account.uid, account.gid, follow_symlinks=False)
    return str(directory)
