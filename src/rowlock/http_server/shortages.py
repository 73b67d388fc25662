"""Explains a failed start by a shortage on the machine: disk space or inodes, a read-only disk, open files, processes.

A shortage can appear anywhere, as an OSError, as a thread that cannot start, or as a group of these. SQLite only says "unable to open
database file"; then writing to the data directory is tried.
"""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

CANNOT_START = "the server cannot start"
_ROOM = (errno.ENOSPC, errno.EDQUOT)
_FILES = (errno.EMFILE, errno.ENFILE)
_THREAD = "can't start new thread"
_TRIED_FILES, _PAGE = 8, 4096
"""Files that are tried at once (SQLite opens up to three), and the bytes written to each."""
LEAST_OPEN_FILES = 128
"""Least limit of open files: twice what a server without jobs or clients has open."""


def find_shortage(error: BaseException, directory: Path) -> str:
    """A sentence that names the shortage that caused an error and what to do; "" if it was not a shortage."""
    firsts, causes = list(_leaves(error)), list(_causes(error))
    for cause in causes:
        if said := shortage_sentence(cause, directory, is_first=cause in firsts):
            return said
    return _try_directory(directory) if any(isinstance(cause, sqlite3.Error) for cause in causes) else ""


def shortage_sentence(error: BaseException, directory: Path | str, *, is_first: bool = True) -> str:
    """The sentence for one error; "" if it is not a shortage. `is_first`: the error was raised last in its chain, not as the cause of a
    more specific one. Only then does EAGAIN mean a lack of processes, since a lock that is held raises it too."""
    if isinstance(error, RuntimeError) and str(error) == _THREAD:
        return _process_sentence(os.strerror(errno.EAGAIN))
    if not isinstance(error, OSError):
        return ""
    if error.errno in _ROOM:
        place = error.filename or directory
        return f"the disk of {place} has no room for another file ({error.strerror}; `df -i` counts inodes): free some, and start again"
    if error.errno == errno.EROFS:
        return f"the file system of {error.filename or directory} is read-only: remount it for writing (the kernel's log says why it is), or choose another --data-dir"
    if error.errno in _FILES:
        return f"it may open no more files ({error.strerror}): raise the limit, with `ulimit -n 65536` or LimitNOFILE= of its unit"
    if error.errno == errno.EAGAIN and is_first:
        return _process_sentence(str(error.strerror))
    return ""


def _process_sentence(reason: str) -> str:
    return f"it may start no more processes or threads ({reason}): end some, or raise the limit (`ulimit -u`, TasksMax= of its unit, pids.max of its control group)"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in an exception group; the error itself if it is not a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, each followed by its chain of causes."""
    for leaf in _leaves(error):
        cause: BaseException | None = leaf
        while cause is not None:
            yield cause
            cause = cause.__cause__


def _try_directory(directory: Path) -> str:
    """Write a few files to the directory; the sentence for the error if that fails."""
    try:
        with ExitStack() as held:
            for _ in range(_TRIED_FILES):
                file = held.enter_context(tempfile.TemporaryFile(dir=directory))
                file.write(bytes(_PAGE))
                file.flush()
    except OSError as error:
        return shortage_sentence(OSError(error.errno, error.strerror), directory, is_first=False)
    return ""


def few_files_sentence(hard_limit: int) -> str:
    """Why a server with this hard limit of open files (RLIMIT_NOFILE) is not started; "" if the limit suffices."""
    if hard_limit == resource.RLIM_INFINITY or hard_limit >= LEAST_OPEN_FILES:
        return ""
    return f"{CANNOT_START}: {shortage_sentence(OSError(errno.EMFILE, f'no more than {hard_limit}'), '')}"
