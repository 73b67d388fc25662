"""What kube-controller-manager and kube-apiserver 1.34 were seen to do with batch/v1 Jobs, step by step over HTTP, is what ours do.

The runner plays scheduler and kubelet, so ours are left out. Most cases wait for real seconds: a failure is answered after ten.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import make
from tests.evidence import JOB_CASES
from tests.job_cases import picture
from tests.job_cases.hands import VERBS, JobHands, admitted
from tests.operator_cases.actions import AT_ONCE, path
from tests.operator_cases.cases import Case, Step, load
from tests.operator_cases.picture import plain, wrong
from tests.operator_cases.playing import Pace, Stage, slowness, stage

from rowlock.objects import Object, name, uid

CASES = [case for file in sorted(JOB_CASES.glob("*.json")) for case in load(file)]
TOGETHER = 24
PACE = Pace(settle=0.5, patience=8.0, limit=30.0)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_FAILED_AT_ONCE = {"active": 1, "ready": 1, "failed": 1}
OURS: dict[str, tuple[int, dict[str, Any], str]] = {
    "indexed / Job / an index fails and is made again": (2, _FAILED_AT_ONCE, "Failed+NoFinalizer"),
    "replacement / Job / a terminating indexed pod beside a ready one": (
        2, {**_FAILED_AT_ONCE, "terminating": 1}, "Running+Terminating+NoFinalizer",
    ),
}  # fmt: skip
"""Where Kubernetes 1.34 refuses its own status and shows the old numbers for ten seconds, ours are right at once: the step, what
the Job says, and pod job-1.1 (docs/design/batch-jobs.md)."""
pytestmark = pytest.mark.timeout(600)


def as_ours(case: Case) -> Case:
    """The case with what rowlock does better."""
    if case.title not in OURS:
        return case
    place, numbers, pod = OURS[case.title]
    step = case.steps[place]
    variants = copy.deepcopy(step.variants)
    for variant in variants:
        variant["Job"]["job"] |= numbers
        variant["pods"]["job-1.1"] = pod
    steps = list(case.steps)
    steps[place] = Step(step.do, variants, step.events, step.maybe)
    return Case(case.family, case.kind, case.name, tuple(steps), case.tags)


class Play:
    """One case in one namespace."""

    def __init__(self, found: Stage, case: Case) -> None:
        self.namespace = f"jc-{secrets.token_hex(4)}"
        self.side, self.hands = found.side, JobHands(found.http, case, self.namespace)
        self._known: dict[str, Any] = {}
        self._starts: dict[str, str] = {}

    async def lines(self) -> list[str]:
        """What differs after the first step that does not lead where it led on the real cluster."""
        for number, step in enumerate(self.hands.case.steps, 1):
            self.hands.answers = []
            state = await self._state_after(step)
            if state is not None and (found := wrong(step, state)):
                return [f"step {number} ({', '.join(step.do)}):", *found]
        return []

    async def _state_after(self, step: Step) -> dict[str, Any] | None:
        do = json.loads(json.dumps(step.do).replace("$NS", self.namespace))
        if "admit" in do:
            state = await admitted(self.hands, do["admit"], do.get("update"), do.get("change"))
            masked = re.sub(r'("time": ")[^"]*', r"\1$TIME", json.dumps(state))
            return plain(json.loads(masked), self.namespace)
        for verb, how in do.items():
            await VERBS[verb](self.hands, how)
        if do.get("nocheck"):
            await self.hands.pods()
            return None
        return await self._settled(step)

    async def _settled(self, step: Step) -> dict[str, Any]:
        """The state when it has been right for a moment, or has stayed wrong for a while."""
        space, began, slow = self.side.space(self.namespace), time.monotonic(), slowness()
        changed, last = began, None
        while True:
            space.news.clear()
            state, known, starts = await self._look()
            now = time.monotonic()
            if state != last:
                changed, last = now, state
            enough = PACE.patience * slow if wrong(step, state) else PACE.settle
            left = min(changed + enough, began + PACE.limit * slow) - now
            if left <= 0:
                self._known |= known
                self._starts |= starts
                return state
            try:
                await asyncio.wait_for(space.news.wait(), min(left, 1.0))
                await asyncio.sleep(0.05)
            except TimeoutError:
                continue

    async def _look(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
        http, hands = self.hands.http, self.hands
        table = (await http.get(path("Job", self.namespace), headers={"Accept": TABLE})).json()
        objects = {kind: self._objects(kind) for kind in ("Pod", "Job", "Event")}
        hands.name_pods(objects["Pod"])
        called = {name(p): hands.called[uid(p)] for p in objects["Pod"]}
        bases = {pod: alias.rpartition(".")[0] for pod, alias in called.items()}
        known = {f"Pod/{called[name(p)]}": picture.decided("Pod", p) for p in objects["Pod"]}
        known |= {f"Job/{name(j)}": picture.decided("Job", j) for j in objects["Job"]}
        starts = {uid(j): str(j["status"]["startTime"]) for j in objects["Job"] if j["status"].get("startTime")}
        jobs = {name(j): picture.job(j, self._starts, bases) for j in objects["Job"]}
        tables = {"Job": rows} if (rows := picture.table(table)) else {}
        events = {
            f"{e['type']} {e['reason']} Job/{e['involvedObject']['name']}: {picture.tidy(e['message'], bases)}"
            for e in objects["Event"]
            if e["involvedObject"].get("kind") == "Job"
        }
        state = {
            "answers": hands.answers,
            **({"Job": jobs} if jobs else {}),
            "pods": {called[name(p)]: picture.pod(p) for p in objects["Pod"]},
            "others": [],
            "table": tables,
            "new": {key: value for key, value in known.items() if self._known.get(key) != value},
            "events": sorted(events),
        }
        return plain(state, self.namespace), known, starts

    def _objects(self, kind: str) -> list[Object]:
        space = self.side.space(self.namespace)
        return [obj for (called, _), obj in sorted(space.objects.items()) if called == kind]

    async def clear(self) -> None:
        http = self.hands.http
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        await http.request("DELETE", path("Job", self.namespace), json=options)
        await http.request("DELETE", path("Pod", self.namespace), json=AT_ONCE)
        await http.delete(path("Namespace", "", self.namespace))
        self.side.spaces.pop(self.namespace, None)


async def check(kubeconfig: Path, cases: Sequence[Case], together: int) -> dict[str, list[str]]:
    turn = asyncio.Semaphore(together)
    async with stage(kubeconfig, PACE) as found:

        async def one(case: Case) -> tuple[str, list[str]]:
            async with turn:
                play = Play(found, case)
                await found.side.enter(play.namespace)
                try:
                    return case.title, await play.lines()
                finally:
                    await play.clear()

        return dict(await asyncio.gather(*map(one, cases)))


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("cluster")
    made = make(home / "data", home)
    try:
        made.up("--without", "kubelet,scheduler")
        yield made.data / "kubeconfig"
    finally:
        made.run("rowlock", "down", "--yes", code=None)


def test_every_recorded_case(kubeconfig: Path) -> None:
    cases = [as_ours(case) for case in CASES]
    found = asyncio.run(check(kubeconfig, cases, TOGETHER))
    again = [case for case in cases if found[case.title]]
    if len(again) <= 10:  # the delays are real seconds: once more, alone, on a machine that is busy
        for case in again:
            print(f"once more, alone: {case.title}")
            found |= asyncio.run(check(kubeconfig, [case], 1))
    assert len(found) == len(CASES) > 100
    wrong_ones = {title: lines for title, lines in found.items() if lines}
    assert not wrong_ones, "\n".join(f"{t}\n  " + "\n  ".join(lines) for t, lines in wrong_ones.items())


def test_a_wrong_record_is_noticed(kubeconfig: Path) -> None:
    """A runner that cannot fail would be worthless."""
    case = next(c for c in CASES if c.title == "completions / Job / one pod")
    first = case.steps[0]
    variants = copy.deepcopy(first.variants)
    for variant in variants:
        variant["Job"]["job"]["active"] = 7
    falsified = Case(case.family, case.kind, case.name, (Step(first.do, variants, first.events),))
    (lines,) = asyncio.run(check(kubeconfig, [falsified], 1)).values()
    assert any(".Job.job.active" in line for line in lines)
