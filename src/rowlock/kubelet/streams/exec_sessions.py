"""Sessions in running pods: `exec`, `attach` and connections to their ports, for the API server to serve.

The API server holds a `ProcessSession` while a client is connected: it reads and writes one chunk at a time, and
closing it ends what was started. The pod host starts the programs (`exec_process.py`).
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
"""Seconds without output after a program's end until the output of processes that it left is no longer read."""
DIAL_TIMEOUT = 10.0
"""Seconds to wait for a connection to a pod's port."""
STDOUT, STDERR = 1, 2


class ProcessSession:
    """One exec'ed program and its client. `read(1)` is its stdout or its terminal, `read(2)` its stderr."""

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
        """The channels that can be read."""
        return tuple(number for number in (STDOUT, STDERR) if number in self._fds)

    async def read(self, channel: int) -> bytes:
        """The next bytes; b"" at the end."""
        return await self._fds[channel].read()

    async def write(self, data: bytes) -> None:
        """Writes to the program's stdin; lost if it no longer reads."""
        if 0 in self._fds:
            await self._fds[0].write(data)

    def finish_input(self) -> None:
        """Ends the input: closes stdin. Does nothing for a terminal."""
        if STDOUT in self._fds and self._fds.get(0) is not self._fds[STDOUT] and 0 in self._fds:
            self._fds.pop(0).close()

    def resize(self, columns: int, rows: int) -> None:
        """Sets the size of its terminal."""
        if self._fds.get(0) is self._fds[STDOUT] and self._fds[STDOUT].fd >= 0:
            with contextlib.suppress(OSError):  # it has just ended
                fcntl.ioctl(self._fds[STDOUT].fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait_exit(self) -> tuple[int, str]:
        """Waits for the end. Returns the exit code, and a sentence if the program could not be started."""
        await self._ended.wait()
        return self._outcome

    async def close(self) -> None:
        """Closes everything; a program that still runs is stopped."""
        self._exit_task.cancel()
        await asyncio.gather(self._exit_task, return_exceptions=True)
        for end in (self._control, *self._fds.values()):
            end.close()


class FailedSession:
    """The session of a program that could not be started: no output, one sentence at its end."""

    channels: tuple[int, ...] = ()
    pid = 0

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    async def read(self, channel: int) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        """Does nothing: there is no program."""

    def finish_input(self) -> None:
        """Does nothing: there is no input."""

    def resize(self, columns: int, rows: int) -> None:
        """Does nothing: there is no terminal."""

    async def wait_exit(self) -> tuple[int, str]:
        return 1, self._sentence

    async def close(self) -> None:
        """Does nothing: nothing is open."""


@dataclass(slots=True)
class StreamingServer:
    """Finds running containers and opens sessions in them, as the streaming server of a CRI runtime does."""

    view: View
    host: PodHostClient
    network: PodNetwork
    directories: PodDirectories
    pod_states: Mapping[str, PodState]
    log: Callable[[str, str, LogOptions], AsyncIterator[bytes]]
    """Reads a log, like `Api.log`."""

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
        """Attaches to the container's own program, with `logs` from its first line. Raises NotFound, and Internal when the
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
                pass  # its stdin has ended: input is lost, as everywhere
        return session

    async def dial(self, key: Key, port: int) -> socket.socket:
        """Connects to a port inside a pod's network. Raises NotFound, Internal, and OSError if nothing listens."""
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
        """A socket in the pod's network and the pod's address there, that of `localhost`. If we may not enter a container's network,
        a socket of the machine's network, and the pod's own address."""
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
    """The first line from the pod host's child, and the descriptors that come with it."""
    control.settimeout(30)
    data, fds, _, _ = socket.recv_fds(control, 65536, 3)
    if not data:
        return {"error": "the program could not be started: the pod host's log says why"}, fds
    return json.loads(data), fds
