"""Both sides play a history in step: after each step they have some time to come to the same picture, and to stay so.

The real operator decides some things at random (it walks through maps). So a history that differs is played again:
a difference counts only if it comes every time. Shrinking drops steps and parts of the job while the difference stays.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.differential.histories import History, Step
from tests.differential.jobs import SHAPE
from tests.differential.kubelet import Stage
from tests.differential.picture import ONLY_OURS, Picture, differences, picture, remade
from tests.differential.side import Side


@dataclass(frozen=True)
class Pace:
    """Seconds. A right picture must last `settle`, a wrong one `patience` without any change; a step lasts `limit`."""

    settle: float = 0.4
    patience: float = 5.0
    events: float = 15.0
    """The patience where only events are missing at the real one: it writes them late when it has much to do."""
    limit: float = 60.0
    back_off: float = 4.0
    """… or so many times what the history has lasted, if that is longer: who failed since its start asks again only then,
    and may need luck (the operator takes the types in random order): two or three more goes."""
    again: int = 8
    """How often a history that differs is played again before it counts."""


@dataclass(frozen=True)
class Result:
    history: History
    wrong: tuple[str, ...] = ()
    step: int = -1
    tries: int = 1

    def text(self) -> str:
        verb = self.history.steps[self.step] if self.wrong else ""
        return "\n".join([f"after step {self.step + 1} {verb}:", *(f"  {line}" for line in self.wrong[:20])])


@dataclass
class Theatre:
    """Two sides, and names for namespaces that nobody has used yet."""

    real: Side
    ours: Side
    pace: Pace = Pace()
    run: str = field(default_factory=lambda: f"{int(time.time()) % 16**5:x}{os.getpid() % 16**3:x}")
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def once(self, history: History) -> Result:
        namespace = f"d{self.run}-{next(self._numbers)}"
        await asyncio.gather(self.real.enter(namespace), self.ours.enter(namespace))
        stages, began = (Stage(self.real, history, namespace), Stage(self.ours, history, namespace)), time.monotonic()
        try:
            for i, step in enumerate(history.steps):
                wrong = await self._step(stages, step, began)
                if wrong:
                    return Result(history, tuple(wrong), i)
                if remade(*map(picture, stages)):
                    return Result(history)  # what follows happens to different pods
            return Result(history)
        finally:
            await asyncio.gather(*(s.side.leave(namespace, s.kind) for s in stages))

    async def judged(self, history: History) -> Result:
        """Play it; again while it differs, since the real operator may have been of another mind."""
        result = await self.once(history)
        if not result.wrong:
            return result
        for tries in range(2, self.pace.again + 2):
            other = await self.once(history)
            if not other.wrong:
                return replace(other, tries=tries)
            result = max(result, other, key=lambda r: r.step)
        return result

    async def _step(self, stages: tuple[Stage, Stage], step: Step, since: float) -> list[str]:
        await asyncio.gather(*(stage.play(step) for stage in stages))
        began = changed = time.monotonic()
        patience = max(self.pace.patience, self.pace.back_off * (began - since))
        seen: tuple[int, int] | None = None
        last: list[Picture] = []
        wrong: list[str] = []
        while True:
            for stage in stages:
                stage.space.news.clear()
            versions = stages[0].space.version, stages[1].space.version
            if versions != seen:
                now, seen = [picture(stage) for stage in stages], versions
                if [{**p, "told": {}} for p in now] != last:
                    last, changed = [{**p, "told": {}} for p in now], time.monotonic()
                wrong = differences(*now)
            left = self._patience(wrong, patience) - (time.monotonic() - changed)
            if left <= 0 or time.monotonic() - began > max(self.pace.limit, 2 * patience):
                return wrong
            await _news(stages, left)

    def _patience(self, wrong: list[str], patience: float) -> float:
        if not wrong:
            return self.pace.settle
        late = all(line.startswith(ONLY_OURS) for line in wrong)
        return max(self.pace.events, patience) if late else patience

    # ------------------------------------------------------------ shrinking

    async def shrunk(self, result: Result) -> Result:
        """The smallest history found that differs every time it is played."""
        while True:
            shorter = await asyncio.gather(*(self.judged(h) for h in smaller(result)))
            worse = [r for r in shorter if r.wrong]
            if not worse:
                return result
            result = min(worse, key=lambda r: (len(r.history.steps), len(str(r.history.job))))


async def _news(stages: tuple[Stage, Stage], seconds: float) -> None:
    """Until something changes, or so long."""
    waits = [asyncio.ensure_future(stage.space.news.wait()) for stage in stages]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.03)  # changes come in bursts
    finally:
        for wait in waits:
            wait.cancel()


def smaller(result: Result) -> Iterator[History]:
    """Histories with something less: what comes after the difference, a step, a part of the job."""
    history = replace(result.history, seed=-1)
    steps = history.steps[: result.step + 1]
    if len(steps) < len(history.steps):
        yield replace(history, steps=steps)
        return
    for i in range(1, len(steps) - 1):
        yield replace(history, steps=steps[:i] + steps[i + 1 :])
    for job in _plainer(history.job):
        yield replace(history, steps=steps, job=job)


def _plainer(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec, field_ = job.get("spec") or {}, SHAPE[job["kind"]][0]
    for key in spec:
        if key != field_:
            yield {**job, "spec": {k: v for k, v in spec.items() if k != key}}
    for key in spec.get("runPolicy") or {}:
        yield {**job, "spec": {**spec, "runPolicy": {k: v for k, v in spec["runPolicy"].items() if k != key}}}
    found = spec.get(field_)
    replicas: dict[str, Any] = found if isinstance(found, dict) else {}
    for type_, replica in replicas.items():
        if len(replicas) > 1:
            yield {**job, "spec": {**spec, field_: {t: r for t, r in replicas.items() if t != type_}}}
        for less in _plainer_replica(replica, SHAPE[job["kind"]][1]):
            yield {**job, "spec": {**spec, field_: {**replicas, type_: less}}}


def _plainer_replica(replica: Any, main: str) -> Iterator[Any]:
    if not isinstance(replica, dict):
        return
    plain = {"spec": {"containers": [{"name": main, "image": "img"}]}}
    if replica.get("template") != plain:
        yield {**replica, "template": plain}
    if isinstance(replica.get("replicas"), int) and replica["replicas"] > 1:
        yield {**replica, "replicas": 1}
    if "restartPolicy" in replica:
        yield {k: v for k, v in replica.items() if k != "restartPolicy"}
