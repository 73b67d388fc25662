"""A list of any size lets others have their turn."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.rest.conftest import World
from tests.rest.list_rows import fed_state

from rowlock import kinds
from rowlock.controllers.view.state import State
from rowlock.objects import Key

COUNT = 3000


@pytest.fixture
def crowd(world: World) -> Iterator[World]:
    """Thousands of copies of one workload, that the cache has heard of just now."""
    world.project()
    assert world.submit().status_code == 202
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None

    async def feed() -> None:
        for number in range(COUNT):
            meta = {**job["metadata"], "name": f"copy-{number}", "uid": f"uid-{number}"}
            meta["labels"] = {**meta["labels"], "rowlock.dev/workload-id": f"id-{number}"}
            copy = {**job, "metadata": meta}
            fed_state.put(cast(State, world.rest.cache._view), kinds.PYTORCHJOB, copy)

    world.do(feed)
    yield world


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The CPU seconds of each callback of an event loop, by the clock of the thread: other processes do not count. The collector of
    garbage is off, as in a server (`heap_collector`), for it would count as whatever runs when it comes."""
    found: list[float] = []
    run = asyncio.Handle._run

    def run_and_note(handle: asyncio.Handle) -> Any:
        began = time.thread_time()
        try:
            return run(handle)
        finally:
            found.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", run_and_note)
    gc.disable()
    yield found
    gc.enable()


@pytest.mark.parametrize("query", ["sortBy=phaseUpdatedAt&limit=500", "filterBy=phase==Creating&search=copy-9"])
def test_no_list_holds_the_loop(crowd: World, holds: list[float], query: str) -> None:
    """Nothing has been read of the rows yet: the dearest list there is. Its longest hold is a small part of the whole."""
    holds.clear()
    answer = crowd.client.get(f"/api/v1/workloads?{query}")
    assert answer.status_code == 200 and answer.json()["workloads"]
    assert len(holds) > COUNT / 256 and max(holds) < sum(holds) / 3, (max(holds), sum(holds), len(holds))


def test_a_workload_that_goes_between_two_steps_is_left_out(crowd: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep

    async def drop_one(delay: float) -> None:
        fed_state.drop(
            cast(State, crowd.rest.cache._view), kinds.PYTORCHJOB, Key("runai-team-a", f"copy-{COUNT - 1}")
        )  # the last: it is not read yet
        await sleep(delay)

    monkeypatch.setattr("rowlock.rest.list_rows.selection.asyncio.sleep", drop_one)
    assert crowd.client.get("/api/v1/workloads/count?filterBy=phase!=Running").json() == {"count": COUNT}
