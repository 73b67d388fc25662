"""Plays cases of Jobs, JobSets and TrainJobs, each in a namespace of its own, and compares the namespace after each step.

The runner plays scheduler and kubelet, so that the server has none of them.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.job_cases import picture
from tests.job_cases.hands import VERBS, JobHands, admitted, deletion
from tests.operator_cases.actions import AT_ONCE, path
from tests.operator_cases.cases import Case, Step
from tests.operator_cases.picture import marked, plain, wrong
from tests.operator_cases.playing import Pace, Stage, slowness, stage

from rowlock import kinds
from rowlock.objects import Object, name, uid

PACE = Pace(settle=0.5, patience=8.0, limit=30.0)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LAYERS = ("Job", "JobSet", "TrainJob")
"""Each is made by the next; a case of one shows those before it, too."""
_BESIDE = {"Job": (), "JobSet": ("Service", "PersistentVolumeClaim")}
_BESIDE["TrainJob"] = (*_BESIDE["JobSet"], "ConfigMap", "Secret", "PodGroup")
"""What a case shows beside pods and the layers."""
_FOLLOWED = (kinds.JOB_SET, kinds.TRAIN_JOB, kinds.SECRET, kinds.PERSISTENT_VOLUME_CLAIM, *kinds.OTHER_POD_GROUPS)
_TIME = re.compile(r'(\\?"time\\?": ?\\?")[^"\\]*')
"""When a patch of a runtime was written, in what is kept and (as JSON in a sentence) in what is refused."""
_FURNITURE = "ConfigMap/kube-root-ca.crt"


class Play:
    """One case in one namespace."""

    def __init__(self, found: Stage, case: Case) -> None:
        self.namespace = f"jc-{secrets.token_hex(4)}"
        self.side, self.hands = found.side, JobHands(found.http, case, self.namespace)
        kind = case.kind if case.kind in LAYERS else LAYERS[-1]
        self.layers = LAYERS[: LAYERS.index(kind) + 1]
        self.beside = _BESIDE[kind]
        self._known: dict[str, tuple[str, Any]] = {}
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
            masked = _TIME.sub(r"\1$TIME", json.dumps(state))
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

    async def _look(self) -> tuple[dict[str, Any], dict[str, tuple[str, Any]], dict[str, str]]:
        hands, pods, events = self.hands, self._objects("Pod"), self._objects("Event")
        hands.name_pods(pods)
        called = {name(p): hands.called[uid(p)] for p in pods}
        bases = {pod: alias.rpartition(".")[0] for pod, alias in called.items()}
        layers = [(kind, obj) for kind in self.layers for obj in self._objects(kind)]
        beside = [(_shown_kind(kind, obj), obj) for kind in self.beside for obj in self._objects(kind)]
        seen = {f"Pod/{called[name(p)]}": (uid(p), picture.decided("Pod", p)) for p in pods}
        seen |= {f"{kind}/{name(o)}": (uid(o), picture.decided(kind, o)) for kind, o in layers + beside}
        seen.pop(_FURNITURE, None)
        state: dict[str, Any] = {"answers": hands.answers}
        for kind, obj in layers:
            state.setdefault(kind, {})[name(obj)] = picture.status(kind, obj, self._starts, bases)
        state["pods"] = {called[name(p)]: picture.pod(p) for p in pods}
        state["others"] = sorted(self._others(layers, beside))
        state["table"] = {kind: rows for kind in self.layers if (rows := await self._rows(kind))}
        state["new"] = {
            key: now
            for key, (_, now) in seen.items()
            if not key.startswith("TrainJob/") and self._known.get(key, ("", None))[1] != now
        }
        state["events"] = sorted(
            {
                f"{e['type']} {e['reason']} {about['kind']}/{about['name']}: {picture.tidy(e['message'], bases)}"
                for e in events
                if (about := e["involvedObject"]).get("kind") in LAYERS
            }
        )
        starts = {uid(j): str(j["status"]["startTime"]) for _, j in layers if (j.get("status") or {}).get("startTime")}
        text = re.sub(r"\b[0-9a-f]{40}\b", "$SHA1", json.dumps(plain(state, self.namespace)))
        return json.loads(text), seen, starts

    def _others(self, layers: Iterable[tuple[str, Object]], beside: Iterable[tuple[str, Object]]) -> Iterator[str]:
        """What is there beside pods; of the layers what is made anew or has lost its owner."""
        for kind, obj in beside:
            if (key := f"{kind}/{name(obj)}") != _FURNITURE:
                yield key + self._marks(key, obj)
        for kind, obj in layers:
            key = f"{kind}/{name(obj)}"
            marks = self._marks(key, obj)
            if "+Recreated" in marks or ("+Unowned" in marks and kind != self.layers[-1]):
                yield key + marks.replace("+Terminating", "")

    def _marks(self, key: str, obj: Object) -> str:
        return marked(obj, self._known.get(key, ("", None))[0])

    async def _rows(self, kind: str) -> Any:
        answer = await self.hands.http.get(path(kind, self.namespace), headers={"Accept": TABLE})
        return picture.table(answer.json())

    def _objects(self, kind: str) -> list[Object]:
        space = self.side.space(self.namespace)
        return [obj for (called, _), obj in sorted(space.objects.items()) if called == kind]

    async def clear(self) -> None:
        http = self.hands.http
        for kind in reversed(self.layers):
            await http.request("DELETE", path(kind, self.namespace), json=deletion("Background"))
        await http.request("DELETE", path("Pod", self.namespace), json=AT_ONCE)
        await http.delete(path("Namespace", "", self.namespace))
        self.side.spaces.pop(self.namespace, None)


def _shown_kind(kind: str, obj: Object) -> str:
    """Two kinds of PodGroups have one name."""
    return f"Volcano{kind}" if "volcano" in obj.get("apiVersion", "") else kind


async def check(kubeconfig: Path, cases: Sequence[Case], together: int) -> dict[str, list[str]]:
    """Title of a case → what differs from its record."""
    turn = asyncio.Semaphore(together)
    async with stage(kubeconfig, PACE, _FOLLOWED) as found:

        async def one(case: Case) -> tuple[str, list[str]]:
            async with turn:
                play = Play(found, case)
                await found.side.enter(play.namespace)
                try:
                    return case.title, await play.lines()
                finally:
                    await play.clear()

        return dict(await asyncio.gather(*map(one, cases)))


def check_all(kubeconfig: Path, cases: Sequence[Case], together: int) -> None:
    """Fails with what differs. The delays are real seconds: what differs is played once more, alone, on a machine that is busy."""
    found = asyncio.run(check(kubeconfig, cases, together))
    again = [case for case in cases if found[case.title]]
    if len(again) <= 10:
        for case in again:
            print(f"once more, alone: {case.title}")
            found |= asyncio.run(check(kubeconfig, [case], 1))
    assert len(found) == len(cases)
    wrong_ones = {title: lines for title, lines in found.items() if lines}
    assert not wrong_ones, "\n".join(f"{t}\n  " + "\n  ".join(lines) for t, lines in wrong_ones.items())
