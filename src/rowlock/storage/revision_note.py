"""The last revision that was made durable, noted beside the database: so a step back is seen at the next start.

SQLite ends its journal at the first frame that is damaged, without a word, and an older copy of the file looks as whole as the
latest. The note is one line, overwritten in place after each commit and never synced: after `kill -9` it is exact, after a power
loss it may be some seconds old. So it is never ahead of the database, and a database that is behind it has lost something.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path

from rowlock.errors import Unavailable
from rowlock.objects import is_digits

FILE_NAME = "cluster.revision"
_LENGTH = 28
"""Bytes: a revision of 18 digits, a blank, CRC-32 of it in hex, a newline. Less than a disk writes at once."""


class RevisionNote:
    """The open file. `revision` is what it said when it was opened: 0 where it said nothing that can be read; `is_damaged`: it held
    something all the same. Raises Unavailable where it cannot be used."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(FILE_NAME)
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            content = os.pread(self._fd, _LENGTH, 0)
        except OSError as error:
            raise Unavailable(
                f"{self.path}, the note of the last revision, cannot be used ({error.strerror}): remove it, it is made anew"
            ) from error
        self.revision = _parse(content)
        self.is_damaged = bool(content) and not self.revision

    def write(self, revision: int) -> None:
        """After a commit. An error is not one of the commit, which is durable: an older note only sees less."""
        digits = f"{revision:018}"
        with suppress(OSError):
            os.pwrite(self._fd, f"{digits} {zlib.crc32(digits.encode()):08x}\n".encode(), 0)

    def close(self) -> None:
        os.close(self._fd)


def forget(database: Path) -> None:
    """A new cluster begins: what the note says is of another one. What cannot be removed is refused when it is opened."""
    with suppress(OSError):
        database.with_name(FILE_NAME).unlink(missing_ok=True)


def _parse(content: bytes) -> int:
    digits, _, checksum = content.decode("ascii", "replace").rstrip("\n").partition(" ")
    if not is_digits(digits) or checksum != f"{zlib.crc32(digits.encode()):08x}":
        return 0
    return int(digits)
