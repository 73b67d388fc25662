"""Requests to an identity provider, which may be down, slow or hostile: each on its own thread, bounded in time and bytes.

They use the proxy of the environment (`HTTPS_PROXY`, except for the hosts of `NO_PROXY`), if there is one.
HTTP is the standard library's, on a socket that is shut down at the deadline, so that a body sent byte by byte cannot block a caller.
Redirects are not followed, and a remote provider cannot direct requests to this machine's loopback.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from rowlock.authentication.oidc.settings import OidcSettings, check_address
from rowlock.errors import TooManyRequests, Unavailable

DEADLINE_S = 10.0
"""Seconds for one request in total."""
MAX_BYTES = 1 << 20
"""Most bytes of an answer; documents of real providers have a few thousand."""
MAX_PROXY_BYTES = 16 << 10
"""Most bytes of a proxy's answer."""
MAX_REQUESTS = 8
"""Most concurrent requests; each has a thread."""


class ProviderAnswer(NamedTuple):
    """An answer's HTTP status and its JSON object."""

    status: int
    body: dict[str, Any]


class ProviderRequests:
    """Sends the requests to one provider."""

    def __init__(self, settings: OidcSettings, *, deadline_s: float = DEADLINE_S) -> None:
        self._settings, self._deadline_s = settings, deadline_s
        self._tls: ssl.SSLContext | None = None
        self._running = 0

    async def get(self, url: str) -> dict[str, Any]:
        """The JSON object at a URL. Raises Unavailable, TooManyRequests."""
        answer = await self._send("GET", url, {}, None)
        if answer.status != 200:
            raise Unavailable(f"{self._settings.label} answered {_short_url(url)} with HTTP {answer.status}")
        return answer.body

    async def post(self, url: str, form: Mapping[str, str]) -> ProviderAnswer:
        """Post a form with our client id, and the client secret if there is one. Raises Unavailable, TooManyRequests."""
        headers, fields, secret = {}, {**form, "client_id": self._settings.client_id}, self._settings.client_secret
        if secret:  # RFC 6749 2.3.1: both are encoded as in a form before they are joined
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return await self._send("POST", url, headers, urlencode(fields).encode())

    async def _send(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> ProviderAnswer:
        check_address(url, "an address of the identity provider")
        if self._running >= MAX_REQUESTS:
            raise TooManyRequests(f"{MAX_REQUESTS} logins wait for {self._settings.label} already", retry_after=5)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ProviderAnswer] = loop.create_future()
        exchange = _Exchange(method, url, {**headers, "Accept": "application/json"}, body)

        def finish(result: ProviderAnswer | None, error: BaseException | None) -> None:
            self._running -= 1
            if answer.done():
                return
            if result is not None:
                answer.set_result(result)
            elif error is not None:
                answer.set_exception(error)

        def work() -> None:
            result: ProviderAnswer | None = None
            failure: BaseException | None = None
            try:
                result = exchange.run(self._tls_context(), self._is_local(), self._deadline_s)
            except Exception as error:  # noqa: BLE001  raised in the tasks that wait
                failure = error
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                loop.call_soon_threadsafe(finish, result, failure)

        self._running += 1
        threading.Thread(target=work, daemon=True, name="identity provider").start()
        return await self._outcome(answer, exchange, url)

    async def _outcome(self, answer: asyncio.Future[ProviderAnswer], exchange: _Exchange, url: str) -> ProviderAnswer:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await answer
        except TimeoutError:
            raise Unavailable(
                f"{self._settings.label} did not answer {_short_url(url)} within {self._deadline_s:g} s"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = _printable(getattr(error, "strerror", None) or str(error) or type(error).__name__)
            raise Unavailable(f"{self._settings.label} cannot be asked at {_short_url(url)}: {reason}") from None
        finally:
            exchange.abort()

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            authority = self._settings.ca_file
            self._tls = ssl.create_default_context(cafile=None if authority is None else str(authority))
        return self._tls

    def _is_local(self) -> bool:
        """Whether the issuer's host is this machine: only then may its other addresses be loopback too."""
        host = urlsplit(self._settings.issuer).hostname or ""
        return host == "localhost" or _is_loopback(host)


class Proxy(NamedTuple):
    """An HTTP proxy, and the Proxy-Authorization header for it ("" for none)."""

    address: tuple[str, int]
    authorization: str


def find_proxy(host: str, port: int) -> Proxy | None:
    """The proxy that the environment names for a host; None if it is reached directly. Raises ValueError if the proxy is not an
    http:// address."""
    url = urllib.request.getproxies().get("https", "")
    if not url or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"HTTPS_PROXY must be http://HOST:PORT, not {parts.scheme}://{parts.hostname or ''}")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy((parts.hostname, parts.port or 80), authorization)


