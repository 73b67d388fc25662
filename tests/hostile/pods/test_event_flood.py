"""A pod of which there is endlessly much to tell: it takes no memory, and nobody waits for it."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from typing import Any

from tests.waiting import until_async

from rowlock.api import Record
from rowlock.controllers.recorder import MAX_WAITING, MAX_WAITING_PER_OBJECT, Allowance, Recorder, RecordQueue
from rowlock.objects import Object

LONG = "x" * 100_000


class Slow:
    """An API that keeps everybody waiting until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.events: list[Object] = []

    async def create(self, kind: Any, obj: Object, **_: Any) -> Object:
        await self.go.wait()
        self.events.append(obj)
        return obj

    async def patch(self, kind: Any, namespace: str, name: str, patch: Any, **_: Any) -> Object:
        await self.go.wait()
        event = next(event for event in self.events if event["metadata"]["name"] == name)
        event["count"] = patch["count"]
        return event

    def told(self, pod: str) -> list[Object]:
        return [event for event in self.events if event["involvedObject"]["name"] == pod]


def pod(name: str) -> Object:
    """With a spec that is worth megabytes in all."""
    meta = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"note": LONG + name}}


def record(about: Object, message: str) -> Record:
    return Record(about, "Warning", "Failed", message, "kubelet")


def recorder(api: Slow, allowance: Allowance) -> Recorder:
    return Recorder(api, lambda: 1_000_000.0, allowance)  # type: ignore[arg-type] # as much of an Api as it uses


async def until_told(api: Slow, name: str) -> None:
    await until_async(lambda: api.told(name), every=0)


def test_a_flood_of_one_pod_costs_no_memory_and_delays_nobody() -> None:
    """Without any allowance, so that the queue alone holds it."""

    async def play() -> None:
        api = Slow()
        flooded = recorder(api, Allowance(burst=0))
        writing = asyncio.create_task(flooded.run())
        tracemalloc.start()
        for number in range(20_000):
            flooded.record(record(pod("loud"), f"{number}{LONG}"))
            if number % 100 == 0:
                await asyncio.sleep(0)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 2 << 20, f"{used} bytes are kept of a flood that nobody writes"
        flooded.record(record(pod("quiet"), "it could not start"))
        api.go.set()
        async with asyncio.timeout(200):
            await until_told(api, "quiet")
        assert len(api.told("loud")) <= MAX_WAITING_PER_OBJECT + 64
        assert len(api.told("quiet")) == 1
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    asyncio.run(play())


def test_what_one_pod_said_first_is_not_written_before_what_others_say() -> None:
    async def play() -> None:
        api = Slow()
        api.go.set()
        turns = recorder(api, Allowance(burst=0))
        for number in range(50):
            turns.record(record(pod("loud"), str(number)))
        for name in ("a", "b"):
            turns.record(record(pod(name), "it could not start"))
        await turns.flush()
        order = [event["involvedObject"]["name"] for event in api.events]
        assert order[:3] == ["loud", "a", "b"] and order.count("loud") == 50

    asyncio.run(play())


def test_equal_records_that_wait_are_counted() -> None:
    async def play() -> None:
        api = Slow()
        api.go.set()
        counting = recorder(api, Allowance(burst=0))
        for _ in range(10_000):
            counting.record(record(pod("loud"), "again"))
        await counting.flush()
        counting.record(record(pod("loud"), "again"))
        await counting.flush()
        assert [(event["message"], event["count"]) for event in api.events] == [("again", 10_001)]

    asyncio.run(play())


def test_the_queue_as_a_whole_is_limited_and_says_what_it_dropped() -> None:
    queue = RecordQueue()
    for number in range(MAX_WAITING + 500):
        assert queue.put(record(pod(f"p{number}"), "hello")) == (number < MAX_WAITING)
    assert len(queue) == MAX_WAITING and queue.dropped == 500
    taken = [queue.take(64) for _ in itertools.repeat(None, 2)]
    assert [found.regarding["metadata"]["name"] for found, _ in taken[1]] == [f"p{n}" for n in range(64, 128)]
    assert queue.put(record(pod("late"), "there is room again")) and queue.dropped == 500
