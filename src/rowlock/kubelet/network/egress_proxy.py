"""The way out for pods: an HTTP(S) proxy. Pods in namespaces have no route to the outside, only this listener.

The listening socket is made inside the fabric and served outside, by the server: CONNECT for TLS, absolute URLs for plain HTTP. If the
server itself is behind a proxy (`https_proxy`, `http_proxy`), connections go through that one. Only HTTP gets out; nothing gets in.
Pods and services are reached as the pod itself reaches them (`pod_reach.py`). Other names are resolved here, and the address is checked
(`egress_policy.py`). Connections of pods are limited in number and idle time: the server needs descriptors, too.
"""

import asyncio
import contextlib
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from rowlock.kubelet.network.egress_policy import denial
from rowlock.kubelet.network.loopback_relay import carry_both_ways, is_api_server
from rowlock.kubelet.network.pod_reach import PodReach

_MAX_HEADER_BYTES = 65536
_CHUNK_BYTES = 1 << 16
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_CONNECTIONS = 1024
"""Connections of all pods at a time; fewer where the server may open few files."""
_LOOKUP_THREADS = 16
"""A pool for pods' names only: a lookup may block a thread for many seconds."""
_FILES_PER_CONNECTION = 8
"""Open files per connection: each has two descriptors, and the server needs most files for other things."""

