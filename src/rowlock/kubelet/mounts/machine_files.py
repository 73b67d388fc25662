"""What a root file system shows of this machine: other file systems, devices, directories; and whether these have changed.
Standard library only, because shims are made of it; Linux only.
"""

import contextlib
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

TEMPORARY = ("/tmp", "/var/tmp")
"""Directories of this machine whose files containers do not see."""
_DEVICES = (
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "ptmx",
    "pts",
    "mqueue",
    "fuse",
    "kfd",
    "dri",
    "infiniband",
)
_DEVICE_PREFIXES = ("nvidia",)
_KERNEL_FILE_SYSTEMS = frozenset(
    "proc sysfs devtmpfs devpts mqueue cgroup cgroup2 debugfs tracefs securityfs pstore bpf configfs efivarfs fusectl "
    "hugetlbfs binfmt_misc autofs rpc_pipefs nsfs selinuxfs".split()
)
_LOCAL_FILE_SYSTEMS = (_KERNEL_FILE_SYSTEMS - {"autofs"}) | frozenset(
    "ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs tmpfs ramfs overlay squashfs erofs vfat exfat ntfs3 iso9660 udf".split()
)
"""File systems that depend on no server and no other program."""
ANSWER_SECONDS = 2.0
"""Seconds that another file system may take to answer a stat of its root."""
_MOUNTS = "/proc/self/mountinfo"

Likeness = tuple[object, ...]
"""The state that an assembled root file system depends on; only compared for equality."""


def is_initial_user_namespace() -> bool:
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def device_names() -> list[str]:
    """Names in this machine's /dev of the devices that every container has, and of the accelerators."""
    return sorted(name for name in os.listdir("/dev") if name in _DEVICES or name.startswith(_DEVICE_PREFIXES))


def may_be_layer(path: str, kind: str) -> bool:
    """Whether a file system of the machine can be a layer of an overlay."""
    return kind not in _KERNEL_FILE_SYSTEMS and os.path.isdir(path)


def copy_skeleton(path: str, copy: str, points: set[str]) -> Iterator[tuple[str, str]]:
    """Creates the entries of a directory in `copy`, empty: links as they are, and mount points for the rest. Descends where
    something is mounted (`points`) below; yields entries without mounts, each of which can be a layer of its own."""
    for entry in sorted(os.scandir(path), key=lambda e: e.name):
        target = f"{copy}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif not entry.is_dir(follow_symlinks=False):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            yield entry.path, ""
        else:
            os.mkdir(target)
            if entry.path in points or entry.path in (*TEMPORARY, "/proc", "/sys", "/dev"):
                continue
            if any(point.startswith(f"{entry.path}/") for point in points):
                with contextlib.suppress(PermissionError):  # unreadable directories stay empty
                    yield from copy_skeleton(entry.path, target, points)
            else:
                yield entry.path, ""


def other_mounts(skipped: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Mount point and type of the machine's mounts except /, without those below another one or below `skipped`."""
    with open(_MOUNTS) as file:
        rows = [line.split() for line in file]
    covered = tuple(path.rstrip("/") + "/" for path in skipped)
    for path, kind in sorted({_unescape(row[4]): row[row.index("-") + 1] for row in rows}.items()):
        if path != "/" and not f"{path}/".startswith(covered):
            yield path, kind
            covered += (f"{path}/",)


def _unescape(path: str) -> str:
    for escaped, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escaped, character)
    return path


def silent_mounts(mounts: Iterable[tuple[str, str]]) -> set[str]:
    """Mount points of those (point, type) that do not answer within ANSWER_SECONDS, as their server or program is gone.

    A process that stats such a mount blocks for as long as that is gone. So children do it: one for all mounts, then one for each
    that it got no answer from. On a machine with only local file systems none is forked."""
    remote = [path for path, kind in mounts if kind not in _LOCAL_FILE_SYSTEMS]
    unanswered = remote[_count_answers([remote])[0] :] if remote else []
    return {
        path for path, count in zip(unanswered, _count_answers([[p] for p in unanswered]), strict=True) if not count
    }


