"""The file system as one container sees it: this machine's, with its volumes mounted, in a mount namespace of its own.

Called in the program's own process before exec (`mount_volumes`), so its mounts are not seen outside and leave nothing behind. A mount
point that the machine lacks is made in a private copy of its parent directory: a memory file system with the existing entries bound
into it; if it is missing in `/`, such a copy becomes the container's root.
Memory volumes belong to the pod: they are in a namespace of the pod (`PodMounts`) from which its containers get
theirs. Standard library only, because shims are made of it; Linux only.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.mounts import calls

_OLD_ROOT = ".rowlock-old-root"
MAX_COPIED_ENTRIES = 2000
"""Most entries of a directory that is copied."""


class MountError(Exception):
    """A volume could not be mounted; carries a sentence."""


def probe_mount_namespaces() -> str:
    """Why containers cannot have file systems of their own here; "" when they can. Tried in a child."""
    if not calls.is_linux():
        return "mount namespaces are Linux's"
    problem = calls.try_in_child(calls.unshare_mounts)
    return problem and f"a mount namespace cannot be made: {problem}"


def mount_volumes(
    volume_mounts: Sequence[Mapping[str, Any]], staging: str, own_directories: Sequence[str] = ()
) -> None:
    """Mounts volumes in order, each {source, target, volume, read_only}. The caller has a mount namespace of its own.

    A mount of a part of a volume has `root`, the volume, and `sub_path`, which is looked up below it.
    `staging` is a directory that is no longer needed (a new root is built there); `own_directories` are directories of this
    container alone, where mount points can be made directly. Raises MountError with a sentence."""
    private_directories = list(own_directories)
    for mount in volume_mounts:
        if _existing_ancestor(str(mount["target"])) == "/" and not os.path.lexists(str(mount["target"])):
            _explain_failure(mount, lambda: _pivot_to_copy(staging))
            private_directories.append("/")
            break
    bind_volumes(volume_mounts, open_sources(volume_mounts), private_directories)


def open_sources(volume_mounts: Sequence[Mapping[str, Any]], *, detached: bool = False) -> list[int]:
    """Opens the sources of the mounts, in order; `detached`: as mounts that outlive a change of the root. Raises MountError."""
    handles = [_explain_failure(mount, lambda m=mount: _open_source(m)) for mount in volume_mounts]
    return (
        [_detach_source(mount, fd) for mount, fd in zip(volume_mounts, handles, strict=True)] if detached else handles
    )


def _detach_source(mount: Mapping[str, Any], fd: int) -> int:
    try:
        return int(_explain_failure(mount, lambda: calls.detached_copy(fd)))
    finally:
        os.close(fd)


def bind_volumes(
    volume_mounts: Sequence[Mapping[str, Any]], sources: Sequence[int], private_directories: list[str] | None = None
) -> None:
    """Mounts `sources` and closes them. Without `private_directories` the whole root is the container's own, and the sources are
    detached; else mount points are made directly only in these. Raises MountError."""
    read_only: dict[int, Mapping[str, Any]] = {}
    handles: dict[str, int] = {}
    try:
        for mount, fd in zip(volume_mounts, sources, strict=True):
            handle = _explain_failure(mount, lambda m=mount, fd=fd: _bind_volume(m, fd, private_directories, handles))
            os.close(fd)
            if mount.get("read_only"):
                read_only[handle] = mount
        # last, because other volumes' mount points are made in them
        for handle, mount in read_only.items():
            _explain_failure(mount, lambda h=handle: calls.remount_read_only(f"/proc/self/fd/{h}"))
    finally:
        for handle in handles.values():
            os.close(handle)


_O_PATH = getattr(os, "O_PATH", 0) | os.O_CLOEXEC


def _explain_failure(mount: Mapping[str, Any], action: Any) -> Any:
    try:
        return action()
    except OSError as error:
        why = error.strerror or str(error)
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        raise MountError(f'volume "{mount["volume"]}" cannot be mounted at {mount["target"]}: {why}{where}') from None


def _open_source(mount: Mapping[str, Any]) -> int:
    """Opens the source of a mount."""
    if not mount.get("sub_path"):
        return os.open(str(mount["source"]), _O_PATH)
    root = os.open(str(mount["root"]), _O_PATH)
    try:
        return beneath.open_or_make(root, str(mount["sub_path"]))
    finally:
        os.close(root)


def _bind_volume(
    mount: Mapping[str, Any], source: int, private_directories: list[str] | None, handles: dict[str, int]
) -> int:
    """Mounts one volume; returns a handle of what is now at its target, which is also added to `handles` by its path."""
    bind = _bind_at if private_directories is not None else calls.attach
    is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
    target, volume, rest = _locate_target(str(mount["target"]), handles)
    if rest:
        parent = beneath.make_directories(handles[volume], os.path.dirname(rest), 0o755)
        handle = _bind_beneath(parent, os.path.basename(rest), source, is_directory, bind)
        target = f"{volume}/{rest}"
    else:
        _verify_kinds(stat.S_IFMT(os.stat(target).st_mode) if os.path.lexists(target) else 0, is_directory)
        if not os.path.lexists(target):
            if private_directories is not None:
                _make_parent_private(target, private_directories)
            _make_mount_point(target, is_directory)
        place = os.open(target, _O_PATH)
        bind(source, place)
        os.close(place)
        handle = os.open(target, _O_PATH)
    if private_directories is not None:
        private_directories.append(target)
    if previous := handles.get(target):
        os.close(previous)
    handles[target] = handle
    return handle


def _locate_target(target: str, handles: Mapping[str, int]) -> tuple[str, str, str]:
    """The place of a mount point: a path of the machine; or the volume, already mounted, that contains it, and the path in it.

    Links of the machine are followed. Links in a volume belong to a program, which may change them meanwhile: the part of
    the path within a volume is left as it is."""
    current, words = "/", [word for word in target.split("/") if word]
    for number, word in enumerate(words):
        if current in handles:
            return current, current, "/".join(words[number:])
        current = os.path.realpath(os.path.join(current, word))
    return current, "", ""


def _bind_at(source: int, place: int) -> None:
    calls.sys_mount(f"/proc/self/fd/{source}", f"/proc/self/fd/{place}", None, calls.BIND | calls.RECURSIVE)


def _bind_beneath(parent: int, name: str, source: int, is_directory: bool, bind: Callable[[int, int], None]) -> int:
    """Mounts on an entry of a directory to which a program may write; closes `parent`."""
    try:
        with contextlib.suppress(FileExistsError):
            if is_directory:
                os.mkdir(name, 0o755, dir_fd=parent)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=parent))
        place = os.open(name, beneath.REFERENCE, dir_fd=parent)
        try:
            _verify_kinds(stat.S_IFMT(os.fstat(place).st_mode), is_directory)
            bind(source, place)
        finally:
            os.close(place)
        return os.open(name, beneath.REFERENCE, dir_fd=parent)
    finally:
        os.close(parent)


def _verify_kinds(found: int, is_directory: bool) -> None:
    """Raises OSError when the mount point, of type `found` (0 = not there), cannot show the volume."""
    if stat.S_ISLNK(found):
        raise OSError(errno.ELOOP, "the mount point is a link that a program has made in another volume")
    if found and stat.S_ISDIR(found) != is_directory:
        there, here = ("a directory", "a file") if stat.S_ISDIR(found) else ("a file", "a directory")
        raise OSError(errno.ENOTDIR, f"the mount point is {there} on this machine, but the volume is {here}")


def _existing_ancestor(path: str) -> str:
    """The deepest existing directory on the way to `path`."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _make_parent_private(target: str, private_directories: list[str]) -> None:
    """Makes sure that `target` can be made without changing the machine's own directories."""
    parent = _existing_ancestor(os.path.dirname(target))
    if any(
        parent == mine or (parent.startswith(mine.rstrip("/") + "/") and mine != "/") for mine in private_directories
    ):
        return
    _mirror_directory(parent)
    private_directories.append(parent)


