"""A trace played on pretend nodes, event by event, with the real planner deciding at every event.

Time jumps from event to event: a job comes, a job has done its work, an evicted pod has left, the planner wants to look
again. Pods start the moment they are bound and run at full speed; an evicted job keeps its work up to its last
checkpoint and goes on when it is placed again. Nothing is drawn by chance: the same trace gives the same story.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from rowlock.rehearsal.trace import Job, Project, Trace
from rowlock.scheduling.amounts import GPU, UNLIMITED, WHOLE
from rowlock.scheduling.explain import Explainer
from rowlock.scheduling.plan import Plan
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.snapshot import Gang, Node, PodSet, Queue, Settings, Snapshot, Status, Task
from rowlock.scheduling.usage import Usage
from rowlock.scheduling.world import World, build

SPACE = "sim"
ROUNDS = 8
"""Cycles at one moment: each may give room that the next uses."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The pretended cluster: so many equal nodes."""

    nodes: int
    gpus: int
    cpus: float = 128.0
    memory: int = 1 << 40


@dataclass(slots=True)
class Run:
    """One job on its way. Work is counted in pod-seconds."""

    job: Job
    gang: Gang
    work: float = 0.0
    since: float = 0.0
    active: int = 0
    first: float | None = None
    end: float | None = None
    version: int = 0
    evictions: int = 0
    lost: float = 0.0

    @property
    def needed(self) -> float:
        return self.job.duration * self.job.pods

    def advance(self, now: float) -> None:
        """The work done since the last look."""
        if self.active >= self.job.minimum:
            self.work = min(self.needed, self.work + self.active * (now - self.since))
        self.since = now


@dataclass(slots=True)
class Point:
    """The cluster from this moment on: hundredths of GPUs per project, and who waits."""

    at: float
    held: tuple[int, ...]
    fair: tuple[int, ...]
    wanted: tuple[int, ...]
    waiting: int


@dataclass(slots=True)
class Story:
    """What happened."""

    projects: tuple[Project, ...]
    machines: Machines
    runs: dict[str, Run]
    points: list[Point] = field(default_factory=list)
    acts: dict[str, int] = field(default_factory=dict)
    """Evicted gangs by act."""
    cycles: int = 0
    end: float = 0.0
    stuck: dict[str, str] = field(default_factory=dict)
    """Jobs that never started, and the scheduler's sentence."""


Progress = Callable[[int, int, float], None]
"""(jobs over, jobs in all, simulated seconds)."""


