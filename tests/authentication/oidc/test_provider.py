"""A provider that is away, slow or hostile: it is said, in bounded time and memory, and the event loop turns meanwhile."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.authentication.oidc.provider import Provider, running_provider

from rowlock.authentication.oidc import provider_requests
from rowlock.authentication.oidc.provider import OidcProvider
from rowlock.authentication.oidc.provider_requests import MAX_BYTES, MAX_REQUESTS, ProviderRequests
from rowlock.authentication.oidc.settings import OidcSettings, parse_settings
from rowlock.errors import BadRequest, TooManyRequests, Unavailable
from rowlock.serve import parse_arguments

DOCUMENT = "/.well-known/openid-configuration"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    yield running
    running.answers.clear()


async def problem_of(settings: OidcSettings, deadline_s: float = 20.0) -> str:
    """After one attempt."""
    known = OidcProvider(settings, ProviderRequests(settings, deadline_s=deadline_s))
    await known.refresh()
    return known.problem


def test_others_have_their_turns_while_a_provider_thinks(provider: Provider) -> None:
    is_asked, may_answer, turned = threading.Event(), threading.Event(), list[bool]()

    def think(face: Any) -> None:
        is_asked.set()
        turned.append(may_answer.wait(200))
        face.send_response(500)
        face.end_headers()

    async def main() -> None:
        attempt = asyncio.create_task(problem_of(provider.settings(), deadline_s=60))
        await asyncio.to_thread(is_asked.wait, 60)
        may_answer.set()
        assert "HTTP 500" in await attempt

    provider.answers[DOCUMENT] = think
    asyncio.run(main())
    assert turned == [True]


def drip(face: Any) -> None:
    face.send_response(200)
    face.send_header("content-length", "1000000")
    face.end_headers()
    while True:
        face.wfile.write(b" ")
        time.sleep(0.02)


def endless(face: Any) -> None:
    face.send_response(200)
    face.end_headers()
    while True:
        face.wfile.write(b" " * 65536)


def endless_head(face: Any) -> None:
    face.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        face.wfile.write(b"x: y\r\n" * 1000)


def redirect(face: Any) -> None:
    face.send_response(302)
    face.send_header("location", "https://127.0.0.1:1/")
    face.end_headers()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (endless, f"more than {MAX_BYTES} bytes"),
        (endless_head, "100 headers"),
        (redirect, "redirects are not followed"),
        (b"<html>", "no JSON object"),
        (b"[" * 100_000, "no JSON object"),
        (b"[]", "no JSON object"),
        (b"\xff{}", "no JSON object"),
        (500, "HTTP 500"),
        (b'{"issuer": "https://evil.example"}', "letter by letter"),
    ],
)
def test_odd_documents_are_refused_in_a_sentence(provider: Provider, given: Any, says: str) -> None:
    provider.answers[DOCUMENT] = given
    assert says in asyncio.run(problem_of(provider.settings()))


def test_a_body_that_comes_byte_by_byte_holds_nobody(provider: Provider) -> None:
    provider.answers[DOCUMENT] = drip
    assert "did not answer" in asyncio.run(problem_of(provider.settings(), deadline_s=0.5))


def test_a_provider_that_is_away_is_said(tmp_path: Path, provider: Provider) -> None:
    away = OidcSettings("https://127.0.0.1:1", "x", ca_file=provider.ca_file)
    assert "cannot be asked" in asyncio.run(problem_of(away))
    untrusted = OidcSettings(provider.url, "x")
    assert "certificate" in asyncio.run(problem_of(untrusted)).lower()


@pytest.mark.parametrize(
    "where", ["http://127.0.0.1/keys", "file:///etc/passwd", "", "https://a@b/", "https://x:99999/"]
)
def test_addresses_of_the_document_are_https(provider: Provider, where: str) -> None:
    provider.answers[DOCUMENT] = f'{{"issuer": "{provider.url}", "jwks_uri": "{where}"}}'.encode()
    assert "must be https://" in asyncio.run(problem_of(provider.settings()))


def test_a_provider_elsewhere_does_not_send_us_to_loopback(provider: Provider) -> None:
    settings = OidcSettings("https://login.example", "x", ca_file=provider.ca_file)

    async def main() -> None:
        with pytest.raises(Unavailable, match="this machine's loopback"):
            await ProviderRequests(settings).get(provider.url + DOCUMENT)

    provider.asked.clear()
    asyncio.run(main())
    assert provider.asked == []


def test_requests_at_a_time_are_limited(provider: Provider) -> None:
    free = threading.Event()
    provider.answers["/token"] = lambda face: free.wait(200)

    async def main() -> None:
        requests = ProviderRequests(provider.settings())
        waiting = [asyncio.create_task(requests.post(provider.url + "/token", {})) for _ in range(MAX_REQUESTS)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await requests.post(provider.url + "/token", {})
        free.set()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(main())


def test_what_is_known_is_kept_while_the_provider_is_away(provider: Provider) -> None:
    async def main() -> None:
        known = OidcProvider(provider.settings())
        await known.refresh()
        generation = known.generation
        provider.answers[DOCUMENT] = 503
        await known.refresh()
        assert "HTTP 503" in known.problem and known.has_keys and known.generation == generation

    asyncio.run(main())


# ---------------------------------------------------------------- flags

GOOD = ["--data-dir", "x", "--oidc-issuer-url", "https://login.example", "--oidc-client-id", "rowlock"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (GOOD[:4], "needs both"),
        ([*GOOD[:2], "--oidc-groups-claim", "groups"], "needs both"),
        ([*GOOD, "--oidc-issuer-url", "http://login.example"], "must be https://"),
        ([*GOOD, "--oidc-signing-algs", "HS256"], "not HS256"),
        ([*GOOD, "--oidc-signing-algs", "RS256,none"], "not none"),
        ([*GOOD, "--oidc-required-claim", "hd"], "CLAIM=VALUE"),
        ([*GOOD, "--oidc-ca-file", "/nowhere"], "no file /nowhere"),
        ([*GOOD, "--oidc-client-secret-file", "/nowhere"], "cannot be read"),
    ],
)
def test_flags_that_cannot_be_are_refused(flags: list[str], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        parse_settings(parse_arguments(flags))


def test_a_secret_is_for_its_owners_eyes(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush\n")
    file.chmod(0o644)
    flags = [*GOOD, "--oidc-client-secret-file", str(file)]
    with pytest.raises(BadRequest, match="chmod 600"):
        parse_settings(parse_arguments(flags))
    file.chmod(0o600)
    settings = parse_settings(parse_arguments([*flags, "--oidc-username-prefix", "-"]))
    assert settings is not None
    assert (settings.client_secret, settings.username_prefix, settings.groups_prefix) == ("hush", "", "oidc:")
    assert provider_requests.DEADLINE_S < 30


class FakeProxy:
    """An HTTP proxy on loopback that leads every tunnel to one address; `asked` has the heads of requests."""

    def __init__(self, answer: bytes, target: tuple[str, int]) -> None:
        self.asked: list[str] = []
        self._answer, self._target = answer, target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Returns when every tunnel is closed."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(200)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._tunnel, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _tunnel(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = client.recv(1)
                if not byte:
                    return
                head += byte
            self.asked.append(head.decode())
            client.sendall(self._answer)
            if b" 200 " in self._answer:
                with socket.create_connection(self._target) as provider:
                    back = threading.Thread(target=_pump, args=(provider, client), daemon=True)
                    back.start()
                    _pump(client, provider)
                    back.join(200)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def through_proxy(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, answer: bytes, credentials: str = ""
) -> Iterator[FakeProxy]:
    """The provider is elsewhere, as far as its issuer says, and the proxy of the environment leads there."""
    parts = urlsplit(provider.url)
    proxy = FakeProxy(answer, (str(parts.hostname), int(parts.port or 0)))
    monkeypatch.setenv("HTTPS_PROXY", f"http://{credentials}127.0.0.1:{proxy.port}")
    for name in ("https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ProviderRequests, "_is_local", lambda _: False)
    try:
        yield proxy
    finally:
        proxy.close()


def test_the_proxy_of_the_environment_is_used(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    with through_proxy(provider, monkeypatch, b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n", "ana:p%40ss@") as proxy:
        assert asyncio.run(problem_of(provider.settings())) == ""
        host = urlsplit(provider.url).netloc
        assert proxy.asked[0].startswith(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'ana:p@ss').decode()}\r\n" in proxy.asked[0]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "the proxy 127.0.0.1 refuses: 407 Proxy Authentication",
        ),
        (b"hello\r\n\r\n", "the proxy 127.0.0.1 refuses"),
        (b"x" * 20_000, "answers no HTTP"),
    ],
)
def test_a_proxy_that_refuses_is_said(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, answer: bytes, says: str
) -> None:
    with through_proxy(provider, monkeypatch, answer):
        assert says in asyncio.run(problem_of(provider.settings()))


def test_hosts_of_no_proxy_are_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "lab.example")
    assert provider_requests.find_proxy("login.lab.example", 443) is None
    found = provider_requests.find_proxy("login.example", 443)
    assert found is not None and found.address == ("proxy.example", 3128)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.example:1080")
    with pytest.raises(ValueError, match="must be http://HOST:PORT"):
        provider_requests.find_proxy("login.example", 443)
