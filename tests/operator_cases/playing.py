"""Plays cases, each in a namespace of its own, beside an operator that nobody else disturbs: no scheduler, no kubelet.

To check, a step has passed as soon as the namespace shows one of the recorded states and stays so for a moment. To
record, it ends when the namespace has been quiet for a while.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.differential.side import Side, opened
from tests.end_to_end.cluster import lent
from tests.operator_cases import picture
from tests.operator_cases.actions import AT_ONCE, VERBS, Hands, admitted, path
from tests.operator_cases.cases import Case, Step
from tests.operator_cases.picture import BESIDE, Known, State, tidy, wrong

from rowlock.kinds import Kind
from rowlock.objects import Object

Json = Any


@dataclass(frozen=True)
class Pace:
    """Seconds, on a machine that is not overloaded; all but the first are longer on one that is (`slowness`)."""

    settle: float = 0.35
    """So long a right state must last."""
    patience: float = 5.0
    """So long nothing changes before a wrong state counts."""
    quiet: float = 0.7
    """Recording: so long nothing changes before a state counts."""
    limit: float = 10.0
    """A step that goes on changing is judged then."""


def slowness() -> float:
    """How many times as long everything takes now: programs that want to run, for each processor. An operator that has
    not had its turn yet is quiet, too, and a record would say that it does nothing."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass
class Play:
    """One case in one namespace."""

    side: Side
    hands: Hands
    pace: Pace
    known: Known = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)
    """Name of a job → the startTime it had after the last step."""

    @property
    def case(self) -> Case:
        return self.hands.case

    async def step(self, step: Step, record: bool = False) -> State | None:
        """Do it; the state it leads to, None where that is not to be compared."""
        self.hands.answers = []
        if "admit" in step.do:
            state = await admitted(self.hands, step.do["admit"], step.do.get("update"))
            return picture.plain(state, self.hands.namespace)
        for verb, how in step.do.items():
            await VERBS[verb](self.hands, how)
        if step.do.get("nocheck"):
            return None
        return await self._settled(None if record else step)

    async def _settled(self, wanted: Step | None) -> State:
        space, began, slow = self.side.space(self.hands.namespace), time.monotonic(), slowness()
        changed, last = began, None
        while True:
            space.news.clear()
            state, known, starts = self._observed()
            now = time.monotonic()
            if state != last:
                changed, last = now, state
            enough = self.pace.quiet * slow
            if wanted:
                enough = self.pace.patience * slow if wrong(wanted, state) else self.pace.settle
            left = min(changed + enough, began + self.pace.limit * slow) - now
            if left <= 0:
                self.known |= known
                self.starts |= starts
                return state
            try:
                await asyncio.wait_for(space.news.wait(), left)
                if not wanted:
                    changed = time.monotonic()  # quiet means that nothing at all is written
                await asyncio.sleep(0.02)  # changes come in bursts
            except TimeoutError:
                continue

    def _observed(self) -> tuple[State, Known, dict[str, str]]:
        kind, objects = self.case.kind, self._objects
        jobs = objects(kind)
        starts = {_name(job): str((job.get("status") or {}).get("startTime") or "") for job in jobs}
        around = [(k, obj) for k in ("Pod", "Service", *BESIDE.get(kind, ())) for obj in objects(k)]
        rest, seen = picture.beside_jobs(around, self.known)
        events = [event for event in objects("Event") if event["involvedObject"].get("kind") == kind]
        state = {
            "answers": self.hands.answers,
            "jobs": {_name(job): picture.job(job, self.starts.get(_name(job), "")) for job in jobs},
            **rest,
            "events": sorted({f"{e['type']} {e['reason']} {tidy(e['message'])}" for e in events}),
        }
        return picture.plain(state, self.hands.namespace), seen, starts

    def _objects(self, kind: str) -> list[Object]:
        space = self.side.space(self.hands.namespace)
        return [obj for (called, _), obj in sorted(space.objects.items()) if called == kind]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


@dataclass
class Stage:
    """A cluster on which cases are played."""

    side: Side
    http: httpx.AsyncClient
    pace: Pace = Pace()

    async def checked(self, case: Case) -> list[str]:
        """What differs after the first step that does not lead where it led on the real cluster; [] for none."""
        if blank := [i for i, step in enumerate(case.steps, 1) if not (step.variants or step.do.get("nocheck"))]:
            return [f"step {blank[0]} has no record: record the case first"]
        async with self._play(case) as play:
            for number, step in enumerate(case.steps, 1):
                state = await play.step(step)
                if state is not None and (lines := wrong(step, state)):
                    return [f"step {number} ({', '.join(step.do)}):", *lines]
        return []

    async def recorded(self, case: Case, times: int) -> Case:
        """The case with all that several runs of it led to."""
        runs = await asyncio.gather(*(self._record(case) for _ in range(times)))
        noisy = any("apply" in step.do for step in case.steps)
        steps = [
            picture.combined(step.do, states, case.kind, noisy)
            for step, states in zip(case.steps, zip(*runs, strict=True), strict=True)
        ]
        return Case(case.family, case.kind, case.name, tuple(steps), case.tags)

    async def _record(self, case: Case) -> list[State | None]:
        async with self._play(case) as play:
            return [await play.step(step, record=True) for step in case.steps]

    @asynccontextmanager
    async def _play(self, case: Case) -> AsyncIterator[Play]:
        namespace = f"oc-{secrets.token_hex(4)}"
        await self.side.enter(namespace)
        hands = Hands(self.http, case, namespace)
        try:
            yield Play(self.side, hands, self.pace)
        finally:
            await self.http.delete(path(case.kind, namespace))
            for _ in range(3):  # the operator may replace a pod before it hears that the job is gone
                await self.http.request("DELETE", path("Pod", namespace), json=AT_ONCE)
            await self.http.delete(path("Namespace", "", namespace))
            self.side.spaces.pop(namespace, None)


@asynccontextmanager
async def stage(kubeconfig: Path, pace: Pace = Pace(), also: Sequence[Kind] = ()) -> AsyncIterator[Stage]:
    """The cluster of a kubeconfig, as `rowlock up` and `scripts/real_cluster` write them (one user, with a token). `also`: kinds that
    are followed beside those of v1 jobs."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    headers = {"Authorization": f"Bearer {user['token']}"}
    limits = httpx.Limits(max_connections=64)
    async with (
        opened("cluster", kubeconfig, also) as side,
        httpx.AsyncClient(base_url=cluster["server"], headers=headers, verify=tls, timeout=200, limits=limits) as http,
    ):
        yield Stage(side, http, pace)


@contextmanager
def server(home: Path) -> Iterator[Path]:
    """The kubeconfig of a server whose pods nobody schedules and runs."""
    with lent(home) as made:
        made.up("--without", "kubelet,scheduler")
        yield made.data / "kubeconfig"
