"""Runs one command in a container of a real cluster, by exec without a terminal, and returns its output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
from wsproto.utilities import ProtocolError

from rowlock.errors import Unavailable
from rowlock.kinds import POD
from rowlock.kube import requests
from rowlock.kube.connection import Connection
from rowlock.kube.proxy.websocket_relay import V4, V5, ClusterWebSocket
from rowlock.kube.users.user_connection import UserConnection

_STDIN, _STDOUT, _STDERR, _OUTCOME = 0, 1, 2, 3
"""Channels of the protocol; the first byte of a message is its channel."""
MAX_OUTPUT_BYTES = 4 << 20
_MAX_ERROR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`problem`: why the command failed, in the container runtime's words; "" if it succeeded."""

    output: bytes
    error_output: str
    problem: str


async def run_in_container(
    connection: Connection | UserConnection,
    place: tuple[str, str, str],
    command: Sequence[str],
    timeout: float,
    stdin: bytes = b"",
) -> CommandResult:
    """Run a command in a container; `place` is (namespace, pod, container). `stdin` stays open after its last byte, because older servers
    cannot close it, so the command must know its length. After `MAX_OUTPUT_BYTES` of output the stream is closed. Raises ApiError: the API
    server's error, or Unavailable if the command did not end within `timeout` seconds."""
    namespace, pod, container = place
    streams = ("stdin", "stdout", "stderr") if stdin else ("stdout", "stderr")
    query = urlencode(
        [("container", container), *((each, "true") for each in streams), *(("command", word) for word in command)]
    )
    target = f"{requests.path(POD, namespace, pod, 'exec')}?{query}"
    try:
        async with asyncio.timeout(timeout):
            websocket = await ClusterWebSocket.open(connection, target, (V5, V4))
            try:
                if stdin:
                    await websocket.send(bytes((_STDIN,)) + stdin)
                return await _read_result(websocket)
            finally:
                await websocket.close()
    except TimeoutError:
        raise Unavailable(f"no answer from {pod} within {timeout:g} s") from None
    except (OSError, ProtocolError) as error:
        raise Unavailable(f"the stream to {pod} broke: {error or type(error).__name__}") from error


async def _read_result(websocket: ClusterWebSocket) -> CommandResult:
    output, error_output, problem = bytearray(), bytearray(), "the stream ended before the command did"
    async for message in websocket.messages():
        channel, content = message[:1], message[1:]
        if channel == bytes((_STDOUT,)):
            output += content
            if len(output) > MAX_OUTPUT_BYTES:
                problem = f"it wrote more than {MAX_OUTPUT_BYTES >> 20} MiB"
                break
        elif channel == bytes((_STDERR,)):
            error_output = (error_output + content)[-_MAX_ERROR_BYTES:]
        elif channel == bytes((_OUTCOME,)):
            problem = _problem_of(content)
            break
    return CommandResult(bytes(output), error_output.decode(errors="replace").strip(), problem)


def _problem_of(outcome: bytes) -> str:
    """The problem in the Status at the end of the stream; "" for success."""
    try:
        status: Any = msgspec.json.decode(outcome)
    except ValueError:
        return "the container runtime's answer cannot be read"
    if not isinstance(status, dict) or status.get("status") == "Success":
        return ""
    return str(status.get("message") or status.get("reason") or "it failed without a message")[:500]
