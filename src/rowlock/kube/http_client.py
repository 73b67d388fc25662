"""The HTTP client of `connection.py`: aiohttp, configured for this package.

aiohttp needs a tenth of httpx's CPU time for a bind: httpx checks every connection of its pool for every request. Its retries, redirects,
cookies and settings from files are disabled.
"""

from __future__ import annotations

import asyncio.sslproto
import io
import socket
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import ClientSession, ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey

import rowlock
from rowlock.errors import Unauthorized
from rowlock.kube.config import ClientConfig
from rowlock.kube.rate_limit import HandshakeLimit, Limits

_IDLE_SECONDS = 50.0
"""Seconds that an idle connection is kept: fewer than servers and load balancers keep it."""

_WHOLE_BODY_BYTES = 2**20
"""Bytes. Larger bodies are sent in parts, because encrypting them at once would block the event loop."""

_HANDSHAKES, _HANDSHAKE_PATIENCE = 8, 0.1
"""Maximum of concurrent handshakes, and seconds without a completed one after which one more may begin."""

asyncio.sslproto.SSLProtocol.max_size = 8 * 1024
"""Bytes of asyncio's read buffer of each TLS connection. Its default of 256 KiB would take 250 MiB for a thousand followed logs. Lists of
24 MiB are as fast with 8 KiB as with 32."""


class HttpClient:
    """A client of one API server with one set of credentials. It keeps connections, one for each concurrent request."""

    def __init__(self, config: ClientConfig) -> None:
        """Must be called in an event loop. Raises Unauthorized for an unsupported proxy."""
        self._config, self._proxy = config, choose_proxy(config)
        self._connector = _Connector(
            ssl=config.tls, limit=0, keepalive_timeout=_IDLE_SECONDS, socket_factory=_make_socket
        )
        self._session = ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"rowlock/{rowlock.__version__}", "Accept": "application/json"},
        )
        self._session._retry_connection = False  # else it repeats a PUT or DELETE whose answer was lost

    @property
    def is_in_use(self) -> bool:
        """Whether a request or stream uses one of its connections."""
        return bool(self._connector._acquired)

    async def close(self) -> None:
        """Close all connections; what streams on them ends."""
        await self._session.close()

    async def send(
        self, method: str, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], content: bytes | None,
        limits: Limits, endless: bool
    ) -> aiohttp.ClientResponse:  # fmt: skip
        """The response after its headers; close it, or read its body. Every transport failure is an `aiohttp.ClientError`."""
        timeout = ClientTimeout(
            total=None, sock_connect=limits.connect_timeout, sock_read=None if endless else limits.read_timeout
        )
        data = io.BytesIO(content) if content and len(content) > _WHOLE_BODY_BYTES else content
        return await self._session.request(
            method, self._config.server + path, params=query or None, headers=headers, data=data, timeout=timeout,
            allow_redirects=False, proxy=self._proxy, server_hostname=self._config.tls_name,
        )  # fmt: skip


class _Connector(aiohttp.TCPConnector):
    """A connector that limits the number of concurrent handshakes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._handshakes = HandshakeLimit(_HANDSHAKES, _HANDSHAKE_PATIENCE)

    async def _create_connection(self, *asked: Any) -> ResponseHandler:
        async with self._handshakes:
            return await super()._create_connection(*asked)

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        """Keep a connection whose response was read completely; abort others without the closing TLS handshake. aiohttp begins that and does
        not wait for it, so a hanging server would keep the descriptor for 30 s."""
        if should_close or protocol.should_close:
            protocol.abort()
        super()._release(key, protocol, should_close=should_close)


def _make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket with keep-alive probes, so that a silent watch on a dead connection fails within a minute."""
    family, type_, protocol, _, _ = address
    made = socket.socket(family, type_, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def choose_proxy(config: ClientConfig) -> str | None:
    """The kubeconfig's `proxy-url`, else by HTTPS_PROXY and NO_PROXY, as in kubectl; None = no proxy. Raises Unauthorized."""
    server = urlsplit(config.server)
    proxy = config.proxy
    if not proxy and not proxy_bypass(server.hostname or ""):
        proxies = getproxies()
        proxy = proxies.get(server.scheme) or proxies.get("all")
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise Unauthorized(f"the proxy {proxy} cannot be used: proxies of http:// and https:// can")
    return proxy or None