def _count_answers(lists: Sequence[Sequence[str]]) -> list[int]:
    """The number of paths of each list that answered, in order and in time."""
    asked = [_ask(paths) for paths in lists]
    deadline, counts = time.monotonic() + ANSWER_SECONDS, []
    for (child, reader), paths in zip(asked, lists, strict=True):
        count, poll = 0, select.poll()
        poll.register(reader, select.POLLIN)
        while count < len(paths) and poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            answers = len(os.read(reader, len(paths)))
            count += answers
            if not answers:
                break
        counts.append(count)
        os.close(reader)
        os.kill(child, signal.SIGKILL)
    for child, _ in asked:
        _bury(child)
    return counts


def _ask(paths: Sequence[str]) -> tuple[int, int]:
    """Forks a child that stats the paths. Returns its pid, and a pipe with a byte per answer; errors are answers, too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.closerange(0, writer)  # it may hang: it must hold no other process's output open
            os.closerange(writer + 1, 1 << 20)
            for path in paths:
                with contextlib.suppress(OSError):
                    os.stat(path)
                os.write(writer, b".")
        finally:
            os._exit(0)
    os.close(writer)
    return child, reader


def _bury(child: int) -> None:
    """Reaps a child that was killed; gives up on one that the kernel does not let end."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.001)


def make_directories(base: str, path: str) -> None:
    """Makes `path` below `base`, each directory with the mode and owner of the machine's: in an overlay the uppermost
    decides."""
    current, like = base, ""
    for step in path.strip("/").split("/"):
        current, like = f"{current}/{step}", f"{like}/{step}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(current)
            _copy_mode(like, current)


def open_way_to_interpreter(upper: str) -> None:
    """If the interpreter is in a home that only its owner may enter: lets users of the image (USER) pass through to it, but list
    nothing."""
    for directory in closed_directories():
        if not os.path.isdir(upper + directory):
            make_directories(upper, directory)
            os.chmod(upper + directory, stat.S_IMODE(os.stat(directory).st_mode) | stat.S_IXGRP | stat.S_IXOTH)


def _copy_mode(model: str, path: str) -> None:
    with contextlib.suppress(OSError):  # an owner that we may not set
        seen = os.stat(model)
        os.chmod(path, stat.S_IMODE(seen.st_mode))
        os.chown(path, seen.st_uid, seen.st_gid)


# ---------------------------------------------------------------- is it as it was?


def closed_directories() -> list[str]:
    """Directories on the way to the interpreter that only their owner may enter."""
    closed = []
    for program in {sys.executable, os.path.realpath(sys.executable)}:
        directory = os.path.dirname(program)
        while directory not in ("/", ""):
            if not os.stat(directory).st_mode & stat.S_IXOTH:
                closed.append(directory)
            directory = os.path.dirname(directory)
    return closed


def watched_paths(paths: Iterable[str]) -> list[str]:
    """The paths that `likeness` checks for a root file system made of `paths`: these, the way to the interpreter, and all
    directories above them and above the machine's mount points (not the mount points: a server may not answer there)."""
    programs = (sys.executable, os.path.realpath(sys.executable))
    return sorted({*paths, *programs, *TEMPORARY, *_above((*paths, *programs, *TEMPORARY)), *mount_parents()})


def mount_parents() -> list[str]:
    """Directories above the machine's mount points. In a user namespace their entries become layers one by one."""
    return sorted({"/", *_above(path for path, _ in other_mounts((*TEMPORARY, "/dev")))})


def _above(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        while path := path.rpartition("/")[0]:
            yield path


def likeness(watched: Iterable[str], versions: Iterable[str]) -> Likeness:
    """The present state of the machine: the mounts of this process, the devices, identity, owner and mode of the `watched`
    paths, and the last change of `versions`.

    If it is equal to an earlier state, what was assembled then would be assembled in the same way now."""
    with open(_MOUNTS) as file:
        mounts = file.read()
    devices = tuple((name, *_identity(f"/dev/{name}")) for name in device_names())
    return mounts, devices, tuple(map(_identity, watched)), tuple(map(_version, versions))


def _identity(path: str) -> tuple[int, ...]:
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_rdev


def _version(path: str) -> tuple[int, ...]:
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return seen.st_ino, seen.st_mtime_ns
