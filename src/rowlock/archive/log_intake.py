"""Logs come in: files that the kubelet has put aside are compressed, and read again as lines.

The kubelet moves the logs of a pod that goes into a directory `<namespace>_<pod>_<uid>`, as `<container>.<run>.log`. A move
is whole or not there, so that nothing is lost whenever the server dies: what lies there and is not in the archive is taken
in by the next look. A log's lines are `time text`; its beginning may have been given back to the disk (a hole).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from rowlock import objects

INLINE_BYTES = 32 << 10
"""A compressed log up to this size lies in the database, a larger one in a file of its own."""
_BLOCK = 1 << 18
_MAX_LINE = 1 << 20
_MAX_OWNER = 4096
OWNER_FILE = ".owner.json"
"""In the directory of a pod: the uid of the job that it belonged to."""
TAKEN_FILE = ".archived"
"""The same, once all that lies there is in the archive."""
_DIRECTORY = re.compile(r"([a-z0-9.-]+)_([a-z0-9.-]+)_([A-Za-z0-9-]+)")
_LOG_FILE = re.compile(r"([a-z0-9][a-z0-9.-]*)\.([0-9]{1,9})\.log")
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class AsideLog:
    """A log that was put aside."""

    path: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    number: int
    owner: str
    """The uid of the job; "" = the pod belonged to none."""
    is_correction: bool = False
    """It was read once more, because what was taken in before may be the log of another run of the container."""


def find_new_directories(spool: Path) -> list[str]:
    """The directories of pods in a spool that have not been taken in."""
    try:
        with os.scandir(spool) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return []
    return [f"{spool}/{n}" for n in names if n[:1] != "." and not os.path.exists(f"{spool}/{n}/{TAKEN_FILE}")]


def find_log_files(directory: str) -> list[AsideLog]:
    """The logs in the directory of one pod; none where it is not one, or is gone."""
    named = _DIRECTORY.fullmatch(os.path.basename(directory))
    if named is None:
        return []
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return []
    owner = _read_owner(f"{directory}/{OWNER_FILE}") if OWNER_FILE in names else ""
    namespace, pod, pod_uid = named.groups()
    return [
        AsideLog(f"{directory}/{name}", namespace, pod, pod_uid, found[1], int(found[2]), owner)
        for name in names
        if (found := _LOG_FILE.fullmatch(name))
    ]


def _read_owner(path: str) -> str:
    try:
        with open_regular(path) as file:
            fact = msgspec.json.decode(file.read(_MAX_OWNER))
    except (OSError, ValueError):
        return ""
    owner = fact.get("uid") if isinstance(fact, dict) else ""
    return owner if isinstance(owner, str) else ""


def open_regular(path: str) -> BinaryIO:
    """Raises OSError for what is no regular file; never waits, follows no link."""
    fd = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(fd, "rb")


def mark_taken(directory: str, files: list[AsideLog], *, remove: bool) -> None:
    """These logs of a directory are in the archive. `remove`: they are needed nowhere else."""
    with contextlib.suppress(OSError):  # it has gone, or the disk is full: it is looked at again
        if not remove:
            os.close(os.open(f"{directory}/{TAKEN_FILE}", os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            return
        for file in files:
            os.unlink(file.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{directory}/{OWNER_FILE}")
        os.rmdir(directory)  # refused where the next one has come meanwhile


@dataclass(frozen=True, slots=True)
class CompressedLog:
    """What was read: inline where it is small, else written to `file`."""

    began: float
    size: int
    stored: int
    body: bytes | None


def compress_log(source: BinaryIO, target: Path) -> CompressedLog:
    """The log, from its first line that is kept; a large one is written to `target`, whole or not at all. Raises OSError."""
    _skip_hole(source)
    compressor, size, head = zlib.compressobj(1, zlib.DEFLATED, 31), 0, b""
    began = os.fstat(source.fileno()).st_mtime
    pieces: list[bytes] = []
    stored = 0
    temporary = target.with_name(target.name + ".new")
    file: BinaryIO | None = None
    try:
        while block := source.read(_BLOCK):
            if not size:
                head = block[:26]
            size += len(block)
            pieces.append(compressor.compress(block))
            stored += len(pieces[-1])
            if stored > INLINE_BYTES:
                file = file or temporary.open("wb")
                file.write(b"".join(pieces))
                pieces = []
        pieces.append(compressor.flush())
        stored += len(pieces[-1])
        if file is not None:
            file.write(b"".join(pieces))
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if file is not None:
            file.close()
    return CompressedLog(_time_of(head) or began, size, stored, None if file is not None else b"".join(pieces))


def _skip_hole(source: BinaryIO) -> None:
    """To the first whole line that is kept, where the oldest part was given back to the disk."""
    fd = source.fileno()
    try:
        data = os.lseek(fd, 0, os.SEEK_DATA) if hasattr(os, "SEEK_DATA") else 0
    except OSError:
        data = 0  # an empty file, or a file system that does not know
    source.seek(data)
    if data:
        source.readline(_MAX_LINE)


def _time_of(line: bytes) -> float:
    try:
        return objects.seconds(line[:26].decode("ascii") + "Z")
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class FileChunks:
    """A file of the archive, a piece at a time; nothing where it is gone."""

    path: Path

    def __iter__(self) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError), open_regular(str(self.path)) as file:
            while chunk := file.read(INLINE_BYTES):
                yield chunk


def read_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The stored lines, each `time text` with its newline, from compressed chunks; a line of more than a MiB in pieces. A damaged end
    ends the log."""
    decompressor, rest = zlib.decompressobj(31), b""
    for chunk in chunks:
        while chunk:
            try:
                text = decompressor.decompress(chunk, _BLOCK)
            except zlib.error:
                return
            chunk = decompressor.unconsumed_tail
            *lines, rest = (rest + text).split(b"\n")
            for line in lines:
                yield line + b"\n"
            if len(rest) > _MAX_LINE:  # a line without end
                yield rest + b"\n"
                rest = b""
    if rest:
        yield rest + b"\n"


def line_time(line: bytes) -> float:
    """When a stored line was written; 0.0 when it does not say."""
    return _time_of(line)
