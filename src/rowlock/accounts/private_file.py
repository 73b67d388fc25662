"""A file that only its owner may read, replaced whole: accounts, tokens, kubeconfigs."""

from __future__ import annotations

import os
from pathlib import Path


def write_private_file(path: Path, content: bytes) -> None:
    """Replace a file for its owner's eyes only: after a crash it is the old one or the new one, whole. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # what lies there may have other rights, or be a link
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