class Simulation:
    """Plays one trace. `grace` is how long an evicted pod takes to leave, in seconds."""

    def __init__(
        self, trace: Trace, machines: Machines, *, grace: float = 10.0, settings: Settings | None = None
    ) -> None:
        self.trace, self.grace = trace, grace
        self.planner = Planner(build(Snapshot(0.0, _nodes(machines), _queues(trace), settings=settings or Settings())))
        self.events: list[tuple[float, int, str, str, int]] = []
        self.serial = 0
        self.now = 0.0
        self.wake: float | None = None
        self.story = Story(trace.projects, machines, {})
        self.usage = Usage(self.planner.world.settings.half_life)
        self.over = 0
        self.waiting = 0
        for job in trace.jobs:
            self._at(job.at, "comes", job.name)
        self.jobs = {job.name: job for job in trace.jobs}

    def play(self, progress: Progress = lambda done, of, now: None) -> Story:
        """The whole story."""
        total = len(self.jobs)
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, _, what, name, version = heapq.heappop(self.events)
                self._happen(what, name, version)
            self._decide()
            progress(self.over, total, self.now)
        self._finish()
        return self.story

    def _at(self, when: float, what: str, name: str = "", version: int = 0) -> None:
        self.serial += 1
        heapq.heappush(self.events, (when, self.serial, what, name, version))

    # ------------------------------------------------------------ events

    def _happen(self, what: str, name: str, version: int) -> None:
        if what == "comes":
            run = self.story.runs[name] = Run(self.jobs[name], _gang(self.jobs[name]))
            self._put(run)
        elif what == "looks":
            self.wake = None
        else:
            run = self.story.runs[name]
            if what == "leaves":
                self._statuses(run, Status.RELEASING, Status.PENDING)
            elif version == run.version:
                self._ends(run)

    def _ends(self, run: Run) -> None:
        run.advance(self.now)
        run.end, run.active, self.over = self.now, 0, self.over + 1
        self.planner.waiting.drop(run.gang.key)
        self.planner.world.drop_gang(run.gang.key)

    def _statuses(self, run: Run, old: Status, new: Status) -> None:
        if run.end is not None:
            return
        tasks = tuple(replace(t, status=new, node="", devices=()) if t.status is old else t for t in run.gang.tasks)
        run.gang = replace(run.gang, tasks=tasks)
        self._put(run)

    def _put(self, run: Run) -> None:
        self.planner.waiting.put(self.planner.world.put_gang(run.gang))

    # ------------------------------------------------------------ decisions

    def _decide(self) -> None:
        world = self.planner.world
        self.usage.advance(self.now, {name: q.counted for name, q in world.queues.items()}, world.total)
        for name, q in world.queues.items():
            q.usage = self.usage.shares.get(name, q.usage)
        world.now = self.now
        for _ in range(ROUNDS):
            plan = self.planner.cycle(keep=True)
            world.reservations = {r.gang: r for r in plan.reservations}
            self.planner.reset()
            self.story.cycles += 1
            if not plan.binds and not plan.evicts:
                break
            self._carry_out(plan)
        if plan.again is not None and (self.wake is None or self.wake > self.now + plan.again):
            self.wake = self.now + max(plan.again, 0.001)
            self._at(self.wake, "looks")
        self._note(world)

    def _carry_out(self, plan: Plan) -> None:
        changed: dict[str, dict[str, Task]] = {}
        for b in plan.binds:
            task = Task(b.uid, SPACE, b.pod, self._job(b.gang).shape, Status.RUNNING, node=b.node, devices=b.devices)
            changed.setdefault(b.gang, {})[b.uid] = task
        acts: dict[str, str] = {}
        for e in plan.evicts:
            old = next(t for t in self._run(e.gang).gang.tasks if t.uid == e.uid)
            changed.setdefault(e.gang, {})[e.uid] = replace(old, status=Status.RELEASING)
            acts[e.gang] = e.act
        for act in acts.values():
            self.story.acts[act] = self.story.acts.get(act, 0) + 1
        for key, tasks in changed.items():
            self._change(self._run(key), tasks, evicted=key in acts)

    def _change(self, run: Run, tasks: dict[str, Task], *, evicted: bool) -> None:
        run.advance(self.now)
        found = tuple(
            replace(tasks[t.uid], shape=t.shape, created=t.created) if t.uid in tasks else t for t in run.gang.tasks
        )
        before, run.active = run.active, sum(t.status is Status.RUNNING for t in found)
        if run.first is None and run.active:
            run.first = self.now
        if evicted:
            run.evictions += 1
            self._at(self.now + self.grace, "leaves", run.job.name)
            self._lose(run)
        started = self.now if before < run.job.minimum <= run.active else run.gang.started
        run.gang = replace(run.gang, tasks=found, started=started)
        run.version += 1
        if run.active >= run.job.minimum:
            self._at(self.now + (run.needed - run.work) / run.active, "ends", run.job.name, run.version)
        self._put(run)

    def _lose(self, run: Run) -> None:
        """A gang that falls below its minimum goes back to its last checkpoint."""
        step = run.job.checkpoint * run.job.pods
        if step and run.active < run.job.minimum:
            kept = run.work // step * step
            run.lost += run.work - kept
            run.work = kept

    def _run(self, key: str) -> Run:
        return self.story.runs[key.partition("/")[2]]

    def _job(self, key: str) -> Job:
        return self._run(key).job

    # ------------------------------------------------------------ what is told

    def _note(self, world: World) -> None:
        queues = [world.queues[p.name] for p in self.trace.projects]
        waiting = sum(len(group) for group in self.planner.waiting.ready())
        point = Point(
            self.now, tuple(q.counted[GPU] for q in queues), tuple(min(q.fair[GPU], q.demand[GPU]) for q in queues),
            tuple(q.demand[GPU] for q in queues), waiting,
        )  # fmt: skip
        points = self.story.points
        if points and points[-1].at == point.at:
            points[-1] = point
        else:
            points.append(point)

    def _finish(self) -> None:
        self.story.end = max((r.end for r in self.story.runs.values() if r.end is not None), default=self.now)
        if self.over == len(self.jobs):
            return
        self.planner.cycle(keep=True)
        explainer = Explainer(self.planner.world)
        for hold in self.planner.holds():
            why = explainer.explain(hold)
            if why is not None:
                self.story.stuck[hold.gang.partition("/")[2]] = why.message
        self.planner.reset()


def _nodes(machines: Machines) -> tuple[Node, ...]:
    width = len(str(machines.nodes - 1))
    return tuple(
        Node(f"node-{i:0{width}}", round(machines.cpus * 1000), machines.memory, machines.gpus, 81_500)
        for i in range(machines.nodes)
    )


def _queues(trace: Trace) -> tuple[Queue, ...]:
    """Departments without a quota of their own are entitled to what their projects are."""
    every: Iterable[Project] = (*trace.departments, *trace.projects)
    sums: dict[str, int] = {}
    for p in trace.projects:
        unlimited = p.quota == UNLIMITED or sums.get(p.department) == UNLIMITED
        sums[p.department] = UNLIMITED if unlimited else sums.get(p.department, 0) + p.quota
    return tuple(
        Queue(
            p.name, p.department,
            (UNLIMITED, UNLIMITED, p.quota if p.quota or p in trace.projects else sums.get(p.name, 0)),
            (UNLIMITED, UNLIMITED, p.limit), (1.0, 1.0, p.weight), p.priority, created=float(i),
        )
        for i, p in enumerate(every)
    )  # fmt: skip


def _gang(job: Job) -> Gang:
    tasks = tuple(
        Task(f"{job.name}/{i}", SPACE, f"{job.name}-{i}", job.shape, created=float(i)) for i in range(job.pods)
    )
    return Gang(
        SPACE, job.name, job.name, job.project, tasks, (PodSet("", job.minimum),), job.priority, job.preemptible, job.at,
    )  # fmt: skip


def capacity(machines: Machines) -> int:
    """Hundredths of GPUs."""
    return machines.nodes * machines.gpus * WHOLE
