"""`Archive`: writes what the server hands over on its own thread; reads do not wait for that thread.

    archive = Archive(data / "archive")          # creates nothing, raises nothing
    tasks.create_task(archive.run())             # opens, writes, takes in logs, applies retention; until cancelled
    archive.put("run/uid", put_run(record))      # never waits; replaces a pending value of the same key
    await archive.read(read_pods, uid)           # on another thread

It never stops the server: with a full disk, a damaged file or a lost directory only the archive fails, logs that once, and retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from rowlock.archive import database, log_intake, retention
from rowlock.archive.database import Statement
from rowlock.archive.records import LogRecord
from rowlock.archive.retention import Retention

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

MAX_PENDING = 50_000
"""The most writes that wait for the disk; further ones are dropped and counted."""
_BATCH = 500
"""Writes of one transaction."""
_SETTLE = 0.5
"""Seconds for which writes are gathered while no `settle` waits: one commit costs as much as writing a few runs."""
_RETRY = 5.0
"""Seconds between attempts after a failure."""
_LOOK = 30.0
"""Seconds between scans for spooled logs that were not announced, and for expired runs."""
_LOGS_PER_BATCH = 64
RESERVE_BYTES = 64 << 20
"""Bytes that the archive leaves free on the disk."""


class Archive:
    """The archive of one data directory. `put`, `take_logs` and `read` may be called from the event loop's thread."""

    _pause = _LOOK
    """Seconds after which the thread runs a round even when nothing was handed over."""
    _gather = _SETTLE

    def __init__(
        self,
        directory: Path,
        keep: Retention | None = None,
        clock: Callable[[], float] = time.time,
        *,
        log_limit: int = log_intake.MAX_LOG_BYTES,
    ) -> None:
        """`log_limit`: bytes that are kept of each log, the newest; at least as many as its writer keeps."""
        self._log_limit = log_limit
        self.directory, self._keep, self._clock = directory, keep or Retention(), clock
        self._place = str(directory)
        """How messages name the archive's location."""
        self.path, self.logs = directory / "archive.db", directory / "logs"
        self._pending: dict[str, Statement] = {}
        self._directories: dict[str, None] = {}
        self._single_logs: dict[log_intake.AsideLog, None] = {}
        self._spools: list[Path] = []
        self._lock, self._wakeup = threading.Lock(), threading.Event()
        self._stopping, self._hurry = threading.Event(), threading.Event()
        self._written = threading.Condition(self._lock)
        self._handed_over = self._settled = 0
        """Number of hand-overs so far; and their number when the thread's last complete round began."""
        self._last_look = 0.0
        self.dropped = 0
        """Writes that were dropped because `MAX_PENDING` were waiting."""
        self.problem = ""
        """Why the archive cannot write now, as a sentence; "" = it can."""

    # ------------------------------------------------------------ handing over

    def put(self, key: str, statement: Statement) -> None:
        """Queue a write, in place of a pending one with the same key."""
        with self._lock:
            if len(self._pending) >= MAX_PENDING and key not in self._pending:
                self.dropped += 1
                return
            self._pending[key] = statement
            self._handed_over += 1
        if not self._wakeup.is_set():  # else the thread has not taken the queue yet
            self._wakeup.set()

    def take_logs(self, directory: str) -> None:
        """Take in the logs of a pod, which were moved to this directory."""
        with self._lock:
            self._directories[directory] = None
            self._handed_over += 1
        self._wakeup.set()

    def take_log(self, log: log_intake.AsideLog) -> None:
        """Take in a complete log, the only one in its directory; the directory is removed afterwards."""
        with self._lock:
            self._single_logs[log] = None
            self._handed_over += 1
        self._wakeup.set()

    def watch_spool(self, spool: Path) -> None:
        """Also take in logs in subdirectories of `spool` that were not announced, e.g. before a crash."""
        self._spools.append(spool)
        self._wakeup.set()

    async def settle(self, timeout: float = 5.0) -> bool:
        """Wait until everything handed over so far is written. False after `timeout` seconds, and at once while the archive cannot
        write (`problem`)."""
        if self._is_settled(self._handed_over):
            return True
        self._hurry.set()
        return await asyncio.to_thread(self._wait_written, self._handed_over, timeout)

    def _is_settled(self, handed_over: int) -> bool:
        return self._settled >= handed_over

    def _wait_written(self, handed_over: int, timeout: float) -> bool:
        with self._written:
            self._written.wait_for(lambda: self._is_settled(handed_over) or self.problem, timeout)
            return self._is_settled(handed_over)

    # ------------------------------------------------------------ reading

    async def read(
        self, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `question(connection, …)`, a read of `database.py`, on another thread. It must not return a lazy iterator.
        Raises sqlite3.Error, OSError, UnusableArchive."""

        def ask() -> T:
            with contextlib.closing(database.open_database(self.path, writes=False)) as connection:
                return question(connection, *args, **kwargs)

        return await asyncio.to_thread(ask)

    async def read_pieces(self, question: Callable[[], T]) -> T:
        """Call a function that iterates over `read_log_chunks`, on another thread."""
        return await asyncio.to_thread(question)

    def read_log_chunks(self, connection: sqlite3.Connection, record: LogRecord) -> Iterable[bytes]:
        """The compressed log in chunks; empty when it is gone. It can be iterated more than once. A large one is read
        lazily, so that an idle reader uses no memory."""
        if record.file:
            return log_intake.FileChunks(self.logs / record.file)
        body = database.read_log_body(connection, record)
        return [body] if body else []

    # ------------------------------------------------------------ the thread

    async def run(self) -> None:
        """Run the thread until cancelled, then wait up to 10 s for it to write the pending changes."""
        thread = threading.Thread(target=self._work, name="archive", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stopping.set()
            self._hurry.set()
            self._wakeup.set()
            await asyncio.shield(asyncio.to_thread(thread.join, 10.0))

    def _work(self) -> None:
        """The archive's thread: no error ends it, only the end of the server."""
        connection: sqlite3.Connection | None = None
        while True:
            self._wakeup.wait(self._pause)
            self._hurry.wait(self._gather)  # gather writes for one commit
            self._hurry.clear()
            self._wakeup.clear()
            is_last = self._stopping.is_set()
            handed_over = self._handed_over
            try:
                connection = connection or self._open()
                self._work_round(connection)
                self._say_healed()
                with self._written:
                    self._settled = handed_over
                    self._written.notify_all()
            except Exception as error:  # noqa: BLE001 (no error of the archive may stop the server)
                self._say_trouble(error)
                if connection is not None:
                    connection.close()
                    connection = None
                self._stopping.wait(_RETRY)
                self._wakeup.set()
            if is_last:
                break
        if connection is not None:
            connection.close()

    def _work_round(self, connection: sqlite3.Connection) -> None:
        """One round of the thread: pending writes, announced logs, and now and then a scan."""
        self._write_pending(connection)
        self._take_directories(connection)
        self._take_single_logs(connection)
        if time.monotonic() - self._last_look > _LOOK:
            self._last_look = time.monotonic()
            self._look_around(connection)

    def _store(self, connection: sqlite3.Connection, statements: Sequence[Statement]) -> None:
        """Write statements in one transaction. Raises sqlite3.Error, OSError."""
        database.write_all(connection, statements)

    def _keep_log_file(self, name: str) -> None:
        """Hook: a log was written to this file of `logs`, before its row. Raises OSError."""

    def _remove_log_files(self, names: list[str]) -> None:
        """Remove log files whose rows have been deleted. Raises OSError."""
        for name in names:
            (self.logs / name).unlink(missing_ok=True)

    def _open(self) -> sqlite3.Connection:
        connection = database.open_database(self.path, writes=True)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        return connection

    def _check_space(self) -> None:
        """Raise OSError when fewer than `RESERVE_BYTES` are free on the disk."""
        status = os.statvfs(self.directory)
        if status.f_bavail * status.f_frsize < RESERVE_BYTES:
            raise OSError(28, f"less than {RESERVE_BYTES >> 20} MiB are free", str(self.directory))

    def _write_pending(self, connection: sqlite3.Connection) -> None:
        while True:
            with self._lock:
                keys = list(self._pending)[:_BATCH]
                batch = {key: self._pending.pop(key) for key in keys}
            if not batch:
                return
            try:
                self._check_space()
                self._store(connection, list(batch.values()))
            except BaseException:
                with self._lock:
                    for key, statement in batch.items():
                        self._pending.setdefault(key, statement)  # keep a newer one of the same key
                raise

    def _take_directories(self, connection: sqlite3.Connection) -> None:
        while True:
            with self._lock:
                directories = list(self._directories)[:_LOGS_PER_BATCH]
                for directory in directories:  # before reading them: one that is announced meanwhile is read again
                    del self._directories[directory]
            if not directories:
                return
            try:
                self._take(connection, directories)
            except BaseException:
                with self._lock:
                    self._directories.update(dict.fromkeys(directories))
                raise

    def _take(self, connection: sqlite3.Connection, directories: list[str]) -> None:
        """Archive the logs in these directories that are not archived yet. Raises sqlite3.Error, OSError for the archive's own disk."""
        statements: list[Statement] = []
        found = {directory: log_intake.find_log_files(directory) for directory in directories}
        for files in found.values():
            for file in files:
                known = connection.execute(
                    "SELECT 1 FROM logs WHERE pod_uid = ? AND container = ? AND number = ?",
                    (file.pod_uid, file.container, file.number),
                ).fetchone()
                if known is None and (statement := self._compress(file)):
                    statements.append(statement)
        if statements:
            self._store(connection, statements)
        for directory, files in found.items():
            log_intake.mark_taken(directory, files, remove=_holds_earlier_runs(directory))

    def _take_single_logs(self, connection: sqlite3.Connection) -> None:
        while True:
            with self._lock:
                logs = list(self._single_logs)[:_LOGS_PER_BATCH]
            if not logs:
                return
            self._store(connection, [found for one in logs if (found := self._compress(one))])
            for one in logs:
                shutil.rmtree(
                    os.path.dirname(one.path), ignore_errors=True
                )  # if removal fails, it is taken in again, which replaces the same row
            with self._lock:
                for one in logs:
                    self._single_logs.pop(one, None)

    def _compress(self, file: log_intake.AsideLog) -> Statement | None:
        """The write for a log; None when the log cannot be read. Raises OSError for the archive's own disk, and for shortages."""
        try:
            source = log_intake.open_regular(file.path)
        except OSError as error:
            if log_intake.is_shortage(error):
                raise
            log.warning("a log cannot be read, and is not in the archive: %s", error)
            return None
        with source:
            self._check_space()
            name = f"{file.pod_uid}.{file.container}.{file.number}.gz"
            packed = log_intake.compress_log(source, self.logs / name, self._log_limit, check_space=self._check_space)
        where = "" if packed.body is not None else name
        if where:
            self._keep_log_file(name)
        record = LogRecord(
            file.pod_uid, file.container, file.number, file.owner, file.namespace, file.pod,
            packed.began, packed.size, packed.stored, where,
        )  # fmt: skip
        return database.put_log(record, packed.body)

    def _look_around(self, connection: sqlite3.Connection) -> None:
        """Take in unannounced logs, and remove runs according to the retention."""
        for spool in self._spools:
            for path in log_intake.find_new_directories(spool):
                self.take_logs(path)
        self._take_directories(connection)
        removed = retention.cut(
            connection, self._keep, self._clock(), store=self._store, remove_files=self._remove_log_files
        )
        if removed:
            log.info("the archive has removed %d runs, the oldest, for their age or its size", removed)

    # ------------------------------------------------------------ messages for users

    def _say_trouble(self, error: Exception) -> None:
        sentence = f"{self._place} takes nothing now ({error}): what runs goes on, but is not archived until it does"
        if not self.problem:
            log.warning("%s", sentence)
        with self._written:
            self.problem = sentence
            self._written.notify_all()

    def _say_healed(self) -> None:
        if self.problem:
            lost = f"; {self.dropped} records were lost" if self.dropped else ""
            log.warning("the archive in %s works again%s", self._place, lost)
            self.problem, self.dropped = "", 0


def _holds_earlier_runs(directory: str) -> bool:
    """Whether only the archive reads this directory of logs."""
    return os.path.basename(os.path.dirname(directory)).startswith(".")
