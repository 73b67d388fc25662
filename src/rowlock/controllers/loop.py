"""The reconcile loop: look, decide, write.

Every (controller, key) is a queue of its own: one key is reconciled strictly in order, different keys concurrently. A change marks
keys dirty; a turn clears the mark, decides once on the newest view and carries the decision out. There is no
recovery code: after any failure the key is requeued. Besides the HTTP boundary this is the only place that
catches every exception: a bug in one controller fails that key's turn, never the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rowlock import objects
from rowlock.api import Api, Change, Controller, Decision, View, WriteSequence
from rowlock.controllers import writer
from rowlock.controllers.reconcile_stats import RECONCILES, Result
from rowlock.controllers.recorder import Allowance, Recorder
from rowlock.controllers.supervisor import back_off, supervise
from rowlock.controllers.turn_budget import take_paced_slices
from rowlock.controllers.writer import ApiWrite, FailedWrite, Step
from rowlock.errors import ApiError, NotTried
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

FIRST_DELAY, MAX_DELAY = 0.005, 960.0  # client-go's: 5 ms, doubled up to 16 minutes
CATCH_UP_SECONDS = 1.0  # seconds to wait for a view that lags behind our own writes
WRITES_PER_SLICE = 64  # most writes that are issued in one round of the event loop
CHANGES_PER_SLICE = 64  # changes delivered to controllers in one round of the event loop
TURNS_PER_SLICE = 32  # turns that are started in one round of the event loop, of those for the initial state
CATCH_UP_ROUNDS = 10  # rounds of the event loop to wait for changes to be delivered

log = logging.getLogger("rowlock.controllers")


async def run(
    api: Api,
    view: View,
    controllers: Sequence[Controller],
    changes: AsyncIterator[Change],
    *,
    clock: Callable[[], float] = time.time,
    allowance: Allowance = Allowance(),
) -> None:
    """Run controllers until `changes` ends or this is cancelled.

    `changes` begins with the state as Added changes, so that a start is the same as a restart."""
    recorder = Recorder(api, clock, allowance)
    async with asyncio.TaskGroup() as tasks:
        events = tasks.create_task(supervise("the recorder of events", recorder.run))
        loop = _Loop(api, view, recorder, clock, tasks)
        try:
            await loop.feed(controllers, changes)
        finally:
            loop.stop()
            events.cancel()
    await recorder.flush()


@dataclass(eq=False, slots=True)
class _Queue:
    """One key of one controller."""

    controller: Controller
    key: Key
    dirty: bool = False
    running: bool = False
    failures: int = 0
    last_written: int = 0
    """The last revision that this key wrote: deciding on an older view would repeat it."""
    timer: asyncio.TimerHandle | None = None

    def __str__(self) -> str:
        return f"{self.controller.name} {'/'.join(part for part in self.key if part)}"


@dataclass(eq=False)
class _Loop:
    api: Api
    view: View
    recorder: Recorder
    clock: Callable[[], float]
    tasks: asyncio.TaskGroup
    queues: dict[tuple[str, Key], _Queue] = field(default_factory=dict)
    stopped: bool = False
    last_delivered: int = 0
    """The last revision delivered to the controllers."""
    early_queues: list[_Queue] | None = field(default_factory=list)
    """Dirty keys of the initial state: they wait until all of it has been delivered. None from then on."""
    view_waiters: set[asyncio.Future[None]] = field(default_factory=set)
    """Turns that wait for the view to catch up."""

    async def feed(self, controllers: Sequence[Controller], changes: AsyncIterator[Change]) -> None:
        controllers_by_kind: dict[Kind, list[Controller]] = {}
        for controller in controllers:
            for kind in controller.kinds:
                controllers_by_kind.setdefault(kind, []).append(controller)
        fed = 0
        async for change in changes:
            fed += 1
            if fed % CHANGES_PER_SLICE == 0:
                await asyncio.sleep(0)
            if change.revision > self.last_delivered:
                self.last_delivered = change.revision
            for waiter in self.view_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if change.kind is not None:
                for controller in controllers_by_kind.get(change.kind, ()):
                    left = self._wake(controller, change)
                    while left is not None:
                        await asyncio.sleep(0)
                        left = self._wake(controller, change, left)
            if self.early_queues is not None and change.type != "Added":
                await self._start_early_queues(self.early_queues)
        await self._start_early_queues(self.early_queues or [])

    async def _start_early_queues(self, queues: list[_Queue]) -> None:
        """Start the queues of the initial state in slices, so that a large state does not block the event loop."""
        self.early_queues = None
        for start in range(0, len(queues), TURNS_PER_SLICE):
            for queue in queues[start : start + TURNS_PER_SLICE]:
                self._start_turns(queue)
            await asyncio.sleep(0)

    def stop(self) -> None:
        self.stopped = True
        for queue in self.queues.values():
            if queue.timer:
                queue.timer.cancel()

    def _wake(self, controller: Controller, change: Change, keys: Iterator[Key] | None = None) -> Iterator[Key] | None:
        """Mark the keys that a change concerns as dirty, a slice of them at most: one object may concern thousands. Returns the keys
        that are left, to be given to the next call; None for none."""
        try:
            keys = iter(controller.keys(self.view, change)) if keys is None else keys
            for number, key in enumerate(keys, 1):
                queue = self.queues.get((controller.name, key))
                if queue is None:
                    queue = self.queues[controller.name, key] = _Queue(controller, key)
                self._mark_dirty(queue)
                if number == TURNS_PER_SLICE:
                    return keys
        except Exception:
            log.exception("%s does not know whom %s of %s concerns", controller.name, change.type, change.kind)
        return None

    def _mark_dirty(self, queue: _Queue) -> None:
        queue.dirty = True
        if queue.running or self.stopped:
            return
        queue.running = True
        if self.early_queues is None:
            self._start_turns(queue)
        else:
            self.early_queues.append(queue)

    def _start_turns(self, queue: _Queue) -> None:
        self.tasks.create_task(self._run_turns(queue))

    def _requeue_after(self, queue: _Queue, delay: float) -> None:
        if queue.timer:
            queue.timer.cancel()
        queue.timer = asyncio.get_running_loop().call_later(delay, self._mark_dirty, queue)

    # ------------------------------------------------------------ turns

    async def _run_turns(self, queue: _Queue) -> None:
        try:
            while queue.dirty and not self.stopped:
                queue.dirty = False
                if settle := await self._run_turn(queue):
                    await asyncio.sleep(settle)
        finally:
            queue.running = False
        if not queue.timer:
            self.queues.pop((queue.controller.name, queue.key), None)

    async def _run_turn(self, queue: _Queue) -> float:
        """Decide once and write. Returns the seconds for which further changes are to be collected."""
        await self._wait_for_view(queue.last_written)
        if queue.timer:
            queue.timer.cancel()
            queue.timer = None
        began = time.perf_counter()
        decided = began
        result: Result = "error"
        settle = 0.0
        try:
            decision = queue.controller.decide(self.view, queue.key, self.clock())
            decided = time.perf_counter()
            result = self._finish_turn(queue, decision, await self._carry_out(queue, decision))
            settle = decision.settle
        except Exception:
            log.exception("%s: a bug; this key is tried again", queue)
            self._back_off(queue)
        RECONCILES.add(queue.controller.name, result, time.perf_counter() - began, decided - began)
        return settle

    def _finish_turn(self, queue: _Queue, decision: Decision, failure: FailedWrite | None) -> Result:
        """Requeue the key according to the outcome of its decision, and return that outcome."""
        if failure is not None:
            if not failure.is_outdated:
                log.warning("%s: %s", queue, failure.error)
            self._back_off(queue)
            return "error"
        if decision.requeue:
            self._back_off(queue)
            return "requeue"
        queue.failures = 0
        if decision.requeue_after is None:
            return "success"
        self._requeue_after(queue, max(0.0, decision.requeue_after))
        return "requeue_after"

    def _back_off(self, queue: _Queue) -> None:
        """Requeue with exponential backoff; a change requeues the key earlier."""
        queue.failures += 1
        self._requeue_after(queue, back_off(queue.failures, FIRST_DELAY, MAX_DELAY))

    async def _wait_for_view(self, revision: int) -> None:
        """Wait until the view shows our own writes, and all changes that it shows have been delivered to the controllers."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self.view.revision < revision and (remaining := deadline - time.monotonic()) > 0:
            waiter = asyncio.get_running_loop().create_future()
            self.view_waiters.add(waiter)
            try:
                await asyncio.wait((waiter,), timeout=remaining)
            finally:
                self.view_waiters.discard(waiter)
        # A controller updates its cache from delivered changes, so it must not decide on a view that is ahead of them. The
        # changes are in the event loop already, so a few rounds are enough; some revisions of a view are never delivered.
        for _ in range(CATCH_UP_ROUNDS):
            if self.last_delivered >= self.view.revision:
                return
            await asyncio.sleep(0)

    # ------------------------------------------------------------ writes

    async def _carry_out(self, queue: _Queue, decision: Decision) -> FailedWrite | None:
        """Execute the writes in order; consecutive ones that may go together share a commit. Returns the first failure."""
        early_records, steps = writer.plan_steps(decision.writes)
        for record in early_records:
            self.recorder.record(record)
        for batch in writer.batch_steps(steps, keeps_order=self.api.keeps_order):
            failure = await self._write_batch(queue, batch)
            if failure:
                return failure
        return None

    async def _write_batch(self, queue: _Queue, batch: Sequence[Step]) -> FailedWrite | None:
        results = await self._issue_writes(batch)
        first_failure: FailedWrite | None = None
        for step, result in zip(batch, results, strict=True):
            if isinstance(result, NotTried):
                continue
            if isinstance(result, ApiError):
                first_failure = first_failure or FailedWrite(step.write, result)
            elif isinstance(result, BaseException):
                raise result
            elif result:
                queue.last_written = max(queue.last_written, objects.revision(result))
            for record in writer.records_for(step, result):
                self.recorder.record(record)
        return first_failure

    async def _issue_writes(self, batch: Sequence[Step]) -> list[Object | BaseException | None]:
        """Execute the writes and return each outcome. A long batch is issued in slices that yield to the event loop, so that a
        thousand pods do not stall it; a slice does not wait for the results of the one before."""
        tasks: list[asyncio.Task[Object | None]] = []
        if len(batch) == 1:  # most are: no task is needed
            return [await self._try_write(batch[0].write)]
        sequence = WriteSequence() if writer.is_sequence(batch) else None
        if any(writer.is_large_write(step.write) for step in batch):  # concurrent ones would overtake it
            return [await self._try_write(step.write, sequence) for step in batch]
        try:
            async for some in take_paced_slices(batch, WRITES_PER_SLICE):
                tasks += [asyncio.create_task(writer.execute_write(self.api, step.write, sequence)) for step in some]
        finally:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        return results

    async def _try_write(self, write: ApiWrite, sequence: WriteSequence | None = None) -> Object | BaseException | None:
        try:
            return await writer.execute_write(self.api, write, sequence)
        except Exception as error:  # noqa: BLE001 (returned)
            return error