def _open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Send CONNECT: afterwards the socket leads to the provider. Raises OSError if the proxy refuses."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)  # byte by byte: bytes after the head belong to the provider
        if not byte or len(head) >= MAX_PROXY_BYTES:
            raise OSError(f"the proxy {proxy.address[0]} answers no HTTP")
        head += byte
    status = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if len(status) < 2 or status[1] != "200":
        raise OSError(f"the proxy {proxy.address[0]} refuses: {_printable(' '.join(status[1:]))}")


class _Exchange:
    """One request and its answer. `run` blocks; `abort` may be called from another thread."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self._method, self._url, self._headers, self._body = method, url, dict(headers), body
        self._socket: socket.socket | None = None
        self._aborted = False

    def abort(self) -> None:
        """End the exchange, whatever its thread waits for. May be called from any thread, also after the end."""
        self._aborted = True
        if (sock := self._socket) is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not the TLS one's, which forgets its state

    def run(self, tls: ssl.SSLContext, may_be_local: bool, timeout: float) -> ProviderAnswer:
        parts = urlsplit(self._url)
        host, port = parts.hostname or "", parts.port or 443
        proxy = None if may_be_local else find_proxy(host, port)
        plain = socket.create_connection(proxy.address if proxy else (host, port), timeout)
        try:
            if proxy:
                self._socket = plain
                _open_tunnel(plain, proxy, host, port)
            elif not may_be_local and _is_loopback(str(plain.getpeername()[0])):
                raise OSError(f"{host} leads to this machine's loopback, and the issuer is elsewhere")
            secured = tls.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
        except BaseException:
            plain.close()
            raise
        self._socket = secured
        with secured:
            if self._aborted:
                raise TimeoutError("it took too long to connect")
            secured.do_handshake()
            return self._speak(secured, parts.netloc, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))

    def _speak(self, secured: ssl.SSLSocket, host: str, target: str) -> ProviderAnswer:
        connection = http.client.HTTPConnection(host)
        connection.sock = secured
        connection.request(self._method, target, self._body, self._headers)
        response = connection.getresponse()
        try:
            if 300 <= response.status < 400:
                raise ValueError(f"it redirects (HTTP {response.status}), and redirects are not followed")
            content = response.read(MAX_BYTES + 1)
        finally:
            response.close()
        if len(content) > MAX_BYTES:
            raise ValueError(f"its answer has more than {MAX_BYTES} bytes")
        try:
            body = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise ValueError(f"its answer (HTTP {response.status}) is no JSON object")
        return ProviderAnswer(response.status, body)


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback or parsed.is_unspecified


def _short_url(url: str) -> str:
    return url.partition("?")[0][:200]


def refusal_of(answer: ProviderAnswer) -> str:
    """The provider's own words for what it refuses, short and without control characters."""
    words = [str(answer.body.get(name) or "") for name in ("error", "error_description")]
    text = ": ".join(word for word in words if word) or f"HTTP {answer.status}"
    return _printable(text)


def _printable(text: object) -> str:
    """Text of the provider or proxy, shortened and without control characters, for an error message."""
    return "".join(c if c.isprintable() else " " for c in str(text)[:300]).strip()
