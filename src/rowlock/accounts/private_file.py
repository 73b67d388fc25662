"""Files that only their owner may read, replaced atomically: accounts, credentials, tokens, kubeconfigs."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from rowlock.errors import BadRequest, Internal

_CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"}\s*$')
_File = TypeVar("_File", bound=msgspec.Struct)


def load_private_file(path: Path, file_type: type[_File], secret: str, kept: str) -> _File | None:
    """Read a private JSON file; None if it does not exist. Error messages call its secrets `secret` and its content `kept`.
    Raises BadRequest if the file is damaged or readable by others."""
    content: bytes | None = None
    try:
        content = read_private_file(path, secret)
        return None if content is None else msgspec.json.decode(_without_checksum(content), type=file_type)
    except (OSError, ValueError) as error:
        why = (
            (error.strerror or str(error)) if isinstance(error, OSError) else "it is empty" if content == b"" else error
        )
        raise BadRequest(
            f"the {kept} in {path} cannot be read ({why}): put the file back from a backup (`tar xf BACKUP {path.name}`), mend the file"
            f' without its "crc32", or move it away and make the {kept} again'
        ) from None


async def save_private_file(path: Path, content: msgspec.Struct) -> None:
    """Replace the file on a thread, with a checksum. Raises Internal if that fails; the old file is then unchanged."""
    try:
        await asyncio.to_thread(lambda: write_private_file(path, _with_checksum(msgspec.json.encode(content))))
    except OSError as error:
        raise Internal(f"{path} cannot be written ({error.strerror}): nothing was changed") from None


def _with_checksum(content: bytes) -> bytes:
    """Append the CRC-32 of a JSON object as its last field, because a flipped bit may leave valid JSON. Readers that do not know the
    field ignore it."""
    return b'%s,"crc32":"%08x"}' % (content.removesuffix(b"}"), zlib.crc32(content))


def _without_checksum(content: bytes) -> bytes:
    """Check and remove the checksum. Files without one, of an earlier rowlock or edited by hand, pass. Raises ValueError."""
    found = _CHECKSUM.search(content)
    if found is None:
        return content
    rest = content[: found.start()] + b"}"
    if zlib.crc32(rest) != int(found[1], 16):
        raise ValueError("its checksum is wrong")
    return rest


def read_private_file(path: Path, what: str) -> bytes | None:
    """The file's content, or None if it does not exist. Raises OSError, and BadRequest if others may read it; the message names its
    content `what`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o077:
            raise BadRequest(f"others can read {what} in {path} (mode {mode:04o}): `chmod 600 {path}`")
        return file.read()


def write_private_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, with mode 0600: after a crash it is the old file or the new one. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # an existing file may have other permissions, or be a link
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
