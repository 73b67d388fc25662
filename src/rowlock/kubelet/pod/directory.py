"""Where a pod's facts lie on disk, and how long its logs are kept after it is deleted.

pods/<uid>/pod.json                 its identity, address and devices
pods/<uid>/<container>/start.N …    see shim.py
pods/<uid>/.volumes/                see directories.py
pods/<uid>/.work/                   working directory of programs that name none
logs/<namespace>_<pod>_<uid>/<container>.N.log    of a deleted pod; the newest, within MAX_KEPT_POD_LOGS and MAX_KEPT_LOG_BYTES
logs/<namespace>_<pod>_<uid>/.owner.json          the uid of the job that it was a rank of
logs/<namespace>_<pod>_<uid>/.archived            all of it is in the archive, too (`archive/log_intake.py`)
logs/.earlier/<namespace>_<pod>_<uid>/…           of restarts before the last one, until the archive has them
"""

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.files.inode_groups import spread_subdirectories
from rowlock.kubelet.files.moves import move_file
from rowlock.kubelet.files.names import is_name, path_component
from rowlock.kubelet.pod.log_retention import KeptLogs, find_surplus
from rowlock.kubelet.shim.fact_files import write_fact
from rowlock.objects import Key

MAX_KEPT_POD_LOGS = 1000
"""Most deleted pods whose logs are kept."""
_ATTEMPTS = 20
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NO_FILE_SYSTEM = (
    errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EEXIST, errno.ENOENT,
)  # fmt: skip
_PASSING = frozenset((*_SHORTAGES, *_NO_FILE_SYSTEM))
"""Temporary errors: the file can be moved later. `logs` may lie on a file system that is not mounted now."""
_MAX_LOG_PREFIX = 255 - len("_00000000-0000-4000-8000-000000000000")
_DOOMED = "~"
"""Suffix of a pod's directory whose removal has begun; no uid can end so (`is_name`)."""
WORK_DIRECTORY = ".work"
"""The pod's working directory, below the pod's directory. No container can have this name."""
OWNER_FACT = ".owner.json"
ARCHIVED_FACT = ".archived"
EARLIER_RUNS = ".earlier"
_RUN_LOG, _KEPT_LOG = re.compile(r"log\.([0-9]+)"), re.compile(r"([^.].*)\.[0-9]+\.log")
_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
log = logging.getLogger("rowlock.kubelet")
MAX_KEPT_LOG_BYTES = 1 << 30
"""Most bytes of logs of deleted pods that are kept."""


@dataclass(frozen=True, slots=True)
class PodCard:
    """What the kubelet must know of a pod even after its object is deleted."""

    namespace: str
    name: str
    uid: str
    node: str
    ip: str
    begun: float
    devices: tuple[str, ...] = ()
    contained: bool = False
    """Whether it runs in containers of an engine."""
    owner: str = ""
    """The uid of its controller, a job; "" = it has none."""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @classmethod
    def from_fact(cls, fact: Mapping[str, Any]) -> "PodCard | None":
        """Checks a card that was read from disk; None if it is not as `write_card` writes it."""
        namespace, name, uid, node = (untrusted.text_of(fact, field) for field in ("namespace", "name", "uid", "node"))
        ip, begun, devices = untrusted.text_of(fact, "ip"), untrusted.time_of(fact, "begun"), fact.get("devices")
        if not all(map(is_name, (namespace, name, uid, node))) or begun is None or not isinstance(devices, list):
            return None
        if (ip and not _ADDRESS.fullmatch(ip)) or not all(isinstance(device, str) for device in devices):
            return None
        owner = untrusted.text_of(fact, "owner")
        return cls(namespace, name, uid, node, ip, begun, tuple(devices), fact.get("contained") is True, owner)


