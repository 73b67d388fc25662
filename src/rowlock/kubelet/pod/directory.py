"""Where a pod's facts lie on disk, and how long what it said is kept after it has gone.

pods/<uid>/pod.json                 who it is, its address and devices
pods/<uid>/<container>/start.N …    see shim.py
pods/<uid>/.volumes/                see directories.py
logs/<namespace>_<pod>_<uid>/<container>.N.log    after the pod was deleted; the newest, within KEPT and SIZE
"""

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rowlock.kubelet.files import beneath
from rowlock.kubelet.shim.fact_files import write_fact

MAX_KEPT_POD_LOGS = 1000
"""Deleted pods whose logs are kept."""
_ATTEMPTS = 20
MAX_KEPT_LOG_BYTES = 1 << 30
"""Bytes of logs of deleted pods that are kept."""


@dataclass(frozen=True, slots=True)
class PodCard:
    """What the kubelet must not forget of a pod, though the store may."""

    namespace: str
    name: str
    uid: str
    node: str
    ip: str
    begun: float
    devices: tuple[str, ...] = ()
    contained: bool = False
    """Does it run in containers of an engine?"""


class PodDirectories:
    """The `pods` and `logs` directories."""

    def __init__(self, data: Path) -> None:
        self.pods = data / "pods"
        self.logs = data / "logs"
        for directory in (self.pods, self.logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = data.stat()
        self.identity = f"{status.st_dev}:{status.st_ino}"
        """The data directory's own, which a copy does not share."""

    def pod_directory(self, uid: str) -> Path:
        return self.pods / uid

    def container_directory(self, uid: str, name: str) -> Path:
        return self.pods / uid / name

    def write_card(self, card: PodCard) -> None:
        self.pod_directory(card.uid).mkdir(exist_ok=True, mode=0o700)
        write_fact(str(self.pod_directory(card.uid) / "pod.json"), asdict(card))

    def read_cards(self) -> list[PodCard]:
        """Every pod that has a directory."""
        cards = []
        for entry in os.scandir(self.pods):
            with contextlib.suppress(OSError, ValueError, TypeError):
                data = json.loads((self.pods / entry.name / "pod.json").read_bytes())
                cards.append(PodCard(**{**data, "devices": tuple(data.get("devices", ()))}))
        return cards

    def started_containers(self, uid: str) -> list[str]:
        """The containers of a pod that have ever been started."""
        with contextlib.suppress(OSError):
            return sorted(
                e.name
                for e in os.scandir(self.pod_directory(uid))
                if e.is_dir() and e.name != "work" and e.name[0] != "."
            )
        return []

    def remove(self, card: PodCard) -> None:
        """The pod has gone; its logs move aside."""
        directory = self.pod_directory(card.uid)
        log_directory = self.logs / f"{card.namespace}_{card.name}_{card.uid}"
        for container in self.started_containers(card.uid):
            with contextlib.suppress(OSError):  # a server that stopped meanwhile has left a thread that does the same
                for entry in sorted((directory / container).glob("log.*")):
                    log_directory.mkdir(exist_ok=True, mode=0o700)
                    entry.rename(log_directory / f"{container}.{entry.suffix[1:]}.log")
        for _ in range(_ATTEMPTS):
            beneath.remove_path(str(directory))
            if not directory.exists():
                return
            time.sleep(0.02)  # the last of its programs wrote while we looked

    def forget_old_logs(self) -> None:
        """Keeps the newest of the logs of deleted pods, within KEPT pods and SIZE bytes."""
        entries = []
        for entry in os.scandir(self.logs):
            with contextlib.suppress(OSError):
                size = sum(e.stat().st_blocks * 512 for e in os.scandir(entry.path))
                entries.append((entry.stat().st_mtime, size, entry.path))
        remaining = MAX_KEPT_LOG_BYTES
        for number, (_, size, path) in enumerate(sorted(entries, reverse=True)):
            remaining -= size
            if number >= MAX_KEPT_POD_LOGS or remaining < 0:
                beneath.remove_path(path)

    def find_deleted_pod_log(self, namespace: str, pod: str, container: str) -> Path | None:
        """The newest log of a deleted pod; of its first container when none is named."""
        logs = [
            path
            for directory in self.logs.glob(f"{namespace}_{pod}_*")
            for path in directory.glob(f"{container or '*'}.*.log")
            if directory.name.rpartition("_")[0] == f"{namespace}_{pod}"
        ]
        return max(logs, key=lambda p: p.stat().st_mtime, default=None)

    def drop_old_runs(self, uid: str, container: str, newest: int) -> None:
        """Before run `newest` begins: only the one before it keeps its log and facts."""
        if newest == 0:
            return
        directory = self.container_directory(uid, container)
        for name in ("log", "start", "program", "message", "exit", "refused"):
            (directory / f"{name}.{newest - 2}").unlink(missing_ok=True)
        (directory / f"error.{newest - 2}.json").unlink(missing_ok=True)
        (directory / "stop").unlink(missing_ok=True)
