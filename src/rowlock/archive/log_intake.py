"""Log intake: compresses log files that the kubelet has moved aside, and reads them again as lines.

The kubelet moves the logs of a pod that is removed into a directory `<namespace>_<pod>_<uid>`, as `<container>.<run>.log`. A move
is atomic, so nothing is lost when the server dies: the next scan takes in files that are not in the archive yet.
A log's lines are `time text`; its beginning may be a hole in the file.
A hostile pod may have made its log a sparse file of TiBs: the cost is bounded by the bytes that are kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from rowlock import objects

INLINE_BYTES = 32 << 10
"""A compressed log up to this size is stored in the database, a larger one in its own file."""
MAX_LOG_BYTES = 50 << 20
"""Bytes that are kept of a log, the newest: the default of the kubelet's `--log-limit`."""
_BLOCK = 1 << 18
_MAX_LINE = 1 << 20
_MAX_PIECES = 1 << 16
"""The most data extents that are looked up; beyond that a file is read with its holes."""
_MAX_OWNER = 4096
OWNER_FILE = ".owner.json"
"""A file in the directory of a pod with the uid of its job."""
TAKEN_FILE = ".archived"
"""A file in the directory of a pod: all of its logs are in the archive."""
_DIRECTORY = re.compile(r"([a-z0-9.-]+)_([a-z0-9.-]+)_([A-Za-z0-9-]+)")
_LOG_FILE = re.compile(r"([a-z0-9][a-z0-9.-]*)\.([0-9]{1,9})\.log")
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class AsideLog:
    """A log file that was moved aside."""

    path: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    number: int
    owner: str
    """The uid of the job; "" = the pod had none."""
    is_correction: bool = False
    """It was read again, because the archived log may be that of another run of the container."""


def find_new_directories(spool: Path) -> list[str]:
    """The directories of pods in a spool that are not marked as archived."""
    try:
        with os.scandir(spool) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return []
    return [f"{spool}/{n}" for n in names if n[:1] != "." and not os.path.exists(f"{spool}/{n}/{TAKEN_FILE}")]


def find_log_files(directory: str) -> list[AsideLog]:
    """The logs in the directory of one pod; empty when it is none, or is gone. Raises OSError for a shortage."""
    named = _DIRECTORY.fullmatch(os.path.basename(directory))
    if named is None:
        return []
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        if is_shortage(error):
            raise
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
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and is_shortage(error):
            raise
        return ""
    owner = fact.get("uid") if isinstance(fact, dict) else ""
    return owner if isinstance(owner, str) else ""


def is_shortage(error: OSError) -> bool:
    """Whether this process is out of descriptors or memory: the error says nothing about the file."""
    return error.errno in _SHORTAGES


def open_regular(path: str) -> BinaryIO:
    """Open a regular file, without blocking and without following a link. Raises OSError for anything else."""
    fd = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(fd, "rb")


def mark_taken(directory: str, files: list[AsideLog], *, remove: bool) -> None:
    """Mark these logs of a directory as archived. `remove`: nothing else needs them, so delete them instead."""
    with contextlib.suppress(OSError):  # the directory is gone, or the disk is full: the next scan finds it again
        if not remove:
            mark = f"{directory}/{TAKEN_FILE}"
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            with contextlib.suppress(OSError):
                if find_log_files(directory) == files:
                    return
            os.unlink(mark)  # a log was added meanwhile; from now on the writer of a log removes the mark
            return
        for file in files:
            os.unlink(file.path)
        owner, spare = f"{directory}/{OWNER_FILE}", f"{directory}{OWNER_FILE}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(owner, spare)
        try:
            os.rmdir(directory)
        except OSError:
            os.rename(spare, owner)  # a log of the same job was added meanwhile
        else:
            os.unlink(spare)


@dataclass(frozen=True, slots=True)
class CompressedLog:
    """A compressed log. `began`: seconds since the epoch; `size`, `stored`: bytes; `body`: None when it was written to a file."""

    began: float
    size: int
    stored: int
    body: bytes | None


