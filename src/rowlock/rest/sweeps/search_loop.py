"""What sweeps do with the metrics of their runs, while they go on: draw the next points of a search that learns, and stop runs early.

It looks at what is there (ConfigMaps, jobs, curves) and decides anew each time, so a restart loses nothing: points are written before their
runs are made (`sweeps/reconcile.py` does that), and a run is stopped by one patch that has the reason.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request

from rowlock import kinds, objects
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError
from rowlock.objects import Object
from rowlock.rest.call import AppContext, RestCall
from rowlock.rest.sweeps.learning import draw_point
from rowlock.rest.sweeps.metrics import read_values
from rowlock.rest.sweeps.views import begun, find_runs
from rowlock.rest.workloads import WRITE_OPTIONS
from rowlock.selectors import parse_labels
from rowlock.sweeps.early_stop import decide_stops, rung_values
from rowlock.sweeps.points import Point
from rowlock.sweeps.reconcile import has_ended
from rowlock.sweeps.run_stops import patch_early_stop
from rowlock.sweeps.sweep import LABEL, Sweep, is_stopped, points_data, read_object
from rowlock.workloads.phase import EARLY_STOP_ANNOTATION

log = logging.getLogger(__name__)
_LOOK_S = 1.0
"""Seconds between two looks at all sweeps."""
_REST = 10
"""The pause is also so many times as long as the logs of running runs took, which are read from their beginning."""

KnownSweeps = Callable[[], Iterable[Object]]
"""Returns the ConfigMaps that are, or say that they are, sweeps."""
GoOnWithSweeps = Callable[[KnownSweeps], Coroutine[Any, Any, None]]
RunSweeps = Callable[[GoOnWithSweeps], Awaitable[None]]
"""Makes the runs of sweeps while this server is the one that does, and runs the function that it is given meanwhile."""


class _Known(NamedTuple):
    """A sweep as it was read from a ConfigMap of this version."""

    version: str
    sweep: Sweep | None


class _Progress(NamedTuple):
    """What a run has reached by the metric of its sweep."""

    rungs: tuple[float, ...]
    best: float


class SweepSearch:
    """Goes on with the sweeps that learn from their runs."""

    def __init__(self, context: AppContext) -> None:
        self._context, self._key = context, context.settings.sweep_key.encode()
        self._known: dict[str, _Known] = {}
        self._ended: dict[str, dict[tuple[int, str], _Progress]] = {}
        """Uid of a sweep → (number of a run that has ended, version of its job) → what it reached: logs are long, and those do not change."""
        self._reading_s = 0.0
        """How long a look took to read the logs of running runs."""
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], "path_params": {}}
        self._call = RestCall(context, Request(scope), context.settings.user)

    async def run(self, known: KnownSweeps | None = None) -> None:
        """Look again and again, until cancelled. `known`: the sweeps where they are followed; else they are listed each time."""
        cache = self._context.cache
        await cache.wait_until("", cache.can_answer, timeout=None)
        while True:
            self._reading_s = 0.0
            await self.look(known)
            await asyncio.sleep(max(_LOOK_S, _REST * self._reading_s))

    async def look(self, followed: KnownSweeps | None = None) -> None:
        """One look at all sweeps."""
        if followed is not None:
            config_maps: Iterable[Object] = followed()
        else:
            config_maps = (await self._context.api.list(kinds.CONFIG_MAP, "", labels=parse_labels(LABEL))).items
        known: dict[str, _Known] = {}
        for config_map in config_maps:
            uid, version = objects.uid(config_map), objects.revision_text(config_map)
            before = self._known.get(uid)
            is_same = before is not None and before.version == version
            known[uid] = before if before and is_same else _Known(version, read_object(config_map, self._key))
            sweep = known[uid].sweep
            if sweep is not None and (sweep.samples or sweep.stop_rule) and not objects.is_deleting(config_map):
                try:
                    await self._go_on(config_map, sweep)
                except ApiError as error:  # as where somebody wrote at the same time: the next look tries again
                    log.info("sweep %s: %s", sweep.name, error.message)
        self._known = known
        self._ended = {uid: reached for uid, reached in self._ended.items() if uid in known}

    async def _go_on(self, config_map: Object, sweep: Sweep) -> None:
        runs = find_runs(self._context.cache, config_map, sweep, range(sweep.drawn_count))
        unfinished = {index for index, job in runs.items() if not has_ended(job)}
        room = sweep.max_parallel - len(unfinished)
        draws = sweep.drawn_count < sweep.total and room > 0 and not is_stopped(config_map)
        draws = draws and begun(config_map, sweep, runs) == sweep.drawn_count  # else runs are still to be made
        if not draws and not (sweep.stop_rule and unfinished):
            return
        progress: dict[int, _Progress] = {}
        ended = self._ended.setdefault(objects.uid(config_map), {})
        budget = TurnBudget()
        loop = asyncio.get_running_loop()
        for index, job in runs.items():
            key = index, objects.revision_text(job)
            if index not in unfinished:
                ended[key] = progress[index] = ended.get(key) or await self._read_progress(sweep, index)
            elif sweep.stop_rule:
                began = loop.time()
                progress[index] = await self._read_progress(sweep, index)
                self._reading_s += loop.time() - began
            await budget.pause_if_due()
        if (rule := sweep.stop_rule) is not None:
            # who was stopped early and resumed by somebody goes on to its end
            spared = {index for index in unfinished if EARLY_STOP_ANNOTATION in objects.annotations(runs[index])}
            stops = decide_stops(rule, {index: one.rungs for index, one in progress.items()}, unfinished - spared)
            await self._stop_early(sweep, stops, runs)
        if draws:
            reached = {index: one.best for index, one in progress.items() if index not in unfinished}
            await self._draw(config_map, sweep, min(room, sweep.total - sweep.drawn_count), reached, unfinished)

    async def _read_progress(self, sweep: Sweep, index: int) -> _Progress:
        values = await read_values(self._call, sweep.run_id(index), sweep.metric)
        rule = sweep.stop_rule
        numbers = [value for value in values if math.isfinite(value)]
        best = max if sweep.is_max else min
        return _Progress(rung_values(values, rule) if rule else (), best(numbers) if numbers else math.nan)

    async def _stop_early(self, sweep: Sweep, stops: Mapping[int, str], runs: Mapping[int, Object]) -> None:
        for index, reason in stops.items():
            patch = patch_early_stop(sweep.kind, reason)
            patch["metadata"]["uid"] = objects.uid(runs[index])
            where = objects.key(runs[index])
            await self._context.api.patch(sweep.kind, *where, patch, type="merge", options=WRITE_OPTIONS)
            log.info("sweep %s: run %d is stopped early: %s", sweep.name, index, reason)

    async def _draw(
        self, config_map: Object, sweep: Sweep, count: int, reached: Mapping[int, float], unfinished: Iterable[int]
    ) -> None:
        """Draw the next points and write them; the controller makes their runs."""
        points: list[Point] = list(sweep.points)
        pending = set(unfinished)
        for _ in range(count):
            draw = partial(
                draw_point, sweep.space, sweep.seed, tuple(points), reached, frozenset(pending), is_max=sweep.is_max
            )
            points.append(await asyncio.to_thread(draw))
            pending.add(len(points) - 1)
        meta = {"uid": objects.uid(config_map), "resourceVersion": objects.revision_text(config_map)}
        patch = {"metadata": meta, "data": points_data(config_map, sweep, points, self._key)}
        where = objects.key(config_map)
        await self._context.api.patch(kinds.CONFIG_MAP, *where, patch, type="merge", options=WRITE_OPTIONS)
