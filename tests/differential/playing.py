"""Both sides play a history in step: after each step they have some time to come to the same picture, and to stay so.

The real operator decides some things at random (it walks through maps). So a history that differs is played again, and
what ours did counts as right where the real one has been seen to do just that, after the same step of another play. Ours
is wrong when it does twice what the real one never did. Shrinking drops steps and parts of the job while that stays so.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.differential.histories import History, Step
from tests.differential.jobs import SHAPE
from tests.differential.kubelet import Stage
from tests.differential.picture import ONLY_OURS, Picture, differences, dropped_services, picture, remade
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
    """How often a history that differs is played again, to see what the real operator does."""
    proof: int = 2
    """So many plays in which ours did what the real one did in none are a difference."""


Shown = tuple[Picture, Picture]
"""What the real cluster showed after a step, and what ours did."""


@dataclass(frozen=True)
class Result:
    """`step`: the first that differed. `cut`: what follows it was not played, since the real operator had lost a race."""

    history: History
    wrong: tuple[str, ...] = ()
    step: int = -1
    tries: int = 1
    cut: bool = False
    shown: tuple[Shown, ...] = ()

    def text(self) -> str:
        verb = self.history.steps[self.step] if self.wrong else ""
        return "\n".join([f"after step {self.step + 1} {verb}:", *(f"  {line}" for line in self.wrong[:20])])


def unmatched(plays: Sequence[Result]) -> list[Result]:
    """The plays in which ours showed, after the step that differed, what the real one showed after it in no play."""

    def matched(play: Result) -> bool:
        ours = play.shown[play.step][1]
        others = (other.shown[play.step][0] for other in plays if len(other.shown) > play.step)
        return any(not differences(real, ours) for real in others)

    return [play for play in plays if play.wrong and not matched(play)]


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
        shown: list[Shown] = []
        try:
            for i, step in enumerate(history.steps):
                wrong, pictures = await self._step(stages, step, began)
                shown.append(pictures)
                if wrong:
                    return Result(history, tuple(wrong), i, shown=tuple(shown))
                if remade(*pictures) or dropped_services(*pictures):  # what follows happens to different objects
                    return Result(history, cut=i + 1 < len(history.steps), shown=tuple(shown))
            return Result(history, shown=tuple(shown))
        finally:
            await asyncio.gather(*(s.side.leave(namespace, s.kind) for s in stages))

    async def judged(self, history: History) -> Result:
        """Play it; again where it differs, until it is clear whether the real operator does at times what ours does."""
        plays = [await self.once(history)]
        if not plays[0].wrong:
            return plays[0]
        for _ in range(self.pace.again):
            plays.append(await self.once(history))
            if not unmatched(plays):
                return replace(plays[-1], wrong=(), tries=len(plays), cut=any(play.cut for play in plays))
        proof = unmatched(plays)
        if len(proof) < self.pace.proof:
            return replace(plays[0], wrong=(), tries=len(plays))
        return replace(max(proof, key=lambda play: play.step), tries=len(plays))

    async def _step(self, stages: tuple[Stage, Stage], step: Step, since: float) -> tuple[list[str], Shown]:
        await asyncio.gather(*(stage.play(step) for stage in stages))
        began = changed = time.monotonic()
        patience = max(self.pace.patience, self.pace.back_off * (began - since))
        seen: tuple[int, int] | None = None
        last: list[Picture] = []
        wrong: list[str] = []
        now: list[Picture] = []
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
                return wrong, (now[0], now[1])
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
