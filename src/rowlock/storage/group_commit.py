"""Group commit: whatever is staged while one fsync runs goes into the next one, together.

One thread writes. Its answer comes back into the event loop, which shows the batch to readers and watchers and only
then answers the writers. For a lone write on a quick disk the event loop waits, if only for a moment: to hear of it in
another turn takes as long as the fsync, but a disk that stalls must not stop the server. When a commit fails, every write
that is staged fails with it and the next one tries anew: a full disk heals by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from threading import Lock, Thread

from rowlock.errors import ApiError, Unavailable
from rowlock.storage.journal import Journal
from rowlock.storage.log_format import Row
from rowlock.storage.recovery import SupersededRow
from rowlock.storage.state import StoredChange
from rowlock.storage.write_verbs import Core


@dataclass(frozen=True, slots=True)
class _Batch:
    """One commit: what goes in, what compaction takes out, and who waits for it."""

    changes: list[StoredChange]
    drop: list[SupersededRow]
    waiters: list[asyncio.Future[None]]

    @property
    def compacted_revision(self) -> int:
        return self.drop[-1].since if self.drop else 0

    def write(self, journal: Journal) -> _Written:
        """Whatever goes wrong, the writers hear it."""
        error, began = None, time.perf_counter()
        try:
            rows = [_to_row(change) for change in self.changes]
            journal.append(rows, [item.revision for item in self.drop], self.compacted_revision)
        except Exception as fault:  # noqa: BLE001 (returned)
            error = fault
        return _Written(time.perf_counter() - began, error)


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a batch."""

    seconds: float
    error: BaseException | None


class _Commit:
    """A batch on its way through the writer thread. Writers whose commit fails get the error later."""

    def __init__(self, batch: _Batch, on_late: Callable[[_Written], object]) -> None:
        self.batch = batch
        self._on_late = on_late
        self._written: _Written | None = None
        self._decided, self._done = Lock(), Lock()
        """Taken by the waiting or by the writing, whichever ends first; and held until the writing has ended in time."""
        self._done.acquire()

    def wait(self, seconds: float) -> _Written | None:
        """Without the interpreter's lock. None after so many seconds: `on_late` will be called in the thread."""
        if not (seconds and self._done.acquire(timeout=seconds)):
            if self._decided.acquire(blocking=False):
                return None
            self._done.acquire()  # it ends at this very moment
        return self._written

    def finish(self, written: _Written) -> None:
        """In the thread."""
        if self._decided.acquire(blocking=False):
            self._written = written
            self._done.release()
        else:
            self._on_late(written)


