"""Logs what blocked the event loop: no turn may take longer than 50 ms, because every request waits meanwhile.

`TurnClock` is the loop's selector and notes when each turn of the loop begins and ends; that costs a fraction of a
microsecond. `LoopWatchdog` is a thread that sleeps while the loop does, and looks at the loop's stack while a turn is
long (an idle server's loop has 13 turns a second: 26 wake-ups a second, 0.16 % of a processor). It logs each different stack at most
once a minute; all long turns are counted.

    clock = TurnClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner, LoopWatchdog(clock): ...
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from types import FrameType, TracebackType
from typing import Any, Self

LIMIT = 0.05
"""Seconds that a turn of the loop may take."""
FIRST_SAMPLE, SAMPLE_INTERVAL = 0.025, 0.01
"""Seconds from the start of a turn to the first sample of its stack, and between two samples."""
EVENTS_PER_TURN = 64
"""The most client sockets, and the most other descriptors, that one turn of the loop serves: when a thousand followed logs break at
once, new requests do not wait behind them."""
STILL_HELD = 1.0
"""Seconds after which a turn is logged before it ends: it may never end."""
REPEAT_INTERVAL = 60.0
"""Seconds between two lines about the same stack."""
_MAX_FRAMES = 12
_MAX_STACKS = 200
"""Different stacks that are remembered; beyond that all are forgotten and logged again."""

log = logging.getLogger("rowlock.watchdog")


@dataclass(frozen=True, slots=True)
class Stall:
    """A turn that took longer than `LIMIT`: total seconds, and the seconds of it spent in garbage collection."""

    turn: int
    seconds: float
    collecting: float


class _FewEvents:
    """An `epoll` that reports at most `EVENTS_PER_TURN` clients and as many others at a time, clients first."""

    def __init__(self, epoll: Any, clients: set[int]) -> None:
        self._epoll, self._clients = epoll, clients
        self._told = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        """Events that are left out are reported again by the next call: `epoll` is level-triggered here."""
        events: list[tuple[int, int]] = self._epoll.poll(timeout, most)
        if len(events) <= EVENTS_PER_TURN:
            return events
        self._told += EVENTS_PER_TURN
        clients = [event for event in events if event[0] in self._clients]
        return self._some(clients) + self._some([event for event in events if event[0] not in self._clients])

    def _some(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """At most `EVENTS_PER_TURN` events, rotating: descriptors that are always ready must not starve the others."""
        begin = self._told % len(events) if len(events) > EVENTS_PER_TURN else 0
        return (events[begin:] + events[:begin])[:EVENTS_PER_TURN]


class TurnClock(selectors.DefaultSelector):
    """A selector that knows since when the loop is busy."""

    _selector: Any

    def __init__(self) -> None:
        super().__init__()
        self.clients: set[int] = set()
        """Descriptors of the sockets of this server's clients."""
        if isinstance(self, getattr(selectors, "EpollSelector", ())):  # Linux; other selectors report all events
            self._selector = _FewEvents(self._selector, self.clients)
        self.turn = 0
        """The number of the current turn, or of the last one."""
        self.began = 0.0
        """When it began (`time.perf_counter`); 0 while the loop waits for something to do."""
        self.recent_stalls: deque[Stall] = deque(maxlen=100)
        """Stalls that the watchdog has not read yet; it removes them."""
        self.busy_seconds = 0.0
        """Seconds of all turns, so far."""
        self.stalls, self.stalled_seconds = 0, 0.0
        """Turns that took longer than `LIMIT`, and the seconds of them."""
        self.wake: Callable[[], None] | None = None
        """Called at the start of each turn; the watchdog, which sleeps until then, sets and resets it."""
        self.collecting = 0.0
        """Seconds in which garbage was collected, so far."""
        self._collecting_before = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Select as the base class does; the time between two calls is a turn."""
        if self.began:
            self.end_turn()
        try:
            return super().select(timeout)
        finally:
            self.turn += 1
            self._collecting_before = self.collecting
            self.began = time.perf_counter()
            if self.wake is not None:
                self.wake()

    def forget_past(self) -> None:
        """Discard the stalls so far: during startup there were no clients to block."""
        self.recent_stalls.clear()
        self.stalls, self.stalled_seconds = 0, 0.0
        if self.began:
            self.began = time.perf_counter()

    def end_turn(self) -> None:
        """End the current turn; record it as a stall if it took too long."""
        seconds, self.began = time.perf_counter() - self.began, 0.0
        self.busy_seconds += seconds
        if seconds > LIMIT:
            self.stalls += 1
            self.stalled_seconds += seconds
            self.recent_stalls.append(Stall(self.turn, seconds, self.collecting - self._collecting_before))


@dataclass(slots=True)
class _Told:
    """When a stack was last logged, and how often it was seen since."""

    at: float
    repeats: int = 0


@dataclass(slots=True)
class _Samples:
    """Stacks of one turn: functions, innermost first → (how often seen, the text with its lines)."""

    counts: dict[tuple[str, ...], int] = field(default_factory=dict)
    texts: dict[tuple[str, ...], str] = field(default_factory=dict)

    def add(self, frame: FrameType) -> None:
        functions: list[str] = []
        places: list[str] = []
        current: FrameType | None = frame
        while current is not None and len(places) < _MAX_FRAMES:
            code = current.f_code
            if code.co_name == "_run" and code.co_filename.endswith("asyncio/events.py"):
                break
            path = PurePath(code.co_filename)
            functions.append(f"{path.name}:{code.co_name}")
            places.append(f"{code.co_name} ({path.parent.name}/{path.name}:{current.f_lineno})")
            current = current.f_back
        key = tuple(functions)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.texts[key] = " < ".join(places)

    def most_frequent(self) -> tuple[str, ...]:
        return max(self.counts, key=self.counts.__getitem__, default=())


class LoopWatchdog:
    """Context manager, entered in the loop's thread: watches the loop of a `TurnClock` from a thread of its own."""

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock
        self.starved = 0
        """Long turns that were long only because the loop's thread waited for a processor."""
        self.wakeups = 0
        """Wake-ups of its thread: none while the loop sleeps, else at most one per `FIRST_SAMPLE`."""
        self._told: dict[tuple[str, ...], _Told] = {}
        self._loop_thread = threading.get_ident()
        self._has_turn = threading.Event()
        self._stopped = False
        self._scheduling_fd = -1
        self._collection_began = 0.0
        self._samples, self._sampled_turn = _Samples(), 0
        """Samples of the last long turn, and its number."""
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._loop_thread = threading.get_ident()
        self._clock.forget_past()
        try:
            self._scheduling_fd = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._scheduling_fd = -1  # not Linux: the time that a thread waited for a processor is unknown
        gc.callbacks.append(self._note_collection)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self._has_turn.set()
        self._thread.join()
        gc.callbacks.remove(self._note_collection)
        if self._scheduling_fd >= 0:
            os.close(self._scheduling_fd)

    def _note_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if threading.get_ident() != self._loop_thread:
            return
        if phase == "start":
            self._collection_began = time.perf_counter()
        else:
            self._clock.collecting += time.perf_counter() - self._collection_began

    # ------------------------------------------------------------ in the watchdog's thread

    def _run(self) -> None:
        clock = self._clock
        while not self._stopped:
            self.wakeups += 1
            waited = self._processor_wait()
            time.sleep(FIRST_SAMPLE)  # most turns are over by then
            turn, began = clock.turn, clock.began
            if began:
                self._watch_turn(turn, began)
            self._judge_stalls(waited)
            if clock.began:
                continue
            self._has_turn.clear()
            clock.wake = self._end_sleep
            if not clock.began:  # else a turn began before `wake` was set, and would not wake us
                self._has_turn.wait()
            clock.wake = None

    def _end_sleep(self) -> None:
        self._clock.wake = None
        self._has_turn.set()

    def _watch_turn(self, turn: int, began: float) -> None:
        """Sample the loop's stack repeatedly until the turn is over."""
        clock, samples, told_early = self._clock, _Samples(), False
        time.sleep(max(began + FIRST_SAMPLE - time.perf_counter(), 0.0))
        while clock.turn == turn and clock.began and not self._stopped:
            frame = sys._current_frames().get(self._loop_thread)
            if frame is not None:
                samples.add(frame)
            del frame
            held = time.perf_counter() - began
            if held > STILL_HELD and not told_early:
                told_early = True
                self._report(f"the event loop has been held up for {held:.1f} s and still is", samples)
            time.sleep(SAMPLE_INTERVAL if held < STILL_HELD else held / 10)
        self._samples, self._sampled_turn = samples, turn

    def _judge_stalls(self, waited_before: float) -> None:
        """Judge and log the turns that were too long since the last call."""
        if not self._clock.recent_stalls:
            return
        waited = self._processor_wait() - waited_before
        while self._clock.recent_stalls:
            stall = self._clock.recent_stalls.popleft()
            self._judge(stall, self._samples if stall.turn == self._sampled_turn else _Samples(), waited)

    def _processor_wait(self) -> float:
        """Total seconds that the loop's thread was runnable without a processor."""
        if self._scheduling_fd < 0:
            return 0.0
        return int(os.pread(self._scheduling_fd, 200, 0).split()[1]) / 1e9

    def _judge(self, stall: Stall, samples: _Samples, waited: float) -> None:
        if stall.seconds - waited <= LIMIT:
            self.starved += 1
            return
        parts = {"without a processor": waited, "collecting garbage": stall.collecting}
        remarks = ", ".join(f"{1000 * part:.0f} ms of them {name}" for name, part in parts.items() if part > 0.001)
        self._report(
            f"the event loop was held up for {1000 * stall.seconds:.0f} ms{remarks and f' ({remarks})'}", samples
        )

    def _report(self, what: str, samples: _Samples) -> None:
        key, now = samples.most_frequent(), time.monotonic()
        told = self._told.get(key)
        if told is not None and now - told.at < REPEAT_INTERVAL:
            told.repeats += 1
            return
        if len(self._told) >= _MAX_STACKS:
            self._told.clear()
        self._told[key] = _Told(now)
        repeats = f"; {told.repeats} times more since this was told last" if told and told.repeats else ""
        if not key:
            log.warning("%s; nobody saw by what%s", what, repeats)
            return
        total = sum(samples.counts.values())
        log.warning("%s; seen %d of %d times: %s%s", what, samples.counts[key], total, samples.texts[key], repeats)
