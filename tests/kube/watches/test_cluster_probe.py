"""A cluster that does not answer is called so, in time; and when it is back its watches are asked for anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kube.scripted import Answer, Asked, Scripted, refusal
from tests.waiting import until_async

from rowlock import kinds
from rowlock.api import Change
from rowlock.errors import Timeout
from rowlock.kinds import Kind
from rowlock.kube import client, cluster_probe, connection
from rowlock.kube.client import Kube
from rowlock.kube.cluster_probe import ClusterProbe
from rowlock.kube.rate_limit import Limits

OK = Answer(200, {"metadata": {"name": "kube-system"}})
LIMITS = Limits(qps=0, max_tries=1)


@asynccontextmanager
async def probing(server: Scripted, where: Path) -> AsyncIterator[ClusterProbe]:
    async with server.running(), Kube.connect(server.kubeconfig(where), limits=LIMITS) as kube:
        probe = ClusterProbe(kube)
        task = asyncio.create_task(probe.run())
        yield probe
        task.cancel()


async def until(probe: ClusterProbe, *, silent: bool) -> str:
    await until_async(lambda: bool(probe.silence()) == silent)
    return probe.silence()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_probe, "INTERVAL_S", 0.02)
    monkeypatch.setattr(cluster_probe, "PATIENCE_S", 0.2)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Answer(500, refusal(500, "InternalError", "etcdserver: request timed out")), "etcdserver: request timed out"),
        (
            Answer(401, refusal(401, "Unauthorized")),
            "the cluster refuses the credentials of this server, and what is shown is of ",
        ),
        (Answer(cut=True), "cannot be reached"),
        (Answer(lines=[], hold=True), "nothing for"),
    ],
    ids=["500", "401", "broken", "silent"],
)
def test_a_cluster_that_does_not_answer_is_called_so_until_it_does(
    fault: Answer, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken = [True]
    if not fault.hold:
        monkeypatch.setattr(cluster_probe, "PATIENCE_S", 30.0)

    async def run() -> None:
        async with probing(Scripted(lambda _: fault if is_broken[0] else OK), tmp_path) as probe:
            said = await until(probe, silent=True)
            assert words in said and "what is shown is of" in said and probe.silent_seconds() > 0
            waiting = asyncio.create_task(probe.wait_for_answer())
            await asyncio.sleep(0)
            assert waiting.done() == (fault.status == 401), (
                "a refusal is an answer: who asks for logs is told so himself"
            )
            is_broken[0] = False
            await until(probe, silent=False)
            assert probe.silent_seconds() == 0
            await waiting

    asyncio.run(run())


@pytest.mark.parametrize("code", [403, 404])
def test_a_refusal_is_an_answer(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cluster_probe, "PATIENCE_S", 60.0
    )  # on a busy machine an answer may take longer than a fault here

    async def run() -> None:
        reasons = {403: "Forbidden", 404: "NotFound"}
        server = Scripted(Answer(code, refusal(code, reasons[code])))
        async with probing(server, tmp_path) as probe, asyncio.timeout(200):
            while len(server.asked) < 5:
                await asyncio.sleep(0.01)
            assert probe.silence() == ""

    asyncio.run(run())


def watch_line(revision: int) -> dict[str, object]:
    meta = {"name": "a", "namespace": "team", "resourceVersion": str(revision)}
    return {"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": meta}}


async def first(kube: Kube, count: int) -> list[Change]:
    seen: list[Change] = []
    async with asyncio.timeout(200):
        async for change in kube.watch(kinds.POD, since=5):
            seen.append(change)
            if len(seen) == count:
                break
    return seen


def test_a_watch_that_says_nothing_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Answer(lines=[watch_line(6)], hold=True), Answer(lines=[], hold=True), Answer(lines=[watch_line(8)])]
    parse = Kube._parse

    def answer(asked: Asked) -> Answer:
        if len(answers) != 2:  # the lines that come may come late on a busy machine
            monkeypatch.setattr(client, "WATCH_SILENCE_S", 60.0)
        return answers.pop(0)

    def note(kube: Kube, kind: Kind, line: bytes) -> tuple[Change, bool]:
        monkeypatch.setattr(client, "WATCH_SILENCE_S", 0.1)
        return parse(kube, kind, line)

    monkeypatch.setattr(Kube, "_parse", note)
    server = Scripted(answer)

    async def run() -> list[Change]:
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path), limits=LIMITS) as kube:
            return await first(kube, 2)

    assert [change.revision for change in asyncio.run(run())] == [6, 8]
    assert [asked.query["resourceVersion"] for asked in server.asked] == ["5", "6", "6"]


def test_watches_are_renewed_when_the_cluster_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold connections that nobody answers on any more, and nobody ends."""
    monkeypatch.setattr(cluster_probe, "PATIENCE_S", 10.0)  # it must not be called silent before it is
    is_broken, watched = [False], [0]

    def answer(asked: Asked) -> Answer:
        if "watch" not in asked.query:
            return Answer(lines=[], hold=True) if is_broken[0] else OK
        watched[0] += 1
        return Answer(lines=[watch_line(5 + watched[0])], hold=True)

    async def run() -> None:
        server = Scripted(answer)
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path), limits=LIMITS) as kube:
            probe = ClusterProbe(kube)
            probing_task, watching = asyncio.create_task(probe.run()), asyncio.create_task(first(kube, 2))
            async with asyncio.timeout(200):
                while not watched[0]:
                    await asyncio.sleep(0.01)
            is_broken[0] = True
            monkeypatch.setattr(cluster_probe, "PATIENCE_S", 0.2)
            await until(probe, silent=True)
            assert not watching.done()
            is_broken[0] = False
            seen = await watching
            probing_task.cancel()
        assert [change.revision for change in seen] == [6, 7]

    asyncio.run(run())


def test_what_was_asked_before_an_outage_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write gets no answer on a connection that is dead; its caller looks then."""
    monkeypatch.setattr(connection, "ANSWER_GRACE_S", 0.1)
    is_broken = [True]

    def answer(asked: Asked) -> Answer:
        return Answer(silent=True) if asked.method == "POST" or is_broken[0] else OK

    async def run() -> None:
        server = Scripted(answer)
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path), limits=LIMITS) as kube:
            probe = ClusterProbe(kube)
            pod = {"metadata": {"name": "a", "namespace": "team"}}
            probing_task, writing = asyncio.create_task(probe.run()), asyncio.create_task(kube.create(kinds.POD, pod))
            await until(probe, silent=True)
            assert not writing.done()
            is_broken[0] = False
            async with asyncio.timeout(200):
                with pytest.raises(Timeout, match="may have executed"):
                    await writing
            probing_task.cancel()

    asyncio.run(run())
