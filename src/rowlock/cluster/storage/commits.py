"""Group commit: whatever is staged while one fsync runs goes into the next one, together.

One thread writes. Its answer comes back into the event loop, which shows the batch to readers and watchers and only
then answers the writers. A lone write on a quick disk is written by the event loop itself: to change threads twice takes
as long as the fsync. When a commit fails, every write that is staged fails with it and the next one tries anew: a full
disk heals by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from threading import Thread

from rowlock.cluster.storage.core import Core
from rowlock.cluster.storage.journal import Garbage, Journal, Row
from rowlock.cluster.storage.state import Stored
from rowlock.errors import ApiError, Unavailable


@dataclass(frozen=True, slots=True)
class _Batch:
    """One commit: what goes in, what compaction takes out, and who waits for it."""

    changes: list[Stored]
    drop: list[Garbage]
    waiting: list[asyncio.Future[None]]

    @property
    def compacted(self) -> int:
        return self.drop[-1].since if self.drop else 0

    def write(self, journal: Journal) -> BaseException | None:
        """What went wrong; whatever it is, the writers hear it."""
        try:
            rows = [_row(change) for change in self.changes]
            journal.append(rows, [item.revision for item in self.drop], self.compacted)
        except Exception as fault:  # noqa: BLE001 (returned)
            return fault
        return None


class _Writer:
    """The one thread that writes. (An executor's does as much, for a tenth of a request's time.)"""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._work: SimpleQueue[tuple[_Batch, Callable[[BaseException | None], object]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def write(self, batch: _Batch, done: Callable[[BaseException | None], object]) -> None:
        """`done` is called in the thread, with what went wrong or None."""
        self._work.put((batch, done))

    def close(self) -> None:
        """Write what was handed over, and end."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            batch, done = given
            error = batch.write(self._journal)
            try:
                done(error)
            except RuntimeError:  # the event loop has gone, and with it everybody who waited
                return


STEP = 200  # superseded rows that one commit may remove besides as many as it adds
WORTH = 32  # fewer wait for the next commit: each removal dirties a page of its own
QUICK = 0.001  # seconds: nobody notices that the event loop is away for so long
MEMORY = 0.9  # of how slow the disk was last, after each commit


class Commits:
    """Makes the core's staged changes durable. `publish` is called with every durable batch."""

    def __init__(self, core: Core, journal: Journal, publish: Callable[[Sequence[Stored]], None]) -> None:
        self.compacted = 0
        self.count = 0
        """Commits so far; each was one fsync."""
        self.keep = 10_000
        """Revisions of history that stay in the journal."""
        self._core, self._journal, self._publish = core, journal, publish
        self._garbage: deque[Garbage] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._writer = _Writer(journal)
        self._pace = QUICK
        """Seconds that a commit may take: the slowest of the latest, older ones counting less and less."""
        self._busy = self._scheduled = self._closed = False

    def load(self, garbage: Sequence[Garbage], compacted: int) -> None:
        self._garbage.extend(garbage)
        self.compacted = compacted

    async def settled(self) -> None:
        """Until everything staged so far is durable. Raises Unavailable when it could not be written."""
        if not self._busy and not self._core.staged:
            return
        if self._closed:
            self._core.fail()
            raise Unavailable("the server is shutting down: this write was refused; try again when it is back")
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        if not self._busy and not self._scheduled:
            # Not at once: all writes of this turn of the event loop go together.
            self._scheduled = True
            loop.call_soon(self._flush, loop)
        await future

    async def close(self) -> None:
        """Finish what is staged, then refuse."""
        try:
            await self.settled()
        except Unavailable:
            pass  # its writers have been told
        self._closed = True
        await asyncio.to_thread(self._writer.close)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        changes, waiting = self._core.take(), self._waiting
        self._waiting = []
        if not changes:
            _answer(waiting, None)
            return
        self._busy = True
        batch, began = _Batch(changes, self._due(changes), waiting), time.perf_counter()
        if len(changes) == len(waiting) == 1 and not batch.drop and self._pace < QUICK:
            return self._done(loop, batch, batch.write(self._journal), time.perf_counter() - began)

        def written(error: BaseException | None) -> None:
            loop.call_soon_threadsafe(self._done, loop, batch, error, time.perf_counter() - began)

        self._writer.write(batch, written)

    def _done(self, loop: asyncio.AbstractEventLoop, batch: _Batch, error: BaseException | None, took: float) -> None:
        self._busy = False
        self._pace = max(took, self._pace * MEMORY)
        if error is not None:
            self._core.fail()
            waiting = batch.waiting + self._waiting
            self._waiting = []
            _answer(waiting, error)
            return
        for _ in batch.drop:
            self._garbage.popleft()
        self.compacted = max(self.compacted, batch.compacted)
        for change in batch.changes:
            if change.previous:
                self._garbage.append(Garbage(change.revision, change.previous))
            if change.type == "Deleted":
                self._garbage.append(Garbage(change.revision, change.revision))
        self.count += 1
        self._core.settle(batch.changes)
        _answer(batch.waiting, None)  # before the watchers: there may be a thousand of them
        self._publish(batch.changes)
        if self._waiting:
            self._flush(loop)

    def _due(self, batch: Sequence[Stored]) -> list[Garbage]:
        """The rows to remove now: a little more than come in, so that compaction keeps up under any load."""
        horizon = batch[-1].revision - self.keep
        due = []
        for item in islice(self._garbage, len(batch) * 2 + STEP):
            if item.since > horizon:
                break
            due.append(item)
        return due if len(due) >= WORTH else []


def _row(change: Stored) -> Row:
    assert change.kind is not None and change.type != "Bookmark"
    namespace, name = change.key
    return Row(change.revision, change.previous, change.type, change.kind.resource, namespace, name, change.encoded)


def _answer(waiting: Sequence[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        elif isinstance(error, ApiError):  # one instance each: tracebacks must not pile up in a shared one
            future.set_exception(type(error)(error.message, retry_after=error.retry_after))
        else:
            future.set_exception(error)
