"""Takes the pulse of running jobs and calls for an inquest when one seems to stand still.

A pulse costs a few reads of `/proc` per rank and second, and one of each log's size; stacks are read only on suspicion.
Suspicion is a stillness that is longer than any before in this job: nobody has written, and some rank does not compute.
Every such stillness is looked at once, and again ever more rarely, so a job that is quiet by nature costs nothing.
A verdict that says *hang* must be found twice before it becomes an Event, but for a rank that was stopped by a signal.
Ranks are processes: which they are is looked up now and then, and whenever one of them has gone.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rowlock.cluster.inquest import stackshots
from rowlock.cluster.inquest.inquest import Inquest
from rowlock.cluster.inquest.rank_processes import Rank, Subject, ranks
from rowlock.objects import Object, uid
from rowlock.verdicts.failure import span
from rowlock.verdicts.hang import STOPPED, Look, Verdict
from rowlock.verdicts.stacks import Stack
from rowlock.verdicts.stragglers import slowest

PULSE = 1.0
"""Seconds between pulses; longer where there are so many ranks that taking it would cost more than _COST of a CPU."""
_COST = 0.01
STILL, HALTED, SILENT, GROWTH = 2.0, 1.0, 10.0, 1.5
"""Seconds of stillness that are worth a look; with a rank that was stopped; of silence, where all ranks spin; how much
longer than ever before."""
SLOW = 10.0
"""Seconds for which the others wait before a rank that does move is called slow."""
RESCAN = 5.0
"""Seconds after which the processes of a job are looked up again, though none of its ranks has gone."""
BLIND = ""
"""Stands for the remark that nobody can be named, among those who were named."""
_IDLE = 0.1
_AGAIN, _SELDOM = 5.0, 300.0
_READING = 1.0
"""Seconds per rank between two examinations at least: a hundred stacks take some seconds of CPU."""
_CONFIRM = 0.5
_SWEEP = 60.0
_LOOKS, _APART, _FIRST = 12, 0.25, 10.0
"""A search for a straggler: how many looks, seconds between them, and how long after a job's begin the first one is."""
_SPARING = 0.004
"""The part of the time that searches may take: stacks are read with the CPU that training wants."""
log = logging.getLogger("rowlock.inquest")


@dataclass(slots=True)
class Pulse:
    """One rank at one moment. `at` is monotonic; `share`: CPUs that it has used since the pulse before."""

    at: float
    cpu: float
    output: float
    state: str
    share: float = 1.0


@dataclass(slots=True)
class Watched:
    """A job under watch. Times are monotonic, outputs are of the clock that stamps files."""

    job: Object
    began: float
    subjects: Sequence[Subject] = ()
    ranks: list[Rank] = field(default_factory=list)
    scanned: float = 0.0
    busy: asyncio.Task[None] | None = None
    """An examination or a search that is under way."""
    pulses: dict[Rank, Pulse] = field(default_factory=dict)
    output: float = 0.0
    still_since: float | None = None
    longest: float = 0.0
    next_look: float = 0.0
    wait: float = _AGAIN
    hang: Verdict | None = None
    hang_since: float = 0.0
    next_search: float = 0.0
    named: set[str] = field(default_factory=set)


