"""What no client may do to the server, or to the others: too much, too slowly, half a request, or without a token."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from tests.apiserver.conftest import TOKEN, Running
from tests.waiting import PATIENCE, until

from rowlock import errors, kinds, server_files
from rowlock.api import LogOptions
from rowlock.apiserver.http import requests
from rowlock.authentication.users import User
from rowlock.authorization.open_requests import LongRunningRequests
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.errors import TooManyRequests
from rowlock.http_server import connection_limits, http_protocol, sockets, tls
from rowlock.storage.store import Store

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = requests.Target(kinds.POD)


@contextmanager
def plain(server: Running) -> Iterator[socket.socket]:
    """A connection without TLS as yet."""
    host, _, port = server.url.removeprefix("https://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as made:
        yield made


@contextmanager
def connected(server: Running) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(server.ca))
    with plain(server) as bare, context.wrap_socket(bare, server_hostname="127.0.0.1") as made:
        yield made


def all_of(connection: socket.socket) -> bytes:
    """Everything until the server hangs up; b"" when it does so at once, and rudely."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except (ConnectionResetError, ssl.SSLEOFError):
        pass
    return b"".join(parts)


def head(*lines: str, token: str = TOKEN) -> bytes:
    return "\r\n".join([*lines, "Host: x", f"Authorization: Bearer {token}"]).encode()


# ---------------------------------------------------------------- too much


def test_headers_have_a_limit(server: Running, client: httpx.Client) -> None:
    with connected(server) as connection:
        connection.sendall(head("GET /api/v1/nodes HTTP/1.1"))
        try:
            for _ in range(2 * http_protocol.HEAD_LIMIT // 1000):
                connection.sendall(b"\r\nX-More: " + b"x" * 990)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            pass  # it has had enough before we had
        said = all_of(connection)
    assert not said or said.startswith(b"HTTP/1.1 431 "), said[:200]
    assert client.get("/readyz").text == "ok"


def test_headers_of_a_sensible_size_pass(client: httpx.Client) -> None:
    assert client.get("/version", headers={"x-more": "x" * 16_000}).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_has_a_limit(client: httpx.Client, chunked: bool) -> None:
    body = b'{"metadata": {"name": "big"}, "data": {"a": "' + b"x" * requests.BODY_LIMIT + b'"}}'
    content = iter([body[:1000], body[1000:]]) if chunked else body
    answer = client.post(CONFIGS, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["reason"]) == (413, "RequestEntityTooLarge")
    assert client.get(f"{CONFIGS}/big").status_code == 404


@pytest.mark.parametrize("connection_header", ["close", "keep-alive"])
@pytest.mark.parametrize("token", [TOKEN, "somebody"], ids=["owner", "stranger"])
def test_who_sends_all_of_a_huge_body_first_sees_the_answer(
    server: Running, token: str, connection_header: str
) -> None:
    body = b"x" * (16 * 1024 * 1024)
    with connected(server) as connection:
        request = head(
            f"POST {CONFIGS} HTTP/1.1", f"Content-Length: {len(body)}", f"Connection: {connection_header}", token=token
        )
        connection.sendall(request + b"\r\n\r\n" + body)
        assert connection.recv(12) == (b"HTTP/1.1 413" if token == TOKEN else b"HTTP/1.1 401")
        if connection_header == "close":
            assert all_of(connection), "the rest, and then the end"


def test_a_connection_ends_where_the_client_asks_for_it(server: Running) -> None:
    with connected(server) as connection:
        request = head(f"POST {CONFIGS} HTTP/1.1", "Content-Length: 2", "Connection: close")
        connection.sendall(request + b"\r\n\r\n{}")
        assert all_of(connection).startswith(b"HTTP/1.1 4")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flood(connection: socket.socket, piece: bytes, total: int) -> int:
    """Send `piece` again and again without reading an answer; the bytes that went out before the server hung up."""
    sent = 0
    connection.settimeout(2.0)
    try:
        while sent < total:
            connection.sendall(piece)
            sent += len(piece)
    except (OSError, ssl.SSLError):
        pass  # cut off, or nobody takes any more
    return sent


FLOOD = 64 * 1024 * 1024
PIPELINED = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n" * 1000
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"", PIPELINED),
        (b"POST /api/v1/token HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK),
        (b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ", b"x" * 65536),
        (b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 65536),
        (b"GET /api HTTP/1.1\r\nHost: x", b"\r\na:" * 10_000),
    ],
    ids=["pipelined", "chunked body", "trailer", "chunk extension", "empty headers"],
)
def test_who_has_no_token_cannot_make_the_server_large_or_slow(
    server: Running, client: httpx.Client, head: bytes, piece: bytes
) -> None:
    client.get("/readyz")
    before, begun = resident_bytes(), time.process_time()
    with connected(server) as connection:
        connection.sendall(head)
        sent = flood(connection, piece, FLOOD)
        assert client.get("/readyz").text == "ok", "others are answered meanwhile"
    assert sent < FLOOD, "it was cut off"
    assert resident_bytes() - before < 24 * 1024 * 1024
    assert time.process_time() - begun < 5.0, "client and server together"


