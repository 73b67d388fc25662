"""What an open page is told: the whole list, then changes; what it missed when it comes back; and only what its user may see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from rowlock import kinds, objects
from rowlock.browser import feed as feed_module
from rowlock.browser.event_stream import EventStream
from rowlock.browser.feed import WorkloadFeed
from rowlock.errors import TooManyRequests
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.rights import Rights
from rowlock.rest.visible_cache import VisibleCache
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample, UsageSeries


@dataclass
class Page:
    """What a page holds after the events that it was sent."""

    events: AsyncIterator[bytes]
    rows: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    last_event: str = ""

    async def read(self) -> None:
        """Until the next time that the list is complete."""
        async with asyncio.timeout(200):
            async for piece in self.events:
                if piece.startswith(b":"):
                    self.names.append("alive")
                    continue
                fields = dict(line.split(": ", 1) for line in piece.decode().strip().split("\n"))
                self.names.append(fields["event"])
                self.take(fields["event"], json.loads(fields["data"]))
                if fields["event"] == "ready":
                    self.last_event = fields["id"]
                    return

    def take(self, name: str, data: Any) -> None:
        if name == "reset":
            self.rows = {}
        elif name == "rows":
            self.rows.update({row["name"]: row for row in data})
        elif name == "gone":
            self.rows = {n: row for n, row in self.rows.items() if row["id"] not in data}

    async def close(self) -> None:
        await self.events.aclose()  # type: ignore[attr-defined]  # a generator


class Meter:
    """A sampler that a test plays: every pod has one GPU, which is measured once `idle_since` is known."""

    idle_since: dict[str, float] | None = None

    def series(self, pod_uid: str) -> UsageSeries | None:
        return None

    def latest(self, pod_uid: str) -> LatestUsage | None:
        if self.idle_since is None:
            return None
        return LatestUsage(0, UsageSample(), None, 0, 0, 0, 0, 0, {"GPU-1": (0.0, 0.0)}, self.idle_since)


class OneProject(Rights):
    """May read all in the namespaces of some projects."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = set(namespaces)

    @property
    def user_name(self) -> str:
        return "bob"

    @property
    def user_groups(self) -> tuple[str, ...]:
        return ()

    def escalation_review(self, kind: Kind) -> None: ...

    def may_use_queue(self, queue: str) -> bool:
        return False

    def allows(self, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = "") -> bool:
        return namespace in self.namespaces


