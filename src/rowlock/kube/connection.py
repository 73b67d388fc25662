"""One API server over HTTPS: sends requests, keeps within limits, renews credentials, and raises `ApiError`s.

Retries: after 401 or an unknown server certificate once, with renewed credentials; after 403 for a moment, if a connection broke just
before; after 429 with any verb, but only if the server says how long to wait; a GET also when the connection breaks or the server is
briefly unavailable. A write whose answer was lost is never repeated here: the caller must read the cluster's state.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from rowlock.errors import ApiError, Timeout, Unauthorized, Unavailable, from_status
from rowlock.kube.config import ClientConfig, Credentials
from rowlock.kube.http_client import HttpClient
from rowlock.kube.rate_limit import Backoff, Limits, TokenBucket
from rowlock.objects import is_digits

ANSWER_GRACE_S = 5.0
"""Seconds to wait after an outage for the answer to a request that was sent before it."""
SETTLING_S, REFUSAL_PATIENCE_S = 15.0, 3.0
"""For `SETTLING_S` seconds after a connection broke, a 403 may come from an API server that has just started and has not loaded its roles.
Such a request is retried for `REFUSAL_PATIENCE_S` seconds; then `/readyz` decides."""
RENEWAL_PAUSE_S, PLUGIN_PAUSE_S = 1.0, 5.0
"""Minimum of seconds between two reads of the credentials, and between two runs of an exec plugin: refused requests come in dozens."""
MAX_RETRY_AFTER_S = 30
"""The longest Retry-After that is honoured, in seconds: a waiting request counts as one in flight. For a longer one the error is raised."""
_RETRIABLE_CODES = frozenset({500, 502, 503, 504})
_UNKNOWN_CERTIFICATE = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)
_WARNING = re.compile(r'299\s+\S+\s+"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    media: str = "application/json"
    token: str | None = None
    """The token of the user for whom it is sent; None = the connection's credentials."""
    is_relayed: bool = False
    """The API server relays it to a node: a 500 then means that the node cannot be reached, and is not retried."""

    @property
    def is_safe(self) -> bool:
        """Whether it may be sent again after a connection broke: only GET changes nothing."""
        return self.method == "GET"

    @property
    def is_watch(self) -> bool:
        """Whether its answer is a watch stream, whose headers come at once."""
        return "watch" in self.query


