"""Leader election over a store: at most one works, and somebody works soon after the leader has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import until_async

from rowlock import kinds
from rowlock.errors import ApiError, Unavailable
from rowlock.kube.leader_election import LeaderElection, LeaseTimes
from rowlock.objects import Object, dig, with_field
from rowlock.storage.store import Store

LEASE = ("team", "scheduler")
TIMES = LeaseTimes(duration=30.0, deadline=20.0, retry=0.05)
SHORT = LeaseTimes(duration=1.0, deadline=0.6, retry=0.05)


class Network:
    """One process's way to the store; `error` makes every request fail."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.error: ApiError | None = None

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        async def send(*args: Any, **options: Any) -> Any:
            if self.error is not None:
                raise self.error
            return await getattr(self.store, verb)(*args, **options)

        return send


class Scene:
    """Processes that want to work; `working` are those that do."""

    def __init__(self) -> None:
        self.store = Store.open(None)
        self.working: list[str] = []
        self.networks: dict[str, Network] = {}
        self.elections: dict[str, LeaderElection] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, times: LeaseTimes = TIMES) -> None:
        network = self.networks[name] = Network(self.store)
        election = self.elections[name] = LeaderElection(network, LEASE, name, times)  # type: ignore[arg-type]

        async def work() -> None:
            self.working.append(name)
            assert len(self.working) == 1, f"{self.working} work at the same time"
            try:
                await asyncio.Event().wait()
            finally:
                self.working.remove(name)

        self.tasks[name] = asyncio.create_task(election.run(work))

    async def until(self, condition: Callable[[], bool]) -> None:
        await until_async(condition, every=0.005)

    async def lease(self) -> Object:
        return await self.store.get(kinds.LEASE, *LEASE)


def play(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        scene = Scene()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await scene.store.create(kinds.NAMESPACE, namespace)
        try:
            await act(scene)
        finally:
            for task in scene.tasks.values():
                task.cancel()
            await asyncio.gather(*scene.tasks.values(), return_exceptions=True)

    asyncio.run(run())


def test_one_of_three_works() -> None:
    async def act(scene: Scene) -> None:
        for name in "abc":
            scene.start(name)
        await scene.until(lambda: bool(scene.working) and all(e.leader for e in scene.elections.values()))
        assert {e.leader for e in scene.elections.values()} == {scene.working[0]}
        assert dig(await scene.lease(), "spec.holderIdentity") == scene.working[0]

    play(act)


def test_a_leader_that_ends_in_order_is_followed_at_once() -> None:
    async def act(scene: Scene) -> None:
        scene.start("a")
        await scene.until(lambda: scene.working == ["a"])
        scene.start("b")
        await scene.until(lambda: scene.elections["b"].leader == "a")
        scene.tasks["a"].cancel()
        began = asyncio.get_running_loop().time()
        await scene.until(lambda: scene.working == ["b"])
        assert asyncio.get_running_loop().time() - began < TIMES.duration, "it waited for a lease that was given back"
        assert dig(await scene.lease(), "spec.leaseTransitions") == 1

    play(act)


def test_a_leader_that_cannot_renew_stops_before_another_begins() -> None:
    async def act(scene: Scene) -> None:
        scene.start("a", SHORT)
        await scene.until(lambda: scene.working == ["a"])
        scene.start("b", SHORT)
        await scene.until(lambda: scene.elections["b"].leader == "a")
        scene.networks["a"].error = Unavailable("the API server cannot be reached")
        await scene.until(lambda: scene.working == ["b"])  # `work` asserts that they never work together
        scene.networks["a"].error = None
        await scene.until(lambda: scene.elections["a"].leader == "b")
        assert scene.working == ["b"]

    play(act)


def test_a_leader_whose_lease_was_taken_stops() -> None:
    async def act(scene: Scene) -> None:
        scene.start("a")
        await scene.until(lambda: scene.working == ["a"])
        taken = with_field(await scene.lease(), "spec.holderIdentity", "somebody")
        taken["metadata"].pop("resourceVersion")
        await scene.store.update(kinds.LEASE, taken)
        await scene.until(lambda: scene.working == [])
        assert scene.elections["a"].leader == "somebody"

    play(act)


def test_work_that_fails_gives_the_lease_back() -> None:
    async def act(scene: Scene) -> None:
        async def fail() -> None:
            raise ValueError("a bug")

        election = LeaderElection(scene.store, LEASE, "a", TIMES)
        try:
            await election.run(fail)
        except ValueError:
            assert dig(await scene.lease(), "spec.holderIdentity") == ""
            return
        raise AssertionError("the error went nowhere")

    play(act)


def test_a_trouble_that_lasts_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]

    async def run() -> None:
        network = Network(Store.open(None))
        election = LeaderElection(network, LEASE, "one", LeaseTimes(retry=0.0), monotonic=lambda: now[0])  # type: ignore[arg-type]
        tries = [0]

        async def refuse(*_: Any) -> Object:
            tries[0] += 1
            now[0] += 2.0
            raise Unavailable("no rights" if tries[0] < 65 else "no network")

        network.__dict__["get"] = refuse
        task = asyncio.create_task(election.run(lambda: asyncio.sleep(0)))
        while tries[0] < 66:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    with caplog.at_level(logging.WARNING, "rowlock.kube"):
        asyncio.run(run())
    told = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(": ")[2] for text in told] == ["no rights", "no rights", "no rights", "no network"]