def test_connections_leave_descriptors_for_the_server_itself(
    server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/readyz").text == "ok"  # it keeps its connection
    monkeypatch.setattr(connection_limits, "connection_limit", lambda others=0: 4)  # three for loopback
    with ExitStack() as stack:
        for _ in range(2):
            held = stack.enter_context(connected(server))
            held.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")  # who has said nothing would make room
            assert held.recv(100).startswith(b"HTTP/1.1 200 ")
        with plain(server) as refused:
            assert all_of(refused) == b""
        assert client.get("/readyz").text == "ok"
    deadline = time.monotonic() + PATIENCE
    while True:  # the others have gone: there is room again, as soon as the server has seen it
        try:
            with connected(server) as connection:
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert all_of(connection).endswith(b"ok")
                return
        except (OSError, ssl.SSLError):
            assert time.monotonic() < deadline


def test_a_page_has_a_limit(client: httpx.Client, monkeypatch: pytest.MonkeyPatch, space: str) -> None:
    for name in "abc":
        client.post(f"{space}/secrets", json={"metadata": {"name": name}})
    monkeypatch.setattr(requests, "PAGE_LIMIT", 2)
    page = client.get(f"{space}/secrets", params={"limit": "1000000000000"}).json()
    assert (len(page["items"]), bool(page["metadata"]["continue"])) == (2, True)


def test_an_answer_says_how_many_causes_it_leaves_out(client: httpx.Client) -> None:
    """A request below its limit with 100,000 bad labels was answered with 98 MB."""
    body = {"metadata": {"name": "bad", "labels": {f"l{number}": f"-{number}" for number in range(100_000)}}}
    answer = client.post(CONFIGS, json=body, timeout=200)  # whatever else this machine does
    said = answer.json()
    assert answer.status_code == 422 and len(answer.content) < 1 << 20
    assert len(said["details"]["causes"]) == errors.MAX_CAUSES
    assert said["message"].endswith(", and 99500 more]")


def call_of(user: str) -> requests.Call:
    return requests.Call("GET", "/", {}, {}, User(user), RbacAuthorizer(Store.open(None).view))


def test_watches_have_a_limit_per_user() -> None:
    async def body() -> None:
        requests_, a, b = LongRunningRequests(2), call_of("a"), call_of("b")
        with requests_.hold(a, "watch", PODS), requests_.hold(a, "watch", PODS):
            with (
                pytest.raises(TooManyRequests, match="2 watches, followed logs and sessions open"),
                requests_.hold(a, "watch", PODS),
            ):
                pass
            with requests_.hold(b, "watch", PODS):
                pass
        with requests_.hold(a, "watch", PODS):  # the others have ended
            pass

    asyncio.run(body())


# ---------------------------------------------------------------- too slow


def test_a_client_that_never_says_hello_is_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.2)
    with plain(server) as connection:
        assert all_of(connection) == b""


def test_a_client_that_never_asks_is_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "FIRST_S", 0.2)
    with connected(server) as connection:
        assert all_of(connection) == b""


def test_a_head_that_trickles_is_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_S", 0.4)
    with connected(server) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nX-Slow: ")
        connection.settimeout(0.05)
        deadline, said = time.monotonic() + PATIENCE, b""
        while time.monotonic() < deadline:
            try:
                connection.sendall(b"x")
                part = connection.recv(1000)
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
                break
            said += part
            if not part:
                break
        else:
            pytest.fail("a head that trickles holds its connection for ever")
    assert not said or said.startswith(b"HTTP/1.1 408 "), said


def test_a_body_that_never_ends_is_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_S", 0.4)
    with connected(server) as connection:
        connection.sendall(head(f"POST {CONFIGS} HTTP/1.1", "Content-Length: 1000") + b"\r\n\r\n{")
        assert b"201" not in all_of(connection)


