"""One API server over HTTPS: sends requests, keeps within limits, renews credentials, and raises `ApiError`s.

What is tried again: after 401 once, with renewed credentials; after 429 whatever the verb, when and only when the
server says how long to wait; GETs also when the connection breaks or a server is briefly unavailable. A write whose
answer was lost is never repeated here: the caller looks at the cluster, which knows.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.request import getproxies

import httpx
import msgspec

import rowlock
from rowlock.errors import ApiError, Timeout, Unavailable, from_status
from rowlock.kube.config import ClientConfig, Credentials
from rowlock.kube.rate_limit import Backoff, Limits, TokenBucket
from rowlock.objects import is_digits

_RETRIABLE_CODES = frozenset({500, 502, 503, 504})
_WARNING = re.compile(r'299\s+\S+\s+"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request as it goes over the wire."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    media: str = "application/json"
    token: str | None = None
    """Of the user whom it is sent for; None: the credentials of the connection."""

    @property
    def is_safe(self) -> bool:
        """Whether it may be sent again after a connection broke: only GET changes nothing."""
        return self.method == "GET"


class Connection:
    """Opened on first use; `close` when done. Streams (watches, followed logs) each take a connection of their own."""

    def __init__(self, credentials: Credentials, limits: Limits = Limits()) -> None:
        self.limits = limits
        self._credentials = credentials
        self._bucket = TokenBucket(limits.qps, limits.burst)
        self._in_flight = asyncio.Semaphore(limits.max_in_flight)
        self._http: httpx.AsyncClient | None = None
        self._config: ClientConfig | None = None
        self._retired: list[httpx.AsyncClient] = []
        """Clients of former credentials: streams may still run on them, so they are closed at the end."""
        self._connect_lock = asyncio.Lock()

    async def close(self) -> None:
        """Close the HTTP clients, those of former credentials too."""
        for client in (*self._retired, self._http):
            if client:
                await client.aclose()
        self._retired, self._http = [], None

    async def send(self, request: Request, warnings: list[str] | None = None) -> Any:
        """The decoded answer. Raises ApiError; the server's warnings are added to `warnings`."""
        async with self._in_flight, self.stream(request) as response:
            content = await _read_body(response)
        if warnings is not None:
            warnings.extend(parse_warnings(response.headers.get_list("warning")))
        return msgspec.json.decode(content) if content else {}

    @asynccontextmanager
    async def stream(self, request: Request, *, endless: bool = False) -> AsyncIterator[httpx.Response]:
        """The answer as it comes, after its status was found good. `endless`: no limit on the silence within."""
        response = await self._send_with_retries(request, endless)
        try:
            yield response
        except httpx.TransportError as error:
            raise _transport_error(request, error) from error
        finally:
            await response.aclose()

    async def _send_with_retries(self, request: Request, endless: bool) -> httpx.Response:
        backoff, renewed, tries_left = Backoff(), False, self.limits.max_tries
        while True:
            tries_left -= 1
            try:
                response = await self._send_once(request, endless)
            except httpx.TransportError as error:
                if not request.is_safe or tries_left <= 0:
                    raise _transport_error(request, error) from error
                await asyncio.sleep(backoff.next_delay())
                continue
            if response.is_success:
                return response
            refusal = await _read_error(response)
            if response.status_code == 401 and not renewed and request.token is None:
                renewed = True
                await self._authenticated_client(refused=self._config)
                continue
            delay = _retry_delay(request, response, refusal, backoff)
            if delay is None or tries_left <= 0:
                raise refusal
            await asyncio.sleep(delay)

    async def _send_once(self, request: Request, endless: bool) -> httpx.Response:
        http = self._http or await self._authenticated_client()
        await self._bucket.take()
        config = self._config
        assert config is not None
        headers = {"Accept": "application/json"}
        if token := config.token if request.token is None else request.token:
            headers["Authorization"] = f"Bearer {token}"
        content = None
        if request.body is not None:
            content = msgspec.json.encode(request.body)
            headers["Content-Type"] = request.media
        http_request = http.build_request(
            request.method, config.server + request.path, params=dict(request.query), headers=headers, content=content,
            timeout=httpx.Timeout(self.limits.read_timeout, connect=self.limits.connect_timeout, **({"read": None} if endless else {})),
            extensions={"sni_hostname": config.tls_name} if config.tls_name else None,
        )  # fmt: skip
        return await http.send(http_request, stream=True)

    async def client_config(self, refused: ClientConfig | None = None) -> ClientConfig:
        """Where the API server is and who we are there, for streams that do not go through here; renewed when it was
        `refused`. Raises Unauthorized."""
        await self._authenticated_client(refused)
        assert self._config is not None
        return self._config

    async def _authenticated_client(self, refused: ClientConfig | None = None) -> httpx.AsyncClient:
        """A client with today's credentials. `refused` is the place that was refused: renewed once for all who wait."""
        async with self._connect_lock:
            if self._http and self._config is not refused:
                return self._http
            config = await self._credentials.renew()
            if self._http and self._config and _same_endpoint(self._config, config):
                self._config = config
                return self._http
            if self._http:
                self._retired.append(self._http)
            self._http, self._config = _make_client(config), config
            return self._http


