"""exec, attach and port-forward over websockets with Kubernetes' channel protocol.

Every message is a channel number and bytes: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 the terminal's
size; in `v5.channel.k8s.io` 255 closes a channel, which is how kubectl ends stdin. A program's output is
read only as fast as the client takes it. When the client disconnects, the program is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket as net
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Send

from rowlock import objects
from rowlock.apiserver.http.responses import encode
from rowlock.errors import ApiError, BadRequest, Internal
from rowlock.objects import Key, Object

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4, NO_PROTOCOL = "v5.channel.k8s.io", "v4.channel.k8s.io", ""
"""NO_PROTOCOL is for clients that name no protocol: the same channels, with errors as plain text."""
_SUCCESS = {"metadata": {}, "status": "Success"}


class ExecSession(Protocol):
    """A program in a container with a connected client; implemented by the kubelet's `ProcessSession`."""

    @property
    def channels(self) -> tuple[int, ...]: ...

    async def read(self, channel: int) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    def finish_input(self) -> None: ...

    def resize(self, columns: int, rows: int) -> None: ...

    async def wait_exit(self) -> tuple[int, str]: ...

    async def close(self) -> None: ...


class StreamingRuntime(Protocol):
    """Opens sessions in running pods; implemented by the kubelet's `StreamingServer`."""

    async def exec(
        self, key: Key, container: str, argv: list[str], *, tty: bool = False, stdin: bool = False
    ) -> ExecSession: ...

    async def attach(
        self, key: Key, container: str, *, tty: bool = False, stdin: bool = False, logs: bool = False
    ) -> ExecSession: ...

    async def dial(self, key: Key, port: int) -> net.socket: ...


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """The query of an exec or attach request."""

    container: str
    command: list[str]
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    logs: bool = False
    """Attach only: send the program's earlier output first. An extension of rowlock, named as in Docker's API."""


_FLAG_PARAMETERS = ("stdin", "stdout", "stderr", "tty", "logs")
_EXEC_PARAMETERS = frozenset({"container", "command", *_FLAG_PARAMETERS})


def parse_exec_options(query: bytes) -> ExecOptions:
    """Parse the query of an exec or attach request. Raises BadRequest."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    single = {k: v for k, v in pairs if k != "command"}
    for name in single:
        if name not in _EXEC_PARAMETERS:
            raise BadRequest(f'unknown query parameter "{name}"; there are {", ".join(sorted(_EXEC_PARAMETERS))}')
    flags = {name: single.get(name, "").lower() in ("1", "t", "true") for name in _FLAG_PARAMETERS}
    if flags["tty"] and flags["stderr"]:
        raise BadRequest("tty and stderr cannot both be true: a terminal has one output, ask for stdout")
    if not any(flags[name] for name in ("stdin", "stdout", "stderr")):
        raise BadRequest("at least one of stdin, stdout, stderr must be true")
    return ExecOptions(single.get("container", ""), [v for k, v in pairs if k == "command"], **flags)


class WebSocketChannels:
    """A websocket whose messages begin with a channel number."""

    def __init__(self, receive: Receive, send: Send, version: str) -> None:
        self._receive, self._send, self._version = receive, send, version

    async def accept(self) -> None:
        await self._send({"type": "websocket.accept", "subprotocol": self._version or None})

    async def send(self, channel: int, data: bytes) -> None:
        """Send data on a channel; waits while the client does not read."""
        await self._send({"type": "websocket.send", "bytes": bytes((channel,)) + data})

    async def receive(self) -> tuple[int, bytes] | None:
        """The next channel and bytes; None when the client has disconnected."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return None
            if message["type"] == "websocket.receive":
                data = message.get("bytes")
                data = (message.get("text") or "").encode() if data is None else data
                if data:
                    return data[0], data[1:]

    async def finish(self, status: dict[str, Any]) -> None:
        """Send the final status and close."""
        if self._version:
            await self.send(ERROR, encode(status))
        elif status["status"] != "Success":
            await self.send(ERROR, str(status["message"]).encode())
        await self.close()

    async def close(self) -> None:
        await self._send({"type": "websocket.close", "code": 1000})


