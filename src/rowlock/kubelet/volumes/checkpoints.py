"""Checkpoint directories and how long they are kept.

checkpoints/<job uid>/     what a job's ranks wrote to ROWLOCK_CHECKPOINT_DIR
checkpoints/.gone/<job uid>     since when the job no longer exists (the file's time)
checkpoints/.namespaces/<job uid>     the namespace of the job, as pods of other namespaces may not use it. A hard link to
    .namespaces/.names/<namespace>, where possible: a new file for each job would cost more than all else here
checkpoints/.namespaces/.uids/<job uid>     in the same way the uid of that namespace, as later ones of its name may not use it either

Checkpoints are kept as long as their job exists. After it was deleted they stay for RETENTION_SECONDS, counted from the first look
that did not find the job or from the last write, whichever is later. A job that is submitted again is another one with a directory
of its own, unless it names the job that it resumes (`RESUME_ANNOTATION`): then it uses that one's.
"""

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.files.inode_groups import spread_subdirectories
from rowlock.kubelet.files.names import NotAName, path_component
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import Object, annotations, controller_of, is_deleting, meta, phase, uid
from rowlock.workloads.frameworks import (
    RESUME_ANNOTATION,
    checkpoint_writers,
    checkpoints_owner,
    shared_checkpoints_sentence,
)  # fmt: skip

RETENTION_SECONDS = 7 * 86400.0
"""Seconds."""
_MARK_BYTES = 256
"""Longer than the name of any namespace."""
MOUNT_PATH = "/run/rowlock/checkpoints"
"""The path at which programs of other users see the directory."""


class OwnerMarks:
    """Records the owner of each job's checkpoints: a file per job that contains the owner's name or uid."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._written = set[str]()
        """Owners whose link source was written since the start."""

    def has(self, job: str) -> bool:
        """Whether an owner is recorded for the job."""
        return os.path.isfile(f"{self.directory}/{job}")

    def forget(self, job: str) -> None:
        """Removes the record of a job whose checkpoints are deleted."""
        (self.directory / job).unlink(missing_ok=True)

    def note(self, job: str, owner: str) -> str:
        """Records the owner, unless one is recorded already. Returns the recorded owner."""
        mark = f"{self.directory}/{job}"
        try:
            self._link(mark, owner)
        except FileExistsError:
            if known := untrusted.read_file(mark, _MARK_BYTES).decode():
                return known
            os.unlink(mark)  # empty: the machine stopped before it was on the disk
            self._link(mark, owner)
        return owner

    def _link(self, mark: str, owner: str) -> None:
        """Writes a new file. Raises FileExistsError."""
        source = f"{self.directory}/.names/{owner}"
        if owner not in self._written:
            self._make_directories()
            with suppress(FileNotFoundError):
                os.unlink(f"{source}.new")  # left when a server ended here
            _write_new(f"{source}.new", owner)
            os.replace(f"{source}.new", source)
            self._written.add(owner)
        try:
            os.link(source, mark)
        except FileExistsError:
            raise
        except OSError:  # no hard links here, or no more to this file; or the directory was removed
            self._written.discard(owner)
            self._make_directories()
            _write_new(mark, owner)

    def _make_directories(self) -> None:
        for directory in (self.directory.parent, self.directory, self.directory / ".names"):
            directory.mkdir(mode=0o700, exist_ok=True)


class Checkpoints:
    """The directory of all jobs' checkpoints."""

    def __init__(self, data: Path, retention: float = RETENTION_SECONDS) -> None:
        self._root, self._marks = data / "checkpoints", data / "checkpoints" / ".gone"
        self._namespaces = OwnerMarks(data / "checkpoints" / ".namespaces")
        self._uids = OwnerMarks(data / "checkpoints" / ".namespaces" / ".uids")
        self._retention = retention

    def directory_for(self, pod: PodSpec, namespace_uid: str = "", job: str = "") -> Path:
        """The pod's checkpoint directory: one per job (its uid; else the pod's owner), the same for all its ranks and restarts; a pod
        without a job has its own.

        Raises ContainerConfigError if the owner's uid, which any user may write, is no valid name, or belongs to a job of another
        namespace, or of an earlier one of the same name."""
        resumed = pod.annotations.get(RESUME_ANNOTATION, "")
        try:
            name = path_component(resumed or job or pod.owner_uid or pod.uid, "the uid of the pod's owner,")
        except NotAName as error:
            raise ContainerConfigError(str(error)) from None
        directory = f"{self._root}/{name}"
        if resumed and not (os.path.isdir(directory) and self._namespaces.has(name)):
            raise ContainerConfigError(f"there are no checkpoints of a job {name} here (any more), to go on from")
        try:
            os.mkdir(directory)
        except FileExistsError:  # not its job's first pod
            pass
        except FileNotFoundError:
            self._root.mkdir(parents=True, exist_ok=True)
            spread_subdirectories(str(self._root))
            os.makedirs(directory, exist_ok=True)
        if self._namespaces.note(name, pod.namespace) != pod.namespace:
            raise ContainerConfigError(
                f"{name}, whose checkpoints it would have, is a job of another namespace: they are not for this pod"
            )
        if namespace_uid and self._uids.note(name, namespace_uid) != namespace_uid:
            raise ContainerConfigError(
                f"{name}, whose checkpoints it would have, is a job of an earlier namespace {pod.namespace}, which was deleted: they are not"
                f" for this one. The owner of the server finds them in checkpoints/{name} of the data directory"
            )
        return Path(directory)

    def remove_expired(self, live_uids: Collection[str], now: float) -> list[str]:
        """Removes directories whose job was deleted long enough ago; returns their uids. `live_uids`: uids of existing jobs and pods."""
        removed = []
        for entry in list(os.scandir(self._root)) if self._root.is_dir() else ():
            mark = self._marks / entry.name
            if entry.name in (self._marks.name, self._namespaces.directory.name):
                continue
            if entry.name in live_uids:
                mark.unlink(missing_ok=True)
            elif not mark.exists():
                self._marks.mkdir(exist_ok=True)
                mark.touch()
                os.utime(mark, (now, now))
            elif now - max(mark.stat().st_mtime, beneath.newest_change(entry.path)) > self._retention:
                beneath.remove_path(entry.path)
                mark.unlink(missing_ok=True)
                self._namespaces.forget(entry.name)
                self._uids.forget(entry.name)
                removed.append(entry.name)
        return removed


