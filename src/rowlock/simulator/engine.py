"""Discrete-event simulation of a trace on simulated nodes; the real planner decides at every event.

Time jumps from event to event: a job arrives, a job completes, an evicted pod has ended, the planner asked for another cycle. Pods start
the moment they are bound and run at full speed; an evicted job keeps its work up to its last
checkpoint and continues when it is placed again. Nothing is random: the same trace gives the same result.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from rowlock.scheduling.explain.explanations import Explainer
from rowlock.scheduling.model.resources import GPU, UNLIMITED, WHOLE_GPU
from rowlock.scheduling.model.session import Session, open_session
from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, SchedulerSettings, Snapshot, Status, Task
from rowlock.scheduling.plan import Plan
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.policy.usage import QueueUsage
from rowlock.simulator.trace import Trace, TraceJob, TraceProject

NAMESPACE = "sim"
MAX_CYCLES_PER_EVENT = 8
"""Maximum of planner cycles at one moment: a cycle may free resources that the next one uses."""


@dataclass(frozen=True, slots=True)
class SimulatedNodes:
    """The simulated cluster: `nodes` equal nodes, each with `gpus` GPUs, `cpus` cores and `memory` bytes."""

    nodes: int
    gpus: int
    cpus: float = 128.0
    memory: int = 1 << 40


@dataclass(slots=True)
class JobRun:
    """The state of one job in the simulation. Work is measured in pod-seconds, times in simulated seconds."""

    job: TraceJob
    gang: Gang
    work_done: float = 0.0
    advanced_at: float = 0.0
    running_pods: int = 0
    first_started: float | None = None
    ended_at: float | None = None
    version: int = 0
    evictions: int = 0
    work_lost: float = 0.0

    @property
    def total_work(self) -> float:
        """The work of the whole job in pod-seconds, done or not."""
        return self.job.duration * self.job.pods

    def advance(self, now: float) -> None:
        """Add the work done since `advanced_at`."""
        if self.running_pods >= self.job.minimum:
            self.work_done = min(self.total_work, self.work_done + self.running_pods * (now - self.advanced_at))
        self.advanced_at = now


@dataclass(slots=True)
class UsagePoint:
    """The cluster's usage from the time `at` (seconds) on: hundredths of GPUs by project, and the number of waiting jobs."""

    at: float
    held: tuple[float, ...]
    fair: tuple[float, ...]
    requested: tuple[float, ...]
    waiting_jobs: int


@dataclass(slots=True)
class SimulationResult:
    """The result of a simulation."""

    projects: tuple[TraceProject, ...]
    nodes: SimulatedNodes
    runs: dict[str, JobRun]
    points: list[UsagePoint] = field(default_factory=list)
    evictions_by_action: dict[str, int] = field(default_factory=dict)
    """Number of evicted gangs by the action that evicted them."""
    cycles: int = 0
    end: float = 0.0
    never_started: dict[str, str] = field(default_factory=dict)
    """Name of a job that never started → the scheduler's explanation."""


ProgressCallback = Callable[[int, int, float], None]
"""Called with (jobs completed, all jobs, simulated seconds)."""


