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

from rowlock.cluster.node.environment import Missing
from rowlock.cluster.node.volumes import Files, Mount, Volume

_IS = {
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

    def where(self, pod: str, volume: Volume) -> Path:
        """The directory (or, for a host path, whatever it is) that stands for the volume of pod `pod` (its uid)."""
        if volume.kind == "host":
            return Path(volume.path)
        if volume.kind == "claim":
            return self._claims / volume.path
        return self._pods / pod / ".volumes" / volume.name

    def make(self, pod: str, wanted: Iterable[Volume], group: int | None = None) -> None:
        """Brings the pod's volumes up to date; `group` owns them where the pod asks for it (fsGroup).

        Raises Missing with a sentence when one cannot be made."""
        for volume in wanted:
            place = self.where(pod, volume)
            try:
                _make(volume, place)
                if group is not None and volume.kind != "host":
                    _give(place, group, always=volume.kind == "files")
            except Missing as missing:
                raise _failed(volume, str(missing)) from None
            except OSError as error:
                raise _failed(volume, f"{error.filename or place} cannot be used: {error.strerror}") from None

    def source(self, pod: str, volume: Volume, mount: Mount) -> str:
        """The absolute path that the mount shows. Raises Missing when its subPath leads out of the volume."""
        place = self.where(pod, volume)
        if not mount.sub:
            return str(place)
        chosen = place / mount.sub
        try:
            if not os.path.lexists(chosen):
                chosen.mkdir(parents=True)
                chosen.chmod(place.stat().st_mode & 0o7777)
            real, base = chosen.resolve(strict=True), place.resolve(strict=True)
        except OSError as error:
            text = f"subPath {mount.sub} of volume {volume.name}: {error.strerror}"
            raise Missing(f'failed to prepare subPath for volumeMount "{volume.name}": {text}') from None
        if real != base and base not in real.parents:
            raise Missing(f'failed to prepare subPath for volumeMount "{volume.name}": {mount.sub} leads out of it')
        return str(real)

    def claims(self) -> list[str]:
        """Names of the claims' directories that are there."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self._claims)
        return []

    def claim(self, directory: str) -> str:
        """Where a claim's directory of that name is."""
        return str(self._claims / directory)

    def remove_claim(self, directory: str) -> None:
        shutil.rmtree(self._claims / directory, ignore_errors=True)


def _failed(volume: Volume, why: str) -> Missing:
    return Missing(f'MountVolume.SetUp failed for volume "{volume.name}" : {why}', "FailedMount")


def _make(volume: Volume, place: Path) -> None:
    if volume.kind == "host":
        _host(volume, place)
    elif not place.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755 if volume.kind == "files" else 0o777)
    if volume.kind == "files":
        write_files(place, volume.files)


def _host(volume: Volume, place: Path) -> None:
    if not place.exists():
        if volume.check in ("", "DirectoryOrCreate"):
            place.mkdir(parents=True, exist_ok=True)
        elif volume.check == "FileOrCreate":
            place.touch(mode=0o644)
    if volume.check:
        fits, what = _IS[volume.check]
        if not place.exists() or not fits(place.stat().st_mode):
            raise Missing(f"hostPath type check failed: {place} is not {what}")


def write_files(place: Path, files: Files) -> None:
    """Makes the directory hold exactly these files; does nothing when it does."""
    data = place / "..data"
    if data.is_symlink() and read_files(data) == dict(files):
        return
    fresh = place / f"..{time.time_ns()}"
    fresh.mkdir(mode=0o755)
    for path, (content, mode) in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    before = place / os.readlink(data) if data.is_symlink() else None
    (place / "..new").unlink(missing_ok=True)
    (place / "..new").symlink_to(fresh.name)
    (place / "..new").rename(data)
    _link(place, {path.split("/")[0] for path in files})
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def _link(place: Path, wanted: set[str]) -> None:
    for entry in os.listdir(place):
        if entry not in wanted and not entry.startswith(".."):
            (place / entry).unlink()
    for entry in wanted:
        if not (place / entry).is_symlink():
            (place / entry).symlink_to(f"..data/{entry}")


def read_files(place: Path) -> dict[str, tuple[bytes, int]]:
    """What lies in a directory of files, with their modes."""
    found = {}
    for path in place.rglob("*") if place.exists() else ():
        if path.is_file():
            found[str(path.relative_to(place))] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    return found


def _give(place: Path, group: int, *, always: bool) -> None:
    """As a kubelet does for fsGroup: the group owns and may write, and what is made there later too.

    A directory that has the group already is not walked again (`OnRootMismatch`), unless `always`."""
    if place.stat().st_gid == group and not always:
        return
    paths: Sequence[Path] = [*place.rglob("*"), place]
    for path in paths:
        if not path.is_symlink():
            os.chown(path, -1, group)
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (0o2770 if path.is_dir() else 0o660 if mode & 0o200 else 0o440))
