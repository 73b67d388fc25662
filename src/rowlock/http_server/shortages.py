"""What a server that starts can lack of its machine: room or inodes of a disk, a disk that can be written, open files, processes.

Such a lack shows anywhere: as an OSError, as a thread that cannot start, or as several of these at once. SQLite says "unable to open
database file" and no more; then the data directory is tried.
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

_ROOM = (errno.ENOSPC, errno.EDQUOT)
_FILES = (errno.EMFILE, errno.ENFILE)
_THREAD = "can't start new thread"
_TRIED_FILES, _PAGE = 8, 4096
"""How many are made at once, for SQLite wanted up to three beside those that were open then; bytes of each."""
LEAST_OPEN_FILES = 128
"""What a server without a job or a client has open, twice: with fewer it would serve nobody."""


def find_shortage(error: BaseException, directory: Path) -> str:
    """What there was too little of, and what to do; "" where that is not why."""
    firsts, causes = list(_leaves(error)), list(_causes(error))
    for cause in causes:
        if said := shortage_sentence(cause, directory, is_first=cause in firsts):
            return said
    return _try_directory(directory) if any(isinstance(cause, sqlite3.Error) for cause in causes) else ""


def shortage_sentence(error: BaseException, directory: Path | str, *, is_first: bool = True) -> str:
    """Of one error; "" where it is another one. `is_first`: nothing was raised because of it that says more (EAGAIN is also what a lock
    says that somebody else holds)."""
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
    """What was raised at once; the error itself, where it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What was raised at once, each with what it was raised from."""
    for leaf in _leaves(error):
        cause: BaseException | None = leaf
        while cause is not None:
            yield cause
            cause = cause.__cause__


def _try_directory(directory: Path) -> str:
    """What a few new files meet there."""
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
    """Why a server is not started that may open so few files (RLIMIT_NOFILE); "" where they are enough."""
    if hard_limit == resource.RLIM_INFINITY or hard_limit >= LEAST_OPEN_FILES:
        return ""
    return f"the server cannot start: {shortage_sentence(OSError(errno.EMFILE, f'no more than {hard_limit}'), '')}"
