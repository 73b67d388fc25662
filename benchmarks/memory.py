"""Memory and start of a server that holds 5,000 finished jobs of two ranks, 50,000 objects.

    make bench BENCH=memory AGAINST=35f4c23e

A server runs one job to its end. Its objects, its record in the archive and the directories of its pods are then written down 5,000 times,
each time under other names and uids, as that many jobs would have left them. Every start gets a copy of that directory. CPU is user and
system time of the server process from its start until it is quiet again, 30 s at least; memory is what is resident then, and after one
list of workloads.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.cluster import JOBS, Client, job, running, until_finished
from benchmarks.jobs import Figure
from rowlock.archive.database import pack, unpack
from rowlock.storage.log_format import row_checksum

COUNT, WATCHED_S, LONGEST_S = 5_000, 30.0, 150.0
QUIET_S, QUIET_SHARE = 3.0, 0.15
"""A server is quiet when it needed less than that share of a processor for so many seconds."""
NAME = "finito"
"""Of the job that ran. It is replaced in files, so it must be no word of theirs: `finished` is a field of a run's exit."""
NEWER_KINDS = ("clustertrainingruntimes.trainer.kubeflow.org",)
"""Kinds of objects that every server makes at its start, and that older builds refuse to read."""
RUNS_ON = 45.0
"""Seconds for which the server runs on after the job's end: the last events and the record of the archive are written, and its lease is
renewed. A server that ended earlier may not have told everything, and the next one looks at the job again."""
EVENT_TTL = "720h"
"""So that the events of the copies, which are as old as the first ones, stay for as long as the measurement takes."""
EVENTS = 4
"""Events kept of each job: a server keeps 20,000 at most, and deletes others at once."""
_LEFT_OUT = ("server.json", "wake", "lock", "podhost*", "cluster.revision", "server.log")


@dataclass(frozen=True)
class Start:
    """What one start cost: resident MiB, and CPU seconds."""

    memory: float
    cpu: float


def build(data: Path, count: int) -> int:
    """Make a data directory with so many finished jobs. Returns how many objects they are."""
    with running("--event-ttl", EVENT_TTL) as client:
        with client.watch(JOBS) as events:
            client.call("POST", JOBS, job(NAME, 1, "true"))
            until_finished(events, {NAME})
        time.sleep(RUNS_ON)
        source = client.data
    shutil.copytree(source, data, ignore=shutil.ignore_patterns(*_LEFT_OUT, "pods"))
    copies = Copies(source, data)
    number = copies.copy_objects(count)
    copies.copy_archive()
    copies.copy_pods()
    return number