def _same_endpoint(old: ClientConfig, new: ClientConfig) -> bool:
    """True when only the token changed: the connections may stay."""
    return (old.server, old.proxy, old.identity) == (new.server, new.proxy, new.identity)


def _make_client(config: ClientConfig) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
    transport = None
    if not config.proxy and not getproxies():
        transport = httpx.AsyncHTTPTransport(verify=config.tls, limits=limits, socket_options=_keepalive_options())
    agent = f"rowlock/{rowlock.__version__}"
    return httpx.AsyncClient(
        verify=config.tls, limits=limits, proxy=config.proxy, transport=transport, headers={"User-Agent": agent}
    )


def _keepalive_options() -> list[tuple[int, int, int]]:
    """A silent watch on a dead connection is noticed within a minute."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    if sys.platform == "linux":
        timing = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
        options += [(socket.IPPROTO_TCP, name, value) for name, value in timing]
    return options


def parse_warnings(headers: list[str]) -> list[str]:
    """The sentences in `Warning` headers."""
    return [re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header)]


async def _read_body(response: httpx.Response) -> bytes:
    return await response.aread()


async def _read_error(response: httpx.Response) -> ApiError:
    """The error a bad status stands for, also when a proxy answered in HTML."""
    code = response.status_code
    try:
        content = await response.aread()
    except httpx.TransportError:
        content = b""
    finally:
        await response.aclose()
    try:
        body = msgspec.json.decode(content)
    except ValueError:  # msgspec.DecodeError, or a text that is no UTF-8
        body = None
    if not isinstance(body, dict) or body.get("kind") != "Status":
        text = content[:300].decode(errors="replace").strip()
        body = {"message": f"{response.request.url.host} answered HTTP {code}: {text or response.reason_phrase}"}
    return from_status(body, code)


def _retry_delay(request: Request, response: httpx.Response, error: ApiError, backoff: Backoff) -> float | None:
    """Seconds until this refusal is worth another try; None = never."""
    header = response.headers.get("Retry-After", "")
    requested = float(header) if is_digits(header) else error.retry_after
    if response.status_code == 429 and requested is not None:
        return max(float(requested), backoff.next_delay())
    if request.is_safe and response.status_code in _RETRIABLE_CODES:
        return max(float(requested or 0), backoff.next_delay())
    return None


def _transport_error(request: Request, error: httpx.TransportError) -> ApiError:
    subject = f"{request.method} {request.path}"
    if isinstance(error, httpx.TimeoutException):
        return Timeout(
            f"{subject}: no answer in time ({type(error).__name__}); the cluster may have executed the request: check before you repeat it"
        )
    return Unavailable(f"{subject}: the API server cannot be reached: {error or type(error).__name__}")
