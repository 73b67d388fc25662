"""Opens, makes and removes files below a directory, wherever the links in it lead.

Pods write in their volumes while the server works there as root. So a path is never looked up as a whole: it is opened
below a directory handle, by openat2(2) with RESOLVE_BENEATH, or component by component where the kernel lacks that call
or forbids it (as Go's `os.Root` and runc's securejoin do). A link is followed only if the caller requests it and it stays
below the handle; whatever is swapped meanwhile, nothing outside is touched. Standard library only.
"""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator

_OPENAT2 = 437
"""The number of openat2(2), which is the same on all architectures."""
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_RACE_RETRIES = 8
_MAX_LINKS = 40
_MAX_DEPTH = 4096
"""Most nested directories in one path."""
_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open only a directory, not a link to one."""
REFERENCE = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that make a handle of any file, even a link, without opening it."""

_libc = ctypes.CDLL(None, use_errno=True)


class OpenHow(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: str, flags: int, mode: int = 0, *, follow: bool = False) -> int:
    """A descriptor of `path` below the open directory; closed at exec.

    `follow`: links on the way and at the end are followed as long as they stay below. Raises OSError: ELOOP or ENOTDIR for a link that
    may not be followed, EXDEV for a path that leads out."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path cannot hold a NUL character", path)
    if path.startswith("/") or path.count("/") > _MAX_DEPTH:
        raise OSError(errno.EXDEV, "the path leads out of its directory", path)
    flags |= os.O_CLOEXEC
    fd = _openat2(directory, path or ".", flags, mode, follow=follow)
    return _walk_path(directory, path, flags, mode, follow=follow) if fd is None else fd


def _openat2(directory: int, path: str, flags: int, mode: int, *, follow: bool) -> int | None:
    """openat2(2); None where the kernel lacks it, or a sandbox forbids it."""
    if not hasattr(_libc, "syscall") or not hasattr(os, "O_PATH"):
        return None
    how = OpenHow(
        flags, mode if flags & os.O_CREAT else 0, _BENEATH | _NO_MAGIC_LINKS | (0 if follow else _NO_SYMLINKS)
    )
    for _ in range(_RACE_RETRIES):
        fd = _libc.syscall(
            _OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EPERM, errno.E2BIG):
            return None
        if code != errno.EAGAIN:  # EAGAIN: something was renamed while `..` was looked up
            raise OSError(code, os.strerror(code), path)
    return None


def _walk_path(directory: int, path: str, flags: int, mode: int, *, follow: bool) -> int:
    """The same with openat(2) alone: one component at a time, links resolved here, `..` by the handles held."""
    held = [os.dup(directory)]
    words = [word for word in reversed(path.split("/")) if word not in ("", ".")]
    links = 0
    try:
        while words:
            word = words.pop()
            if word == "..":
                if len(held) == 1:
                    raise OSError(errno.EXDEV, "the path leads out of its directory", path)
                os.close(held.pop())
                continue
            target = _read_link(held[-1], word) if follow else None
            if target is not None:
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    raise OSError(errno.EXDEV, "the path leads out of its directory", path)
                words += [part for part in reversed(target.split("/")) if part not in ("", ".")]
            elif words:
                held.append(os.open(word, REFERENCE | os.O_DIRECTORY, dir_fd=held[-1]))
            else:
                return os.open(word, flags | os.O_NOFOLLOW, mode, dir_fd=held[-1])
        return os.open(".", flags, mode, dir_fd=held[-1])
    finally:
        for fd in held:
            os.close(fd)


def _read_link(directory: int, name: str) -> str | None:
    """The target of a link; None if it is not a link."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


