"""Group commit: all writes staged while one fsync runs go into the next commit together.

One thread writes. Its result returns to the event loop, which applies the batch to the committed state, answers the writers and
then publishes the batch to watchers. For a lone write on a quick disk the event loop blocks for up to `PATIENCE_SECONDS`: a wake-up in
a later turn would cost as much as the fsync, but a disk that stalls must not stop the server. When a commit fails, every staged
write fails with it, and the next commit tries again: the server recovers from a full disk by itself.
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

from rowlock.controllers.view.state import StoredChange
from rowlock.errors import ApiError, Unavailable
from rowlock.storage.journal import Journal
from rowlock.storage.log_format import Row
from rowlock.storage.recovery import SupersededRow
from rowlock.storage.write_verbs import Core


@dataclass(frozen=True, slots=True)
class _Batch:
    """One commit: the changes to insert, the rows that compaction deletes, and the futures that wait for it."""

    changes: list[StoredChange]
    drop: list[SupersededRow]
    waiters: list[asyncio.Future[None]]

    @property
    def compacted_revision(self) -> int:
        return self.drop[-1].since if self.drop else 0

    def write(self, journal: Journal) -> _Written:
        """Write the batch in the writer thread. Any exception is returned, so that the waiting writers get it."""
        error, began = None, time.perf_counter()
        try:
            rows = [_to_row(change) for change in self.changes]
            journal.append(rows, [item.revision for item in self.drop], self.compacted_revision)
        except Exception as fault:  # noqa: BLE001 (returned)
            error = fault
        return _Written(time.perf_counter() - began, error)


@dataclass(frozen=True, slots=True)
class _Written:
    """The outcome of a batch; `error` is None when it is durable."""

    seconds: float
    error: BaseException | None


class _Commit:
    """A batch on its way through the writer thread. Writers whose commit fails get the error later."""

    def __init__(self, batch: _Batch, on_late: Callable[[_Written], object]) -> None:
        self.batch = batch
        self._on_late = on_late
        self._written: _Written | None = None
        self._decided, self._done = Lock(), Lock()
        """`_decided`: taken by whichever is first, the waiter's timeout or completion. `_done`: released on completion in time."""
        self._done.acquire()

    def wait(self, seconds: float) -> _Written | None:
        """Block with the GIL released. None after `seconds`: `on_late` is then called in the writer thread."""
        if not (seconds and self._done.acquire(timeout=seconds)):
            if self._decided.acquire(blocking=False):
                return None
            self._done.acquire()  # `finish` took `_decided` just now and is about to release this
        return self._written

    def finish(self, written: _Written) -> None:
        """Deliver the outcome, to the waiter or to `on_late`. Called in the writer thread."""
        if self._decided.acquire(blocking=False):
            self._written = written
            self._done.release()
        else:
            self._on_late(written)


class _Writer:
    """The one thread that writes. (An executor could do the same, but its overhead is a tenth of a request's time.)"""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: SimpleQueue[_Commit | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def write(self, batch: _Batch, patience: float, on_late: Callable[[_Written], object]) -> _Written | None:
        """The outcome of the batch; None when it takes longer than `patience` seconds: `on_late` is then called in the thread."""
        commit = _Commit(batch, on_late)
        self._queue.put(commit)
        return commit.wait(patience)

    def close(self) -> None:
        """Write all batches that are queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            written = commit.batch.write(self._journal)
            try:
                commit.finish(written)
            except RuntimeError:  # the event loop is closed, so no writer waits any more
                return


COMPACTION_STEP = 200  # superseded rows that one commit may remove besides as many as it adds
MIN_COMPACTED_ROWS = 32  # fewer wait for the next commit: each removal dirties a page of its own
HISTORY_SECONDS = 300.0  # kube-apiserver's --etcd-compaction-interval: a deleted Secret is not kept for longer
_MARK_INTERVAL = 10.0  # seconds between two notes of the revision
QUICK_COMMIT_SECONDS = 0.001  # the event loop blocks on a commit only if recent commits took no longer than this
PATIENCE_SECONDS = 0.003  # the longest that the event loop blocks on a commit: too short to be noticed
PACE_DECAY = 0.9  # factor on the remembered commit time, after each commit


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
        """Commits that failed; each dropped everything that was staged."""
        self.takes_writes = True
        """Whether the last commit succeeded. (The node's lease causes one every ten seconds.)"""
        self.kept_revisions = 10_000
        """Revisions of history that stay in the journal, if they are not older than `HISTORY_SECONDS`."""
        self._clock = clock
        self._revision_marks: deque[tuple[float, int]] = deque()
        """(time on `clock`, the last revision at that time), oldest first."""
        self._expired_revision = 0
        self._core, self._journal, self._publish = core, journal, publish
        self._garbage: deque[SupersededRow] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._writer = _Writer(journal)
        self._pace = QUICK_COMMIT_SECONDS
        """Seconds that a recent commit took: a decaying maximum (`PACE_DECAY`)."""
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
            # Deferred, so that all writes of this turn of the event loop share one commit.
            self._flush_scheduled = True
            loop.call_soon(self._flush, loop)
        await future

    async def close(self) -> None:
        """Commit what is staged, then end the writer thread; later writes are refused with Unavailable."""
        try:
            await self.wait_durable()
        except Unavailable:
            pass  # its writers have received the error
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
        """The rows to remove now: more than the batch adds, so that compaction keeps up under any load."""
        horizon = max(batch[-1].revision - self.kept_revisions, self._expire_revisions(batch[-1].revision))
        rows = []
        for item in islice(self._garbage, len(batch) * 2 + COMPACTION_STEP):
            if item.since > horizon:
                break
            rows.append(item)
        return rows if len(rows) >= MIN_COMPACTED_ROWS else []

    def _expire_revisions(self, revision: int) -> int:
        """The last revision that is older than `HISTORY_SECONDS`; 0 while the server has not run for that long."""
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