Policy = Callable[[str, int], str]
"""A numeric address and a port → why pods may not connect to it; "" = they may."""


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Times in seconds; connections of all pods and of one."""

    header: float = 30.0
    connect: float = 30.0
    idle: float = 600.0
    connections: int = _MAX_CONNECTIONS
    per_pod: int = _MAX_CONNECTIONS // 4

    @classmethod
    def of_process(cls) -> "ProxyLimits":
        """The limits that this process's limit of open files allows."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        affordable = _MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // _FILES_PER_CONNECTION
        connections = max(1, min(_MAX_CONNECTIONS, affordable))
        return cls(connections=connections, per_pod=max(1, connections // 4))


class RefusedRequest(Exception):
    """A request that the proxy answers itself; its arguments are the status line and a sentence."""


class EgressProxy:
    """Serves one listening socket until cancelled."""

    def __init__(
        self,
        listener: socket.socket,
        environment: Mapping[str, str],
        *,
        policy: Policy | None = None,
        limits: ProxyLimits | None = None,
        api_port: int = 0,
        reach: PodReach | None = None,
    ) -> None:
        """`api_port` is the API server's on loopback, for clients that send even its address to their proxy.
        `reach`: how pods are reached; None = they are not."""
        self._listener, self._policy, self._api_port, self._reach = listener, policy or denial, api_port, reach
        self._limits = limits or ProxyLimits.of_process()
        upstream = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or environment.get("http_proxy")
        self._upstream = urlsplit(upstream) if upstream else None
        self._open: Counter[str] = Counter()
        self._lookups = ThreadPoolExecutor(_LOOKUP_THREADS, "pod-lookup")

    async def run(self) -> None:
        self._listener.setblocking(False)
        # Starts serving inside the block: a task that is cancelled before leaves no listener open.
        server = await asyncio.start_server(
            self._serve, sock=self._listener, limit=_MAX_HEADER_BYTES, start_serving=False
        )
        try:
            async with server:
                await server.serve_forever()
        finally:
            self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pod = str((writer.get_extra_info("peername") or ("",))[0])
        if self._open.total() >= self._limits.connections or self._open[pod] >= self._limits.per_pod:
            _answer(writer, "503 Service Unavailable", "too many connections through rowlock's proxy: close some first")
            return writer.close()
        self._open[pod] += 1
        try:
            await self._handle_request(pod, (reader, writer))
        finally:
            self._open[pod] -= 1
            if not self._open[pod]:
                del self._open[pod]
            writer.close()

    async def _handle_request(self, pod: str, client: "Streams") -> None:
        reader, writer = client
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(self._limits.header):
                header = await reader.readuntil(b"\r\n\r\n")
            try:
                request = _parse_request(header)
                if self._api_port and request.is_tunnel and is_api_server(request.host, request.port):
                    api_server = await asyncio.open_connection("127.0.0.1", self._api_port)
                    writer.write(_ESTABLISHED)
                    return await carry_both_ways(client, api_server)
                upstream, is_proxy = await self._open_upstream(pod, request)
            except RefusedRequest as refused:
                return _answer(writer, *refused.args)
            except (OSError, TimeoutError) as error:
                reason = str(error) or f"no connection within {self._limits.connect:g} s"
                return _answer(writer, "502 Bad Gateway", f"rowlock's proxy could not connect: {reason}")
            _begin(request, writer, upstream[1], is_proxy=is_proxy)
            try:
                await self._relay(client, upstream)
            finally:
                upstream[1].close()

    async def _open_upstream(self, pod: str, request: "ProxyRequest") -> tuple["Streams", bool]:
        """Connects to the host, or (True) to the proxy of this machine. Raises OSError, TimeoutError, RefusedRequest."""
        async with asyncio.timeout(self._limits.connect):
            known = self._reach.find_addresses(request.host, pod) if self._reach is not None else []
            tries: list[Callable[[], Awaitable[Streams]]] = []
            if self._reach is not None:
                inside = [address for address in known if self._reach.is_inside(address, request.port)]
                tries = [partial(self._reach.connect, pod, address, request.port) for address in inside]
            if not tries:
                outside = await self._allowed_addresses(known[0] if known else request.host, request.port)
                if self._upstream is not None and not known:
                    return await asyncio.open_connection(self._upstream.hostname, self._upstream.port or 80), True
                tries = [partial(_connect_outside, family, address) for family, address in outside]
            failure = OSError(f"{request.host} has no address")
            for connect in tries:
                try:
                    return await connect(), False
                except OSError as error:
                    failure = error
            raise failure

    async def _allowed_addresses(self, host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
        """The host's addresses that pods may connect to; [] for a name that only the proxy of this machine can resolve.

        Raises RefusedRequest if pods may connect to none of them, OSError if there is none."""
        try:
            look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            found = await asyncio.get_running_loop().run_in_executor(self._lookups, look_up)
        except (OSError, UnicodeError) as error:
            if self._upstream is not None:
                return []
            raise OSError(f"{host}: {error}") from None
        addresses = [(int(family), (str(address[0]), int(address[1]))) for family, _, _, _, address in found]
        reasons = {address: self._policy(*address) for _, address in addresses}
        allowed = [(family, address) for family, address in addresses if not reasons[address]]
        if not allowed:
            why = next(iter(reasons.values()), f"{host} has no address")
            raise RefusedRequest("403 Forbidden", f"rowlock's proxy leads pods outside only: {why}")
        return allowed

    async def _relay(self, client: "Streams", upstream: "Streams") -> None:
        """Copies data until both sides have finished, or neither has sent anything for `ProxyLimits.idle` seconds."""
        async with asyncio.timeout(self._limits.idle) as deadline:

            def postpone() -> None:
                deadline.reschedule(asyncio.get_running_loop().time() + self._limits.idle)

            await asyncio.gather(
                _copy_stream(client[0], upstream[1], postpone), _copy_stream(upstream[0], client[1], postpone)
            )


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """The head of a request: its parsed first line, and all its bytes."""

    method: str
    target: str
    version: str
    host: str
    port: int
    header: bytes

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    def origin_header(self) -> bytes:
        """The head as the host expects it. One request per connection, because the next may be for another host."""
        parts = urlsplit(self.target)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = [h for h in self.header.split(b"\r\n")[1:] if not h.lower().startswith((b"proxy-", b"connection:"))]
        return f"{self.method} {path} {self.version}\r\nConnection: close\r\n".encode("latin-1") + b"\r\n".join(kept)


async def _connect_outside(family: int, address: tuple[str, int]) -> Streams:
    return await asyncio.open_connection(*address, family=family, flags=socket.AI_NUMERICHOST)


def _begin(
    request: ProxyRequest, client: asyncio.StreamWriter, upstream: asyncio.StreamWriter, *, is_proxy: bool
) -> None:
    """Sends the first bytes: the request as it is to another proxy, an origin-form request to a host, or the answer to CONNECT."""
    if is_proxy:
        upstream.write(request.header)
    elif request.is_tunnel:
        client.write(_ESTABLISHED)
    else:
        upstream.write(request.origin_header())


def _parse_request(header: bytes) -> ProxyRequest:
    """Parses a request's head. Raises RefusedRequest for anything but a request to a proxy."""
    try:
        method, target, version = header.partition(b"\r\n")[0].decode("latin-1").split(" ")
        is_tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}") if is_tunnel else urlsplit(target)
        if not parts.hostname or not (is_tunnel or parts.scheme == "http"):
            raise ValueError(f"{target[:200]!r} names no host")
        port = parts.port or (443 if is_tunnel else 80)
    except ValueError as error:
        text = f"rowlock's proxy takes CONNECT host:port, or a URL that begins with http://: {error}"
        raise RefusedRequest("400 Bad Request", text) from None
    return ProxyRequest(method, target, version, parts.hostname, port, header)


def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode(errors="replace")
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)


async def _copy_stream(source: asyncio.StreamReader, sink: asyncio.StreamWriter, postpone: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            postpone()
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