class Channels(Protocol):
    """The channels to the client, over a websocket or SPDY."""

    async def accept(self) -> None: ...

    async def send(self, channel: int, data: bytes) -> None: ...

    async def receive(self) -> tuple[int, bytes] | None: ...

    async def finish(self, status: dict[str, Any]) -> None: ...


def open_session(
    path: str, runtime: StreamingRuntime, pod: Object, options: ExecOptions
) -> Coroutine[Any, Any, ExecSession]:
    """A coroutine that opens an exec or attach session. Raises BadRequest without a command for exec."""
    container = options.container or pod["spec"]["containers"][0]["name"]
    if path.rstrip("/").endswith("/attach"):
        return runtime.attach(objects.key(pod), container, tty=options.tty, stdin=options.stdin, logs=options.logs)
    if not options.command:
        raise BadRequest("you must specify at least one command for the container")
    return runtime.exec(objects.key(pod), container, options.command, tty=options.tty, stdin=options.stdin)


async def serve_session(
    channels: Channels,
    opening: Coroutine[Any, Any, ExecSession],
    options: ExecOptions,
    *,
    errors_in_stream: bool = False,
) -> None:
    """Serve a session from the handshake to its end. `errors_in_stream`: report a failure to open it inside the stream."""
    try:
        session = await opening
    except ApiError as error:
        if not errors_in_stream:
            raise
        await channels.accept()  # v5 clients expect the error inside the stream
        return await channels.finish(_internal_error_status(f"unable to upgrade connection: {error.message}"))
    try:
        await channels.accept()
        await _run_session(channels, session, options)
    finally:
        await session.close()


async def _run_session(channels: Channels, session: ExecSession, options: ExecOptions) -> None:
    requested = {STDOUT: options.stdout, STDERR: options.stderr}
    output_tasks = [asyncio.create_task(_copy_output(channels, session, n, requested[n])) for n in session.channels]
    input_task = asyncio.create_task(_handle_input(channels, session, options))
    exit_task = asyncio.create_task(_wait_outcome(session, output_tasks))
    try:
        await asyncio.wait({input_task, exit_task}, return_when=asyncio.FIRST_COMPLETED)
        if exit_task.done():
            input_task.cancel()  # from now on `finish` receives
            await asyncio.gather(input_task, return_exceptions=True)
            await channels.finish(_exit_status(*exit_task.result()))
    finally:
        for task in (input_task, exit_task, *output_tasks):
            task.cancel()
        await asyncio.gather(input_task, exit_task, *output_tasks, return_exceptions=True)


async def _wait_outcome(session: ExecSession, output_tasks: list[asyncio.Task[None]]) -> tuple[int, str]:
    """The exit code and message, after all output has been sent."""
    outcome = await session.wait_exit()
    await asyncio.gather(*output_tasks)
    return outcome


async def _copy_output(channels: Channels, session: ExecSession, channel: int, requested: bool) -> None:
    while data := await session.read(channel):
        if requested:
            await channels.send(channel, data)
        await asyncio.sleep(0)  # a program that prints endlessly must not block the event loop


async def _handle_input(channels: Channels, session: ExecSession, options: ExecOptions) -> None:
    """Handle the client's messages until it disconnects."""
    while (message := await channels.receive()) is not None:
        channel, data = message
        if channel == STDIN and options.stdin:
            await session.write(data)
        elif channel == CLOSE and data[:1] == bytes((STDIN,)):
            session.finish_input()
        elif channel == RESIZE and options.tty:
            with contextlib.suppress(msgspec.MsgspecError):  # ignore an invalid size
                size = msgspec.json.decode(data, type=TerminalSize)
                session.resize(size.Width, size.Height)


class TerminalSize(msgspec.Struct):
    """The size of a terminal in characters."""

    Width: int
    Height: int


def _exit_status(code: int, sentence: str) -> dict[str, Any]:
    if sentence:
        return _internal_error_status(f"error executing command in container: {sentence}")
    if code == 0:
        return _SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _internal_error_status(text: str) -> dict[str, Any]:
    return Internal(f"Internal error occurred: {text}", causes=[]).status() | {
        "details": {"causes": [{"message": text}]}
    }