def test_a_request_in_pieces_is_answered(server: Running) -> None:
    whole = head("GET /version HTTP/1.1", "Connection: close") + b"\r\n\r\n"
    with connected(server) as connection:
        for at in range(0, len(whole), 7):
            connection.sendall(whole[at : at + 7])
        assert all_of(connection).startswith(b"HTTP/1.1 200 ")


def test_requests_sent_together_are_answered_in_order(server: Running) -> None:
    """Several in one TLS record, and several records in one piece of the network's."""
    first, other = "GET /version HTTP/1.1", "GET /readyz HTTP/1.1"
    together = head(first) + b"\r\n\r\n" + head(other) + b"\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(together)
        for line in (first, other):
            connection.sendall(head(line) + b"\r\n\r\n")
        connection.sendall(head(first, "Connection: close") + b"\r\n\r\n")
        said = all_of(connection)
    found = [b"gitVersion" in answer for answer in said.split(b"HTTP/1.1 200 ")[1:]]
    assert found == [True, False, True, False, True]


def test_a_connection_serves_on_after_a_watch(server: Running) -> None:
    """And an answer is one piece."""
    with connected(server) as connection:
        connection.sendall(head(f"GET {CONFIGS}?watch=1&timeoutSeconds=1 HTTP/1.1") + b"\r\n\r\n")
        said = b""
        while not said.endswith(b"0\r\n\r\n"):
            piece = connection.recv(65536)
            assert piece, said[-300:]
            said += piece
        assert b"transfer-encoding: chunked" in said.lower()
        for _ in range(2):
            connection.sendall(head("GET /readyz HTTP/1.1") + b"\r\n\r\n")
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\nok"), answer


def test_who_is_silent_after_an_answer_is_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: every request begins the time anew, and an answer that takes long does not count."""
    patience = 2  # seconds: a busy machine may leave us alone for one, between an answer and the next request
    monkeypatch.setattr(http_protocol, "FIRST_S", patience)
    made = http_protocol.HttpProtocol.connection_made

    def impatient(protocol: http_protocol.HttpProtocol, transport: asyncio.Transport) -> None:
        protocol.timeout_keep_alive = patience
        made(protocol, transport)

    monkeypatch.setattr(http_protocol.HttpProtocol, "connection_made", impatient)
    with connected(server) as connection:
        for _ in range(3):
            connection.sendall(head("GET /readyz HTTP/1.1") + b"\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(head(f"GET {CONFIGS}?watch=1&timeoutSeconds=3 HTTP/1.1") + b"\r\n\r\n")
        began, said = time.monotonic(), all_of(connection)
    assert said.endswith(b"0\r\n\r\n"), "a watch of three seconds was cut off"
    assert time.monotonic() - began > 3


def test_slow_and_half_open_clients_hold_up_nobody(server: Running, client: httpx.Client) -> None:
    """A crowd that trickles, one that says nothing, and one that asks for much and reads none of it."""
    name = "much"
    client.post(CONFIGS, json={"metadata": {"name": name}, "data": {"a": "x" * 900_000}}).raise_for_status()
    with ExitStack() as stack:
        for number in range(60):
            if number % 3 == 0:
                stack.enter_context(plain(server))
                continue
            connection = stack.enter_context(connected(server))
            if number % 3 == 1:
                connection.sendall(b"GET /api/v1/pods HTTP/1.1\r\nX")
            else:
                connection.sendall((head(f"GET {CONFIGS} HTTP/1.1") + b"\r\n\r\n") * 20)
        began = time.monotonic()
        for number in range(20):
            made = client.post(CONFIGS, json={"metadata": {"name": f"quick-{number}"}})
            assert made.status_code == 201
            client.delete(f"{CONFIGS}/quick-{number}").raise_for_status()
        assert time.monotonic() - began < 20, "the server waited for one of the crowd"
    client.delete(f"{CONFIGS}/{name}").raise_for_status()


def test_a_client_that_hangs_up_in_the_middle_leaves_nothing(server: Running, client: httpx.Client) -> None:
    body = json.dumps({"metadata": {"name": "half"}, "data": {"a": "1"}}).encode()
    with connected(server) as connection:
        connection.sendall(head(f"POST {CONFIGS} HTTP/1.1", f"Content-Length: {len(body)}") + b"\r\n\r\n" + body[:-5])
    assert client.get(f"{CONFIGS}/half").status_code == 404
    assert client.get("/readyz").text == "ok"


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000, b"\xff" * 70_000])
def test_what_is_no_tls_is_cut_off(server: Running, client: httpx.Client, garbage: bytes) -> None:
    with plain(server) as connection:
        try:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
        except (ConnectionResetError, BrokenPipeError, OSError):
            pass
        assert b"HTTP/1.1 200" not in all_of(connection)
    assert client.get("/readyz").text == "ok"


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET \xff\xfe HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_http_is_refused(server: Running, client: httpx.Client, garbage: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(garbage)
        assert all_of(connection).startswith(b"HTTP/1.1 4")
    assert client.get("/readyz").text == "ok"


# ---------------------------------------------------------------- logs


class Endless:
    """A log without end, which counts what was asked of it, and who asks."""

    PIECE = b"x" * 65_535 + b"\n"

    def __init__(self) -> None:
        self.pieces: Counter[str] = Counter()
        self.reading: Counter[str] = Counter()

    async def __call__(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        who = str(options.tail)
        self.reading[who] += 1
        try:
            while who != "0":
                self.pieces[who] += 1
                yield self.PIECE
                await asyncio.sleep(0)
            await asyncio.Event().wait()  # a quiet one
        finally:
            self.reading[who] -= 1


@pytest.fixture
def endless(server: Running, client: httpx.Client, space: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Endless]:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}
    client.post(f"{space}/pods", json=pod).raise_for_status()
    log = Endless()
    monkeypatch.setattr(server.store, "log", log)
    return f"{space}/pods/p/log?follow=true&tailLines=", log


def test_slow_followers_of_a_log_hold_up_nobody_and_no_memory(
    server: Running, client: httpx.Client, endless: tuple[str, Endless]
) -> None:
    """Ten that read nothing of an endless log: little more is made for them than the kernel's buffers hold."""
    path, log = endless
    with ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(connected(server))
            connection.sendall(head(f"GET {path}5 HTTP/1.1") + b"\r\n\r\n")
        until(lambda: log.reading["5"] == 10, "ten followers read")
        read = 0
        with client.stream("GET", f"{path}7") as answer:  # one that reads, meanwhile
            for piece in answer.iter_bytes():
                read += len(piece)
                if read > 20 << 20:
                    break
        before = -1
        while before != log.pieces["5"]:  # nothing more is made for who does not read
            before = log.pieces["5"]
            assert client.post(CONFIGS, params={"dryRun": "All"}, json={"metadata": {"name": "q"}}).status_code == 201
        assert before * len(Endless.PIECE) < 10 * (16 << 20), "a slow follower makes the server hold its log"
    until(lambda: not log.reading["5"] and not log.reading["7"], "those who left are forgotten")


