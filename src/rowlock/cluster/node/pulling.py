"""Pulls through the container engine's API: one per image at a time, shared by all who want it, waited for by none else.

A pull lasts from a second to an hour, so it is no request in a thread but a task that reads the engine's stream as it
comes. When nobody wants the image any more (its pods were deleted) the connection is closed, at which the engine stops.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from rowlock.cluster.node import engine, registry
from rowlock.cluster.node.engine import Engine
from rowlock.cluster.node.registry import Credential

QUIET = 600.0
"""Seconds without a word from the engine after which a pull has failed: a registry may stop answering for ever."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pull ended: the engine's sentence, "" when it went well; how long it took."""

    error: str
    seconds: float


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[Outcome]
    credentials: tuple[Credential, ...]
    waiting: int = 0


class Pulls:
    """The pulls under way on this machine."""

    def __init__(self, quiet: float = QUIET) -> None:
        self._quiet = quiet
        self._running: dict[str, _Running] = {}

    async def fetch(
        self, group: asyncio.TaskGroup, where: Engine, name: str, credentials: tuple[Credential, ...]
    ) -> Outcome:
        """Pulls a normalised name, or takes part in the pull that is under way. One that asks as somebody else is waited
        for first: whether it may have the image says nothing about us."""
        while (running := self._running.get(name)) is not None and running.credentials != credentials:
            await asyncio.wait({running.task})
        if running is None:
            task = group.create_task(self._pull(where, name, credentials))
            running = self._running[name] = _Running(task, credentials)
        running.waiting += 1
        try:
            await asyncio.wait({running.task})
        finally:
            running.waiting -= 1
            if not running.waiting and self._running.get(name) is running:
                del self._running[name]
                running.task.cancel()
        return running.task.result()

    async def _pull(self, where: Engine, name: str, credentials: tuple[Credential, ...]) -> Outcome:
        clock = asyncio.get_running_loop().time
        began, errors = clock(), list[str]()
        for credential in credentials:
            error = await self._ask(where, name, credential)
            if not error:
                return Outcome("", clock() - began)
            errors += [] if error in errors else [error]
        return Outcome("; ".join(errors), clock() - began)

    async def _ask(self, where: Engine, name: str, credential: Credential) -> str:
        """One try: the engine's sentence when it went wrong."""
        headers = {"X-Registry-Auth": credential.header} if credential.header else {}
        try:
            async with asyncio.timeout(self._quiet):
                reader, writer = await asyncio.open_unix_connection(where.path)
        except OSError as error:
            return str(where.silent(error))
        try:
            writer.write(engine.head("POST", registry.request(name), headers))
            return await self._listen(reader)
        except TimeoutError:
            return f"{where.name} has said nothing about the pull for {self._quiet:.0f} s: does the registry answer?"
        except (OSError, EOFError) as error:
            return str(where.silent(error if isinstance(error, OSError) else ConnectionResetError("it hung up")))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _listen(self, reader: asyncio.StreamReader) -> str:
        async with asyncio.timeout(self._quiet):
            status, _ = engine.parsed(await reader.readuntil(b"\r\n\r\n"))
        answer, text = registry.Answer(), b""
        while True:
            async with asyncio.timeout(self._quiet):
                piece = await reader.read(1 << 16)
            if not piece:
                break
            if status >= 400:
                text += piece
            else:
                answer.feed(piece)
        return engine.sentence(text) or f"the engine answered {status}" if status >= 400 else answer.end()