def _make_mount_point(target: str, is_directory: bool) -> None:
    os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
    if not is_directory:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _mirror_directory(directory: str) -> None:
    """Covers a directory with a private copy of itself."""
    if directory == "/proc" or directory.startswith(("/proc/", "/sys/")) or directory == "/sys":
        raise OSError(1, f"{directory} is a directory of the kernel")
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _bind_entries(f"/proc/self/fd/{fd}", directory, lambda: _mount_tmpfs(directory))
    os.close(fd)


def _mount_tmpfs(directory: str) -> None:
    calls.sys_mount("tmpfs", directory, "tmpfs", 0, "mode=755")


def _bind_entries(original: str, copy: str, cover: Any) -> None:
    entries = sorted(os.scandir(original), key=lambda e: e.name)
    if len(entries) > MAX_COPIED_ENTRIES:
        name = os.path.realpath(original)
        raise OSError(
            7,
            f"{name} has {len(entries)} entries, too many for a private copy: create the mount point on this machine",
        )
    found = os.stat(original)
    kinds = [(e.name, e.is_symlink(), e.is_dir(follow_symlinks=False)) for e in entries]
    links = {name: os.readlink(f"{original}/{name}") for name, is_link, _ in kinds if is_link}
    cover()
    with contextlib.suppress(OSError):  # an owner that has no id in this user namespace
        os.chown(copy, found.st_uid, found.st_gid)
    with contextlib.suppress(OSError):  # the sticky bit or group of another user: not essential
        os.chmod(copy, stat.S_IMODE(found.st_mode))
    for name, is_link, is_directory in kinds:
        target = f"{copy.rstrip('/')}/{name}"
        if is_link:
            os.symlink(links[name], target)
        elif name != _OLD_ROOT:
            _make_mount_point(target, is_directory)
            calls.sys_mount(f"{original}/{name}", target, None, calls.BIND | calls.RECURSIVE)


def _pivot_to_copy(staging: str) -> None:
    """Makes a private copy of `/` the root, as a container has it."""
    _mount_tmpfs(staging)
    os.mkdir(f"{staging}/{_OLD_ROOT}")
    calls.pivot_root(staging, f"{staging}/{_OLD_ROOT}")
    os.chdir("/")
    _bind_entries(f"/{_OLD_ROOT}", "/", lambda: None)
    calls.detach(f"/{_OLD_ROOT}")
    os.rmdir(f"/{_OLD_ROOT}")
