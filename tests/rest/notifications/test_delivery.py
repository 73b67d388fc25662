"""Receivers that are dead, slow, endless, or lead elsewhere; and floods of messages: nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.waiting import until_async

from rowlock.documents.notify_address import NotifyAddress
from rowlock.documents.web_address import WebAddress
from rowlock.kubelet.network.egress_policy import server_denial
from rowlock.rest.notifications import webhook
from rowlock.rest.notifications.lanes import PAUSES, STALE, WAITING_PER_NAMESPACE, Delivery, Lanes
from rowlock.rest.notifications.message import Message
from rowlock.rest.notifications.receivers import deliver, post
from rowlock.rest.notifications.settings import NotifySettings
from rowlock.rest.notifications.webhook import Answer, Judge, Undelivered

MESSAGE = Message(b'{"text": "x"}', {"Content-Type": "application/json"})
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def anywhere(address: NotifyAddress, numeric: str) -> str:
    return ""


@asynccontextmanager
async def receiver(serve: Serve) -> AsyncIterator[WebAddress]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except OSError:
            pass  # the client has hung up
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield WebAddress("http", "127.0.0.1", server.sockets[0].getsockname()[1], "/hook?a=1")
    finally:
        server.close()


def answering(text: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()

    return serve


def test_a_good_receiver_gets_the_whole_request() -> None:
    async def scenario() -> None:
        got: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(len(MESSAGE.body)))
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()

        async with receiver(serve) as address:
            assert await deliver(address, MESSAGE, anywhere) == Answer(200, "ok")
        head = f"POST /hook?a=1 HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nContent-Type: application/json\r\nContent-Length: 13\r\n"
        assert got[0].decode().startswith(head)
        assert got[0].endswith(MESSAGE.body)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "reason", "is_final"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "redirect, which is not followed", True),
        (b"HTTP/1.1 404 Not Found\r\n\r\nno_service", "it answered 404", True),
        (b"HTTP/1.1 429 Slow\r\n\r\n", "it answered 429", False),
        (b"HTTP/1.1 503 Later\r\n\r\n", "it answered 503", False),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "its answer is not HTTP", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "its answer is not HTTP", False),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, "its answer is not HTTP", False),
        (b"", "its answer is not HTTP", False),
    ],
)
def test_what_a_receiver_answers_is_judged(text: bytes, reason: str, is_final: bool) -> None:
    async def scenario() -> None:
        async with receiver(answering(text)) as address:
            with pytest.raises(Undelivered, match=reason) as failure:
                await deliver(address, MESSAGE, anywhere)
        assert failure.value.is_final == is_final

    asyncio.run(scenario())


def test_an_endless_answer_is_cut() -> None:
    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"a\x1b[31m" * 1000)
                await writer.drain()

        async with receiver(serve) as address:
            answer = await post(address, MESSAGE, anywhere)
        assert answer.status == 200 and len(answer.text) <= 1000 and answer.text.isprintable()

    asyncio.run(scenario())


def test_a_silent_receiver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(webhook, "TIMEOUT", 0.05)
        async with receiver(serve) as address:
            with pytest.raises(Undelivered, match="no answer within"):
                await post(address, MESSAGE, anywhere)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "10.77.0.5",
    ],
)
def test_a_job_cannot_make_the_server_reach_inside(host: str) -> None:
    async def scenario() -> None:
        judge = NotifySettings(denial=server_denial).judge_of_job
        with pytest.raises(Undelivered, match=r"jobs may not send there|has no address") as failure:
            await post(WebAddress("http", host, 80, "/"), MESSAGE, judge)
        assert failure.value.reason

    asyncio.run(scenario())


def test_this_machine_and_private_networks_are_denied_to_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    from rowlock.kubelet.network import egress_policy

    monkeypatch.setattr(egress_policy, "is_own_address", lambda address: str(address) == "192.0.2.7")
    assert server_denial("192.0.2.7", 22) == "192.0.2.7 is this machine"
    assert server_denial("10.0.0.8", 80) == ""
    assert "private network" in server_denial("10.0.0.8", 80, only_public=True)
    assert server_denial("93.184.215.14", 443, only_public=True) == ""


def test_the_operator_may_allow_a_host_to_jobs() -> None:
    async def scenario() -> None:
        async with receiver(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as address:
            allowed = NotifySettings(allowed=frozenset({("127.0.0.1", address.port)}), denial=server_denial)
            assert (await deliver(address, MESSAGE, allowed.judge_of_job)).status == 204

    asyncio.run(scenario())


# ---------------------------------------------------------------- the queue


class World:
    """Lanes with a clock that moves when somebody sleeps, and receivers by host."""

    def __init__(self) -> None:
        self.now, self.sent, self.done = 0.0, Counter[str](), list[tuple[str, str]]()
        self.open, self.most_open = Counter[str](), Counter[str]()
        self.hold = asyncio.Event()
        self.lanes = Lanes(lambda: self.now, deliver=self.deliver, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def deliver(self, address: NotifyAddress, message: Message, judge: Judge) -> Answer:
        assert isinstance(address, WebAddress)
        self.sent[address.host] += 1
        owner = message.body.decode()
        self.open[owner] += 1
        self.most_open[owner] = max(self.most_open[owner], self.open[owner])
        try:
            if address.host.startswith("slow"):
                await self.hold.wait()
            if address.host.startswith("dead"):
                raise Undelivered("no connection")
            return Answer(200, "")
        finally:
            self.open[owner] -= 1

    def put(self, namespace: str, host: str) -> str:
        async def done(reason: str) -> None:
            self.done.append((host, reason))

        address = WebAddress("https", host, 443, "/")
        return self.lanes.put(Delivery(namespace, address, Message(namespace.encode(), {}), anywhere, self.now, done))


def test_a_dead_receiver_is_tried_again_and_given_up() -> None:
    async def scenario() -> None:
        world = World()
        assert world.put("a", "dead") == ""
        await until_async(lambda: world.done, "it is given up")
        assert world.done == [("dead", f"no connection ({len(PAUSES)} tries)")]
        assert world.now == sum(PAUSES)

    asyncio.run(scenario())


def test_a_flood_to_a_dead_address_is_bounded_and_ends() -> None:
    async def scenario() -> None:
        world = World()
        refused = [world.put("a", "dead") for _ in range(10_000)]
        assert refused.count("") == WAITING_PER_NAMESPACE
        assert world.put("b", "good") == ""
        await until_async(lambda: len(world.done) == WAITING_PER_NAMESPACE + 1, "everything is told or given up")
        assert world.done[0] == ("good", "")
        assert world.sent["dead"] < WAITING_PER_NAMESPACE + 50, "what is too old is not tried again"
        assert world.now < 2 * STALE
        assert world.put("a", "good") == "", "there is room again"
        await until_async(lambda: world.done[-1] == ("good", ""), "the next one arrives")

    asyncio.run(scenario())


def test_slow_receivers_of_one_project_keep_no_other_waiting() -> None:
    async def scenario() -> None:
        world = World()
        for number in range(50):
            world.put("a", f"slow-{number}")
        for number in range(50):
            world.put(f"b{number}", "good")
        await until_async(lambda: len(world.done) == 50, "all others are told")
        assert world.most_open["a"] == 2
        world.hold.set()
        await until_async(lambda: len(world.done) == 100, "the slow ones as well")
        assert world.most_open["a"] == 2

    asyncio.run(scenario())
