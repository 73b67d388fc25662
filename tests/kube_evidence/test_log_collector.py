"""Whose log is kept when a program is over, and started again, before anybody could ask for what it wrote."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.waiting import until_async

from rowlock.api import Api, LogOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.reading import read_archived_log
from rowlock.archive.retention import Retention
from rowlock.errors import ApiError, Forbidden, Unauthorized, Unavailable
from rowlock.kube_evidence import followed_log, log_collector
from rowlock.kube_evidence.followed_log import LogRefusals
from rowlock.kube_evidence.log_collector import LogCollector
from rowlock.rest.informers import InformerCache

JOB = "job-1"


def pod(restarts: int, state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    status = {"name": "main", "restartCount": restarts, "state": state, "lastState": last or {}}
    meta = {"name": "p", "namespace": "n", "uid": "pod-1"}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": {"containerStatuses": [status]}}


class Node:
    """The API's log, and the cache of pods, of a node that starts programs again faster than the cache tells."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.seen = seen
        self.notify: Callable[[str], None] = lambda uid: None
        self.knows_runs = True

    def subscribe(self, notify: Callable[[str], None]) -> None:
        self.notify = notify

    async def wait_until(self, *_: object) -> None: ...

    def job_uids(self) -> list[str]:
        return [JOB]

    def job(self, uid: str) -> dict[str, Any]:
        return {"metadata": {"uid": uid}}

    def pods(self) -> list[dict[str, Any]]:
        return [self.seen]

    def pods_of(self, uid: str) -> list[dict[str, Any]]:
        return [self.seen]

    async def log(self, namespace: str, name: str, options: LogOptions) -> AsyncIterator[bytes]:
        word = b"first" if options.previous else b"second"  # the second life is the container's already
        yield b"2026-01-02T03:04:05.000000000Z " + word + b"\n"


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """What goes on until the end of the block."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answers() -> None:
    """The cluster does, always."""


async def read_kept(archive: Archive) -> dict[int, bytes]:
    """What the archive has of the job: each life's log by its number."""
    try:
        records = await archive.read(database.read_logs, JOB)
    except (FileNotFoundError, sqlite3.Error):
        return {}  # it is being made
    return {r.number: b"".join([c async for c in read_archived_log(archive, r, LogOptions())]) for r in records}


@pytest.mark.parametrize("when", ["before", "between", "read again", "started twice", "job"])
def test_what_a_killed_server_followed_is_kept_whenever_its_pod_goes(tmp_path: Path, when: str) -> None:
    """Also between the look at what was left and the first look at the job: nobody follows the pod then."""

    class Leaving(Node):
        def job(self, uid: str) -> dict[str, Any]:
            return {} if when == "job" else super().job(uid)

        def job_uids(self) -> list[str]:
            return [] if when == "job" else super().job_uids()

        def pods(self) -> list[dict[str, Any]]:
            return [] if when == "before" else [self.seen]

        def pods_of(self, uid: str) -> list[dict[str, Any]]:
            return [self.seen] if when == "started twice" else []

    place = tmp_path / "archive" / "following" / f"pod-1.main.0{'.again' if when == 'read again' else ''}"
    place.mkdir(parents=True)
    (place / "main.0.log").write_text("2026-01-02T03:04:05.000000000Z followed\n")
    (place / "pod.json").write_text(json.dumps({"namespace": "n", "pod": "p", "uid": "pod-1", "job": JOB}))

    async def play() -> bytes:
        node = Leaving(pod(2, {"running": {}}))
        archive = Archive(tmp_path / "archive", Retention())
        collector = LogCollector(cast(Api, node), cast(InformerCache, node), archive, answers)
        async with beside(archive.run(), collector.run()):
            async with asyncio.timeout(200):
                while 0 not in (logs := await read_kept(archive)):
                    await asyncio.sleep(0.02)
            return logs[0]

    assert b"followed" in asyncio.run(play())


