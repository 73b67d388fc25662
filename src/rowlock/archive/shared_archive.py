"""`SharedArchive`: one archive of several servers. One of them writes at a time; all of them answer reads.

    archive = SharedArchive(data / "copy", open_bucket("s3://bucket/prefix"))
    tasks.create_task(archive.run())             # reads what the leader writes, every few seconds and before each query
    await archive.lead()                         # this process was elected: it has read everything, and writes from now on
    archive.follow()                             # this process no longer leads

Each server has a local copy of the database for queries; large logs are in the bucket only. A write goes
to the bucket first (`segments.py`) and is then applied to the copy, as on every other server. A follower keeps the logs that it has
taken until the leader's are in the archive, so that they survive if the leader dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from rowlock.archive import database, segments
from rowlock.archive.archive import Archive
from rowlock.archive.bucket import Bucket, BucketChunks, MissingObject, StorageFailed, UnusableBucket
from rowlock.archive.database import FORMAT, Statement, UnusableArchive
from rowlock.archive.records import LogRecord
from rowlock.archive.retention import Retention
from rowlock.archive.segments import Listing, SegmentName, SnapshotNote, Write

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL = 5.0
"""Seconds between a follower's reads of the leader's segments; a query makes it read at once."""
_MAX_SEGMENTS, _MAX_SEGMENT_BYTES = 1000, 64 << 20
"""The number of segments, and their total bytes (or the last snapshot's size, if larger), above which the leader makes a snapshot."""
_GRACE = 600.0
"""Seconds after a snapshot before the segments that it covers are removed: followers have read them by then."""
_LOGS = "logs"
_SHARED_WITH = "shared with"
_TABLES = ("runs", "pods", "logs", "samples", "notes")


_ASK_AGAIN = 0.02
"""Seconds between checks of a caller that waits for the archive's thread: it polls, instead of blocking a thread of its own."""
_READ_AHEAD = 16
"""Segments that are read concurrently."""
_READERS = 4
"""Threads that read chunks of long logs: a storage that hangs blocks only these."""


def claim_bucket(bucket: Bucket, cluster: str) -> None:
    """Mark this storage as the archive of the cluster with this uid. Of two concurrent claims, at least one is refused. Raises
    UnusableBucket, OSError."""
    for is_marked in (False, True):
        clusters = segments.marked_clusters(bucket.names(segments.FOLDER))
        if others := sorted(clusters - {cluster}):
            if is_marked:
                bucket.remove([segments.mark_of(cluster)])
            raise UnusableBucket(
                f"{bucket.url} is the archive of another cluster ({others[0]}): give each cluster a prefix or a directory of its own"
                f" (if it is the same cluster made anew, remove {segments.mark_of(others[0])} there)"
            )
        if cluster in clusters:
            return
        bucket.write(segments.mark_of(cluster), b"rowlock\n")


def directory_of(parent: Path, bucket: Bucket, cluster: str) -> Path:
    """Where a server keeps its copy of this archive and the logs to be archived there; unique to the bucket and cluster."""
    return parent / hashlib.sha256(f"{bucket.url} {cluster}".encode()).hexdigest()[:12]


def _begin_read(bucket: Bucket, name: SegmentName) -> Future[bytes]:
    """Read a segment on a daemon thread, which, unlike a pool's, does not delay the end of the server if the storage hangs."""
    future = Future[bytes]()

    def work() -> None:
        try:
            future.set_result(bucket.read(name.segment))
        except Exception as error:  # noqa: BLE001 (raised by `Future.result`)
            future.set_exception(error)

    threading.Thread(target=work, name="archive-segment", daemon=True).start()
    return future


class _TermOver(Exception):
    """This process no longer leads: another one may by now."""


@dataclass(frozen=True, slots=True)
class _Unsent:
    """A segment being sent. A retry sends the same bytes, because a storage that did not answer may have stored it."""

    name: SegmentName
    writes: list[Write]
    content: bytes


class SharedArchive(Archive):
    """This server's copy of an archive in a bucket. It is a follower until `lead`."""

    _pause = POLL
    _gather = 1.0
    """Seconds; longer than on a disk, because each commit is a request and an object that all other servers read."""

    def __init__(
        self,
        directory: Path,
        bucket: Bucket,
        keep: Retention | None = None,
        clock: Callable[[], float] = time.time,
        *,
        cluster: str = "",
    ) -> None:
        """`cluster`: the uid with which `claim_bucket` has marked the storage; "" = it was not marked."""
        super().__init__(directory, keep, clock)
        self._bucket, self._cluster, self._place = bucket, cluster, f"the archive {bucket.url}"
        self._readers = ThreadPoolExecutor(_READERS, "archive-reader")
        self._writer = secrets.token_hex(4)
        self._shall_lead = False
        self._term: SegmentName | None = None
        """The last segment written in the current term; None = another process leads."""
        self._unsent: _Unsent | None = None
        self._own_trouble_since: float | None = None
        """Since when (monotonic) this machine's own disk has failed; None = it works, or the shared storage is at fault."""

    # ------------------------------------------------------------ who writes

    @property
    def is_leading(self) -> bool:
        """Whether this process leads, i.e. writes the archive."""
        return self._shall_lead and self._term is not None

    @property
    def own_trouble_s(self) -> float:
        """For how many seconds this machine's own disk has failed; 0 = it works, or other servers would have the same problem."""
        since = self._own_trouble_since
        return 0.0 if since is None else time.monotonic() - since

    def has_room(self) -> bool:
        """Whether this machine's own disk has enough free space to lead. Blocks."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_space()
        except OSError:
            return False
        return True

    async def lead(self) -> None:
        """Become the leader. Returns when all segments of earlier leaders have been read, which takes as long as the storage
        does not answer; from then on this process writes."""
        self._shall_lead = True
        self._hurry.set()
        self._wakeup.set()
        while not self.is_leading:
            await asyncio.sleep(_ASK_AGAIN)

    def follow(self) -> None:
        """Stop writing. Pending writes are left to the next leader, which has seen the same events."""
        self._shall_lead = False
        self._wakeup.set()

    def put(self, key: str, statement: Statement) -> None:
        """As `Archive.put`; ignored while another process leads, because its state is newer."""
        if self._shall_lead:
            super().put(key, statement)

    async def settle(self, timeout: float = 5.0) -> bool:
        """As `Archive.settle`; a follower first reads what the leader has written by now. Concurrent callers share one read."""
        if not self.is_leading:
            with self._lock:
                self._handed_over += 1
            self._wakeup.set()
        loop, handed_over = asyncio.get_running_loop(), self._handed_over
        deadline = loop.time() + timeout
        if not self._is_settled(handed_over):
            self._hurry.set()
        while not self._is_settled(handed_over) and not self.problem and loop.time() < deadline:
            await asyncio.sleep(_ASK_AGAIN)
        return self._is_settled(handed_over)

    # ------------------------------------------------------------ the thread

    def _open(self) -> sqlite3.Connection:
        connection = super()._open()
        known = database.read_notes(connection).get(_SHARED_WITH)
        if known != self._bucket.url:  # a copy of another archive
            contents = [f"DELETE FROM {table}" for table in _TABLES]
            connection.executescript(f"BEGIN; {'; '.join(contents)}; COMMIT;")
            database.write_all(connection, [database.put_note(_SHARED_WITH, self._bucket.url)])
        return connection

    def _work_round(self, connection: sqlite3.Connection) -> None:
        if self._shall_lead and self._term is None:
            self._begin_term(connection)
        elif not self._shall_lead and self._term is not None:
            self._end_term()
        if self._term is None:
            self._read_segments(connection, self._list())
            self._forget_archived_logs(connection)
            return
        with contextlib.suppress(_TermOver):
            super()._work_round(connection)

    def _say_trouble(self, error: Exception) -> None:
        if isinstance(error, StorageFailed):
            self._own_trouble_since = None
        elif self._own_trouble_since is None:
            self._own_trouble_since = time.monotonic()
        super()._say_trouble(error)

    def _say_healed(self) -> None:
        self._own_trouble_since = None
        super()._say_healed()

    def _begin_term(self, connection: sqlite3.Connection) -> None:
        """Read all segments, then begin a new term."""
        listing = self._list()
        self._read_segments(connection, listing)
        known = max((int(stream[:8]) for stream in segments.read_positions(connection)), default=0)
        term = SegmentName(max(known, listing.last_term) + 1, self._writer, 0)
        with self._written:
            self._term = term
            self._handed_over += 1  # for the logs that wait here
            self._written.notify_all()
        self._wakeup.set()
        log.info("this server writes the archive %s (term %d)", self._bucket.url, term.term)
        with contextlib.suppress(_TermOver):
            self._store(connection, [])

    def _end_term(self) -> None:
        self._term = self._unsent = None
        with self._lock:
            self._pending.clear()

    # ------------------------------------------------------------ writing

    def _store(self, connection: sqlite3.Connection, statements: Sequence[Statement]) -> None:
        self._send_unsent(connection)
        assert self._term is not None
        writes = segments.encode_writes(statements)
        name = self._term._replace(number=self._term.number + 1)
        self._unsent = _Unsent(name, writes, segments.pack_segment(writes))
        self._send_unsent(connection)

    def _send_unsent(self, connection: sqlite3.Connection) -> None:
        if not self._shall_lead:
            raise _TermOver
        if (unsent := self._unsent) is None:
            return
        self._bucket.write(unsent.name.segment, unsent.content)
        segments.apply_writes(connection, unsent.writes, unsent.name)
        self._term, self._unsent = unsent.name, None

    def _keep_log_file(self, name: str) -> None:
        self._bucket.upload(f"{_LOGS}/{name}", self.logs / name)
        (self.logs / name).unlink()

    def _remove_log_files(self, names: list[str]) -> None:
        self._bucket.remove(f"{_LOGS}/{name}" for name in names)

    def _take_single_logs(self, connection: sqlite3.Connection) -> None:
        self._forget_archived_logs(connection)
        super()._take_single_logs(connection)

    def _forget_archived_logs(self, connection: sqlite3.Connection) -> None:
        """Discard the logs waiting here that the leader has archived in the meantime."""
        with self._lock:
            waiting = list(self._single_logs)
        for one in waiting:
            if one.is_correction and self.is_leading:
                continue  # it replaces the archived one
            place = one.pod_uid, one.container, one.number
            sql = "SELECT 1 FROM logs WHERE pod_uid = ? AND container = ? AND number = ?"
            if connection.execute(sql, place).fetchone() is not None:
                shutil.rmtree(os.path.dirname(one.path), ignore_errors=True)
                with self._lock:
                    self._single_logs.pop(one, None)

    # ------------------------------------------------------------ reading

    def read_log_chunks(self, connection: sqlite3.Connection, record: LogRecord) -> Iterable[bytes]:
        """As `Archive.read_log_chunks`; long logs come from the bucket."""
        if record.file:
            return BucketChunks(self._bucket, f"{_LOGS}/{record.file}")
        return super().read_log_chunks(connection, record)

    async def read_pieces(self, question: Callable[[], T]) -> T:
        """As `Archive.read_pieces`."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, question)

    def _list(self) -> Listing:
        """List the bucket. Raises OSError, also when it is no longer marked as this cluster's archive."""
        names = self._bucket.names(segments.FOLDER)
        if self._cluster and (marked := segments.marked_clusters(names)) != {self._cluster}:
            others = ", ".join(sorted(marked - {self._cluster}))
            raise StorageFailed(
                f"it has the mark of another cluster, too, {others}: give each one of its own" if others
                else f"{segments.mark_of(self._cluster)} is gone from it: mount or restore what was there, or start the servers anew"
            )  # fmt: skip
        return segments.parse_listing(names)

    def _read_segments(self, connection: sqlite3.Connection, listing: Listing) -> None:
        """Read and apply the segments of other servers that are not in the local copy yet."""
        own = self._term.stream if self._term else ""
        positions = segments.read_positions(connection)
        unread = segments.unread_segments(listing, positions, own)
        if unread.has_gap and (snapshot := listing.newest_snapshot) is not None and not own:
            self._load_snapshot(connection, snapshot)
            positions = segments.read_positions(connection)
            unread = segments.unread_segments(listing, positions, own)
        hidden = set(segments.missing_segments(unread.segments, positions)) if unread.has_gap else set()
        is_lost = unread.has_gap and not hidden
        for name, read in self._read_ahead(sorted({*unread.segments, *hidden})):
            try:
                content = read()
            except MissingObject:
                if name not in hidden:
                    raise  # the segment was removed just now: a snapshot covers it
                is_lost = True
                continue
            writes = segments.unpack_segment(name, content)
            is_late = segments.is_late(name.stream, positions)
            segments.apply_writes(connection, writes, name, is_late=is_late)
            positions[name.stream] = name.number
        if is_lost:
            log.warning("segments of the archive %s are missing; what they told is lost", self._bucket.url)

    def _read_ahead(self, names: Sequence[SegmentName]) -> Iterator[tuple[SegmentName, Callable[[], bytes]]]:
        """Each segment with a function that returns its content, reading `_READ_AHEAD` concurrently: at startup there may be a
        thousand segments, one request each, and a request may take seconds."""
        if len(names) == 1:
            yield names[0], lambda: self._bucket.read(names[0].segment)
            return
        ahead, asked = iter(names), deque[tuple[SegmentName, Future[bytes]]]()
        while True:
            for name in islice(ahead, _READ_AHEAD - len(asked)):
                asked.append((name, _begin_read(self._bucket, name)))
            if not asked:
                return
            name, future = asked.popleft()
            yield name, future.result

    def _load_snapshot(self, connection: sqlite3.Connection, name: SegmentName) -> None:
        """Replace the local copy by a snapshot, in one transaction: concurrent queries see the old state."""
        self._check_space()
        with self._scratch_file() as path:
            with path.open("wb") as file:
                for chunk in BucketChunks(self._bucket, name.snapshot):
                    file.write(chunk)
            connection.execute("ATTACH ? AS snapshot", (str(path),))
            try:
                (version,) = connection.execute("PRAGMA snapshot.user_version").fetchone()
                if version != FORMAT:
                    raise UnusableArchive(
                        f"{name.snapshot} has format {version}, this rowlock knows {FORMAT}: give all servers the same version"
                    )
                copies = [f"DELETE FROM {t}; INSERT INTO {t} SELECT * FROM snapshot.{t}" for t in _TABLES]
                connection.executescript(f"BEGIN IMMEDIATE; {'; '.join(copies)}; COMMIT;")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                connection.execute("DETACH snapshot")
        database.write_all(connection, [database.put_note(_SHARED_WITH, self._bucket.url)])

    # ------------------------------------------------------------ snapshots

    def _look_around(self, connection: sqlite3.Connection) -> None:
        super()._look_around(connection)
        listing = self._list()
        assert self._term is not None
        if any(name.stream > self._term.stream for name in listing.segments):
            log.warning("another server writes the archive %s now: this one stops", self._bucket.url)
            self._shall_lead = False
            raise _TermOver
        self._read_segments(connection, listing)  # late segments of an earlier leader
        self._compact(connection, listing)

    def _compact(self, connection: sqlite3.Connection, listing: Listing) -> None:
        """Make a snapshot when there are many segments; after `_GRACE`, remove what it covers."""
        made = segments.read_snapshot_note(connection)
        if made is not None and (superseded := made.list_superseded(listing)):
            if not 0 <= self._clock() - made.made_at < _GRACE:  # also when its maker's clock was ahead
                self._bucket.remove(superseded)
            return
        most = max(_MAX_SEGMENT_BYTES, max(listing.snapshots.values(), default=0))
        if len(listing.segments) > _MAX_SEGMENTS or sum(listing.segments.values()) > most:
            self._make_snapshot(connection)

    def _make_snapshot(self, connection: sqlite3.Connection) -> None:
        assert self._term is not None
        self._check_space()
        with self._scratch_file() as path:
            connection.execute("VACUUM INTO ?", (str(path),))
            self._bucket.upload(self._term.snapshot, path)
        made = SnapshotNote(self._term.snapshot, segments.read_positions(connection), self._clock())
        self._store(connection, [made.to_statement()])

    @contextlib.contextmanager
    def _scratch_file(self) -> Iterator[Path]:
        path = self.directory / "snapshot.db"
        places = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]
        for place in places:
            place.unlink(missing_ok=True)
        try:
            yield path
        finally:
            for place in places:
                place.unlink(missing_ok=True)