def may_read_checkpoints(data: Path, owner: str, namespace: str, namespace_uid: str) -> bool:
    """Whether the checkpoints of the job with the uid `owner` are those of a job of this namespace: a manifest may name any job to
    resume. `data`: the data directory. False when there are none."""
    marks = data / "checkpoints" / ".namespaces"
    try:
        path = path_component(owner, "the owner of checkpoints")
        of_namespace = untrusted.read_file(f"{marks}/{path}", _MARK_BYTES).decode()
    except (NotAName, OSError, UnicodeDecodeError):
        return False
    try:
        of_uid = untrusted.read_file(f"{marks}/.uids/{path}", _MARK_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        of_uid = ""
    return of_namespace == namespace and of_uid in ("", namespace_uid)


def _write_new(path: str, text: str) -> None:
    """Writes a new file. Raises FileExistsError."""
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def wait_for_writers(pod: PodSpec, view: View) -> None:
    """Makes a pod that resumes another run's checkpoints wait while a third run writes there: one that was created earlier, or that
    is running. Raises ContainerConfigError, after which the start is retried."""
    resumed = pod.annotations.get(RESUME_ANNOTATION, "")
    if not resumed:
        return
    jobs = [job for kind in kinds.JOBS for job in view.all(kind, pod.namespace)]
    own = next((job for job in jobs if uid(job) == pod.owner_uid), {})
    for other in checkpoint_writers(resumed, jobs):
        is_first = _order(other) < _order(own) and not is_deleting(other)
        if uid(other) != pod.owner_uid and (is_first or _runs(view, other)):
            raise ContainerConfigError(shared_checkpoints_sentence(other))


def _order(job: Object) -> tuple[str, str]:
    return str(meta(job).get("creationTimestamp") or "9999"), uid(job)


def _runs(view: View, job: Object) -> bool:
    return any(phase(pod) == "Running" for pod in view.by_owner(kinds.POD, uid(job)))


def give_to_user(directory: str, user: int, group: int | None) -> dict[str, Any]:
    """A checkpoint directory as a mount for a program of another user, who cannot enter the data directory. It becomes that user's, and
    the group's if the pod names one. Ranks of one job may have several users: then the directory is opened to all, since only
    these ranks see it."""
    with beneath.open_directory(directory) as fd:
        found = os.fstat(fd)
        if found.st_uid in (os.geteuid(), user):
            os.fchown(fd, user, -1 if group is None else group)
            mode = stat.S_IMODE(found.st_mode) if found.st_uid == user else 0
            os.fchmod(fd, mode | (0o700 if group is None else 0o2770))
        else:
            os.fchmod(fd, 0o2777 if found.st_mode & stat.S_ISGID else 0o777)
    return {"source": directory, "target": MOUNT_PATH, "volume": "checkpoints", "read_only": False}


async def live_owner_uids(view: View) -> set[str]:
    """The uids of all jobs and pods, of every owner of a pod, and of jobs that others resume."""
    uids, budget = set[str](), TurnBudget()
    for kind in kinds.WORKLOADS:
        for job in view.all(kind):
            uids |= {uid(job), checkpoints_owner(job)}
            await budget.pause_if_due()
    for key in view.keys(kinds.POD):
        pod = {"metadata": view.metadata(kinds.POD, *key)}
        resumed = str(annotations(pod).get(RESUME_ANNOTATION) or "")
        uids |= {uid(pod), resumed, str((controller_of(pod) or {}).get("uid") or "")}
        await budget.pause_if_due()
    return uids
