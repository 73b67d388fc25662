"""The kubelet's calls to the container engine: in threads of their own, and refused while it does not answer.

An engine that hangs blocks each call for half a minute. In the threads that the server uses for all else, it would delay pods that
run as processes, too.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine, EngineError

_THREADS = 8
_SLOW = 3.0
"""Seconds without an answer after which the engine is pinged."""
_PATIENCE = 10.0
"""Seconds in which it must answer a ping: more than a busy machine needs."""
T = TypeVar("T")


class EngineCalls:
    """Runs the engine calls of all pods."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine")
        self._probe_thread = ThreadPoolExecutor(1, thread_name_prefix="engine-probe")
        self._probe: asyncio.Future[Engine] | None = None
        self._problem: EngineError | None = None
        self._known_until = float("-inf")

    async def run(self, engine: Engine, function: Callable[..., T], *args: object) -> T:
        """Runs `function`, which calls the engine. Raises what it raises, and EngineError while the engine does not answer."""
        self._raise_problem()
        call = asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args))
        while True:
            done, _ = await asyncio.wait({call}, timeout=_SLOW)
            if done:
                return call.result()
            await self._probe_engine(engine)
            try:
                self._raise_problem()
            except EngineError:
                call.add_done_callback(_retrieve)
                call.cancel()
                raise

    def _raise_problem(self) -> None:
        if self._problem is not None and time.monotonic() < self._known_until:
            raise EngineError(self._problem.status, str(self._problem))

    async def _probe_engine(self, engine: Engine) -> None:
        """Pings the engine, once for all concurrent callers. A failed ping is believed for as long as it took, so that calls wait for
        the engine at most half of the time."""
        if self._probe is None or self._probe.done():
            ping = partial(engine_client.ping_engine, engine.path, _PATIENCE)
            self._probe = asyncio.get_running_loop().run_in_executor(self._probe_thread, ping)
            self._probe.add_done_callback(_retrieve)
        began = time.monotonic()
        try:
            await asyncio.shield(self._probe)
            self._problem = None
        except EngineError as error:
            now = time.monotonic()
            self._problem, self._known_until = error, max(self._known_until, now + now - began)

    def close(self) -> None:
        """Closes the thread pools without waiting for pending calls."""
        for threads in (self._threads, self._probe_thread):
            threads.shutdown(wait=False, cancel_futures=True)


def _retrieve(call: "asyncio.Future[Any]") -> None:
    """Retrieves the exception of an abandoned call, so that asyncio does not log it."""
    with contextlib.suppress(asyncio.CancelledError):
        call.exception()