class Connection:
    """Opened on first use; `close` when done. Streams (watches, followed logs) each take a connection of their own."""

    def __init__(self, credentials: Credentials, limits: Limits = Limits()) -> None:
        self.limits = limits
        self._credentials = credentials
        self._bucket = TokenBucket(limits.qps, limits.burst)
        self._in_flight = asyncio.Semaphore(limits.max_in_flight)
        self._http: HttpClient | None = None
        self._config: ClientConfig | None = None
        self._retired: list[HttpClient] = []
        """Clients with earlier credentials. Streams may still use them; unused ones are closed when credentials are next read."""
        self._renewal: asyncio.Task[None] | None = None
        """The task that reads the credentials, shared by all requests that need them: cancelling one request does not stop it."""
        self._renew_not_before = -math.inf
        self._watches: set[aiohttp.ClientResponse] = set()
        self._unanswered: set[asyncio.Timeout] = set()
        self._broke_at = -math.inf
        """When a connection last broke, in the event loop's time."""

    def renew_connections(self) -> None:
        """To be called after a network outage, since existing connections may be dead. Aborts the connections of watches, which then
        reconnect; unanswered requests have `ANSWER_GRACE_S` left."""
        for response in tuple(self._watches):
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
        latest = asyncio.get_running_loop().time() + ANSWER_GRACE_S
        for limit in self._unanswered:
            if not limit.expired() and ((when := limit.when()) is None or when > latest):
                limit.reschedule(latest)

    async def close(self) -> None:
        """Close the HTTP clients, including those with earlier credentials."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait({self._renewal})
        for client in (*self._retired, self._http):
            if client:
                await client.close()
        self._retired, self._http = [], None

    async def send(self, request: Request, warnings: list[str] | None = None) -> Any:
        """The decoded answer. Raises ApiError; the server's warnings are added to `warnings`."""
        content = await self.fetch(request, warnings)
        return msgspec.json.decode(content) if content else {}

    async def fetch(self, request: Request, warnings: list[str] | None = None) -> bytes:
        """As `send`, but returns the undecoded body."""
        async with self._in_flight, self.stream(request) as response:
            content = await response.read()
        if warnings is not None:
            warnings.extend(parse_warnings(response.headers.getall("warning", [])))
        return content

    @asynccontextmanager
    async def stream(self, request: Request, *, endless: bool = False) -> AsyncIterator[aiohttp.ClientResponse]:
        """Stream an answer after its status was checked. `endless`: no timeout between chunks."""
        response = await self._send_with_retries(request, endless)
        if request.is_watch:
            self._watches.add(response)
        try:
            yield response
        except aiohttp.ClientError as error:
            self._broke_at = asyncio.get_running_loop().time()
            raise _transport_error(request, error) from error
        finally:
            self._watches.discard(response)
            response.close()

    async def _send_with_retries(self, request: Request, endless: bool) -> aiohttp.ClientResponse:
        backoff, renewed, is_ready, tries_left = Backoff(), False, False, self.limits.max_tries
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            tries_left -= 1
            config = await self.client_config()
            try:
                response = await self._send_once(request, endless, config)
            except aiohttp.ClientError as error:
                self._broke_at = clock()
                if isinstance(error, _UNKNOWN_CERTIFICATE):  # nothing was sent yet
                    if not renewed and (renewed := await self._renew(config)):
                        continue
                    raise Unavailable(
                        f"the certificate of the API server is not of the authority that {self._credentials.source} names:"
                        f" write the new one there, which is read again ({error})"
                    ) from error
                if not request.is_safe or tries_left <= 0:
                    raise _transport_error(request, error) from error
                await asyncio.sleep(backoff.next_delay())
                continue
            if 200 <= response.status < 300:
                return response
            refusal = await _read_error(response)
            if response.status == 401 and request.token is None:
                if not renewed and (renewed := await self._renew(config)):
                    continue
                raise Unauthorized(
                    f"the cluster does not accept the credentials ({refusal.message}): {self._credentials.advice}"
                )
            delay = _retry_delay(request, response, refusal, backoff)
            if response.status == 403 and not is_ready and clock() - self._broke_at < SETTLING_S:
                if clock() - began >= REFUSAL_PATIENCE_S:
                    await self._require_ready(config, refusal)
                    is_ready = True  # retry once more
                delay, tries_left = backoff.next_delay(), tries_left + 1
            if delay is None or tries_left <= 0:
                raise refusal
            await asyncio.sleep(delay)

    async def _require_ready(self, config: ClientConfig, refusal: ApiError) -> None:
        """Raises Unavailable, quoting the refusal, if `/readyz` does not succeed: the API server may not have loaded its roles."""
        with suppress(aiohttp.ClientError):
            response = await self._send_once(Request("GET", "/readyz"), False, config)
            response.close()
            if response.status == 200:
                return
        raise Unavailable(
            f"the API server has just started and does not say yet that it is ready, so its refusal may not last: try again"
            f" in some seconds ({refusal.message})"
        )

    async def _send_once(self, request: Request, endless: bool, config: ClientConfig) -> aiohttp.ClientResponse:
        await self._bucket.take()
        http = self._http
        assert http is not None
        headers = {}
        if token := config.token if request.token is None else request.token:
            headers["Authorization"] = f"Bearer {token}"
        content = None
        if request.body is not None:
            content = msgspec.json.encode(request.body)
            headers["Content-Type"] = request.media
        try:
            async with self._answer_limit(request, endless):
                return await http.send(
                    request.method,
                    request.path,
                    query=request.query,
                    headers=headers,
                    content=content,
                    limits=self.limits,
                    endless=endless,
                )
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):
                raise
            raise aiohttp.SocketTimeoutError("no answer") from error

    @asynccontextmanager
    async def _answer_limit(self, request: Request, endless: bool) -> AsyncIterator[None]:
        """Limits the time until the response's headers: a watch is answered at once, and `renew_connections` may shorten the limit."""
        if endless and not request.is_watch:
            yield  # the headers of a followed log may come only with its first line
            return
        async with asyncio.timeout(self.limits.read_timeout if endless else None) as limit:
            self._unanswered.add(limit)
            try:
                yield
            finally:
                self._unanswered.discard(limit)

    async def client_config(self, refused: ClientConfig | None = None) -> ClientConfig:
        """Address and credentials, also for streams outside this client. Renewed first if `refused` is the current configuration. Raises
        Unauthorized."""
        if refused is not None:
            await self._renew(refused)
        elif self._config is None:
            await self._read_credentials()
        assert self._config is not None
        return self._config

    async def _renew(self, refused: ClientConfig) -> bool:
        """Read the credentials again after a request with `refused` failed. True if a retry makes sense; False if they were read just
        before. Raises Unauthorized."""
        if self._config is not refused:
            return True
        clock = asyncio.get_running_loop().time
        if clock() < self._renew_not_before:
            return False
        try:
            await self._read_credentials()
            self._renew_not_before = clock() + RENEWAL_PAUSE_S
        finally:
            if self._credentials.has_plugin:
                self._renew_not_before = clock() + PLUGIN_PAUSE_S
        return True

    async def _read_credentials(self) -> None:
        """Read the credentials; concurrent calls share one read. Raises Unauthorized."""
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._read_credentials_once())
            self._renewal.add_done_callback(self._end_renewal)
        await asyncio.shield(self._renewal)

    def _end_renewal(self, task: asyncio.Task[None]) -> None:
        self._renewal = None
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it; waiters got it already

    async def _read_credentials_once(self) -> None:
        config = await self._credentials.renew()
        if self._http is None or self._config is None or not _same_endpoint(self._config, config):
            new = HttpClient(config)
            if self._http is not None:
                self._retired.append(self._http)
            self._http = new
        self._config = config
        for client in [one for one in self._retired if not one.is_in_use]:
            self._retired.remove(client)
            await client.close()