@contextlib.contextmanager
def open_directory(path: str, *, beneath: int | None = None) -> Iterator[int]:
    """Opens a directory: below another one, or by a path on which no pod can write."""
    trusted = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(path, trusted) if beneath is None else open_beneath(beneath, path, DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directories(directory: int, path: str, mode: int) -> int:
    """A handle of the directory `path` below; whatever is missing is made with `mode`, and no link is followed.

    Raises OSError when something else stands in the way."""
    current = os.dup(directory)
    for word in path.split("/"):
        if word in ("", "."):
            continue
        try:
            if word == "..":
                raise OSError(errno.EXDEV, "the path leads out of its directory", path)
            is_new = _make_directory(current, word, mode)
            below = os.open(word, DIRECTORY, dir_fd=current)
        except OSError:
            os.close(current)
            raise
        os.close(current)
        current = below
        if is_new:
            os.fchmod(current, mode)
    return current


def open_or_make(directory: int, path: str) -> int:
    """A handle of `path` below a directory, not opened; links that stay below are followed.

    Missing parts are made as directories with the mode of `directory`. For subPath. Raises OSError."""
    words = [word for word in path.split("/") if word not in ("", ".")]
    for kept in range(len(words), 0, -1):
        with contextlib.suppress(FileNotFoundError):
            fd = open_beneath(directory, "/".join(words[:kept]), _O_PATH, follow=True)
            return fd if kept == len(words) else _make_below(fd, words[kept:], directory)
    return _make_below(os.dup(directory), words, directory)


def _make_below(fd: int, words: list[str], model: int) -> int:
    """Makes the directories `words` below `fd`, which is closed, with the mode of `model`."""
    try:
        return make_directories(fd, "/".join(words), stat.S_IMODE(os.fstat(model).st_mode))
    finally:
        os.close(fd)


def _make_directory(parent: int, name: str, mode: int) -> bool:
    """Makes a directory; False when something of this name exists."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return False
    return True


# ---------------------------------------------------------------- trees

Visitor = Callable[[int, str, os.stat_result], None]
"""Called with the handle of a directory, the name of an entry, and its stat (of a link itself)."""


def visit_tree(directory: int, visit: Visitor, open_up: Visitor = lambda parent, name, found: None) -> None:
    """Visits everything below a directory, each directory after its contents; `open_up` is called before it is entered.

    Works at any depth and size: one level is open at a time, and nothing recurses. No link is followed; a directory that is moved
    while it is visited ends the walk with OSError (EAGAIN)."""
    current = os.dup(directory)
    levels: list[tuple[str, tuple[int, int], list[str]]] = [("", _identity(current), os.listdir(current))]
    try:
        while True:
            name, _, entries = levels[-1]
            if entries:
                below = _enter(current, entries.pop(), visit, open_up)
                if below is not None:
                    entry, fd = below
                    os.close(current)
                    current = fd
                    levels.append((entry, _identity(fd), os.listdir(fd)))
                continue
            levels.pop()
            if not levels:
                return
            parent = os.open("..", DIRECTORY, dir_fd=current)
            os.close(current)
            current = parent
            if _identity(current) != levels[-1][1]:
                raise OSError(errno.EAGAIN, "a directory was moved while it was walked through", name)
            with contextlib.suppress(FileNotFoundError):
                visit(current, name, os.stat(name, dir_fd=current, follow_symlinks=False))
    finally:
        os.close(current)


def _enter(current: int, name: str, visit: Visitor, open_up: Visitor) -> tuple[str, int] | None:
    """Returns a directory's name and handle; visits anything else (and what may not be opened)."""
    try:
        entry = os.stat(name, dir_fd=current, follow_symlinks=False)
    except FileNotFoundError:  # it was removed meanwhile
        return None
    if stat.S_ISDIR(entry.st_mode):
        with contextlib.suppress(OSError):
            open_up(current, name, entry)
            return name, os.open(name, DIRECTORY, dir_fd=current)
    visit(current, name, entry)
    return None


def _identity(fd: int) -> tuple[int, int]:
    entry = os.fstat(fd)
    return entry.st_dev, entry.st_ino


def remove_tree(directory: int, name: str, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Removes the entry `name` of a directory with all below it; of a link only the link, never its target.

    Directories that even their owner may not enter are made accessible first. What cannot be removed or appears meanwhile stays, as
    does the rest when `is_stopped` returns True."""

    def remove(parent: int, entry: str, found: os.stat_result) -> None:
        if is_stopped():
            raise InterruptedError(errno.EINTR, "the removal is stopped", entry)
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(entry, dir_fd=parent)
            else:
                os.unlink(entry, dir_fd=parent)

    with contextlib.suppress(OSError):
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            _open_to_owner(directory, name, found)
            with contextlib.suppress(OSError), open_directory(name, beneath=directory) as fd:
                visit_tree(fd, remove, _open_to_owner)
        remove(directory, name, found)


def _open_to_owner(parent: int, name: str, found: os.stat_result) -> None:
    """Lets the owner list and change a directory, whatever its mode: by a handle, so that no link and no replacement is touched. Errors
    are ignored."""
    if found.st_mode & stat.S_IRWXU == stat.S_IRWXU:
        return
    with contextlib.suppress(OSError):
        fd = os.open(name, REFERENCE | os.O_DIRECTORY, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(os.fstat(fd).st_mode) | stat.S_IRWXU)
        finally:
            os.close(fd)


def remove_path(path: str, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """`remove_tree` of a path whose directory no pod can write to."""
    parent, _, name = path.rstrip("/").rpartition("/")
    with contextlib.suppress(OSError), open_directory(parent or "/") as fd:
        remove_tree(fd, name, is_stopped)


def disk_usage(path: str) -> int:
    """Bytes on disk of all files below a directory; 0 if it does not exist."""
    total = 0

    def add(_: int, __: str, found: os.stat_result) -> None:
        nonlocal total
        if not stat.S_ISDIR(found.st_mode):
            total += found.st_blocks * 512

    with contextlib.suppress(OSError), open_directory(path) as fd:
        visit_tree(fd, add)
    return total


def newest_change(path: str) -> float:
    """The latest modification time of a directory and all below it; 0 if it does not exist."""
    newest = 0.0

    def look(_: int, __: str, found: os.stat_result) -> None:
        nonlocal newest
        newest = max(newest, found.st_mtime)

    with contextlib.suppress(OSError), open_directory(path) as fd:
        newest = os.fstat(fd).st_mtime
        visit_tree(fd, look)
    return newest


# ---------------------------------------------------------------- owners


def change_group(parent: int, name: str, group: int) -> None:
    """Sets the group as a kubelet does for fsGroup: it gets the owner's access, also to files made later in a directory."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(name, REFERENCE, dir_fd=parent)
        try:
            _change_group_of(fd, group)
        finally:
            os.close(fd)


def _change_group_of(fd: int, group: int) -> None:
    """Works by the handle, so a replacement under the name is not touched. A link has no mode and keeps its group."""
    found = os.fstat(fd)
    if stat.S_ISLNK(found.st_mode):
        return
    itself = f"/proc/self/fd/{fd}"
    os.chown(itself, -1, group)
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    os.chmod(itself, mode | (0o2770 if stat.S_ISDIR(found.st_mode) else 0o660 if mode & 0o200 else 0o440))


def change_groups(directory: int, group: int) -> None:
    """`change_group` for a directory and all below it. The directory comes last, so that its group shows that all is done."""
    visit_tree(directory, lambda parent, name, _: change_group(parent, name, group))
    _change_group_of(directory, group)