class Copies:
    """Copies of the one job that ran: of its rows in both databases and of the directories of its pods."""

    def __init__(self, source: Path, data: Path) -> None:
        self._source, self._data = source, data
        self._renamings: list[dict[bytes, bytes]] = []

    def _rename(self, text: bytes, renaming: dict[bytes, bytes]) -> bytes:
        return re.sub(b"|".join(map(re.escape, renaming)), lambda found: renaming[found[0]], text)

    def copy_objects(self, count: int) -> int:
        log = sqlite3.connect(self._data / "cluster.db")
        newest: dict[tuple[str, str, str], tuple[int, int, bytes]] = {}
        rows = "SELECT revision, verb, kind, namespace, name, value FROM log ORDER BY revision"
        for revision, verb, kind, namespace, name, value in log.execute(rows):
            newest[kind, namespace, name] = revision, verb, value
        log.execute(f"DELETE FROM log WHERE kind IN ({', '.join('?' * len(NEWER_KINDS))})", NEWER_KINDS)
        own = {at: row for at, row in newest.items() if row[1] != 2 and re.search(rf"(^|-){NAME}([-.]|$)", at[2])}
        for surplus in [at for at in own if at[0] == "events"][EVENTS:]:
            del own[surplus]
        uids = {json.loads(value)["metadata"]["uid"] for _, _, value in own.values()}
        (last,) = log.execute("SELECT max(revision) FROM log").fetchone()
        for number in range(count):
            new_uids = {one: str(uuid.uuid4()) for one in uids}
            names = {NAME: f"{NAME}{number:04}", **new_uids}
            names |= {_container_id(before): _container_id(after) for before, after in new_uids.items()}
            self._renamings.append({before.encode(): after.encode() for before, after in names.items()})
        log.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._rows(own, last))
        log.commit()
        log.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log.close()
        return len(own) * count

    def _rows(self, own: dict[tuple[str, str, str], tuple[int, int, bytes]], last: int) -> Iterator[tuple[object, ...]]:
        for renaming in self._renamings:
            for (kind, namespace, name), (revision, _, value) in own.items():
                last += 1
                stamp = {b'"resourceVersion":"%d"' % revision: b'"resourceVersion":"%d"' % last}
                text = self._rename(value, {**stamp, **renaming})
                fields = last, 0, 0, kind, namespace, self._rename(name.encode(), renaming).decode()
                yield *fields, row_checksum(fields, text), text

    def copy_archive(self) -> None:
        archive = sqlite3.connect(self._data / "archive" / "archive.db")
        for table in ("runs", "pods", "logs", "samples"):
            for row in archive.execute(f"SELECT * FROM {table}").fetchall():
                marks = ", ".join("?" * len(row))
                copies = (tuple(self._renamed(cell, renaming) for cell in row) for renaming in self._renamings)
                archive.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", copies)
        archive.commit()
        archive.close()

    def _renamed(self, cell: object, renaming: dict[bytes, bytes]) -> object:
        if isinstance(cell, str):
            return self._rename(cell.encode(), renaming).decode()
        if isinstance(cell, bytes):
            return pack(json.loads(self._rename(json.dumps(unpack(cell)).encode(), renaming)))
        return cell

    def copy_pods(self) -> None:
        for directory in (self._source / "pods").iterdir():
            files = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
            for renaming in self._renamings:
                copy = self._data / "pods" / self._rename(directory.name.encode(), renaming).decode()
                for name, content in files.items():
                    target = copy / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(self._rename(content, renaming))


def _container_id(pod_uid: str) -> str:
    """The id of the first run of a pod's one container, as the kubelet derives it (`kubelet/pod/status.py`): a kubelet that finds another
    one in a status writes the status anew."""
    return hashlib.sha256(f"{pod_uid}/pytorch/0".encode()).hexdigest()


def start(data: Path) -> Start:
    """Start a server over a copy of the directory."""
    copy = Path(tempfile.mkdtemp(prefix="rowlock-memory-")) / "data"
    shutil.copytree(data, copy)
    env = {**os.environ, "ROWLOCK_DATA_DIR": str(copy)}
    program = [sys.executable, "-P", "-c", "from rowlock.cli.main import rowlock; rowlock()"]
    subprocess.run([*program, "up", "-d", "--event-ttl", EVENT_TTL], env=env, check=True, stdout=subprocess.DEVNULL)
    try:
        client = Client(copy)
        spent = cpu_until_quiet(psutil.Process(client.pid))
        resident = client.memory()
        client.call("GET", "/api/v1/workloads?limit=100")
        return Start(max(resident, client.memory()), spent)
    finally:
        subprocess.run([*program, "down", "--yes"], env=env, check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(copy.parent, ignore_errors=True)


def cpu_until_quiet(server: psutil.Process) -> float:
    """CPU seconds of a process from its start until it needs next to nothing, 30 s at least and `LONGEST_S` at most."""
    while True:
        before = sum(server.cpu_times()[:2])
        time.sleep(QUIET_S)
        spent, age = sum(server.cpu_times()[:2]), time.time() - server.create_time()
        if age > LONGEST_S or (age > WATCHED_S and spent - before < QUIET_SHARE * QUIET_S):
            return spent


@functools.cache
def _built() -> Path:
    """The directory that all starts are copies of; made once."""
    place = Path(tempfile.mkdtemp(prefix="rowlock-finished-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    number = build(place / "data", COUNT)
    size = (place / "data" / "cluster.db").stat().st_size / 2**20
    print(f"{COUNT:,} finished jobs: {number:,} objects, {size:.0f} MiB", file=sys.stderr, flush=True)
    return place / "data"


def figures() -> Iterator[Figure]:
    one = start(_built())
    yield Figure(f"server's resident memory with {COUNT:,} finished jobs of two ranks", "MiB", [one.memory])
    yield Figure("CPU of a start with them, until it is quiet", "s", [one.cpu])