def _same_endpoint(old: ClientConfig, new: ClientConfig) -> bool:
    """Whether only the token changed, so that connections can be reused."""
    return (old.server, old.proxy, old.identity) == (new.server, new.proxy, new.identity)


def parse_warnings(headers: list[str]) -> list[str]:
    """The sentences in `Warning` headers."""
    return [re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header)]


async def _read_error(response: aiohttp.ClientResponse) -> ApiError:
    """The error for a bad status, also when a proxy answered in HTML."""
    code = response.status
    try:
        content = await response.read()
    except aiohttp.ClientError:
        content = b""
    finally:
        response.close()
    try:
        body = msgspec.json.decode(content)
    except ValueError:  # msgspec.DecodeError, or not UTF-8
        body = None
    if not isinstance(body, dict) or body.get("kind") != "Status":
        text = content[:300].decode(errors="replace").strip()
        body = {"message": f"{response.url.host} answered HTTP {code}: {text or response.reason}"}
    return from_status(body, code)


def _retry_delay(request: Request, response: aiohttp.ClientResponse, error: ApiError, backoff: Backoff) -> float | None:
    """Seconds until the request should be sent again; None = never."""
    header = response.headers.get("Retry-After", "")
    requested = float(header) if is_digits(header) else error.retry_after
    if requested is not None and requested > MAX_RETRY_AFTER_S:
        return None
    if response.status == 429 and requested is not None:
        return max(float(requested), backoff.next_delay())
    if request.is_relayed and response.status == 500:
        return None
    if request.is_safe and response.status in _RETRIABLE_CODES:
        return max(float(requested or 0), backoff.next_delay())
    return None


def _transport_error(request: Request, error: aiohttp.ClientError) -> ApiError:
    _forget_frames(error)
    subject = f"{request.method} {request.path}"
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Timeout(
            f"{subject}: no answer in time ({type(error).__name__}); the cluster may have executed the request: check before you repeat it"
        )
    return Unavailable(f"{subject}: the API server cannot be reached: {error or type(error).__name__}")


def _forget_frames(error: BaseException | None) -> None:
    """aiohttp keeps the error of a broken connection, and its traceback's frames keep the connection: a cycle of fifty objects. When a
    thousand followed logs broke at once, garbage collection took 100 ms."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
