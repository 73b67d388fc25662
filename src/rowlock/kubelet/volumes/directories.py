"""Makes volumes: directories and files below the pod's own directory, from which they are mounted.

pods/<uid>/.volumes/<name>/     emptyDir, and files of ConfigMaps, Secrets and fields
claims/<namespace>_<name>_<uid>/     persistent volume claims; removed with the claim, never with a pod

Pods write in them, so everything is done below a handle of the volume's directory (`files/beneath.py`).

Files of ConfigMaps, Secrets and fields are updated atomically: they are in a directory `..N` to which the link `..data` points, as in a
kubelet, so a program that reads during an update sees either the old files or the new ones. Pods get such a volume read-only; its
contents are still not trusted, and no link is followed.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.files.names import NotAName, path_component
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.volume import Files, Volume
from rowlock.kubelet.volumes.nfs_exports import find_export
from rowlock.kubelet.volumes.volumes import Mount

_HOST_PATH_TYPES = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class VolumeDirectories:
    """Finds and makes the directories of volumes."""

    def __init__(self, data: Path) -> None:
        self._pods, self._claims = data / "pods", data / "claims"
        self.known_claims = set[str]()
        """Directories of claims that existed since this server started: if such a claim is missing later, it was deleted."""

    def volume_path(self, pod: str, volume: Volume) -> Path:
        """The directory (for a host path, any file) of a volume of pod `pod` (its uid). Raises ContainerConfigError."""
        if volume.kind == "host":
            return Path(volume.path)
        if volume.kind == "nfs":
            try:
                return find_export(volume.path)
            except ContainerConfigError as missing:
                raise _mount_failure(volume, str(missing)) from None
        try:
            if volume.kind == "claim":
                return self._claims / path_component(volume.path, "the directory of a claim,")
            return self._pods / pod / ".volumes" / path_component(volume.name, "the volume")
        except NotAName as error:
            raise _mount_failure(volume, str(error)) from None

    def make_volumes(self, pod: str, volumes: Iterable[Volume], group: int | None = None) -> None:
        """Brings the pod's volumes up to date; `group` owns them where the pod asks for it (fsGroup).

        Raises ContainerConfigError with a sentence when one cannot be made."""
        for volume in volumes:
            path = self.volume_path(pod, volume)
            try:
                if volume.kind == "host":
                    _make_host_path(volume, path)
                elif volume.kind == "nfs":
                    _check_export(volume, path)
                else:
                    _make_directory_volume(volume, path, group)
            except ContainerConfigError as missing:
                raise _mount_failure(volume, str(missing)) from None
            except OSError as error:
                raise _mount_failure(volume, f"{error.filename or path} cannot be used: {error.strerror}") from None
            except ValueError as error:  # a NUL character in a path
                raise _mount_failure(volume, f"its path cannot be used: {error}") from None

    def mount_specs(self, pod: str, volumes: Sequence[Volume], mounts: Iterable[Mount]) -> list[dict[str, Any]]:
        """The mounts for a shim (`mounts/volume_mounts.py`) or an engine. Raises ContainerConfigError
        when a subPath leads out of its volume."""
        by_name, specs = {v.name: v for v in volumes}, list[dict[str, Any]]()
        for mount in mounts:
            path = self.volume_path(pod, by_name[mount.volume])
            source = _mount_source(path, by_name[mount.volume], mount)
            spec: dict[str, Any] = {"source": source, "target": mount.target, "volume": mount.volume}
            if mount.sub_path:
                spec |= {"root": str(path), "sub_path": mount.sub_path}
            specs.append({**spec, "read_only": mount.read_only})
        return specs

    def memory_specs(self, pod: str, volumes: Iterable[Volume]) -> list[dict[str, Any]]:
        """The pod's memory volumes for a shim: `path`, and `size` in bytes, 0 = no limit."""
        in_memory = [v for v in volumes if v.kind == "memory"]
        return [{"path": str(self.volume_path(pod, v)), "size": v.limit or 0} for v in in_memory]

    def shared_memory(self, pod: str, size: int) -> dict[str, Any]:
        """The same for the /dev/shm of a pod with several containers. Makes its directory, whose name no volume can have."""
        path = self._pods / pod / ".volumes" / ".shm"
        path.mkdir(parents=True, exist_ok=True)
        return {"path": str(path), "size": size}

    def claim_directories(self) -> list[str]:
        """Names of the existing directories of claims."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self._claims)
        return []

    def claim_mark(self, directory: str) -> Path:
        """The file whose time says since when the claim of this directory is unknown."""
        return self._claims / ".gone" / directory

    def claim_path(self, directory: str) -> str:
        """The path of a claim's directory."""
        return str(self._claims / directory)

    def remove_claim(self, directory: str) -> None:
        beneath.remove_path(str(self._claims / directory))


def _mount_source(volume_path: Path, volume: Volume, mount: Mount) -> str:
    """The absolute path that is mounted. Raises ContainerConfigError when its subPath leads out of the volume.

    The mounting code opens it again below the volume (`mounts/volume_mounts.py`): a program may change its links meanwhile."""
    if not mount.sub_path or volume.kind == "memory":  # memory volumes exist only in the pod
        return str(volume_path / mount.sub_path)
    try:
        with beneath.open_directory(str(volume_path)) as root:
            fd = beneath.open_or_make(root, mount.sub_path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        leads_out = isinstance(error, OSError) and error.errno == errno.EXDEV
        text = f"{mount.sub_path} leads out of it" if leads_out else f"subPath {mount.sub_path}: {why}"
        raise ContainerConfigError(f'failed to prepare subPath for volumeMount "{volume.name}": {text}') from None
    try:
        return os.readlink(f"/proc/self/fd/{fd}") if os.path.isdir("/proc/self") else str(volume_path / mount.sub_path)
    finally:
        os.close(fd)


def _mount_failure(volume: Volume, why: str) -> ContainerConfigError:
    return ContainerConfigError(f'MountVolume.SetUp failed for volume "{volume.name}" : {why}', "FailedMount")


@contextlib.contextmanager
def _open_volume(path: Path, mode: int) -> Iterator[int]:
    """Opens a volume's own directory, made with `mode` if missing; a link in its place is not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with beneath.open_directory(str(path.parent)) as parent:
        fd = beneath.make_directories(parent, path.name, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def _make_directory_volume(volume: Volume, path: Path, group: int | None) -> None:
    """Makes the directory of a volume. If it has the group already, it is not scanned again (`OnRootMismatch`), unless it is of files."""
    is_files = volume.kind == "files"
    with _open_volume(path, 0o755 if is_files else 0o777) as fd:
        if is_files:
            write_files(fd, volume.files)
        if group is not None and (is_files or os.fstat(fd).st_gid != group):
            beneath.change_groups(fd, group)


def _check_export(volume: Volume, path: Path) -> None:
    if not path.is_dir():
        raise ContainerConfigError(f"the NFS export {volume.path} has no directory {path} here")


def _make_host_path(volume: Volume, path: Path) -> None:
    if not path.exists():
        if volume.check in ("", "DirectoryOrCreate"):
            path.mkdir(parents=True, exist_ok=True)
        elif volume.check == "FileOrCreate":
            path.touch(mode=0o644)
    if volume.check:
        is_type, type_name = _HOST_PATH_TYPES[volume.check]
        if not path.exists() or not is_type(path.stat().st_mode):
            raise ContainerConfigError(f"hostPath type check failed: {path} is not {type_name}")


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
