"""Volumes made real: directories and files below the pod's own directory, where mounts take them from.

pods/<uid>/.volumes/<name>/     emptyDir, and files of ConfigMaps, Secrets and fields
claims/<namespace>_<name>_<uid>/     persistent volume claims; they go with the claim, never with a pod

Files appear all at once: they lie in a directory `..N` to which the link `..data` points, as a kubelet does it, so a
program that reads while they change sees the old ones or the new ones.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.volume import Files, Volume
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
    """Knows where volumes lie."""

    def __init__(self, data: Path) -> None:
        self._pods, self._claims = data / "pods", data / "claims"

    def volume_path(self, pod: str, volume: Volume) -> Path:
        """The directory (or, for a host path, whatever it is) that stands for the volume of pod `pod` (its uid)."""
        if volume.kind == "host":
            return Path(volume.path)
        if volume.kind == "claim":
            return self._claims / volume.path
        return self._pods / pod / ".volumes" / volume.name

    def make_volumes(self, pod: str, volumes: Iterable[Volume], group: int | None = None) -> None:
        """Brings the pod's volumes up to date; `group` owns them where the pod asks for it (fsGroup).

        Raises Missing with a sentence when one cannot be made."""
        for volume in volumes:
            path = self.volume_path(pod, volume)
            try:
                _make_volume(volume, path)
                if group is not None and volume.kind != "host":
                    _set_group(path, group, always=volume.kind == "files")
            except ContainerConfigError as missing:
                raise _mount_failure(volume, str(missing)) from None
            except OSError as error:
                raise _mount_failure(volume, f"{error.filename or path} cannot be used: {error.strerror}") from None

    def mount_source(self, pod: str, volume: Volume, mount: Mount) -> str:
        """The absolute path that the mount shows. Raises Missing when its subPath leads out of the volume."""
        volume_path = self.volume_path(pod, volume)
        if not mount.sub_path:
            return str(volume_path)
        target = volume_path / mount.sub_path
        try:
            if not os.path.lexists(target):
                target.mkdir(parents=True)
                target.chmod(volume_path.stat().st_mode & 0o7777)
            real, base = target.resolve(strict=True), volume_path.resolve(strict=True)
        except OSError as error:
            text = f"subPath {mount.sub_path} of volume {volume.name}: {error.strerror}"
            raise ContainerConfigError(f'failed to prepare subPath for volumeMount "{volume.name}": {text}') from None
        if real != base and base not in real.parents:
            raise ContainerConfigError(
                f'failed to prepare subPath for volumeMount "{volume.name}": {mount.sub_path} leads out of it'
            )
        return str(real)

    def claim_directories(self) -> list[str]:
        """Names of the claims' directories that are there."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self._claims)
        return []

    def claim_path(self, directory: str) -> str:
        """Where a claim's directory of that name is."""
        return str(self._claims / directory)

    def remove_claim(self, directory: str) -> None:
        shutil.rmtree(self._claims / directory, ignore_errors=True)


def _mount_failure(volume: Volume, why: str) -> ContainerConfigError:
    return ContainerConfigError(f'MountVolume.SetUp failed for volume "{volume.name}" : {why}', "FailedMount")


def _make_volume(volume: Volume, path: Path) -> None:
    if volume.kind == "host":
        _make_host_path(volume, path)
    elif not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o755 if volume.kind == "files" else 0o777)
    if volume.kind == "files":
        write_files(path, volume.files)


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


def write_files(directory: Path, files: Files) -> None:
    """Makes the directory hold exactly these files; does nothing when it does."""
    data = directory / "..data"
    if data.is_symlink() and read_files(data) == dict(files):
        return
    new_data = directory / f"..{time.time_ns()}"
    new_data.mkdir(mode=0o755)
    for path, (content, mode) in files.items():
        target = new_data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    old_data = directory / os.readlink(data) if data.is_symlink() else None
    (directory / "..new").unlink(missing_ok=True)
    (directory / "..new").symlink_to(new_data.name)
    (directory / "..new").rename(data)
    _link_files(directory, {path.split("/")[0] for path in files})
    if old_data is not None:
        shutil.rmtree(old_data, ignore_errors=True)


def _link_files(directory: Path, names: set[str]) -> None:
    for entry in os.listdir(directory):
        if entry not in names and not entry.startswith(".."):
            (directory / entry).unlink()
    for entry in names:
        if not (directory / entry).is_symlink():
            (directory / entry).symlink_to(f"..data/{entry}")


def read_files(directory: Path) -> dict[str, tuple[bytes, int]]:
    """What lies in a directory of files, with their modes."""
    files = {}
    for path in directory.rglob("*") if directory.exists() else ():
        if path.is_file():
            files[str(path.relative_to(directory))] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    return files


def _set_group(directory: Path, group: int, *, always: bool) -> None:
    """As a kubelet does for fsGroup: the group owns and may write, and what is made there later too.

    A directory that has the group already is not walked again (`OnRootMismatch`), unless `always`."""
    if directory.stat().st_gid == group and not always:
        return
    paths: Sequence[Path] = [*directory.rglob("*"), directory]
    for path in paths:
        if not path.is_symlink():
            os.chown(path, -1, group)
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (0o2770 if path.is_dir() else 0o660 if mode & 0o200 else 0o440))