class Watch:
    """One per kubelet; `run` for as long as it works."""

    def __init__(self, inquest: Inquest) -> None:
        self._inquest = inquest
        self._jobs: dict[str, Watched] = {}

    async def run(self) -> None:
        swept = 0.0
        async with asyncio.TaskGroup() as tasks:
            while True:
                cost = self._list(time.monotonic())
                pulses, more = await asyncio.to_thread(_pulses, list(self._jobs.values()))
                for job, watched in self._jobs.items():
                    self._judge(job, watched, pulses.get(job, {}), tasks)
                if time.monotonic() - swept > _SWEEP:
                    swept = time.monotonic()
                    await asyncio.to_thread(self._inquest.deaths.forget_old)
                await asyncio.sleep(max(PULSE, (cost + more) / _COST))

    def _list(self, now: float) -> float:
        """The jobs that run and their pods; returns what it cost, in seconds of CPU."""
        began = time.thread_time()
        groups: dict[str, list[Subject]] = defaultdict(list)
        for subject in self._inquest.subjects():
            groups[uid(subject.job)].append(subject)
        for gone in self._jobs.keys() - groups.keys():
            del self._jobs[gone]
            self._inquest.standing(gone, [])
        for job, subjects in groups.items():
            watched = self._jobs.setdefault(job, Watched(subjects[0].job, now, next_search=now + _FIRST))
            if [s.run for s in subjects] != [s.run for s in watched.subjects]:
                watched.scanned = 0.0
            watched.subjects = subjects
        return time.thread_time() - began

    def _judge(self, job: str, watched: Watched, pulses: dict[Rank, Pulse], tasks: asyncio.TaskGroup) -> None:
        """Feels the pulse; begins an examination or a search when one is due."""
        now = time.monotonic()
        if not pulses:  # who was always alone waits for nobody: no pulse is taken
            return
        self._feel(watched, pulses, now)
        if watched.hang is not None and watched.still_since is None:
            self._moves_again(watched, now)
        if len(pulses) < 2 or (watched.busy is not None and not watched.busy.done()):
            return
        due: Coroutine[None, None, None] | None = None
        if self._suspicious(watched, now):
            due = self._examine(job, watched)
        elif watched.still_since is None and now >= watched.next_search:
            due = self._search(watched)
        watched.busy = tasks.create_task(due) if due is not None else None

    def _feel(self, watched: Watched, pulses: dict[Rank, Pulse], now: float) -> None:
        """Compares with the pulse before; begins and ends a stillness."""
        for rank, pulse in pulses.items():
            if before := watched.pulses.get(rank):
                pulse.share = (pulse.cpu - before.cpu) / max(0.001, pulse.at - before.at)
        output = max(pulse.output for pulse in pulses.values())
        quiet = output <= watched.output and pulses.keys() <= watched.pulses.keys()
        silent = quiet and watched.still_since is not None
        idle = any(pulse.share < _IDLE or pulse.state == STOPPED for pulse in pulses.values())
        if quiet and (idle or silent):
            watched.still_since = watched.still_since if watched.still_since is not None else now
        elif quiet and watched.output and time.time() - output > SILENT:
            watched.still_since = now - SILENT
        elif watched.still_since is not None:
            if watched.hang is None and watched.output:  # the stillness before the first word teaches nothing
                watched.longest = max(watched.longest, now - watched.still_since)
            watched.still_since, watched.next_look, watched.wait = None, 0.0, _AGAIN
        watched.output, watched.pulses = max(output, watched.output), pulses

    def _suspicious(self, watched: Watched, now: float) -> bool:
        if watched.still_since is None or watched.hang is not None or now < watched.next_look:
            return False
        stopped = any(pulse.state == STOPPED for pulse in watched.pulses.values())
        return now - watched.still_since >= (HALTED if stopped else max(STILL, GROWTH * watched.longest))

    async def _examine(self, job: str, watched: Watched) -> None:
        """Reads the stacks; a hang must be found twice."""
        watched.next_look = time.monotonic() + max(watched.wait, _READING * len(watched.ranks))
        watched.wait = min(2 * watched.wait, _SELDOM)
        since, (verdict, looks) = watched.still_since, await self._inquest.judged(job)
        if verdict.kind == "stopped":  # no doubt about it
            return self._hangs(job, watched, verdict, looks)
        if verdict.hangs:
            await asyncio.sleep(_CONFIRM)
            found, (verdict, later) = verdict, await self._inquest.judged(job)
            same = (verdict.kind, verdict.culprits) == (found.kind, found.culprits) and _places(looks) == _places(later)
            if same:
                return self._hangs(job, watched, verdict, later)
        if since is None or (still := time.monotonic() - since) < SLOW:
            return
        if verdict.kind in ("slow", "behind"):
            self._slow(watched, verdict)
        elif verdict.kind == "blind" and watched.output and BLIND not in watched.named:
            watched.named.add(BLIND)
            said = f"No rank has written a line for {span(still)}, and one of them at least does not compute. {verdict.sentence}"
            self._inquest.tell(watched.job, "Warning", "JobStill", said)

    def _hangs(self, job: str, watched: Watched, verdict: Verdict, looks: list[Look]) -> None:
        if self._jobs.get(job) is watched:
            watched.hang, watched.hang_since = verdict, time.monotonic()
            self._inquest.standing(job, looks)
            self._inquest.tell(watched.job, "Warning", "JobHangs", verdict.sentence)

    def _moves_again(self, watched: Watched, now: float) -> None:
        assert watched.hang is not None
        after = span(now - watched.hang_since)
        self._inquest.tell(
            watched.job, "Normal", "JobMovesAgain", f"The ranks move again, {after} after they were found standing."
        )
        watched.hang = None
        self._inquest.standing(uid(watched.job), [])

    async def _search(self, watched: Watched) -> None:
        """For a straggler: some looks in a row, then not for a while."""
        seen: dict[str, list[Stack]] = defaultdict(list)
        half = spent = 0.0
        for number in range(_LOOKS):
            half = _wrote(watched.subjects) if number == _LOOKS // 2 else half
            spent -= time.monotonic()
            for rank, stack in (await self._inquest.stacks(watched.ranks)).items():
                seen[rank].append(stack)
            spent += time.monotonic()
            await asyncio.sleep(_APART)
        now = time.monotonic()
        watched.next_search = now + max(min(max(60.0, now - watched.began), _SELDOM), spent / _SPARING)
        if (verdict := slowest(seen, wrote=_wrote(watched.subjects) > half)) is not None:
            self._slow(watched, verdict)

    def _slow(self, watched: Watched, verdict: Verdict) -> None:
        """Once for each culprit."""
        if not watched.named >= set(verdict.culprits):
            watched.named.update(verdict.culprits)
            self._inquest.tell(watched.job, "Warning", "RankSlow", verdict.sentence)


def _places(looks: Iterable[Look]) -> list[tuple[str, object]]:
    return [(look.rank, look.stack.frames if look.stack else None) for look in looks]


def _wrote(subjects: Iterable[Subject]) -> float:
    """When anybody wrote a line."""
    return max((subject.wrote() for subject in subjects), default=0.0)


def _pulses(jobs: Iterable[Watched]) -> tuple[Mapping[str, dict[Rank, Pulse]], float]:
    """The pulse of every job of several ranks, by its uid; and what that cost, in seconds of CPU. In a thread."""
    began, found = time.thread_time(), dict[str, dict[Rank, Pulse]]()
    for watched in jobs:
        now = time.monotonic()
        if now - watched.scanned > RESCAN or not all(rank.lives for rank in watched.ranks):
            watched.ranks, watched.scanned = ranks(watched.subjects), now
        if len(watched.ranks) > 1 or watched.pulses:
            found[uid(watched.job)] = {rank: _pulse(rank, now) for rank in watched.ranks}
    return found, time.thread_time() - began


def _pulse(rank: Rank, now: float) -> Pulse:
    """Stopped, when the rank or the program of its pod is."""
    stopped = any(stackshots.state(pid) == STOPPED for pid in {rank.pid, rank.subject.run.pid})
    return Pulse(now, stackshots.cpu_seconds(rank.pid), rank.subject.wrote(), STOPPED if stopped else "S")
