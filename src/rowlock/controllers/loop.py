"""The loop: look, decide, write.

Every (controller, key) is a queue of its own: the same key strictly in order, different keys at once. A change marks
keys dirty; a turn takes the mark off, decides once on the newest view and carries the decision out. There is no
recovery code: whatever goes wrong, the key is looked at again. Besides the HTTP boundary this is the only place that
catches everything: a bug in one controller costs that key its turn, never the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from rowlock import objects
from rowlock.api import Api, Change, Controller, Decision, Run, View
from rowlock.controllers import writing
from rowlock.controllers.recorder import Allowance, Recorder
from rowlock.controllers.writing import Failed, Step
from rowlock.errors import ApiError, NotTried
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

FIRST_DELAY, LAST_DELAY = 0.005, 960.0  # client-go's: 5 ms, doubled up to 16 minutes
CATCH_UP = 1.0  # seconds to wait for a view that lags behind our own writes
SLICE = 64  # writes that are issued in one round of the event loop
ROUNDS = 10  # of the event loop, for news to be told

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
        events = tasks.create_task(recorder.run())
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
    written: int = 0
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
    heard: int = 0
    """The last revision that controllers have been told of."""
    behind: set[asyncio.Future[None]] = field(default_factory=set)
    """Turns that wait for the view to catch up."""

    async def feed(self, controllers: Sequence[Controller], changes: AsyncIterator[Change]) -> None:
        interested: dict[Kind, list[Controller]] = {}
        for controller in controllers:
            for kind in controller.kinds:
                interested.setdefault(kind, []).append(controller)
        async for change in changes:
            if change.revision > self.heard:
                self.heard = change.revision
            for waiting in self.behind:
                if not waiting.done():
                    waiting.set_result(None)
            if change.kind is not None:
                for controller in interested.get(change.kind, ()):
                    self._wake(controller, change)

    def stop(self) -> None:
        self.stopped = True
        for queue in self.queues.values():
            if queue.timer:
                queue.timer.cancel()

    def _wake(self, controller: Controller, change: Change) -> None:
        try:
            for key in controller.keys(self.view, change):
                queue = self.queues.get((controller.name, key))
                if queue is None:
                    queue = self.queues[controller.name, key] = _Queue(controller, key)
                self._mark(queue)
        except Exception:
            log.exception("%s does not know whom %s of %s concerns", controller.name, change.type, change.kind)

    def _mark(self, queue: _Queue) -> None:
        queue.dirty = True
        if not queue.running and not self.stopped:
            queue.running = True
            self.tasks.create_task(self._turns(queue))

    def _later(self, queue: _Queue, delay: float) -> None:
        if queue.timer:
            queue.timer.cancel()
        queue.timer = asyncio.get_running_loop().call_later(delay, self._mark, queue)

    # ------------------------------------------------------------ turns

    async def _turns(self, queue: _Queue) -> None:
        try:
            while queue.dirty and not self.stopped:
                queue.dirty = False
                await self._turn(queue)
        finally:
            queue.running = False
        if not queue.timer:
            self.queues.pop((queue.controller.name, queue.key), None)

    async def _turn(self, queue: _Queue) -> None:
        await self._caught_up(queue.written)
        if queue.timer:
            queue.timer.cancel()
            queue.timer = None
        try:
            decision = queue.controller.decide(self.view, queue.key, self.clock())
            failed = await self._carry_out(queue, decision)
        except Exception:
            log.exception("%s: a bug; this key is tried again", queue)
            self._back_off(queue)
            return
        if failed is None and decision.stuck:
            self._back_off(queue)
            return
        if failed is None:
            queue.failures = 0
            if decision.again is not None:
                self._later(queue, max(0.0, decision.again))
            return
        if not failed.outdated:
            log.warning("%s: %s", queue, failed.error)
        self._back_off(queue)

    def _back_off(self, queue: _Queue) -> None:
        """Look again: at once when something changes, else after a while that doubles each time."""
        self._later(queue, min(FIRST_DELAY * 2 ** min(queue.failures, 30), LAST_DELAY))
        queue.failures += 1

    async def _caught_up(self, revision: int) -> None:
        """Until the view shows our own writes, and the controllers have been told of all that it shows."""
        deadline = time.monotonic() + CATCH_UP
        while self.view.revision < revision and (left := deadline - time.monotonic()) > 0:
            waiting = asyncio.get_running_loop().create_future()
            self.behind.add(waiting)
            try:
                await asyncio.wait((waiting,), timeout=left)
            finally:
                self.behind.discard(waiting)
        # A cache in a controller follows what it is told: it must not decide on a view that is ahead of that. The news
        # is in the event loop already; a few rounds are enough, and a view whose revision nobody tells is not waited for.
        for _ in range(ROUNDS):
            if self.heard >= self.view.revision:
                return
            await asyncio.sleep(0)

    # ------------------------------------------------------------ writes

    async def _carry_out(self, queue: _Queue, decision: Decision) -> Failed | None:
        """The writes in order; those of one class and kind in a row go together, into one commit."""
        early, steps = writing.steps(decision.writes)
        for record in early:
            self.recorder.record(record)
        for batch in writing.batches(steps):
            failed = await self._together(queue, batch)
            if failed:
                return failed
        return None

    async def _together(self, queue: _Queue, batch: Sequence[Step]) -> Failed | None:
        results = await self._issued(batch)
        first: Failed | None = None
        for step, result in zip(batch, results, strict=True):
            if isinstance(result, NotTried):
                continue
            if isinstance(result, ApiError):
                first = first or Failed(step.write, result)
            elif isinstance(result, BaseException):
                raise result
            elif result:
                queue.written = max(queue.written, objects.revision(result))
            for record in writing.records(step, result):
                self.recorder.record(record)
        return first

    async def _issued(self, batch: Sequence[Step]) -> list[Object | BaseException | None]:
        """The outcome of each write. A long run goes out in slices, so that a thousand pods do not stall everybody
        else; nobody waits between the slices, and each commit takes along what has come in."""
        running: list[asyncio.Task[Object | None]] = []
        run = Run()
        try:
            for start in range(0, len(batch), SLICE):
                if start:
                    await asyncio.sleep(0)
                part = batch[start : start + SLICE]
                running += [asyncio.create_task(writing.write(self.api, step.write, run)) for step in part]
        finally:
            results = await asyncio.gather(*running, return_exceptions=True)
        return results
