"""The inquest: who failed first, who keeps whom waiting, and who is slow, told in one sentence each.

Deaths come from the kubelet as they are noticed. While jobs of several ranks run, `watch.py` takes their pulse from
`/proc`; when a pulse is suspicious, or when somebody asks, stacks are read and judged. Verdicts become Events of the job
(so `kubectl describe` shows them) and the answer of `rowlock why`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import Record, View
from rowlock.cluster.inquest import stackshots
from rowlock.cluster.inquest.deaths import Deaths, job_uid, of_run
from rowlock.cluster.inquest.rank_processes import Rank, Subject, in_order, ranks
from rowlock.cluster.inquest.stackshots import Shot
from rowlock.cluster.node.kubelet import Kubelet
from rowlock.cluster.node.pod_facts import Run
from rowlock.cluster.node.tended import Tended
from rowlock.controllers.recorder import Recorder
from rowlock.objects import Object, controller_of, name, uid
from rowlock.verdicts.failure import Death, asked, culprit, incidents, sentence
from rowlock.verdicts.hang import Look, Verdict, judge, later
from rowlock.verdicts.stacks import Stack

SOURCE = "rowlock"
BETWEEN = 0.5
"""Seconds between two looks at the same ranks: who stands at the same line twice does not move."""
_GATHER = 1.5
"""Seconds after a death before it is told: the others are dying, too."""


@dataclass(slots=True)
class Around:
    """What the inquest sees of the kubelet."""

    view: View
    pods: Mapping[str, Tended]
    directory: Callable[[str, str], Path]
    recorder: Recorder
    clock: Callable[[], float] = time.time


def attached(kubelet: Kubelet, view: View, data: Path) -> "Inquest":
    """The inquest of a kubelet, told of every end."""
    made = Inquest(Around(view, kubelet.pods, kubelet.directory, kubelet.recorder), data)
    kubelet.on_end = made.ended
    return made


class Inquest:
    """One per kubelet."""

    def __init__(self, around: Around, data: Path) -> None:
        self._around = around
        self.deaths = Deaths(data)
        self._telling: set[str] = set()
        self._told: dict[str, float] = {}
        self._hangs: dict[str, tuple[list[Look], float]] = {}
        """Jobs, by uid, whose ranks were found standing and have not moved since: where, and at what time."""

    # ------------------------------------------------------------ deaths

    def ended(self, tended: Tended, container: str, run: Run) -> None:
        """A program has ended; called once or more for each."""
        pod = self._around.view.get(kinds.POD, tended.card.namespace, tended.card.name)
        if pod is None or uid(pod) != tended.card.uid or run.exit is None or run.exit.code == 0:
            return
        whose, job = job_uid(pod), self._job(pod)
        if job is None or container in {c["name"] for c in pod["spec"].get("initContainers") or ()}:
            return
        found = of_run(job, pod, run, self._around.directory(tended.card.uid, container))
        if found is not None and self.deaths.add(whose, found) and whose not in self._telling:
            self._telling.add(whose)
            asyncio.get_running_loop().call_later(_GATHER, self._tell, job)

    def _tell(self, job: Object) -> None:
        """The latest incident as an Event of the job; once."""
        self._telling.discard(uid(job))
        latest = incidents(self.deaths.of(uid(job)))[-1]
        if self._told.get(uid(job)) == latest[0].finished or asked(latest):
            return
        self._told[uid(job)] = latest[0].finished
        self.tell(job, "Warning", "RankFailed", sentence(latest, self._size(job)))

    def said(self, job: str, phase: str) -> str:
        """What is known of a job that stands like this, in a sentence; "" for nothing."""
        if phase in ("Running", "Degraded"):
            looks, at = self._hangs.get(job, ([], 0.0))
            return later(looks, max(0.0, self._around.clock() - at)).sentence if looks else ""
        failures = [i for i in incidents(self.deaths.of(job)) if not asked(i)] if phase == "Failed" else []
        return sentence(failures[-1]) if failures else ""

    def standing(self, job: str, looks: list[Look]) -> None:
        """The ranks of a job, by uid, were found like this and do not move; no looks = they move again."""
        if looks:
            self._hangs[job] = looks, self._around.clock()
        else:
            self._hangs.pop(job, None)

    def tell(self, job: Object, kind: str, reason: str, message: str) -> None:
        """An Event of the job."""
        self._around.recorder.record(Record(job, kind, reason, message, SOURCE))  # type: ignore[arg-type] # Normal, Warning

    def _job(self, pod: Object) -> Object | None:
        owner = controller_of(pod)
        kind = kinds.by_api_version(str(owner["apiVersion"]), str(owner["kind"])) if owner and job_uid(pod) else None
        found = self._around.view.get(kind, pod["metadata"]["namespace"], owner["name"]) if kind and owner else None
        return found if found is not None and owner is not None and uid(found) == owner["uid"] else None

    def _size(self, job: Object) -> int:
        return len(list(self._around.view.owned(kinds.POD, uid(job))))

    # ------------------------------------------------------------ the living

    def subjects(self, job: str = "") -> list[Subject]:
        """The pods that run on this machine: of one job, by uid, or of all."""
        found = []
        for tended in self._around.pods.values():
            pod = self._around.view.get(kinds.POD, tended.card.namespace, tended.card.name)
            whose = job_uid(pod) if pod is not None and uid(pod) == tended.card.uid else ""
            if pod is None or not whose or (job and whose != job) or (owner := self._job(pod)) is None:
                continue
            main = pod["spec"]["containers"][0]["name"]
            facts = tended.containers.get(main)
            if facts is not None and facts.run is not None and facts.run.running:
                log = self._around.directory(tended.card.uid, main) / f"log.{facts.run.number}"
                found.append(Subject(owner, pod, facts.run, log))
        return in_order(found)

    async def look(self, job: str) -> list[Look]:
        """Every running rank of a job, looked at twice."""
        living = await asyncio.to_thread(ranks, self.subjects(job))
        before = {rank.pid: stackshots.cpu_seconds(rank.pid) for rank in living}
        began = time.monotonic()
        first = await stackshots.shots(list(before))
        await asyncio.sleep(max(0.0, BETWEEN - (time.monotonic() - began)))
        second = await stackshots.shots(list(before))
        took = time.monotonic() - began
        now = self._around.clock()
        looks = []
        for rank in living:
            shot, subject = second[rank.pid], rank.subject
            looks.append(
                Look(
                    rank=rank.name,
                    pod=name(subject.pod),
                    node=str(subject.pod["spec"].get("nodeName", "")),
                    pid=rank.pid,
                    state=stackshots.state(rank.pid) or "X",
                    cpu=(stackshots.cpu_seconds(rank.pid) - before[rank.pid]) / took,
                    silent=now - (subject.wrote() or subject.run.started or now),
                    stack=shot.stack,
                    moved=_moved(first[rank.pid], shot),
                    blind=shot.blind,
                )
            )
        return [look for look in looks if look.state not in ("X", "Z")]

    async def why(self, job: Object) -> dict[str, Any]:
        """What is known of a job: its last incident, and where its running ranks stand now."""
        found: dict[str, Any] = {"incidents": [], "verdict": None, "ranks": []}
        for incident in incidents(self.deaths.of(uid(job))):
            told = {
                "sentence": sentence(incident, self._size(job)),
                "at": culprit(incident).first,
                "asked": asked(incident),
            }
            found["incidents"].append({**told, "deaths": [d.plain() for d in _in_order(incident)]})
        looks = await self.look(uid(job))
        if looks:
            found["verdict"] = judge(looks).plain()
            found["ranks"] = [_plain(look) for look in looks]
        return found

    async def stacks(self, living: list[Rank]) -> dict[str, Stack]:
        """Where each of these ranks stands, once."""
        found = await stackshots.shots([rank.pid for rank in living])
        named = ((rank.name, found[rank.pid].stack) for rank in living)
        return {rank: stack for rank, stack in named if stack is not None}

    async def judged(self, job: str) -> tuple[Verdict, list[Look]]:
        looks = await self.look(job)
        return (judge(looks) if looks else Verdict("moving", "No rank runs.")), looks


def _in_order(incident: list[Death]) -> list[Death]:
    cause = culprit(incident)
    return [cause, *(d for d in sorted(incident, key=lambda d: d.first) if d is not cause)]


def _plain(look: Look) -> dict[str, Any]:
    lines = look.stack.lines() if look.stack is not None else []
    waits, moved = look.waits, look.moved
    facts = {"rank": look.rank, "pod": look.pod, "node": look.node, "pid": look.pid, "state": look.state}
    return {**facts, "cpu": round(look.cpu, 2), "silent": round(look.silent, 1), "waits": waits, "moved": moved,
            "stack": lines, "blind": look.blind}  # fmt: skip


def _moved(first: Shot, second: Shot) -> bool:
    """Another stack than a moment before; with one stack missing nobody knows, and nothing is claimed."""
    return first.stack is None or second.stack is None or first.stack.frames != second.stack.frames
