"""The way into running pods: `exec`, `attach` and connections to their ports, for the API server to serve.

A `Session` is what the API server holds while somebody is inside: it reads and writes one chunk at a time, and
closing it ends what was started. Programs are started by the pod host (`entering.py`).
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
from rowlock.cluster.node.attached import Attached
from rowlock.cluster.node.ends import End
from rowlock.cluster.node.network import LOOPBACK, PodNetwork
from rowlock.cluster.node.pod_directory import PodDirectories
from rowlock.cluster.node.pod_facts import NO_FACTS, Run, all_containers
from rowlock.cluster.node.processes import PodHost
from rowlock.cluster.node.tended import Tended
from rowlock.errors import ApiError, Internal, not_found
from rowlock.objects import Key, Object
from rowlock.objects import uid as uid_of

LINGER = 0.5
"""Seconds without output, after a program ended, until what it left running is not listened to any more."""
DIALLING = 10.0
"""Seconds in which a connection to a pod's port must stand."""
OUT, ERR = 1, 2


class Session:
    """One program somebody talks to. `read(1)` is its stdout or its terminal, `read(2)` its stderr."""

    def __init__(self, control: End, ends: Mapping[int, End], pid: int) -> None:
        self.pid = pid
        self._control, self._ends = control, dict(ends)
        self._ended = asyncio.Event()
        self._watch = asyncio.create_task(self._hear())
        self._outcome: tuple[int, str] = (137, "")

    async def _hear(self) -> None:
        """Waits for the line that says how the program ended; without one it was killed with its container."""
        line = b""
        while piece := await self._control.read():
            line += piece
        if line:
            self._outcome = int(json.loads(line)["code"]), ""
        for number in self.channels:
            self._ends[number].hurry(LINGER)
        self._ended.set()

    @property
    def channels(self) -> tuple[int, ...]:
        """What can be read."""
        return tuple(number for number in (OUT, ERR) if number in self._ends)

    async def read(self, channel: int) -> bytes:
        """The next bytes; b"" at the end."""
        return await self._ends[channel].read()

    async def write(self, data: bytes) -> None:
        """To its stdin; lost when it does not read any more."""
        if 0 in self._ends:
            await self._ends[0].write(data)

    def finish_input(self) -> None:
        """No more input: its stdin ends. A terminal has no such thing."""
        if OUT in self._ends and self._ends.get(0) is not self._ends[OUT] and 0 in self._ends:
            self._ends.pop(0).close()

    def resize(self, columns: int, rows: int) -> None:
        """The size of its terminal."""
        if self._ends.get(0) is self._ends[OUT] and self._ends[OUT].fd >= 0:
            with contextlib.suppress(OSError):  # it has just ended
                fcntl.ioctl(self._ends[OUT].fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def ended(self) -> tuple[int, str]:
        """Its exit code, and a sentence when it could not be started."""
        await self._ended.wait()
        return self._outcome

    async def close(self) -> None:
        """Lets go of everything; a program that still runs is stopped."""
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        for end in (self._control, *self._ends.values()):
            end.close()


class Failed:
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

    async def ended(self) -> tuple[int, str]:
        return 1, self._sentence

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class Entrance:
    """Finds running containers and opens sessions in them."""

    view: View
    host: PodHost
    network: PodNetwork
    directories: PodDirectories
    pods: Mapping[str, Tended]
    log: Callable[[str, str, LogOptions], AsyncIterator[bytes]]
    """As `Api.log` has it."""

    async def exec(
        self, place: Key, container: str, argv: list[str], *, tty: bool = False, stdin: bool = False
    ) -> Session | Failed:
        """Starts a program in a running container. Raises NotFound, and Internal when the container does not run."""
        tended, run = self._running(place, container)
        where = str(self.directories.container(tended.card.uid, container))
        control = await self.host.passed("enter", argv=argv, tty=tty, dir=where, n=run.number)
        with control:
            news, fds = await asyncio.to_thread(_first_line, control)
            if sentence := news.get("error"):
                return Failed(str(sentence))
            told = End(control.detach())
        ends = [End(fd) for fd in fds]
        if tty:
            found = {0: ends[0], OUT: ends[0]}
        else:
            found = {0: ends[0], OUT: ends[1], ERR: ends[2]}
        session = Session(told, found, int(news["pid"]))
        if not stdin:
            session.finish_input()
        return session

    async def attach(self, place: Key, container: str, *, tty: bool = False, stdin: bool = False) -> Attached:
        """To the container's own program. Raises NotFound, and Internal when the container does not run."""
        tended, run = self._running(place, container)
        wanted = next(c for c in all_containers(self._pod(place)) if c["name"] == container)
        output = self.log(place.namespace, place.name, LogOptions(container=container, follow=True, tail=0))
        made = Attached(output, run.pid, tty=tty and bool(wanted.get("tty")))
        if stdin and wanted.get("stdin"):
            with contextlib.suppress(OSError):  # its stdin has ended: what is written is lost, as everywhere
                made.open_input(self.directories.container(tended.card.uid, container) / f"in.{run.number}")
        return made

    async def dial(self, place: Key, port: int) -> socket.socket:
        """A connection to a port inside a pod's network. Raises NotFound, Internal, OSError when nobody listens."""
        tended = self.pods.get(uid_of(self._pod(place)))
        if tended is None or not any(run.pid for run in tended.alive()):
            raise Internal(f"pod {place.name} is not running")
        made, address = await self.inside(tended)
        made.setblocking(False)
        try:
            async with asyncio.timeout(DIALLING):
                where = (address, port if tended.card.contained else self.network.port(place, port))
                await asyncio.get_running_loop().sock_connect(made, where)
        except BaseException:
            made.close()
            raise
        return made

    async def inside(self, tended: Tended) -> tuple[socket.socket, str]:
        """A socket in the pod's network, and what the pod is called there: `localhost`'s address. Where we may not enter a
        container's network, it is one of ours, and the pod's own address."""
        card = tended.card
        if not card.contained:
            return await self.host.passed("socket", uid=card.uid) if self.network.real else socket.socket(), LOOPBACK
        with contextlib.suppress(ApiError):
            for run in tended.alive():
                if run.pid:
                    return await self.host.passed("socket", uid=card.uid, pid=run.pid), LOOPBACK
        return socket.socket(), card.ip

    def _pod(self, place: Key) -> Object:
        pod = self.view.get(kinds.POD, place.namespace, place.name)
        if pod is None:
            raise not_found("pods", place.name)
        return pod

    def _running(self, place: Key, container: str) -> tuple[Tended, Run]:
        tended = self.pods.get(uid_of(self._pod(place)))
        run = (tended.containers.get(container, NO_FACTS) if tended else NO_FACTS).run
        if tended is None or run is None or run.exit is not None or not run.pid:
            raise Internal(f'container not found ("{container}")')
        return tended, run


def _first_line(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What the pod host's child says first, and the descriptors that come with it."""
    control.settimeout(30)
    data, fds, _, _ = socket.recv_fds(control, 65536, 3)
    if not data:
        return {"error": "the program could not be started: the pod host's log says why"}, fds
    return json.loads(data), fds
