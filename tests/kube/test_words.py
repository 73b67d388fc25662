"""Pure parts: selectors as text, the token bucket, back-off, the limit on handshakes, and a client that keeps it."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from rowlock import kinds
from rowlock.kube import http_client, requests
from rowlock.kube.config import ClientConfig
from rowlock.kube.http_client import HttpClient
from rowlock.kube.rate_limit import Backoff, HandshakeLimit, Limits, TokenBucket
from rowlock.selectors import EVERYTHING, FieldSelector, parse_fields, parse_labels


@pytest.mark.parametrize("text", ["a", "!a", "a=b", "a!=b", "a in (b,c)", "a notin (b)", "a>1", "x.y/z=w,!b,c in (d)"])
def test_label_selectors_survive_the_journey(text: str) -> None:
    selector = parse_labels(text)
    assert parse_labels(requests.selector_query(selector, FieldSelector())["labelSelector"]) == selector


def test_field_selectors_survive_the_journey() -> None:
    selector = parse_fields("metadata.name=a,status.phase!=Running")
    sent = requests.selector_query(EVERYTHING, selector)
    assert sent == {"fieldSelector": "metadata.name=a,status.phase!=Running"}
    assert requests.selector_query(EVERYTHING, FieldSelector()) == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (requests.path(kinds.POD), "/api/v1/pods"),
        (requests.path(kinds.POD, "team", "a", "log"), "/api/v1/namespaces/team/pods/a/log"),
        (requests.path(kinds.NODE, "ignored", "n1"), "/api/v1/nodes/n1"),
        (requests.path(kinds.QUEUE, "", "q"), "/apis/scheduling.run.ai/v2/queues/q"),
        (requests.path(kinds.POD, "team", "../secrets"), "/api/v1/namespaces/team/pods/..%2Fsecrets"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_bucket_gives_a_burst_and_then_a_rate() -> None:
    time = Time()
    bucket = TokenBucket(10, 5, time.clock, time.sleep)

    async def take(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            await bucket.take()
            taken.append(round(time.now - 100, 3))
        return taken

    assert asyncio.run(take(8)) == [0, 0, 0, 0, 0, 0.1, 0.2, 0.3]
    time.now += 60
    assert asyncio.run(take(6)) == [60.3] * 5 + [60.4]


def test_backoff_doubles_within_bounds_and_spreads() -> None:
    low, high = Backoff(1, 8, lambda: 0.0), Backoff(1, 8, lambda: 1.0)
    assert [low.next_delay() for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]
    assert [high.next_delay() for _ in range(6)] == [1, 2, 4, 8, 8, 8]
    high.reset()
    assert high.next_delay() == 1


async def _make(limit: HandshakeLimit, begun: list[int], may_end: asyncio.Event) -> None:
    async with limit:
        begun.append(len(begun))
        await may_end.wait()


def test_few_handshakes_go_on_at_once_and_the_others_follow() -> None:
    async def play() -> None:
        limit, begun, may_end = HandshakeLimit(4, patience=60.0), list[int](), asyncio.Event()
        tasks = [asyncio.create_task(_make(limit, begun, may_end)) for _ in range(40)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(begun) == 4
        tasks[0].cancel()  # who gives up leaves its place to another
        tasks[39].cancel()  # and who waited takes none
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(begun) == 5
        may_end.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(begun) == 39

    asyncio.run(play())


def test_handshakes_that_hang_keep_no_other_from_its_own() -> None:
    async def play() -> None:
        limit, begun, may_end = HandshakeLimit(4, patience=0.001), list[int](), asyncio.Event()
        tasks = [asyncio.create_task(_make(limit, begun, may_end)) for _ in range(12)]
        async with asyncio.timeout(200):
            while len(begun) < 12:
                await asyncio.sleep(0.001)
        may_end.set()
        await asyncio.gather(*tasks)
        begun.clear()
        may_end.clear()
        again = [asyncio.create_task(_make(limit, begun, may_end)) for _ in range(4)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(begun) == 4  # all places are free again, and no more than those
        assert limit._places.locked()
        may_end.set()
        await asyncio.gather(*again)

    asyncio.run(play())


def test_few_connections_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that starts takes connections before it answers their handshakes; here it never does."""
    monkeypatch.setattr(http_client, "_HANDSHAKES", 3)
    monkeypatch.setattr(http_client, "_HANDSHAKE_PATIENCE", 3600.0)

    async def play() -> None:
        taken, all_three = list[asyncio.StreamWriter](), asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(writer)
            if len(taken) == 3:
                all_three.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = HttpClient(ClientConfig(url, ssl.create_default_context()))
        asking = [
            asyncio.create_task(
                client.send("GET", "/x", query={}, headers={}, content=None, limits=Limits(), endless=False)
            )
            for _ in range(12)
        ]
        async with asyncio.timeout(200):
            await all_three.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(taken) == 3
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await client.close()
        server.close()

    asyncio.run(play())
