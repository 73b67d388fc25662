"""What holds the event loop up is named, once, and counted; what does not is left alone."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rowlock.controllers import loop_watchdog
from rowlock.controllers.loop_watchdog import FIRST_SAMPLE, LIMIT, LoopWatchdog, TurnClock


def watch(body: Callable[[], Coroutine[Any, Any, None]]) -> tuple[TurnClock, LoopWatchdog]:
    """Run `body` on a loop that is watched."""
    clock = TurnClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        with LoopWatchdog(clock) as watchdog:
            runner.run(body())
    return clock, watchdog


def sort_for_long(seconds: float) -> None:
    """Busy as a careless program is, in this function alone: one that it calls would make two stacks of it by chance."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sorted(range(1000), reverse=True)


def test_what_held_the_loop_up_is_named_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [
            message for message in caplog.messages if "sort_for_long (controllers/test_loop_watchdog.py:" in message
        ]

    async def body() -> None:
        end = time.monotonic() + 60  # on a machine that has no processor for us a stall may be put down to that
        while not lines() and time.monotonic() < end:
            await asyncio.sleep(0.001)
            sort_for_long(4 * LIMIT)
            await asyncio.sleep(2 * LIMIT)  # the thread sees that the turn is over
        for _ in range(2):
            sort_for_long(4 * LIMIT)
            await asyncio.sleep(2 * LIMIT)

    with caplog.at_level(logging.WARNING, "rowlock.watchdog"):
        clock, _ = watch(body)
    assert clock.stalls >= 3 and clock.stalled_seconds >= 12 * LIMIT
    (line,) = lines()
    assert " < body (" in line and "held up for" in line


def test_the_same_stack_is_told_again_after_a_while_with_its_repeats(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watchdog, "REPEAT_INTERVAL", 8 * LIMIT)

    async def body() -> None:
        end = time.monotonic() + 60
        while "times more since this was told last" not in caplog.text and time.monotonic() < end:
            await asyncio.sleep(0.001)
            time.sleep(2 * LIMIT)

    with caplog.at_level(logging.WARNING, "rowlock.watchdog"):
        clock, _ = watch(body)
    told = [message for message in caplog.messages if "body (" in message]
    assert 2 <= len(told) < clock.stalls and "times more since this was told last" in told[-1]


def test_a_loop_that_never_comes_back_is_told_of_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watchdog, "STILL_HELD", 2 * LIMIT)
    told = threading.Event()
    monkeypatch.setattr(
        loop_watchdog.log, "warning", lambda text, *values: told.set() if "still is" in text % values else None
    )

    async def body() -> None:
        assert told.wait(200), "nothing was said while the loop was held"

    watch(body)


def test_short_turns_and_sleep_are_no_stalls(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        await asyncio.sleep(3 * LIMIT)
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "rowlock.watchdog"):
        clock, watchdog = watch(body)
    assert clock.turn >= 2 and clock.stalls <= watchdog.starved and not caplog.messages


def test_an_idle_loop_lets_the_watchdog_sleep() -> None:
    idle, began = 0.0, time.monotonic()

    async def body() -> None:
        nonlocal idle
        idle = -time.monotonic()
        await asyncio.sleep(0.5)
        idle += time.monotonic()
        for _ in range(100):
            await asyncio.sleep(0.0001)  # a crowd of short turns does not wake it for each

    clock, watchdog = watch(body)
    busy = time.monotonic() - began - idle  # a second and more, where each of the turns waits for a processor
    assert clock.turn > 100 and 1 <= watchdog.wakeups <= busy / FIRST_SAMPLE + 4


@pytest.mark.skipif(sys.platform != "linux", reason="only epoll takes a limit")
def test_a_turn_sees_to_few_sockets_clients_first_and_all_get_theirs() -> None:
    count = 5 * loop_watchdog.EVENTS_PER_TURN
    read: list[int] = []
    turns: list[int] = []

    async def body() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        pairs = [socket.socketpair() for _ in range(count)]

        def take(n: int) -> None:
            read.append(n)
            turns.append(clock.turn)
            if n >= count // 2:
                pairs[n][0].recv(1)  # of the others there is always more: these get their turns all the same
            if len(set(read)) == count:
                done.set()

        for n, (ours, theirs) in enumerate(pairs):
            theirs.send(b"x")
            loop.add_reader(ours, take, n)
        clock.clients.add(pairs[-1][0].fileno())
        async with asyncio.timeout(200):
            await done.wait()
        for ours, theirs in pairs:
            loop.remove_reader(ours)
            ours.close()
            theirs.close()

    clock = TurnClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        runner.run(body())
    assert max(turns.count(turn) for turn in turns) <= loop_watchdog.EVENTS_PER_TURN + 1
    assert turns[read.index(count - 1)] == turns[0], "the last one is a client"