def test_who_leaves_a_quiet_log_is_forgotten(server: Running, endless: tuple[str, Endless]) -> None:
    path, log = endless
    with connected(server) as connection:
        connection.sendall(head(f"GET {path}0 HTTP/1.1") + b"\r\n\r\n")
        until(lambda: log.reading["0"] == 1, "it follows")
    until(lambda: not log.reading["0"], "it left before the log's first line")


def test_followed_logs_have_a_limit_per_user(
    server: Running, client: httpx.Client, endless: tuple[str, Endless], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with watches: each of them holds a connection and an open file."""
    path, log = endless

    def full(open_requests: LongRunningRequests, call: requests.Call, *what: object) -> None:
        raise TooManyRequests(f"{call.user.name} has enough")

    monkeypatch.setattr(LongRunningRequests, "hold", full)
    refused = client.get(f"{path}0")
    assert (refused.status_code, refused.json()["message"]) == (429, "rowlock-admin has enough")
    assert not log.reading


# ---------------------------------------------------------------- without a token


def _paths() -> Iterator[str]:
    for kind in kinds.KINDS:
        base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        for where in (base, f"{base}/namespaces/default") if kind.namespaced else (base,):
            yield f"{where}/{kind.plural}"
            yield f"{where}/{kind.plural}?watch=true"
            yield f"{where}/{kind.plural}/x"
            yield from (f"{where}/{kind.plural}/x/{part}" for part in sorted(kind.subresources))
    yield from ("/api", "/apis", "/api/v1", "/apis/kubeflow.org/v1", "/openapi/v2", "/openapi/v3", "/", "/metrics")


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"])
def test_no_door_opens_without_the_token(client: httpx.Client, authorization: str) -> None:
    for path in _paths():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            answer = client.request(method, path, headers={"authorization": authorization})
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
            assert answer.json()["reason"] == "Unauthorized" and "items" not in answer.json()


def test_the_server_is_bound_to_loopback_alone(tmp_path: Path) -> None:
    """Unless it is told otherwise (`tests/serve/test_bind.py`), with users who have tokens of their own."""
    bound = sockets.open_listeners(0, tmp_path)
    addresses = [sock.getsockname()[0] for sock in bound]
    for sock in bound:
        sock.close()
    assert addresses == ["127.0.0.1"]


def test_the_token_is_for_its_owner_alone(tmp_path: Path) -> None:
    server_files.ensure_token(tmp_path / "token")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- many at once


def test_a_crowd_of_watchers_hears_every_change(server: Running, client: httpx.Client, space: str) -> None:
    """300 over HTTPS here; 1,000 beside a real API server in `benchmarks/api.py`."""
    crowd, news = 300, 5

    async def listen(ready: asyncio.Semaphore) -> list[str]:
        context = ssl.create_default_context(cafile=str(server.ca))
        host, _, port = server.url.removeprefix("https://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(
            head(f"GET {space}/configmaps?watch=1&fieldSelector=metadata.name!=kube-root-ca.crt HTTP/1.1") + b"\r\n\r\n"
        )
        seen: list[str] = []
        await reader.readuntil(b"\r\n\r\n")
        ready.release()
        while len(seen) < news:
            line = (await reader.readline()).strip()
            if line.startswith(b"{"):
                seen.append(json.loads(line)["object"]["metadata"]["name"])
        writer.transport.abort()
        return seen

    async def main() -> list[list[str]]:
        ready = asyncio.Semaphore(0)
        listeners = [asyncio.create_task(listen(ready)) for _ in range(crowd)]
        for _ in range(crowd):
            await ready.acquire()
        for number in range(news):
            answer = await asyncio.to_thread(
                client.post, f"{space}/configmaps", json={"metadata": {"name": f"n-{number}"}}
            )
            answer.raise_for_status()
        return await asyncio.gather(*listeners)

    heard = asyncio.run(asyncio.wait_for(main(), 150))
    assert heard == [[f"n-{number}" for number in range(news)]] * crowd


@pytest.mark.timeout(60)
def test_a_watcher_that_pauses_reads_on_where_it_was(server: Running, client: httpx.Client, space: str) -> None:
    """More than any buffer holds comes while it reads nothing; what others hear does not wait for it."""
    times, size = 40, 400_000
    watch = head(f"GET {space}/configmaps?watch=1&fieldSelector=metadata.name=much HTTP/1.1") + b"\r\n\r\n"

    def numbers(connection: socket.socket, last: int) -> list[int]:
        said = b""
        while f'"number":"{last}"'.encode() not in said:
            piece = connection.recv(1 << 20)
            assert piece, said[-300:]
            said += piece
        return [int(text) for text in re.findall(rb'"number":"([0-9]+)"', said)]

    with connected(server) as slow, connected(server) as other:
        for connection in (slow, other):
            connection.sendall(watch)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        for number in range(times):
            data = {"number": str(number), "text": "x" * size}
            verb, place = ("POST", "") if number == 0 else ("PUT", "/much")
            answer = client.request(
                verb, f"{space}/configmaps{place}", json={"metadata": {"name": "much"}, "data": data}
            )
            answer.raise_for_status()
            assert numbers(other, number) == [number]
        assert numbers(slow, times - 1) == list(range(times))
        data = {"number": str(times)}
        client.put(f"{space}/configmaps/much", json={"metadata": {"name": "much"}, "data": data}).raise_for_status()
        assert numbers(slow, times) == numbers(other, times) == [times]


def test_a_connection_that_has_gone_waits_for_no_garbage_collection(server: Running) -> None:
    """Each held its TLS buffers until a full collection, which is rare and long: 0.1 s, in which nobody was served."""

    def connections() -> int:
        return sum(type(found) is tls.TlsConnection for found in gc.get_objects())

    gc.collect()
    before = connections()
    gc.disable()
    try:
        for _ in range(20):
            with connected(server) as connection:
                connection.sendall(head("GET /api/v1/namespaces/default HTTP/1.1", "Connection: close") + b"\r\n\r\n")
                assert all_of(connection).startswith(b"HTTP/1.1 200 ")
        until(lambda: connections() <= before + 2, "they are freed without a collection")
    finally:
        gc.enable()
