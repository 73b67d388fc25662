"""Volumes of files (ConfigMaps, Secrets, fields of the pod): updated atomically, below the volume's own directory.

The files are in a directory `..N` to which the link `..data` points, as in a kubelet, so a program that reads during an
update sees either the old files or the new ones. Pods get such a volume read-only; its contents are still not trusted:
everything is done below a handle of the directory, and no link is followed.
"""

import contextlib
import os
import re
import stat
import time

from rowlock.kubelet.files import beneath
from rowlock.kubelet.pod.volume import Files

_DATA, _NEW_DATA = "..data", "..new"
_DATA_NAME = re.compile(r"\.\.[0-9]{1,20}")
"""Nanoseconds since the epoch: 19 digits."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW


def write_files(directory: int, files: Files) -> None:
    """Makes the volume hold exactly these files; does nothing if it does already."""
    if _holds_files(directory, _read_link(directory, _DATA), files):
        return
    name = f"..{time.time_ns()}"
    data = beneath.make_directories(directory, name, 0o755)
    try:
        for path, (content, mode) in files.items():
            _write_file(data, path, content, mode)
    finally:
        os.close(data)
    beneath.remove_tree(directory, _NEW_DATA)
    os.symlink(name, _NEW_DATA, dir_fd=directory)
    if not _read_link(directory, _DATA):
        beneath.remove_tree(directory, _DATA)
    os.rename(_NEW_DATA, _DATA, src_dir_fd=directory, dst_dir_fd=directory)
    _link_files(directory, {path.split("/")[0] for path in files}, name)


def _write_file(directory: int, path: str, content: bytes, mode: int) -> None:
    parent, _, name = path.rpartition("/")
    folder = beneath.make_directories(directory, parent, 0o755)
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    with open(fd, "wb") as file:
        file.write(content)
        os.fchmod(fd, mode)


def _link_files(directory: int, names: set[str], data: str) -> None:
    """Makes a link for each name, and removes all else beside `..data` and its target."""
    for entry in os.listdir(directory):
        if entry not in (*names, _DATA, data):
            beneath.remove_tree(directory, entry)
    for entry in names:
        if _read_link(directory, entry) != f"{_DATA}/{entry}":
            beneath.remove_tree(directory, entry)
            os.symlink(f"{_DATA}/{entry}", entry, dir_fd=directory)


def _read_link(directory: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(name, dir_fd=directory)
    return ""


def _holds_files(directory: int, data: str, files: Files) -> bool:
    """Whether the directory `data`, with a name of the form that we give, holds exactly these files with these modes."""
    if not _DATA_NAME.fullmatch(data):
        return False
    names: list[str] = []

    def count(_: int, name: str, found: os.stat_result) -> None:
        if not stat.S_ISDIR(found.st_mode):
            names.append(name)

    with contextlib.suppress(OSError), beneath.open_directory(data, beneath=directory) as fd:
        beneath.visit_tree(fd, count)
        return len(names) == len(files) and all(_is_file(fd, path, *wanted) for path, wanted in files.items())
    return False


def _is_file(directory: int, path: str, content: bytes, mode: int) -> bool:
    fd = beneath.open_beneath(directory, path, _READ)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        is_same = stat.S_ISREG(found.st_mode) and (stat.S_IMODE(found.st_mode), found.st_size) == (mode, len(content))
        return is_same and file.read(len(content) + 1) == content