def test_a_short_life_keeps_its_own_log_though_the_next_one_answered_first(tmp_path: Path) -> None:
    ended = {"terminated": {"exitCode": 1, "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:05Z"}}

    async def play() -> dict[int, bytes]:
        node = Node(pod(0, ended))
        archive = Archive(tmp_path / "archive", Retention())
        collector = LogCollector(cast(Api, node), cast(InformerCache, node), archive, answers)

        async def wait_for(numbers: set[int], first: bytes) -> dict[int, bytes]:
            while True:
                logs = await read_kept(archive)
                if set(logs) == numbers and first in logs[0]:
                    return logs
                await asyncio.sleep(0.02)

        async with beside(archive.run(), collector.run()):
            async with asyncio.timeout(200):
                await wait_for({0}, b"second")  # what the node answered is all that there was
                node.seen = pod(1, {"running": {}}, ended)
                node.seen = pod(1, ended, ended)
                node.notify(JOB)
                return await wait_for({0, 1}, b"first")

    logs = asyncio.run(play())
    assert b"first" in logs[0] and b"second" not in logs[0] and b"second" in logs[1]


@pytest.mark.parametrize("refusal", [Forbidden("pods/log is forbidden"), Unauthorized("Unauthorized")])
def test_a_log_that_is_refused_for_a_while_is_kept(
    refusal: ApiError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a program which has ended meanwhile: its pod is still there."""
    monkeypatch.setattr(followed_log, "ASK_AGAIN_S", 0.02)
    monkeypatch.setattr(followed_log, "PER_SECOND", 50.0)
    ended = {"terminated": {"exitCode": 0, "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T04:04:05Z"}}
    refusals = [refusal] * 20

    class Refusing(Node):
        async def log(self, namespace: str, name: str, options: LogOptions) -> AsyncIterator[bytes]:
            if refusals:
                raise refusals.pop()
            yield b"2026-01-02T03:04:05.000000000Z shown\n"

    async def play() -> bytes:
        node = Refusing(pod(0, ended))
        archive = Archive(tmp_path / "archive", Retention())
        collector = LogCollector(cast(Api, node), cast(InformerCache, node), archive, answers)
        async with beside(archive.run(), collector.run()):
            async with asyncio.timeout(200):
                while 0 not in (logs := await read_kept(archive)):
                    await asyncio.sleep(0.02)
            return logs[0]

    assert b"shown" in asyncio.run(play()) and not refusals


def test_streams_begin_in_turns_and_in_the_last_moment_of_a_pod_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_collector, "STREAMS_PER_SECOND", 1e-9)  # the third one would come in thirty years
    monkeypatch.setattr(log_collector, "STREAMS_AT_ONCE", 2)
    running = [pod(0, {"running": {}}) for _ in range(6)]
    for number, one in enumerate(running):
        one["metadata"] |= {"uid": f"pod-{number}", "name": f"p-{number}"}

    class Many(Node):
        asked: list[str] = []  # noqa: RUF012 (of one test)

        def pods_of(self, uid: str) -> list[dict[str, Any]]:
            return running

        async def log(self, namespace: str, name: str, options: LogOptions) -> AsyncIterator[bytes]:
            self.asked.append(name)
            yield b"2026-01-02T03:04:05.000000000Z a line\n"
            await asyncio.Event().wait()

    async def play() -> None:
        node = Many(running[0])

        async def until_asked(count: int) -> None:
            while len(node.asked) < count:
                await asyncio.sleep(0)

        archive = Archive(tmp_path / "archive", Retention())
        collector = LogCollector(cast(Api, node), cast(InformerCache, node), archive, answers)
        async with beside(collector.run()):
            async with asyncio.timeout(200):
                await until_asked(2)
                while len(collector._waiting) < 4:  # the others have come to where they wait
                    await asyncio.sleep(0)
                assert len(node.asked) == 2
                begun = list((tmp_path / "archive").glob("**/pod-*.0"))
                assert len(begun) == 2, "who waits for its turn writes nothing yet"
                waits = next(n for n, one in enumerate(running) if one["metadata"]["name"] not in node.asked)
                leaving = {**running[waits]["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z"}
                running[waits] = {**running[waits], "metadata": leaving}
                node.notify(JOB)
                await until_asked(3)
                assert node.asked[2:] == [leaving["name"]]

    asyncio.run(play())


class Leaving(Node):
    """A thousand pods that are all being deleted, and whose programs write to the end; here: twenty."""

    def __init__(self) -> None:
        running = [pod(0, {"running": {}}) for _ in range(20)]
        for number, one in enumerate(running):
            one["metadata"] |= {
                "uid": f"pod-{number}",
                "name": f"p-{number}",
                "deletionTimestamp": "2026-01-02T03:04:05Z",
            }
        super().__init__(running[0])
        self.running, self.asked = running, list[str]()
        self.ends: dict[str, asyncio.Event] = {}

    def pods_of(self, uid: str) -> list[dict[str, Any]]:
        return self.running

    async def log(self, namespace: str, name: str, options: LogOptions) -> AsyncIterator[bytes]:
        over = self.ends.setdefault(name, asyncio.Event())
        self.asked.append(name)
        yield b"2026-01-02T03:04:05.000000000Z a line\n"
        await over.wait()

    def end(self, name: str) -> None:
        """The program ends, and its log with it."""
        number = next(n for n, one in enumerate(self.running) if one["metadata"]["name"] == name)
        over = pod(0, {"terminated": {"exitCode": 0}})
        self.running[number] = {**over, "metadata": self.running[number]["metadata"]}
        self.ends[name].set()
        self.notify(JOB)


@pytest.mark.parametrize("limit", ["connections", "pace"])
def test_pods_that_all_leave_at_once_are_followed_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A cluster that loses its nodes evicts ten thousand pods: a connection for each would be hundreds of MiB."""
    if limit == "connections":
        monkeypatch.setattr(log_collector, "MAX_STREAMS", 3)
        monkeypatch.setattr(log_collector, "MAX_LAST_STREAMS", 2)
    else:
        monkeypatch.setattr(log_collector, "LAST_PER_SECOND", 1e-9)
        monkeypatch.setattr(log_collector, "LAST_AT_ONCE", 5)

    async def play() -> None:
        node = Leaving()
        archive = Archive(tmp_path / "archive", Retention())
        collector = LogCollector(cast(Api, node), cast(InformerCache, node), archive, answers)

        async def until(condition: Callable[[], bool]) -> None:
            await until_async(condition, every=0)

        async with beside(collector.run()):
            async with asyncio.timeout(200):
                await until(lambda: len(node.asked) == 5 and JOB in collector._present)
                node.notify(JOB)
                await until(
                    lambda: JOB in collector._postponed[True] if limit == "connections" else len(collector._tasks) == 20
                )
                assert len(node.asked) == 5
                if limit == "connections":
                    assert len(collector._tasks) == 5
                    for name in node.asked[:2]:
                        node.end(name)
                    await until(lambda: len(node.asked) > 7 or (len(collector._followed) == 5 and len(node.asked) == 7))
                    assert len(set(node.asked)) == len(node.asked) == 7

    asyncio.run(play())


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_log_that_its_node_never_ends_is_kept_when_its_pod_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """A node that was lost ends no stream. Its pod may be gone; else the rest is read once more, without following."""
    monkeypatch.setattr(log_collector, "LINGER_S", 0.05)

    class Hanging(Node):
        is_gone = False

        def __init__(self) -> None:
            super().__init__(pod(0, {"running": {}}))
            self.hangs = asyncio.Event()

        def pods_of(self, uid: str) -> list[dict[str, Any]]:
            return [] if self.is_gone else [self.seen]

        async def log(self, namespace: str, name: str, options: LogOptions) -> AsyncIterator[bytes]:
            if options.follow:
                yield b"2026-01-02T03:04:05.000000000Z a line\n"
                self.hangs.set()
                await asyncio.Event().wait()
            yield b"2026-01-02T03:04:06.000000000Z the end\n"

    async def play() -> bytes:
        node = Hanging()
        archive = Archive(tmp_path / "archive", Retention())
        collector = LogCollector(cast(Api, node), cast(InformerCache, node), archive, answers)
        async with beside(archive.run(), collector.run()):
            async with asyncio.timeout(200):
                await node.hangs.wait()
                if is_gone:
                    node.is_gone = True
                else:
                    node.seen = pod(0, {"terminated": {"exitCode": 0}})
                node.notify(JOB)
                while 0 not in (logs := await read_kept(archive)):
                    await asyncio.sleep(0.02)
            return logs[0]

    kept = asyncio.run(play())
    assert b"a line" in kept
    assert (b"the end" in kept) is not is_gone


def test_a_log_that_ends_has_no_more_jobs_looked_at_than_it_makes_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ten thousand pods that leave, looking at all of them for each log that ends would take a processor."""
    monkeypatch.setattr(log_collector, "MAX_STREAMS", 2)
    monkeypatch.setattr(log_collector, "MAX_LAST_STREAMS", 1)
    looks: list[str] = []

    class Counting(LogCollector):
        def _look(self, job_uid: str) -> None:
            looks.append(job_uid)
            super()._look(job_uid)

    class Jobs(Leaving):
        """Each of the pods is of a job of its own."""

        def job_uids(self) -> list[str]:
            return [f"job-{n}" for n in range(len(self.running))]

        def pods_of(self, uid: str) -> list[dict[str, Any]]:
            return [self.running[int(uid.removeprefix("job-"))]]

    async def play() -> None:
        node = Jobs()
        collector = Counting(
            cast(Api, node), cast(InformerCache, node), Archive(tmp_path / "archive", Retention()), answers
        )
        async with beside(collector.run()):
            async with asyncio.timeout(200):
                for ended in range(20):
                    while len(node.asked) < min(ended + 3, 20):
                        await asyncio.sleep(0.001)
                    node.end(node.asked[ended])
        assert sorted(node.asked) == sorted({f"p-{n}" for n in range(20)})

    asyncio.run(play())
    assert len(looks) <= 120, "of each job: at first, when there is a place, and at its end"


def test_nobody_asks_for_a_log_while_the_cluster_does_not_answer(tmp_path: Path) -> None:
    """One asks whether it does: with a thousand logs that are followed, asking for each is work without end."""

    async def play() -> None:
        answering, waiting = asyncio.Event(), asyncio.Event()

        async def wait_for_answer() -> None:
            waiting.set()
            await answering.wait()

        class Gone(Node):
            asked = 0

            async def log(self, namespace: str, name: str, options: LogOptions) -> AsyncIterator[bytes]:
                self.asked += 1
                asked.set()
                yield b"2026-01-02T03:04:05.000000000Z a line\n"
                if self.asked == 1:
                    raise Unavailable("the connection broke")
                await asyncio.Event().wait()

        asked = asyncio.Event()
        node = Gone(pod(0, {"running": {}}))
        collector = LogCollector(
            cast(Api, node), cast(InformerCache, node), Archive(tmp_path / "archive", Retention()), wait_for_answer
        )
        async with beside(collector.run()):
            async with asyncio.timeout(200):
                for count in (1, 2):  # at the start, and after it broke
                    await waiting.wait()
                    assert node.asked == count - 1
                    waiting.clear()
                    asked.clear()
                    answering.set()
                    await asked.wait()
                    answering.clear()
                    assert node.asked == count

    asyncio.run(play())


def test_refused_logs_are_asked_for_in_turns() -> None:
    now = [100.0]
    refusals = LogRefusals(lambda: now[0])
    turns = [refusals.next_turn("team-a") - now[0] for _ in range(14)]
    assert turns == [*(5.0 * n for n in range(1, 13)), 60.0, 60.0], "one of a namespace every five seconds"
    for number in range(9):
        refusals.next_turn(f"other-{number}")
    assert refusals.next_turn("eleventh") - now[0] == 11.0, "no more than one a second of all namespaces"
    refusals.note_shown("team-a")
    assert refusals.next_turn("team-a") - now[0] == 11.0, "who is refused later begins anew"


def test_who_waits_asks_when_another_log_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "ASK_AGAIN_S", 3600.0)  # nobody's turn comes
    monkeypatch.setattr(followed_log, "LONGEST_S", 3600.0)

    async def play() -> None:
        refusals = LogRefusals()
        waiting = [asyncio.create_task(refusals.wait("team-a")) for _ in range(3)]
        while not refusals:
            await asyncio.sleep(0)
        refusals.note_shown("team-b")
        assert refusals
        refusals.note_shown("team-a")
        async with asyncio.timeout(200):
            await asyncio.gather(*waiting)
        assert not refusals

    asyncio.run(play())
