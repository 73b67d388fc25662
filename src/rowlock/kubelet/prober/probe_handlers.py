"""Runs one probe or lifecycle hook of a container: exec, httpGet, tcpSocket, grpc, sleep.

The failure messages are the kubelet's own, so that a search finds them.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock import KUBERNETES
from rowlock.errors import ApiError
from rowlock.kubelet.network.pod_network import LOOPBACK, PodNetwork
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.spec import ContainerSpec
from rowlock.kubelet.streams.exec_sessions import FailedSession, ProcessSession, StreamingServer
from rowlock.objects import is_digits

_LOOPBACK_NAMES = (LOOPBACK, "localhost")
MAX_OUTPUT = 1024
"""Bytes of a program's output that a failure message quotes."""
USER_AGENT = f"kube-probe/{KUBERNETES.rpartition('.')[0]}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an action; `text` says what went wrong."""

    ok: bool
    text: str = ""


@dataclass(slots=True)
class HandlerRunner:
    """Runs probes and hooks in pods."""

    streaming: StreamingServer
    network: PodNetwork
    owner_ports: tuple[int, ...] = ()
    """Ports of this machine's loopback that its owner lets pods reach (`up --host-ports`)."""

    async def perform(
        self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any], timeout: float | None = None
    ) -> Outcome:
        """Runs one action for at most `timeout` seconds. Never raises: errors are its outcome."""
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
            async with asyncio.timeout(timeout):
                return await kinds[kind](card, container, action[kind])
        except TimeoutError:
            return Outcome(False, self._timeout_message(card, container, kind, action[kind], timeout or 0))
        except (ApiError, OSError, ValueError) as error:
            return Outcome(False, str(error))

    async def _sleep(self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]) -> Outcome:
        await asyncio.sleep(float(action.get("seconds") or 0))
        return Outcome(True)

    async def _exec(self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]) -> Outcome:
        words = list(action.get("command") or ())
        session = await self.streaming.exec(card.key, container.name, words)
        try:
            parts = await asyncio.gather(*(_read_output(session, channel) for channel in session.channels))
            code, sentence = await session.wait_exit()
        finally:
            await session.close()
        text = b"".join(parts)[:MAX_OUTPUT].decode(errors="replace")
        return Outcome(code == 0, (sentence or text).strip() or f"command exited with {code}")

    async def _tcp(self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]) -> Outcome:
        async with self._connect(card, container, action) as (sock, _):
            sock.close()
        return Outcome(True)

    async def _grpc(self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]) -> Outcome:
        from rowlock.kubelet.prober import grpc_health

        try:
            async with self._connect(card, container, action) as (sock, address):
                failure = await grpc_health.health_failure(sock, address, str(action.get("service") or ""), USER_AGENT)
        except OSError as error:
            text = str(error)
            return Outcome(False, text if text.startswith("error: ") else f"error: failed to connect service: {text}")
        return Outcome(not failure, failure)

    async def _http(self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]) -> Outcome:
        try:
            async with self._connect(card, container, action) as (sock, address):
                code = await _http_get(sock, address, action)
        except OSError as error:
            return Outcome(False, f'Get "{self._url(card, container, action)}": {error}')
        return Outcome(200 <= code < 400, f"HTTP probe failed with statuscode: {code}")

    @contextlib.asynccontextmanager
    async def _connect(
        self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]
    ) -> AsyncIterator[tuple[socket.socket, str]]:
        """Connects to the port; yields the socket and the address as written. Raises OSError in the kubelet's words, and ValueError for an
        address that is not the pod's: this server connects, and it can reach what programs in pods cannot."""
        host, port = str(action.get("host") or ""), port_of(container, action.get("port"))
        dial_address = f"{host or card.ip or LOOPBACK}:{port}"
        if host == card.ip or (host in _LOOPBACK_NAMES and not (self.network.has_namespaces or card.contained)):
            host = ""  # the pod itself
        if host and not (host in _LOOPBACK_NAMES and port in self.owner_ports):
            raise ValueError(
                f"{dial_address} is not the pod's address, and probes and hooks go to the pod alone: leave `host` out; or, for a"
                f" service on this machine's loopback, its owner names the port (rowlock up --host-ports {port}) and `host` is {LOOPBACK}"
            )
        sock, pod_state = socket.socket(), self.streaming.pod_states.get(card.uid)
        if pod_state is not None and not host:
            sock.close()
            sock, _ = await self.streaming.open_pod_socket(pod_state)
        sock.setblocking(False)
        try:
            mapped = port if host or card.contained else self.network.port(card.key, port)
            address = (LOOPBACK if host else "") or (
                card.ip if self.network.has_namespaces or card.contained else LOOPBACK
            )
            try:
                await asyncio.get_running_loop().sock_connect(sock, (address, mapped))
            except OSError as error:
                reason = os.strerror(error.errno).lower() if error.errno else str(error)
                raise OSError(f"dial tcp {dial_address}: connect: {reason}") from None
            yield sock, dial_address
        finally:
            sock.close()

    def _url(self, card: PodCard, container: ContainerSpec, action: Mapping[str, Any]) -> str:
        scheme = (action.get("scheme") or "HTTP").lower()
        host, port = action.get("host") or card.ip or LOOPBACK, port_of(container, action.get("port"))
        return f"{scheme}://{host}:{port}{_url_path(action)}"

    def _timeout_message(
        self, card: PodCard, container: ContainerSpec, kind: str, action: Mapping[str, Any], timeout: float
    ) -> str:
        if kind == "exec":
            return f'command timed out: "{" ".join(action.get("command") or ())}" timed out after {timeout:g}s'
        if kind == "httpGet":
            text = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            return f'Get "{self._url(card, container, action)}": {text}'
        if kind == "tcpSocket":
            address = f"{action.get('host') or card.ip or LOOPBACK}:{port_of(container, action.get('port'))}"
            return f"dial tcp {address}: i/o timeout"
        return f"{kind} took longer than {timeout:g}s"


async def _read_output(session: ProcessSession | FailedSession, channel: int) -> bytes:
    """Reads a program's output; keeps the beginning, drops the rest."""
    output = b""
    while piece := await session.read(channel):
        output = (output + piece)[:MAX_OUTPUT]
    return output


def port_of(container: ContainerSpec, port: Any) -> int:
    """A port number, or the container's port of that name. Raises ValueError when there is none."""
    if isinstance(port, int) or is_digits(str(port)):
        return int(port)
    for named_port in container.ports:
        if named_port.get("name") == port:
            return int(named_port["containerPort"])
    raise ValueError(f"couldn't find port: {port!r}, container {container.name} names no such port")


def _url_path(action: Mapping[str, Any]) -> str:
    return "/" + str(action.get("path") or "").lstrip("/")


async def _http_get(sock: socket.socket, address: str, action: Mapping[str, Any]) -> int:
    """Sends one request; returns the status code. Raises OSError if the answer is not HTTP."""
    tls = None
    if (action.get("scheme") or "HTTP").upper() == "HTTPS":
        import ssl

        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # as a kubelet: identity is not verified
    name = address.partition(":")[0] if tls else None
    reader, writer = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name)
    try:
        headers = {"Host": address, "User-Agent": USER_AGENT, "Accept": "*/*", "Connection": "close"}
        headers |= {h["name"]: h["value"] for h in action.get("httpHeaders") or ()}
        lines = [f"GET {_url_path(action)} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        status_line = await reader.readline()
        words = status_line.split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not (words[1].isascii() and words[1].isdigit()):
            raise OSError("EOF" if not status_line else f"malformed HTTP response {status_line[:40]!r}")
        return int(words[1])
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
