"""Pulls through the container engine's API: one per image at a time, shared by all containers that need it.

A pull takes from a second to an hour, so it is not a call in a thread but a task that reads the engine's stream as it
arrives. When no container needs the image any more (its pods were deleted), the connection is closed and the engine stops.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from rowlock.kubelet.runtime import registry
from rowlock.kubelet.runtime.registry import Credential
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine

PULL_PROGRESS_DEADLINE = 600.0
"""Seconds without progress from the engine after which a pull has failed: a registry may stop answering."""


@dataclass(frozen=True, slots=True)
class PullResult:
    """How a pull ended: the engine's error, "" = none; and how long it took."""

    error: str
    seconds: float


@dataclass(slots=True)
class _RunningPull:
    task: asyncio.Task[PullResult]
    credentials: tuple[Credential, ...]
    waiters: int = 0


class Pulls:
    """The pulls under way on this machine."""

    def __init__(self, progress_deadline: float = PULL_PROGRESS_DEADLINE) -> None:
        self._progress_deadline = progress_deadline
        self._running: dict[str, _RunningPull] = {}

    async def pull_image(
        self, group: asyncio.TaskGroup, client: Engine, name: str, credentials: tuple[Credential, ...]
    ) -> PullResult:
        """Pulls a normalised name, or joins the pull that is under way. Waits first for one with other credentials: whether those may
        have the image says nothing about these."""
        while (running := self._running.get(name)) is not None and running.credentials != credentials:
            await asyncio.wait({running.task})
        if running is None:
            task = group.create_task(self._try_credentials(client, name, credentials))
            running = self._running[name] = _RunningPull(task, credentials)
        running.waiters += 1
        try:
            await asyncio.wait({running.task})
        finally:
            running.waiters -= 1
            if not running.waiters and self._running.get(name) is running:
                del self._running[name]
                running.task.cancel()
        return running.task.result()

    async def _try_credentials(self, client: Engine, name: str, credentials: tuple[Credential, ...]) -> PullResult:
        clock = asyncio.get_running_loop().time
        began, errors = clock(), list[str]()
        for credential in credentials:
            error = await self._pull_once(client, name, credential)
            if not error:
                return PullResult("", clock() - began)
            errors += [] if error in errors else [error]
        return PullResult("; ".join(errors), clock() - began)

    async def _pull_once(self, client: Engine, name: str, credential: Credential) -> str:
        """One attempt; returns the engine's error, "" = none."""
        headers = {"X-Registry-Auth": credential.header} if credential.header else {}
        try:
            async with asyncio.timeout(self._progress_deadline):
                reader, writer = await asyncio.open_unix_connection(client.path)
        except OSError as error:
            return str(client.unreachable_error(error))
        try:
            writer.write(engine_client.request_head("POST", registry.pull_path(name), headers))
            return await self._read_answer(reader)
        except TimeoutError:
            return f"{client.name} has reported no progress of the pull for {self._progress_deadline:.0f} s: does the registry answer?"
        except (OSError, EOFError) as error:
            return str(
                client.unreachable_error(error if isinstance(error, OSError) else ConnectionResetError("it hung up"))
            )
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read_answer(self, reader: asyncio.StreamReader) -> str:
        async with asyncio.timeout(self._progress_deadline):
            status, _ = engine_client.parse_response_head(await reader.readuntil(b"\r\n\r\n"))
        answer, text = registry.PullAnswer(), b""
        while True:
            async with asyncio.timeout(self._progress_deadline):
                piece = await reader.read(1 << 16)
            if not piece:
                break
            if status >= 400:
                text += piece
            else:
                answer.feed(piece)
        return (
            engine_client.error_message(text) or f"the engine answered {status}" if status >= 400 else answer.finish()
        )