class World:
    def __init__(self) -> None:
        self.store = Store.open(None)
        self.now = 1_000.0
        self.diagnoses: dict[str, str] = {}
        self.rest = RestApi(
            self.store,
            RestSettings(user="ana"),
            clock=lambda: self.now,
            diagnosis_message=lambda uid, phase: self.diagnoses.get(phase, ""),
        )
        self.feed = WorkloadFeed(self.rest.cache, self.store, lambda: self.now)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        transport = httpx.ASGITransport(Starlette(routes=list(self.rest.routes)))
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
            answer = await client.request(method, f"/api/v1/{path}", json=body)
            assert answer.status_code < 300, answer.text
            return answer.json()

    async def submit(self, name: str, project: str = "team-a") -> Any:
        spec = {"image": "image", "numWorkers": 1, "distributedFramework": "PyTorch"}
        return await self.ask("POST", "workloads/distributed", {"name": name, "projectId": project, "spec": spec})

    async def report(self, name: str, condition: str) -> Object:
        job = await self.store.get(kinds.PYTORCHJOB, "runai-team-a", name)
        status = {"conditions": [{"type": condition, "status": "True", "message": f"it is {condition}"}]}
        return await self.store.update(kinds.PYTORCHJOB, {**job, "status": status}, subresource="status")

    def page(self, last_event: str = "", rights: Rights | None = None) -> Page:
        cache = VisibleCache(self.rest.cache, rights) if rights else self.rest.cache
        return Page(self.feed.open(cache, rights, last_event))


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        for kind, obj in bootstrap.initial_objects():
            await world.store.create(kind, obj)
        tasks = [asyncio.create_task(world.rest.run()), asyncio.create_task(world.feed.review())]
        try:
            for project in ("team-a", "team-b"):
                await world.ask("POST", "org-unit/projects", {"name": project})
            await story(world)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a clock that is made for people."""
    monkeypatch.setattr(feed_module, "COALESCE_S", 0.0)
    monkeypatch.setattr(feed_module, "REVIEW_S", 0.01)


def test_a_page_gets_the_list_and_then_changes() -> None:
    async def story(world: World) -> None:
        await world.submit("one")
        page = world.page()
        await page.read()
        assert page.names == ["reset", "rows", "ready"]
        assert page.rows["one"]["why"] == "Its pods are being made."
        await world.submit("two")
        await page.read()
        assert set(page.rows) == {"one", "two"}
        await world.report("two", "Failed")
        while page.rows["two"]["phase"] != "Failed":
            await page.read()
        assert page.rows["two"]["why"] == "it is Failed"
        await world.store.delete(kinds.PYTORCHJOB, "runai-team-a", "one")
        while "one" in page.rows:
            await page.read()
        assert page.names.count("reset") == 1

    play(story)


def test_who_comes_back_is_told_what_he_missed_and_no_more() -> None:
    async def story(world: World) -> None:
        for name in ("stays", "fails", "goes"):
            await world.submit(name)
        page = world.page()
        await page.read()
        await page.close()
        await world.report("fails", "Failed")
        await world.store.delete(kinds.PYTORCHJOB, "runai-team-a", "goes")
        await world.rest.cache.wait_until("", lambda: not world.rest.cache.jobs_named("runai-team-a", "goes"))
        again = world.page(page.last_event)
        again.rows, told = page.rows, len(page.names)
        await again.read()
        assert told and again.names == ["gone", "rows", "ready"]
        assert {name: row["phase"] for name, row in again.rows.items()} == {"stays": "Creating", "fails": "Failed"}

    play(story)


@pytest.mark.parametrize("last_event", ["", "other-1", "-", "x-²", "feed-99999999999999999999"])
def test_who_comes_from_elsewhere_begins_anew(last_event: str) -> None:
    """From before a restart of the server, or from nowhere."""

    async def story(world: World) -> None:
        await world.submit("one")
        name = (await _first_id(world)).partition("-")[0]
        page = world.page(last_event.replace("feed", name))
        await page.read()
        assert page.names == ["reset", "rows", "ready"]

    play(story)


async def _first_id(world: World) -> str:
    page = world.page()
    await page.read()
    return page.last_event


def test_deletions_that_are_forgotten_begin_the_list_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_MAX_GONE", 1)

    async def story(world: World) -> None:
        for name in ("a", "b", "c"):
            await world.submit(name)
        page = world.page()
        await page.read()
        await page.close()
        for name in ("a", "b"):
            await world.store.delete(kinds.PYTORCHJOB, "runai-team-a", name)
        await world.rest.cache.wait_until("", lambda: not world.rest.cache.jobs_named("runai-team-a", "b"))
        again = world.page(page.last_event)
        await again.read()
        assert again.names[0] == "reset"
        assert set(again.rows) == {"c"}

    play(story)


def test_a_user_sees_his_projects_only() -> None:
    async def story(world: World) -> None:
        hidden = await world.submit("hush-one", "team-b")
        await world.submit("mine")
        rights = OneProject("runai-team-a")
        page = world.page(rights=rights)
        await page.read()
        assert set(page.rows) == {"mine"}
        await world.submit("hush-two", "team-b")
        await world.store.delete(kinds.PYTORCHJOB, "runai-team-b", "hush-one")
        told: list[bytes] = []
        page.events = _noted(page.events, told)
        await world.submit("mine-too")
        while "mine-too" not in page.rows:
            await page.read()
        assert b"hush" not in b"".join(told)
        assert hidden["workloadId"].encode() not in b"".join(told), "nor that it is gone"

    play(story)


async def _noted(events: AsyncIterator[bytes], told: list[bytes]) -> AsyncIterator[bytes]:
    async for piece in events:
        told.append(piece)
        yield piece


def test_who_gets_or_loses_a_right_gets_another_list() -> None:
    async def story(world: World) -> None:
        await world.submit("mine")
        await world.submit("theirs", "team-b")
        rights = OneProject("runai-team-a")
        page = world.page(rights=rights)
        await page.read()
        rights.namespaces = {"runai-team-b"}
        await world.report("mine", "Running")
        await page.read()
        assert set(page.rows) == {"theirs"}

    play(story)


def test_a_sentence_that_changes_with_time_alone_is_told() -> None:
    """The diagnosis of a failure comes when its evidence is read, after the job has failed."""

    async def story(world: World) -> None:
        await world.submit("one")
        await world.report("one", "Failed")
        page = world.page()
        await page.read()
        world.diagnoses["Failed"] = "rank 1 failed first."
        while page.rows["one"]["why"] != "rank 1 failed first.":
            await page.read()

    play(story)


def test_gpus_that_become_idle_are_told() -> None:
    """Nothing of the workload's objects changes: the sampler sees it, and time goes on."""

    async def story(world: World) -> None:
        world.rest.cache.pod_usage = meter = Meter()
        await world.submit("one")
        await world.report("one", "Running")
        job = await world.store.get(kinds.PYTORCHJOB, "runai-team-a", "one")
        owner = {**objects.owner_reference(job), "controller": True}
        meta = {"name": "one-worker-0", "namespace": "runai-team-a", "ownerReferences": [owner]}
        spec = {"nodeName": "n", "containers": [{"name": "pytorch", "image": "i"}]}
        pod = await world.store.create(kinds.POD, {"metadata": meta, "spec": spec})
        states = [{"name": "pytorch", "state": {"running": {}}}]
        status = {"phase": "Running", "containerStatuses": states}
        await world.store.update(kinds.POD, {**pod, "status": status}, subresource="status")
        page = world.page()
        await page.read()
        while page.rows["one"]["phase"] != "Degraded":  # its master is missing
            await page.read()
        assert "idleGpus" not in page.rows["one"], "not measured is not none"
        meter.idle_since = {}
        while page.rows["one"].get("idleGpus") != 0:
            await page.read()
        meter.idle_since = {"GPU-1": world.now}
        world.now += 301
        while page.rows["one"]["idleGpus"] != 1:
            await page.read()

    play(story)


