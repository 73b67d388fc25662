"""One look at a container from outside, or one hook in it: exec, httpGet, tcpSocket, grpc, sleep.

What probes and lifecycle hooks have in common. The words of a failure are the kubelet's own, because people search for
them.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.cluster.node.entrance import Entrance, Failed, Session
from rowlock.cluster.node.network import LOOPBACK, PodNetwork
from rowlock.cluster.node.pod_directory import PodCard
from rowlock.cluster.node.processes import PodHost
from rowlock.errors import ApiError
from rowlock.objects import Key

MOST = 1024
"""Bytes of a program's output that a failure tells."""
AGENT = "kube-probe/1.34"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text` says what was wrong."""

    ok: bool
    text: str = ""


@dataclass(slots=True)
class Checks:
    """Carries out actions in pods."""

    entrance: Entrance
    host: PodHost
    network: PodNetwork

    async def perform(
        self, card: PodCard, container: Mapping[str, Any], action: Mapping[str, Any], patience: float | None = None
    ) -> Outcome:
        """One action, at most `patience` seconds long. Never raises: what goes wrong is its outcome."""
        kinds = {
            "exec": self._exec,
            "httpGet": self._http,
            "tcpSocket": self._tcp,
            "grpc": self._grpc,
            "sleep": self._sleep,
        }
        kind = next((k for k in kinds if action.get(k)), "")
        if not kind:
            return Outcome(True)
        try:
            async with asyncio.timeout(patience):
                return await kinds[kind](card, container, action[kind])
        except TimeoutError:
            return Outcome(False, self._late(card, container, kind, action[kind], patience or 0))
        except (ApiError, OSError, ValueError) as error:
            return Outcome(False, str(error))

    async def _sleep(self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]) -> Outcome:
        await asyncio.sleep(float(how.get("seconds") or 0))
        return Outcome(True)

    async def _exec(self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]) -> Outcome:
        words = list(how.get("command") or ())
        session = await self.entrance.exec(Key(card.namespace, card.name), container["name"], words)
        try:
            parts = await asyncio.gather(*(_output(session, channel) for channel in session.channels))
            code, sentence = await session.ended()
        finally:
            await session.close()
        text = b"".join(parts)[:MOST].decode(errors="replace")
        return Outcome(code == 0, (sentence or text).strip() or f"command exited with {code}")

    async def _tcp(self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]) -> Outcome:
        async with self._connected(card, container, how) as (made, _):
            made.close()
        return Outcome(True)

    async def _grpc(self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]) -> Outcome:
        from rowlock.cluster.node import grpc_health

        try:
            async with self._connected(card, container, how) as (made, where):
                why = await grpc_health.unhealthy(made, where, str(how.get("service") or ""), AGENT)
        except OSError as error:
            text = str(error)
            return Outcome(False, text if text.startswith("error: ") else f"error: failed to connect service: {text}")
        return Outcome(not why, why)

    async def _http(self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]) -> Outcome:
        try:
            async with self._connected(card, container, how) as (made, where):
                code = await _get(made, where, how)
        except OSError as error:
            return Outcome(False, f'Get "{self._url(card, container, how)}": {error}')
        return Outcome(200 <= code < 400, f"HTTP probe failed with statuscode: {code}")

    @contextlib.asynccontextmanager
    async def _connected(
        self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]
    ) -> AsyncIterator[tuple[socket.socket, str]]:
        """A connection to the port, and the address as it is written. Raises OSError in the kubelet's words."""
        host, port = how.get("host") or "", port_of(container, how.get("port"))
        where = f"{host or card.ip or LOOPBACK}:{port}"
        made, tended = socket.socket(), self.entrance.pods.get(card.uid)
        if tended is not None and not host:
            made.close()
            made, _ = await self.entrance.inside(tended)
        made.setblocking(False)
        try:
            mapped = port if host or card.contained else self.network.port(Key(card.namespace, card.name), port)
            address = host or (card.ip if self.network.real or card.contained else LOOPBACK)
            try:
                await asyncio.get_running_loop().sock_connect(made, (address, mapped))
            except OSError as error:
                why = os.strerror(error.errno).lower() if error.errno else str(error)
                raise OSError(f"dial tcp {where}: connect: {why}") from None
            yield made, where
        finally:
            made.close()

    def _url(self, card: PodCard, container: Mapping[str, Any], how: Mapping[str, Any]) -> str:
        scheme = (how.get("scheme") or "HTTP").lower()
        host, port = how.get("host") or card.ip or LOOPBACK, port_of(container, how.get("port"))
        return f"{scheme}://{host}:{port}{_path(how)}"

    def _late(
        self, card: PodCard, container: Mapping[str, Any], kind: str, how: Mapping[str, Any], patience: float
    ) -> str:
        if kind == "exec":
            return f'command timed out: "{" ".join(how.get("command") or ())}" timed out after {patience:g}s'
        if kind == "httpGet":
            text = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            return f'Get "{self._url(card, container, how)}": {text}'
        if kind == "tcpSocket":
            where = f"{how.get('host') or card.ip or LOOPBACK}:{port_of(container, how.get('port'))}"
            return f"dial tcp {where}: i/o timeout"
        return f"{kind} took longer than {patience:g}s"


async def _output(session: Session | Failed, channel: int) -> bytes:
    """What a program says: the beginning is kept, the rest is read and dropped."""
    kept = b""
    while piece := await session.read(channel):
        kept = (kept + piece)[:MOST]
    return kept


def port_of(container: Mapping[str, Any], port: Any) -> int:
    """A port number, or the container's port of that name. Raises ValueError when there is none."""
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    for known in container.get("ports") or ():
        if known.get("name") == port:
            return int(known["containerPort"])
    raise ValueError(f"couldn't find port: {port!r}, container {container['name']} names no such port")


def _path(how: Mapping[str, Any]) -> str:
    return "/" + str(how.get("path") or "").lstrip("/")


async def _get(made: socket.socket, where: str, how: Mapping[str, Any]) -> int:
    """One request; the status code. Raises OSError when what answers is not HTTP."""
    secured = None
    if (how.get("scheme") or "HTTP").upper() == "HTTPS":
        import ssl

        secured = ssl.create_default_context()
        secured.check_hostname, secured.verify_mode = False, ssl.CERT_NONE  # as a kubelet: alive, not trusted
    name = where.partition(":")[0] if secured else None
    reader, writer = await asyncio.open_connection(sock=made, ssl=secured, server_hostname=name)
    try:
        headers = {"Host": where, "User-Agent": AGENT, "Accept": "*/*", "Connection": "close"}
        headers |= {h["name"]: h["value"] for h in how.get("httpHeaders") or ()}
        lines = [f"GET {_path(how)} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        first = await reader.readline()
        words = first.split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise OSError("EOF" if not first else f"malformed HTTP response {first[:40]!r}")
        return int(words[1])
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
