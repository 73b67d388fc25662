"""Moves files, also to another file system.

`logs` of the data directory may be a mount or a link. The files were written by pods, which may still be writing
to them, or may have replaced them by something else. Standard library only.
"""

import contextlib
import errno
import os
import stat

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20


def move_file(source: str, target: str) -> None:
    """Renames a file; across file systems copies it, and removes the original only after the copy is complete. Raises OSError, and then
    the original still exists."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_file(source, target)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(source)


def _copy_file(source: str, target: str) -> None:
    """Copies a file with its holes and times. `target` appears only when all of it is on the disk."""
    directory, _, name = target.rpartition("/")
    scratch = f"{directory}/.{name}.new"  # a name that no reader of logs reads
    reading = os.open(source, _READ)
    try:
        status = os.fstat(reading)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", source)
        writing = os.open(scratch, _WRITE, 0o600)
        try:
            _copy_data(reading, writing, status.st_size)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(writing)
        finally:
            os.close(writing)
        os.rename(scratch, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
    finally:
        os.close(reading)


def _copy_data(reading: int, writing: int, size: int) -> None:
    """Copies only data, not holes: a log may begin with a hole, and a hostile file may have TiBs of them."""
    at = 0
    while at < size:
        try:
            at = os.lseek(reading, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # the rest is a hole
                raise
            break
        end = min(size, os.lseek(reading, at, os.SEEK_HOLE))
        while at < end:
            piece = os.pread(reading, min(end - at, _PIECE), at)
            if not piece:  # it was truncated meanwhile
                return
            at += os.pwrite(writing, piece, at)
    os.ftruncate(writing, size)