class _Writer:
    """The one thread that writes. (An executor's does as much, for a tenth of a request's time.)"""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: SimpleQueue[_Commit | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def write(self, batch: _Batch, patience: float, on_late: Callable[[_Written], object]) -> _Written | None:
        """What became of the batch; None when that takes longer than `patience` seconds: `on_late` is called in the thread then."""
        commit = _Commit(batch, on_late)
        self._queue.put(commit)
        return commit.wait(patience)

    def close(self) -> None:
        """Write what was handed over, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            written = commit.batch.write(self._journal)
            try:
                commit.finish(written)
            except RuntimeError:  # the event loop has gone, and with it everybody who waited
                return


COMPACTION_STEP = 200  # superseded rows that one commit may remove besides as many as it adds
MIN_COMPACTED_ROWS = 32  # fewer wait for the next commit: each removal dirties a page of its own
HISTORY_SECONDS = 300.0  # kube-apiserver's --etcd-compaction-interval: a deleted Secret is not kept for longer
_MARK_INTERVAL = 10.0  # seconds between two notes of the revision
QUICK_COMMIT_SECONDS = 0.001  # seconds: a disk that has lately needed more is not waited for
PATIENCE_SECONDS = 0.003  # seconds: nobody notices that the event loop is away for so long
PACE_DECAY = 0.9  # of how slow the disk was last, after each commit


class GroupCommit:
    """Makes the core's staged changes durable. `publish` is called with every durable batch."""

    def __init__(
        self,
        core: Core,
        journal: Journal,
        publish: Callable[[Sequence[StoredChange]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.compacted_revision = 0
        self.count = 0
        """Commits so far; each was one fsync."""
        self.failed_count = 0
        """Commits that failed; with each, all that was staged was dropped."""
        self.takes_writes = True
        """Did the disk take the last commit? (The node's lease is one, every ten seconds.)"""
        self.kept_revisions = 10_000
        """Revisions of history that stay in the journal, if they are not older than `HISTORY_SECONDS`."""
        self._clock = clock
        self._revision_marks: deque[tuple[float, int]] = deque()
        """(when, the last revision at that time), oldest first."""
        self._expired_revision = 0
        self._core, self._journal, self._publish = core, journal, publish
        self._garbage: deque[SupersededRow] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._writer = _Writer(journal)
        self._pace = QUICK_COMMIT_SECONDS
        """Seconds that a commit may take: the slowest of the latest, older ones counting less and less."""
        self._busy = self._flush_scheduled = self._closed = False

    def load(self, garbage: Sequence[SupersededRow], revision: int) -> None:
        """Begin with what the journal held: rows that newer ones supersede, and the revision up to which it is compacted."""
        self._garbage.extend(garbage)
        self.compacted_revision = revision

    async def wait_durable(self) -> None:
        """Until everything staged so far is durable. Raises Unavailable when it could not be written."""
        if not self._busy and not self._core.has_staged:
            return
        if self._closed:
            self._core.discard_staged()
            raise Unavailable("the server is shutting down: this write was refused; try again when it is back")
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiters.append(future)
        if not self._busy and not self._flush_scheduled:
            # Not at once: all writes of this turn of the event loop go together.
            self._flush_scheduled = True
            loop.call_soon(self._flush, loop)
        await future

    async def close(self) -> None:
        """Commit what is staged, then end the writer thread; later writes are refused with Unavailable."""
        try:
            await self.wait_durable()
        except Unavailable:
            pass  # its writers have been told
        self._closed = True
        await asyncio.to_thread(self._writer.close)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flush_scheduled = False
        changes, waiters = self._core.take_staged(), self._waiters
        self._waiters = []
        if not changes:
            _resolve_waiters(waiters, None)
            return
        self._busy = True
        batch = _Batch(changes, self._rows_to_compact(changes), waiters)
        is_waited_for = len(changes) == len(waiters) == 1 and not batch.drop and self._pace < QUICK_COMMIT_SECONDS

        def finish_later(written: _Written) -> None:
            loop.call_soon_threadsafe(self._finish_batch, loop, batch, written)

        written = self._writer.write(batch, PATIENCE_SECONDS if is_waited_for else 0.0, finish_later)
        if written is not None:
            self._finish_batch(loop, batch, written)

    def _finish_batch(self, loop: asyncio.AbstractEventLoop, batch: _Batch, written: _Written) -> None:
        self._busy = False
        self._pace = max(written.seconds, self._pace * PACE_DECAY)
        self.takes_writes = written.error is None
        if (error := written.error) is not None:
            self.failed_count += 1
            self._core.discard_staged()
            waiters = batch.waiters + self._waiters
            self._waiters = []
            _resolve_waiters(waiters, error)
            return
        for _ in batch.drop:
            self._garbage.popleft()
        self.compacted_revision = max(self.compacted_revision, batch.compacted_revision)
        for change in batch.changes:
            if change.previous:
                self._garbage.append(SupersededRow(change.revision, change.previous))
            if change.type == "Deleted":
                self._garbage.append(SupersededRow(change.revision, change.revision))
        self.count += 1
        self._core.apply_committed(batch.changes)
        _resolve_waiters(batch.waiters, None)  # before the watchers: there may be a thousand of them
        self._publish(batch.changes)
        if self._waiters:
            self._flush(loop)

    def _rows_to_compact(self, batch: Sequence[StoredChange]) -> list[SupersededRow]:
        """The rows to remove now: a little more than come in, so that compaction keeps up under any load."""
        horizon = max(batch[-1].revision - self.kept_revisions, self._expire_revisions(batch[-1].revision))
        rows = []
        for item in islice(self._garbage, len(batch) * 2 + COMPACTION_STEP):
            if item.since > horizon:
                break
            rows.append(item)
        return rows if len(rows) >= MIN_COMPACTED_ROWS else []

    def _expire_revisions(self, revision: int) -> int:
        """The last revision that is older than `HISTORY_SECONDS`; 0 when nobody knows one since the start."""
        now, marks = self._clock(), self._revision_marks
        if not marks or now - marks[-1][0] >= _MARK_INTERVAL:
            marks.append((now, revision))
        while now - marks[0][0] > HISTORY_SECONDS:
            self._expired_revision = marks.popleft()[1]
        return self._expired_revision


def _to_row(change: StoredChange) -> Row:
    assert change.kind is not None and change.type != "Bookmark"
    namespace, name = change.key
    return Row(change.revision, change.previous, change.type, change.kind.resource, namespace, name, change.encoded)


def _resolve_waiters(waiters: Sequence[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in waiters:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        elif isinstance(error, ApiError):  # one instance each: tracebacks must not pile up in a shared one
            future.set_exception(type(error)(error.message, retry_after=error.retry_after))
        else:
            future.set_exception(error)