def compress_log(
    source: BinaryIO, target: Path, limit: int = MAX_LOG_BYTES, *, check_space: Callable[[], None]
) -> CompressedLog:
    """Compress the newest `limit` bytes of a log; a large one is written atomically to `target`. `check_space` is called before
    each write, and raises OSError when the disk is too full. Raises OSError."""
    compressor, size, head = zlib.compressobj(1, zlib.DEFLATED, 31), 0, b""
    changed = os.fstat(source.fileno()).st_mtime
    pieces: list[bytes] = []
    stored = 0
    temporary = target.with_name(target.name + ".new")
    file: BinaryIO | None = None
    try:
        for block in _read_newest(source.fileno(), limit):
            if not size:
                head = block[:26]
            size += len(block)
            pieces.append(compressor.compress(block))
            stored += len(pieces[-1])
            if stored > INLINE_BYTES:
                check_space()
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
    return CompressedLog(_time_of(head) or changed, size, stored, None if file is not None else b"".join(pieces))


def _read_newest(fd: int, limit: int) -> Iterator[bytes]:
    """The newest `limit` bytes of a log in blocks, beginning with a complete line. An added line says where older lines are
    omitted, and where the log cannot be read further. Raises OSError for a shortage."""
    status, ends_line = os.fstat(fd), True
    pieces, is_cut = _find_newest(fd, status.st_size, limit)
    for number, (begin, end) in enumerate(pieces):
        at = begin
        while at < end:
            try:
                block = os.pread(fd, min(_MAX_LINE, end - at), at)
            except OSError as error:
                if is_shortage(error):
                    raise
                end_line = _own_line(f"the rest of this log cannot be read: {error.strerror}", b"", status.st_mtime)
                yield end_line if ends_line else b"\n" + end_line
                return
            if not block:
                return
            text = block
            if at == begin > 0:
                text = text.lstrip(b"\0")  # holes are whole disk blocks, so zeros may remain beside them
                if number == 0 and len(text) == len(block):
                    text = text.partition(b"\n")[2]  # skip the incomplete first line
            at += len(block)
            if at == end < status.st_size:
                text = text.rstrip(b"\0")
            if is_cut:
                said = f"older lines are left out here: of a log the archive keeps the newest {limit} bytes"
                text, is_cut = _own_line(said, text, status.st_mtime) + text, False
            if text:
                ends_line = text.endswith(b"\n")
                yield text


def _find_newest(fd: int, size: int, limit: int) -> tuple[deque[tuple[int, int]], bool]:
    """The extents (begin, end) of the newest `limit` bytes in a file of this size, oldest first, without holes; and whether
    there are older bytes. Raises OSError."""
    pieces, kept, is_cut = deque[tuple[int, int]](), 0, False
    at = looks = 0
    while at < size:
        looks += 1
        begin, at = _next_data(fd, at, size) if looks <= _MAX_PIECES else (max(at, size - limit), size)
        pieces.append((begin, at))
        kept += at - begin
        while kept > limit:
            first, end = pieces.popleft()
            surplus = min(kept - limit, end - first)
            if first + surplus < end:
                pieces.appendleft((first + surplus, end))
            kept, is_cut = kept - surplus, True
    return pieces, is_cut


def _next_data(fd: int, at: int, size: int) -> tuple[int, int]:
    """The next data extent (begin, end) of a file; the whole rest where the system cannot report holes."""
    if not hasattr(os, "SEEK_DATA"):
        return at, size
    try:
        begin = os.lseek(fd, at, os.SEEK_DATA)
        return min(begin, size), min(os.lseek(fd, begin, os.SEEK_HOLE), size)
    except OSError as error:
        return (size if error.errno == errno.ENXIO else at), size  # ENXIO: only a hole up to the end


def _own_line(text: str, next_line: bytes, otherwise: float) -> bytes:
    """A line that the archive adds, with the time of `next_line`, or `otherwise` when that has none."""
    return f"{objects.micro_timestamp(_time_of(next_line) or otherwise)} rowlock: {text}\n".encode()


def _time_of(line: bytes) -> float:
    try:
        return objects.seconds(line[:26].decode("ascii") + "Z")
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class FileChunks:
    """A file of the archive in chunks; empty when it is gone."""

    path: Path

    def __iter__(self) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError), open_regular(str(self.path)) as file:
            while chunk := file.read(INLINE_BYTES):
                yield chunk


def read_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The stored lines, each `time text` with its newline, from compressed chunks; a line of more than 1 MiB is split. Reading stops
    silently at damaged data."""
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
            if len(rest) > _MAX_LINE:  # split an overlong line
                yield rest + b"\n"
                rest = b""
    if rest:
        yield rest + b"\n"


def line_time(line: bytes) -> float:
    """When a stored line was written, in seconds since the epoch; 0.0 when it has no time."""
    return _time_of(line)