def test_why_pods_cannot_be_made_is_told() -> None:
    """Only an Event says so: no object of the workload changes."""

    async def story(world: World) -> None:
        await world.submit("one")
        job = await world.store.get(kinds.PYTORCHJOB, "runai-team-a", "one")
        meta = {
            "name": "pg",
            "namespace": "runai-team-a",
            "ownerReferences": [
                {"uid": job["metadata"]["uid"], "name": "one", "kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1"}
            ],
        }
        group = {
            "apiVersion": kinds.POD_GROUP.api_version,
            "kind": "PodGroup",
            "metadata": meta,
            "spec": {"minMember": 2},
        }
        await world.store.create(kinds.POD_GROUP, group)
        page = world.page()
        await page.read()
        regarding = {"kind": "PyTorchJob", "namespace": "runai-team-a", "name": "one", "uid": job["metadata"]["uid"]}
        event = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "runai-team-a"}, "type": "Warning",
            "reason": "FailedCreatePod", "message": "exceeded quota: pods", "involvedObject": regarding,
        }  # fmt: skip
        await world.store.create(kinds.EVENT, event)
        while page.rows["one"]["why"] != "exceeded quota: pods":
            await page.read()
        assert page.rows["one"]["phase"] == "Pending"

    play(story)


def test_a_quiet_stream_shows_that_it_lives_and_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "HEARTBEAT_S", 0.01)

    async def story(world: World) -> None:
        page = world.page()
        await page.read()
        assert await anext(page.events) == b": alive\n\n"
        world.now += feed_module.STREAM_S
        async with asyncio.timeout(200):
            rest = [piece async for piece in page.events]
        assert set(rest) <= {b": alive\n\n"}, "it ended; whoever comes back is asked who he is"

    play(story)


def test_readers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_READERS_OF_USER", 2)

    async def story(world: World) -> None:
        bob = OneProject("runai-team-a")
        pages = [world.page(rights=bob) for _ in range(2)]
        with pytest.raises(TooManyRequests):
            world.page(rights=bob)
        await world.page().read()
        await pages[0].read()
        await pages[0].close()
        await world.page(rights=bob).read()

    play(story)


def test_a_slow_reader_holds_nothing_and_gets_the_newest_of_each_row() -> None:
    async def story(world: World) -> None:
        await world.submit("one")
        page = world.page()
        await page.read()
        for number in range(50):
            await world.report("one", f"Step{number}")
            await world.report("one", "Failed")
        await page.read()
        assert page.names[3:] == ["rows", "ready"], "fifty changes, one row"

    play(story)


def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    cut: list[bool] = []

    class Exchange:
        def cut(self) -> None:
            cut.append(True)
            gone.set()

    gone = asyncio.Event()
    closed: list[bool] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            closed.append(True)

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def main() -> None:
        scope: Any = {"type": "http", "extensions": {"rowlock": Exchange()}}
        async with asyncio.timeout(200):
            await EventStream(endless(), send_timeout=0.01)(scope, receive, send)

    asyncio.run(main())
    assert cut == closed == [True]
