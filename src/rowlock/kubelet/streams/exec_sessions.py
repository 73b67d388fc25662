"""The way into running pods: `exec`, `attach` and connections to their ports, for the API server to serve.

A `ProcessSession` is what the API server holds while somebody is inside: it reads and writes one chunk at a time, and
closing it ends what was started. Programs are started by the pod host (`exec_process.py`).
"""

import asyncio
import contextlib
import fcntl
import json
import socket
import struct
import termios
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock import kinds
from rowlock.api import LogOptions, View
from rowlock.errors import ApiError, Internal, not_found
from rowlock.kubelet.network.pod_network import LOOPBACK, PodNetwork
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import NO_FACTS, Run, all_containers
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.runtime.pod_host_client import PodHostClient
from rowlock.kubelet.streams.async_fd import AsyncFd
from rowlock.kubelet.streams.attach import AttachSession
from rowlock.objects import Key, Object
from rowlock.objects import uid as uid_of

OUTPUT_DRAIN_TIMEOUT = 0.5
"""Seconds without output, after a program ended, until what it left running is not listened to any more."""
DIAL_TIMEOUT = 10.0
"""Seconds in which a connection to a pod's port must stand."""
STDOUT, STDERR = 1, 2


class ProcessSession:
    """One program somebody talks to. `read(1)` is its stdout or its terminal, `read(2)` its stderr."""

    def __init__(self, control: AsyncFd, fds: Mapping[int, AsyncFd], pid: int) -> None:
        self.pid = pid
        self._control, self._fds = control, dict(fds)
        self._ended = asyncio.Event()
        self._exit_task = asyncio.create_task(self._read_exit_code())
        self._outcome: tuple[int, str] = (137, "")

    async def _read_exit_code(self) -> None:
        """Waits for the line that says how the program ended; without one it was killed with its container."""
        line = b""
        while piece := await self._control.read():
            line += piece
        if line:
            self._outcome = int(json.loads(line)["code"]), ""
        for number in self.channels:
            self._fds[number].set_read_timeout(OUTPUT_DRAIN_TIMEOUT)
        self._ended.set()

    @property
    def channels(self) -> tuple[int, ...]:
        """What can be read."""
        return tuple(number for number in (STDOUT, STDERR) if number in self._fds)

    async def read(self, channel: int) -> bytes:
        """The next bytes; b"" at the end."""
        return await self._fds[channel].read()

    async def write(self, data: bytes) -> None:
        """To its stdin; lost when it does not read any more."""
        if 0 in self._fds:
            await self._fds[0].write(data)

    def finish_input(self) -> None:
        """No more input: its stdin ends. A terminal has no such thing."""
        if STDOUT in self._fds and self._fds.get(0) is not self._fds[STDOUT] and 0 in self._fds:
            self._fds.pop(0).close()

    def resize(self, columns: int, rows: int) -> None:
        """The size of its terminal."""
        if self._fds.get(0) is self._fds[STDOUT] and self._fds[STDOUT].fd >= 0:
            with contextlib.suppress(OSError):  # it has just ended
                fcntl.ioctl(self._fds[STDOUT].fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait_exit(self) -> tuple[int, str]:
        """Its exit code, and a sentence when it could not be started."""
        await self._ended.wait()
        return self._outcome

    async def close(self) -> None:
        """Lets go of everything; a program that still runs is stopped."""
        self._exit_task.cancel()
        await asyncio.gather(self._exit_task, return_exceptions=True)
        for end in (self._control, *self._fds.values()):
            end.close()


class FailedSession:
    """A session of a program that could not be started: nothing to read, one sentence at its end."""

    channels: tuple[int, ...] = ()
    pid = 0

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    async def read(self, channel: int) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        """There is nobody to read it."""

    def finish_input(self) -> None:
        """There is no input."""

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal."""

    async def wait_exit(self) -> tuple[int, str]:
        return 1, self._sentence

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class StreamingServer:
    """Finds running containers and opens sessions in them, as the streaming server of a CRI runtime does."""

    view: View
    host: PodHostClient
    network: PodNetwork
    directories: PodDirectories
    pod_states: Mapping[str, PodState]
    log: Callable[[str, str, LogOptions], AsyncIterator[bytes]]
    """As `Api.log` has it."""

    async def exec(
        self, key: Key, container: str, argv: list[str], *, tty: bool = False, stdin: bool = False
    ) -> ProcessSession | FailedSession:
        """Starts a program in a running container. Raises NotFound, and Internal when the container does not run."""
        pod_state, run = self._running_container(key, container)
        directory = str(self.directories.container_directory(pod_state.card.uid, container))
        control = await self.host.request_socket("enter", argv=argv, tty=tty, dir=directory, n=run.number)
        with control:
            reply, fds = await asyncio.to_thread(_receive_first_line, control)
            if sentence := reply.get("error"):
                return FailedSession(str(sentence))
            control_fd = AsyncFd(control.detach())
        stdio_fds = [AsyncFd(fd) for fd in fds]
        if tty:
            fd_by_channel = {0: stdio_fds[0], STDOUT: stdio_fds[0]}
        else:
            fd_by_channel = {0: stdio_fds[0], STDOUT: stdio_fds[1], STDERR: stdio_fds[2]}
        session = ProcessSession(control_fd, fd_by_channel, int(reply["pid"]))
        if not stdin:
            session.finish_input()
        return session

    async def attach(
        self, key: Key, container: str, *, tty: bool = False, stdin: bool = False, logs: bool = False
    ) -> AttachSession:
        """To the container's own program, with `logs` from its first line. Raises NotFound, and Internal when the
        container does not run."""
        pod_state, run = self._running_container(key, container)
        container_spec = next(c for c in all_containers(self._get_pod(key)) if c["name"] == container)
        output = self.log(
            key.namespace, key.name, LogOptions(container=container, follow=True, tail=None if logs else 0)
        )
        session = AttachSession(output, run.pid, tty=tty and bool(container_spec.get("tty")))
        if stdin and container_spec.get("stdin"):
            path = self.directories.container_directory(pod_state.card.uid, container) / f"in.{run.number}"
            try:
                session.open_input(path)
            except BlockingIOError:
                raise Internal(f"the stdin of container {container} takes no more clients: try again later") from None
            except OSError:
                pass  # its stdin has ended: what is written is lost, as everywhere
        return session

    async def dial(self, key: Key, port: int) -> socket.socket:
        """A connection to a port inside a pod's network. Raises NotFound, Internal, OSError when nobody listens."""
        pod_state = self.pod_states.get(uid_of(self._get_pod(key)))
        if pod_state is None or not any(run.pid for run in pod_state.live_runs()):
            raise Internal(f"pod {key.name} is not running")
        connection, address = await self.open_pod_socket(pod_state)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(DIAL_TIMEOUT):
                target = (address, port if pod_state.card.contained else self.network.port(key, port))
                await asyncio.get_running_loop().sock_connect(connection, target)
        except BaseException:
            connection.close()
            raise
        return connection

    async def open_pod_socket(self, pod_state: PodState) -> tuple[socket.socket, str]:
        """A socket in the pod's network, and what the pod is called there: `localhost`'s address. Where we may not enter a
        container's network, it is one of ours, and the pod's own address."""
        card = pod_state.card
        if not card.contained:
            return await self.host.request_socket(
                "socket", uid=card.uid
            ) if self.network.has_namespaces else socket.socket(), LOOPBACK
        with contextlib.suppress(ApiError):
            for run in pod_state.live_runs():
                if run.pid:
                    return await self.host.request_socket("socket", uid=card.uid, pid=run.pid), LOOPBACK
        return socket.socket(), card.ip

    def _get_pod(self, pod_key: Key) -> Object:
        pod = self.view.get(kinds.POD, pod_key.namespace, pod_key.name)
        if pod is None:
            raise not_found("pods", pod_key.name)
        return pod

    def _running_container(self, pod_key: Key, container: str) -> tuple[PodState, Run]:
        pod_state = self.pod_states.get(uid_of(self._get_pod(pod_key)))
        run = (pod_state.containers.get(container, NO_FACTS) if pod_state else NO_FACTS).run
        if pod_state is None or run is None or run.exit is not None or not run.pid:
            raise Internal(f'container not found ("{container}")')
        return pod_state, run


def _receive_first_line(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What the pod host's child says first, and the descriptors that come with it."""
    control.settimeout(30)
    data, fds, _, _ = socket.recv_fds(control, 65536, 3)
    if not data:
        return {"error": "the program could not be started: the pod host's log says why"}, fds
    return json.loads(data), fds
