"""`AsyncSweepHandle`: one sweep, for programs with an event loop. `sweeps.py` is generated from it."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol, TypeVar

from rowlock.sdk import calls
from rowlock.sdk.calls import ApiCall
from rowlock.sdk.client_errors import ClientError
from rowlock.sdk.sweep_models import SweepInfo, SweepRunInfo

T = TypeVar("T")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 3.0
"""Between two looks at a sweep that is waited for."""


class AsyncCaller(Protocol):
    """Sends requests: a client."""

    async def run_call(self, call: ApiCall[T]) -> T: ...


class AsyncSweepHandle:
    """One sweep and its operations. `sweep` is the last answer of the server; `refresh` updates it."""

    def __init__(self, client: AsyncCaller, sweep: SweepInfo) -> None:
        self._client, self.sweep = client, sweep

    def __repr__(self) -> str:
        return f"<AsyncSweepHandle {self.name} of project {self.sweep.project}: {self.sweep.phase}>"

    @property
    def id(self) -> str:
        """Its id, which is never reused for another sweep."""
        return self.sweep.id

    @property
    def name(self) -> str:
        """Its name in its project."""
        return self.sweep.name

    async def refresh(self) -> SweepInfo:
        """Ask the server for its current state."""
        self.sweep = await self._client.run_call(calls.sweep(self.id))
        return self.sweep

    async def wait(self, *, timeout: float | None = None) -> SweepInfo:
        """Wait until all its runs have ended, or it is stopped and those that were made have ended. Raises TimeoutError after `timeout`
        seconds."""
        deadline, pause = None if timeout is None else time.monotonic() + timeout, _FIRST_PAUSE_S
        while not (await self.refresh()).is_finished:
            left = pause if deadline is None else deadline - time.monotonic()
            if left <= 0:
                now = self.sweep
                text = f"{now.begun} of {now.total} runs begun, {now.unfinished} unfinished"
                raise TimeoutError(f"{self.name} is {now.phase} after {timeout:g} s: {text}. {now.message}".rstrip())
            await asyncio.sleep(min(pause, left))
            pause = min(1.5 * pause, _LONGEST_PAUSE_S)
        return self.sweep

    async def runs(self, metric: str = "", *, maximize: bool = False) -> list[SweepRunInfo]:
        """Its runs in the order of their numbers; with a `metric` that the programs print, the one with the lowest value at any step comes
        first, or with `maximize` the one with the highest, and those without it last."""
        left = math.inf
        while True:  # each answer reads logs for a second, and the next one goes on
            found, unread = await self._client.run_call(calls.sweep_runs(self.id, metric, maximize=maximize))
            if not unread or unread >= left:
                return found
            left = unread

    async def best(self, metric: str, *, maximize: bool = False) -> SweepRunInfo:
        """The run with the lowest value of the metric at any step, or with `maximize` the highest. Raises ClientError if none has it."""
        first = next(iter(await self.runs(metric, maximize=maximize)), None)
        if first is None or first.best is None:
            raise ClientError(
                f"no run of {self.name} has a number for the metric {metric}: programs print `step=10 {metric}=0.31`"
            )
        return first

    async def table(self, metric: str = "", *, maximize: bool = False) -> list[dict[str, Any]]:
        """The runs as `runs` sorts them, as flat rows, which a data frame of pandas takes."""
        return [run.row for run in await self.runs(metric, maximize=maximize)]

    async def stop(self, *, now: bool = False) -> None:
        """Make no further runs; those that were made go on, or with `now` are suspended until `resume`."""
        await self._client.run_call(calls.set_sweep_stopped(self.id, stopped=True, now=now))

    async def resume(self) -> None:
        """Make the rest of the runs, after `stop`, and go on with those that were suspended."""
        await self._client.run_call(calls.set_sweep_stopped(self.id, stopped=False))

    async def delete(self) -> None:
        """Delete it with the jobs of its runs; their logs stay in the archive."""
        await self._client.run_call(calls.delete_sweep(self.id))