class PodDirectories:
    """The `pods` and `logs` directories."""

    def __init__(self, data: Path, on_logs_aside: Callable[[str], None] | None = None) -> None:
        """`on_logs_aside` is called with each directory into which logs were moved; if given, the logs of all restarts are moved."""
        self._on_logs_aside = on_logs_aside
        self.data = data
        self.pods = data / "pods"
        self.logs = data / "logs"
        for directory in (self.pods, self.logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        spread_subdirectories(str(self.pods))
        status = data.stat()
        self.identity = f"{status.st_dev}:{status.st_ino}"
        """Device and inode of the data directory, which a copy does not share."""
        self._present: dict[Key, set[str]] = {}
        """Pod name → uids of its pods that have a directory, until `forget`."""
        self._is_stopped = threading.Event()

    def pod_directory(self, uid: str) -> Path:
        """The directory of a pod. Raises NotAName for what cannot be a uid."""
        return self.pods / path_component(uid, "the uid of a pod,")

    def container_directory(self, uid: str, name: str) -> Path:
        """The directory of a container. Raises NotAName for what cannot be the name of one."""
        return self.pod_directory(uid) / path_component(name, "the container")

    def write_card(self, card: PodCard) -> None:
        directory = self.pod_directory(card.uid)
        try:
            directory.mkdir(exist_ok=True, mode=0o700)
        except FileNotFoundError:  # the parent was removed while we run
            directory.mkdir(exist_ok=True, mode=0o700, parents=True)
        write_fact(f"{directory}/pod.json", {field: getattr(card, field) for field in PodCard.__slots__})
        self._present.setdefault(card.key, set()).add(card.uid)

    def read_cards(self) -> list[PodCard]:
        """The cards of all pods that have a directory."""
        cards = []
        for entry in _entries(self.pods):
            card = PodCard.from_fact(untrusted.read_object(f"{entry.path}/pod.json") or {})
            if card is not None and card.uid == entry.name:
                cards.append(card)
                self._present.setdefault(card.key, set()).add(card.uid)
            elif not entry.name.endswith(_DOOMED):
                log.warning("%s is left alone: its pod.json does not say whose directory it is", entry.path)
        return cards

    def present_uids(self, pod_key: Key) -> Set[str]:
        """The uids of the pods of this name that have a directory, also of a deleted pod whose logs are not yet moved."""
        return self._present.get(pod_key, frozenset())

    def forget(self, card: PodCard) -> None:
        """Removes a pod from `present_uids`, after `retire`."""
        uids = self._present.get(card.key, set())
        uids.discard(card.uid)
        if not uids:
            self._present.pop(card.key, None)

    def started_containers(self, uid: str) -> list[str]:
        """The containers of a pod that have ever been started."""
        with contextlib.suppress(OSError):
            return _list_containers(self.pod_directory(uid))
        return []

    def retire(self, card: PodCard) -> bool:
        """Moves the pod's logs to `logs` and renames its directory, so that the rest can be removed. Quick, unless `logs` lies on
        another file system.

        False if `logs` takes no logs now: they stay in the directory, and everything else in it is removed."""
        directory = self.pod_directory(card.uid)
        refusal = self._move_logs(directory, card)
        if refusal is not None:
            _remove_all_but_logs(directory)  # that may be what filled the disk
            refusal = self._move_logs(directory, card)
        with contextlib.suppress(OSError):  # there is no directory, or an earlier attempt left its target
            os.rename(directory, f"{directory}{_DOOMED}")  # also after a crash, when `pod.json` may be gone
        if refusal is not None:  # `finish_removals` retries, here or in the next server
            place, reason = f"{card.namespace}/{card.name}", refusal.strerror or refusal
            text = "the logs of the deleted pod %s stay in %s~ until %s takes them: %s"
            log.warning(text, place, directory, self.logs, reason)
        return refusal is None

    def remove_retired(self, uid: str) -> None:
        """Removes a retired pod's directory; slow if it has many files. `stop_removals` interrupts it."""
        directory = self.pod_directory(uid)
        doomed = f"{directory}{_DOOMED}"
        for _ in range(_ATTEMPTS):
            beneath.remove_path(doomed, self._is_stopped.is_set)
            if self._is_stopped.is_set():
                return
            with contextlib.suppress(OSError):
                os.rename(directory, doomed)
            if not directory.exists() and not os.path.lexists(doomed):
                return
            time.sleep(0.02)  # the last of its programs wrote while we looked
        log.warning(
            "%s cannot be removed whole: something in it is immutable (lsattr) or mounted; remove it by hand", doomed
        )

    def _move_logs(self, directory: Path, card: PodCard) -> OSError | None:
        """Moves the pod's logs. Returns why one stays if that is temporary: a full disk, no descriptor, a missing file system."""
        log_directory = self.logs / f"{_log_prefix(card.namespace, card.name)}_{card.uid}"
        refusal: OSError | None = None
        try:
            containers = _list_containers(directory)
        except OSError as error:
            return error if _passes(error, directory) else None
        for container in containers:
            place = directory / container
            try:
                for entry in _entries(place):
                    if (found := _RUN_LOG.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                        place = Path(entry.path)
                        _move_log(entry.path, log_directory, f"{container}.{found[1]}.log", card.owner)
            except OSError as error:
                refusal = error if _passes(error, place) else refusal
        if self._on_logs_aside is not None and log_directory.is_dir():
            self._on_logs_aside(str(log_directory))
        return refusal

    def collect_garbage(self) -> None:
        """Finishes removals, and removes logs beyond what is kept."""
        self.finish_removals()
        self.forget_old_logs()

    def finish_removals(self) -> None:
        """Finishes removals that a killed server or a full disk has interrupted."""
        for entry in _entries(self.pods):
            if not entry.name.endswith(_DOOMED):
                continue
            card = PodCard.from_fact(untrusted.read_object(f"{entry.path}/pod.json") or {})
            is_card = card is not None and card.uid == entry.name.removesuffix(_DOOMED)
            if card is None or not is_card or self._move_logs(Path(entry.path), card) is None:
                beneath.remove_path(entry.path, self._is_stopped.is_set)

    def stop_removals(self) -> None:
        """Interrupts removals as the server ends; the next server's `finish_removals` completes them."""
        self._is_stopped.set()

    def forget_old_logs(self) -> None:
        """Removes logs of deleted pods beyond MAX_KEPT_POD_LOGS and MAX_KEPT_LOG_BYTES; `find_surplus` chooses which."""
        entries: list[KeptLogs] = []
        try:
            self.logs.mkdir(exist_ok=True, mode=0o700)  # it may have been removed while we run
            found = _entries(self.logs)
        except OSError:  # its file system is not mounted now
            return
        for entry in found:
            if entry.name == EARLIER_RUNS:
                continue
            if self._on_logs_aside is not None and not os.path.exists(f"{entry.path}/{ARCHIVED_FACT}"):
                continue  # not archived yet
            with contextlib.suppress(OSError):
                size = sum(e.stat().st_blocks * 512 for e in _entries(entry.path))
                entries.append(KeptLogs(entry.stat().st_mtime, size, entry.path))
        for logs in find_surplus(entries, MAX_KEPT_POD_LOGS, MAX_KEPT_LOG_BYTES):
            beneath.remove_path(logs.path)

    def find_deleted_pod_log(self, namespace: str, pod: str, container: str, owner: str = "") -> Path | None:
        """The newest log of a deleted pod, of any container if `container` is "". `owner`: only of pods of the job with this uid,
        since an earlier job may have had the same name."""
        logs: list[tuple[float, str]] = []
        prefix = _log_prefix(namespace, pod)
        for directory in _entries(self.logs) if self.logs.is_dir() else ():
            if directory.name.rpartition("_")[0] != prefix:
                continue
            if owner and _read_owner(directory.path) != owner:
                continue
            with contextlib.suppress(OSError):
                logs += [
                    (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                    for entry in _entries(directory.path)
                    if (found := _KEPT_LOG.fullmatch(entry.name)) and container in ("", found[1])
                ]
        return Path(max(logs)[1]) if logs else None

    def drop_old_runs(self, card: PodCard, container: str, newest: int) -> None:
        """Before run `newest` begins, removes the run before the last: only the last keeps its log and facts here."""
        if newest == 0:
            return
        directory = self.container_directory(card.uid, container)
        names = ["claim", "start", "program", "message", "exit", "refused", "uncreated", "passed_on", "errors"]
        if newest == 1 or self._on_logs_aside is None or self._put_aside(card, container, newest - 2):
            names.append("log")
        numbered = [f"{name}.{newest - 2}" for name in names]
        for name in (*numbered, f"error.{newest - 2}.json", "stop"):
            beneath.remove_path(str(directory / name))

    def _put_aside(self, card: PodCard, container: str, number: int) -> bool:
        """Moves the log of an earlier run aside for the archive. False if the disk refuses it now: it stays until its pod is deleted."""
        assert self._on_logs_aside is not None
        log = str(self.container_directory(card.uid, container) / f"log.{number}")
        if os.path.islink(log) or not os.path.isfile(log):
            return True  # a program has removed it, or put something else there
        aside = self.logs / EARLIER_RUNS / f"{_log_prefix(card.namespace, card.name)}_{card.uid}"
        try:
            _move_log(log, aside, f"{container}.{number}.log", card.owner)
        except OSError:
            return False
        self._on_logs_aside(str(aside))
        return True


def _log_prefix(namespace: str, pod: str) -> str:
    """The name of a log directory without the uid, cut so that the whole name has at most 255 bytes. Only pods without a job
    have names that long."""
    whole = f"{namespace}_{pod}"
    if len(whole) <= _MAX_LOG_PREFIX:
        return whole
    return f"{whole[: _MAX_LOG_PREFIX - 17]}-{sha256(whole.encode()).hexdigest()[:16]}"


def _list_containers(directory: Path) -> list[str]:
    """The containers of the pod in a directory that have ever been started. Raises OSError."""
    return sorted(e.name for e in _entries(directory) if e.is_dir(follow_symlinks=False) and is_name(e.name))


def _remove_all_but_logs(directory: Path) -> None:
    """Removes volumes, working directories and programs' files, but not `pod.json` and the logs of the containers."""
    with contextlib.suppress(OSError):
        containers = _list_containers(directory)
        for entry in _entries(directory):
            if entry.name not in ("pod.json", *containers):
                beneath.remove_path(entry.path)
        for container in containers:
            for entry in _entries(directory / container):
                if not _RUN_LOG.fullmatch(entry.name):
                    beneath.remove_path(entry.path)


def _passes(error: OSError, place: Path) -> bool:
    """Whether a failed move can succeed later. If `place` is gone, a thread that a stopped server left is moving it."""
    return error.errno in _PASSING and os.path.lexists(place)


def _move_log(log: str, aside: Path, name: str, owner: str) -> None:
    """Moves a log into `aside`, which the archive may read at any moment. Raises OSError."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            aside.mkdir(exist_ok=True, mode=0o700, parents=True)
            if owner and not (aside / OWNER_FACT).exists():  # first, so that the log is never without its job
                with contextlib.suppress(OSError):  # a full disk: the log is kept, and read by the pod's name only
                    write_fact(str(aside / OWNER_FACT), {"uid": owner})
            move_file(log, f"{aside}/{name}")
            break
        except (FileNotFoundError, FileExistsError):  # the archive has removed the directory, which it had emptied
            if not attempts_left or not os.path.lexists(log):
                raise
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside / ARCHIVED_FACT)  # no longer true


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    """The entries of a directory, read at once, so that it is closed even if handling one of them fails. Raises OSError."""
    with os.scandir(directory) as entries:
        return list(entries)


def _read_owner(log_directory: str) -> str:
    """The uid of the job whose pod wrote the logs; "" when nothing says so."""
    return untrusted.text_of(untrusted.read_object(f"{log_directory}/{OWNER_FACT}") or {}, "uid")