class Simulation:
    """Plays one trace. `grace` is how long an evicted pod takes to leave, in seconds."""

    def __init__(
        self, trace: Trace, nodes: SimulatedNodes, *, grace: float = 10.0, settings: SchedulerSettings | None = None
    ) -> None:
        self.trace, self.grace = trace, grace
        self.planner = Planner(
            open_session(
                Snapshot(0.0, _build_nodes(nodes), _build_queues(trace), settings=settings or SchedulerSettings())
            )
        )
        self.events: list[tuple[float, int, str, str, int]] = []
        self.serial = 0
        self.now = 0.0
        self.wake_at: float | None = None
        self.result = SimulationResult(trace.projects, nodes, {})
        self.usage = QueueUsage(self.planner.session.settings.half_life)
        self.jobs_over = 0
        self.waiting_jobs = 0
        for job in trace.jobs:
            self._schedule_event(job.arrival, "comes", job.name)
        self.jobs = {job.name: job for job in trace.jobs}

    def run(self, progress: ProgressCallback = lambda done, of, now: None) -> SimulationResult:
        """Simulate until every job has ended or can never start; `progress` is called with jobs over, jobs in all, and seconds."""
        total = len(self.jobs)
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, _, event, name, version = heapq.heappop(self.events)
                self._handle_event(event, name, version)
            self._run_cycles()
            progress(self.jobs_over, total, self.now)
        self._finish_result()
        return self.result

    def _schedule_event(self, when: float, event: str, name: str = "", version: int = 0) -> None:
        self.serial += 1
        heapq.heappush(self.events, (when, self.serial, event, name, version))

    # ------------------------------------------------------------ events

    def _handle_event(self, event: str, name: str, version: int) -> None:
        if event == "comes":
            run = self.result.runs[name] = JobRun(self.jobs[name], _build_gang(self.jobs[name]))
            self._update_gang(run)
        elif event == "looks":
            self.wake_at = None
        else:
            run = self.result.runs[name]
            if event == "leaves":
                self._change_statuses(run, Status.RELEASING, Status.PENDING)
            elif version == run.version:
                self._complete_job(run)

    def _complete_job(self, run: JobRun) -> None:
        run.advance(self.now)
        run.ended_at, run.running_pods, self.jobs_over = self.now, 0, self.jobs_over + 1
        self.planner.pending_gangs.drop_gang(run.gang.key)
        self.planner.session.drop_gang(run.gang.key)

    def _change_statuses(self, run: JobRun, old: Status, new: Status) -> None:
        if run.ended_at is not None:
            return
        tasks = tuple(replace(t, status=new, node="", devices=()) if t.status is old else t for t in run.gang.tasks)
        run.gang = replace(run.gang, tasks=tasks)
        self._update_gang(run)

    def _update_gang(self, run: JobRun) -> None:
        self.planner.pending_gangs.put_gang(self.planner.session.put_gang(run.gang))

    # ------------------------------------------------------------ decisions

    def _run_cycles(self) -> None:
        session = self.planner.session
        self.usage.advance(self.now, {name: q.allocated for name, q in session.queues.items()}, session.total)
        for name, q in session.queues.items():
            q.usage = self.usage.shares.get(name, q.usage)
        session.now = self.now
        for _ in range(MAX_CYCLES_PER_EVENT):
            plan = self.planner.run_cycle(keep_plan=True)
            session.reservations = {r.gang: r for r in plan.reservations}
            self.planner.reset()
            self.result.cycles += 1
            if not plan.binds and not plan.evictions:
                break
            self._apply_plan(plan)
        if plan.next_cycle_in is not None and (self.wake_at is None or self.wake_at > self.now + plan.next_cycle_in):
            self.wake_at = self.now + max(plan.next_cycle_in, 0.001)
            self._schedule_event(self.wake_at, "looks")
        self._record_point(session)

    def _apply_plan(self, plan: Plan) -> None:
        changed: dict[str, dict[str, Task]] = {}
        for b in plan.binds:
            task = Task(
                b.uid, NAMESPACE, b.pod, self._job_of(b.gang).shape, Status.RUNNING, node=b.node, devices=b.devices
            )
            changed.setdefault(b.gang, {})[b.uid] = task
        actions: dict[str, str] = {}
        for e in plan.evictions:
            old = next(t for t in self._run_of(e.gang).gang.tasks if t.uid == e.uid)
            changed.setdefault(e.gang, {})[e.uid] = replace(old, status=Status.RELEASING)
            actions[e.gang] = e.action
        for action in actions.values():
            self.result.evictions_by_action[action] = self.result.evictions_by_action.get(action, 0) + 1
        for key, tasks in changed.items():
            self._update_run(self._run_of(key), tasks, evicted=key in actions)

    def _update_run(self, run: JobRun, tasks: dict[str, Task], *, evicted: bool) -> None:
        run.advance(self.now)
        new_tasks = tuple(
            replace(tasks[t.uid], shape=t.shape, created=t.created) if t.uid in tasks else t for t in run.gang.tasks
        )
        running_before, run.running_pods = run.running_pods, sum(t.status is Status.RUNNING for t in new_tasks)
        if run.first_started is None and run.running_pods:
            run.first_started = self.now
        if evicted:
            run.evictions += 1
            self._schedule_event(self.now + self.grace, "leaves", run.job.name)
            self._restore_checkpoint(run)
        started = self.now if running_before < run.job.minimum <= run.running_pods else run.gang.started
        run.gang = replace(run.gang, tasks=new_tasks, started=started)
        run.version += 1
        if run.running_pods >= run.job.minimum:
            self._schedule_event(
                self.now + (run.total_work - run.work_done) / run.running_pods, "ends", run.job.name, run.version
            )
        self._update_gang(run)

    def _restore_checkpoint(self, run: JobRun) -> None:
        """Reset the work of a gang that has fallen below its minimum to its last checkpoint."""
        step = run.job.checkpoint * run.job.pods
        if step and run.running_pods < run.job.minimum:
            work_kept = run.work_done // step * step
            run.work_lost += run.work_done - work_kept
            run.work_done = work_kept

    def _run_of(self, key: str) -> JobRun:
        return self.result.runs[key.partition("/")[2]]

    def _job_of(self, key: str) -> TraceJob:
        return self._run_of(key).job

    # ------------------------------------------------------------ results

    def _record_point(self, session: Session) -> None:
        queues = [session.queues[p.name] for p in self.trace.projects]
        waiting = sum(len(group) for group in self.planner.pending_gangs.ready_groups())
        point = UsagePoint(
            self.now, tuple(q.allocated[GPU] for q in queues), tuple(min(q.fair_share[GPU], q.requested[GPU]) for q in queues),
            tuple(q.requested[GPU] for q in queues), waiting,
        )  # fmt: skip
        points = self.result.points
        if points and points[-1].at == point.at:
            points[-1] = point
        else:
            points.append(point)

    def _finish_result(self) -> None:
        self.result.end = max(
            (r.ended_at for r in self.result.runs.values() if r.ended_at is not None), default=self.now
        )
        if self.jobs_over == len(self.jobs):
            return
        self.planner.run_cycle(keep_plan=True)
        explainer = Explainer(self.planner.session)
        for hold in self.planner.holds():
            explanation = explainer.explain(hold)
            if explanation is not None:
                self.result.never_started[hold.gang.partition("/")[2]] = explanation.message
        self.planner.reset()


def _build_nodes(nodes: SimulatedNodes) -> tuple[Node, ...]:
    width = len(str(nodes.nodes - 1))
    return tuple(
        Node(f"node-{i:0{width}}", round(nodes.cpus * 1000), nodes.memory, nodes.gpus, 81_500)
        for i in range(nodes.nodes)
    )


def _build_queues(trace: Trace) -> tuple[Queue, ...]:
    """The trace's queues. A department without a quota gets the sum of its projects' quotas."""
    all_projects: Iterable[TraceProject] = (*trace.departments, *trace.projects)
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
        for i, p in enumerate(all_projects)
    )  # fmt: skip


def _build_gang(job: TraceJob) -> Gang:
    tasks = tuple(
        Task(f"{job.name}/{i}", NAMESPACE, f"{job.name}-{i}", job.shape, created=float(i)) for i in range(job.pods)
    )
    return Gang(
        NAMESPACE, job.name, job.name, job.project, tasks, (PodSet("", job.minimum),), job.priority, job.preemptible, job.arrival,
    )  # fmt: skip


def gpu_capacity(nodes: SimulatedNodes) -> int:
    """The GPUs of all nodes, in hundredths of a GPU."""
    return nodes.nodes * nodes.gpus * WHOLE_GPU
