"""Samples the ranks of running jobs and has their stacks examined when a job seems to stand still.

A sample costs a few reads of `/proc` per rank and second, and a stat of each log; stacks are read only on suspicion.
A job is suspicious when it is still for longer than ever before: no rank has written, and some rank does not compute.
Each such stillness is examined once, and then ever more rarely, so a job that is quiet by nature costs almost nothing.
A hang must be found twice before it becomes an Event, except for a rank that was stopped by a signal.
Ranks are processes: they are looked up every `RESCAN` seconds, and whenever one of them has ended.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rowlock.controllers.supervisor import ContainedTaskGroup
from rowlock.diagnosis import remarks
from rowlock.diagnosis.observation import STOPPED, RankObservation, Verdict
from rowlock.diagnosis.remarks import missing_for_group
from rowlock.diagnosis.root_cause import format_duration
from rowlock.diagnosis.stacks import NO_CALL, NO_FILE, Stack
from rowlock.diagnosis.stragglers import find_straggler
from rowlock.diagnostics import stack_dumps
from rowlock.diagnostics.diagnostics import Diagnostics
from rowlock.diagnostics.rank_connections import Meeting, MeetingLooks
from rowlock.diagnostics.rank_processes import (
    RankProcess,
    RunningPod,
    are_all_in_launcher,
    find_ranks,
    loaded_packages,
    read_variables,
)
from rowlock.diagnostics.rank_rendezvous import expects_others, is_torchrun
from rowlock.objects import Object, uid
from rowlock.workloads.frameworks import desired_pods
from rowlock.workloads.pods import replica_role

SAMPLE_INTERVAL = 1.0
"""Seconds between samples; longer where so many ranks run that sampling would cost more than `_COST` of a CPU."""
_COST = 0.01
STILL, HALTED, SILENT, GROWTH = 2.0, 1.0, 10.0, 1.5
"""Seconds of stillness before an examination; the same with a stopped rank; seconds of silence when all ranks spin; and the factor
by which a stillness must exceed the longest one before."""
SLOW = 10.0
"""Seconds for which the others must wait before a rank that still moves is reported as slow."""
IDLE = 6.0
"""Seconds for which all ranks must have been in the launcher's pod; more than `RESCAN`."""
RESCAN = 5.0
"""Seconds after which the processes of a job are looked up again even if none has ended."""
BLIND = ""
"""The entry in `reported_ranks` for the report that names no rank."""
_IDLE = 0.1
_AGAIN, _MAX_LOOK_DELAY, _SOON = 5.0, 300.0, 30.0
"""Seconds between examinations of one stillness: at first, at most; and how long the interval stays the same. Ranks that wait in a loop
are at the same lines in some examinations only."""
_ENDING = 120.0
"""Seconds that Python may take to start or to exit before a standstill is reported."""
_SECONDS_PER_RANK = 1.0
"""Minimum seconds between two examinations, per rank: a hundred stack dumps take some seconds of CPU."""
_CONFIRM = 0.5
_SWEEP_INTERVAL = 60.0
_SEARCH_LOOKS, _APART, _FIRST = 12, 0.25, 10.0
"""A search for a straggler: the number of dumps, the seconds between them, and the seconds from a job's start to its first search."""
_SEARCH_INTERVAL = 60.0
"""Minimum seconds between two searches of a job; for a longer running job, its age up to `_MAX_LOOK_DELAY`."""
_SEARCH_SHARE = 0.004
"""The share of time that searches may take: dumping stacks uses CPU that the training needs."""
log = logging.getLogger("rowlock.diagnostics")


@dataclass(slots=True)
class RankSample:
    """One rank at one moment. `at`: monotonic seconds; `output`: time of its last line; `cpu_share`: CPUs used since the last sample."""

    at: float
    cpu: float
    output: float
    state: str
    cpu_share: float = 1.0


@dataclass(slots=True)
class WatchedJob:
    """A job under watch. Times are monotonic, except `last_output`, which is on the clock of file times."""

    job: Object
    first_seen: float
    running_pods: Sequence[RunningPod] = ()
    ranks: list[RankProcess] = field(default_factory=list)
    scanned_at: float = 0.0
    are_agents: bool = False
    """Its ranks are torchruns that have started none yet: earlier pauses, while they were imported, tell nothing of how long they wait."""
    expects_others: bool = False
    """It has one pod and one rank, which was told of others, such as a torchrun of two nodes."""
    task: asyncio.Task[None] | None = None
    """The running examination or search."""
    samples: dict[RankProcess, RankSample] = field(default_factory=dict)
    last_output: float = 0.0
    still_since: float | None = None
    longest_stillness: float = 0.0
    next_look: float = 0.0
    look_delay: float = _AGAIN
    hang: Verdict | None = None
    hang_since: float = 0.0
    waits: bool = False
    """Its ranks wait for one that has not begun: shown in the job's status, but not reported as a hang."""
    next_search: float = 0.0
    blind_looks: int = 0
    """Consecutive examinations that could read no stack: a starting program is not Python yet for a moment."""
    reported_ranks: set[str] = field(default_factory=set)
    meeting: Meeting = field(default_factory=Meeting)
    idle_since: float | None = None
    """Since when all ranks of an MPIJob have run in its launcher's pod."""


class HangDetector:
    """The hang detector of one kubelet."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._jobs: dict[str, WatchedJob] = {}
        self._meetings = MeetingLooks()

    async def run(self) -> None:
        try:
            await self._watch()
        finally:
            for watched in self._jobs.values():
                watched.meeting.counters.close()

    async def _watch(self) -> None:
        swept_at = 0.0
        async with ContainedTaskGroup("the examination of a job's ranks") as tasks:
            while True:
                running_pods, cost = await self._diagnostics.all_running_pods()
                self._update_jobs(running_pods, time.monotonic())
                samples, sampling_cost = await asyncio.to_thread(self._look_at_jobs, list(self._jobs.values()))
                for job, watched in self._jobs.items():
                    self._check_job(job, watched, samples.get(job, {}), tasks)
                if time.monotonic() - swept_at > _SWEEP_INTERVAL:
                    swept_at = time.monotonic()
                    await asyncio.to_thread(self._diagnostics.failures.prune_old_jobs)
                    await asyncio.to_thread(self._diagnostics.remarks.prune_old_jobs)
                await asyncio.sleep(max(SAMPLE_INTERVAL, (cost + sampling_cost) / _COST))

    def _look_at_jobs(self, jobs: Sequence[WatchedJob]) -> tuple[Mapping[str, dict[RankProcess, RankSample]], float]:
        """Sample the jobs as `_sample_jobs` does, and look for connections between ranks, with a separate budget. Runs in a thread."""
        sampled = _sample_jobs(jobs)
        self._meetings.look([(each.meeting, each.ranks) for each in jobs])
        return sampled

    def _update_jobs(self, running_pods: Sequence[RunningPod], now: float) -> None:
        """Update the watched jobs and their pods."""
        pods_by_job: dict[str, list[RunningPod]] = defaultdict(list)
        for subject in running_pods:
            pods_by_job[uid(subject.job)].append(subject)
        for ended_job in self._jobs.keys() - pods_by_job.keys():
            self._diagnostics.remarks.close_meeting(self._jobs.pop(ended_job).job)
            if meeting := self._diagnostics.remarks.meetings.pop(ended_job, None):
                meeting.counters.close()
            self._diagnostics.set_hang(ended_job, [])
        for job, pods_of_job in pods_by_job.items():
            watched = self._jobs.setdefault(job, WatchedJob(pods_of_job[0].job, now, next_search=now + _FIRST))
            self._diagnostics.remarks.meetings.setdefault(job, watched.meeting)
            if [s.run for s in pods_of_job] != [s.run for s in watched.running_pods]:
                watched.scanned_at = 0.0
            watched.running_pods = pods_of_job

    def _check_job(
        self, job: str, watched: WatchedJob, samples: dict[RankProcess, RankSample], tasks: asyncio.TaskGroup
    ) -> None:
        """Process the samples of one job; start an examination or a search for a straggler when one is due."""
        now = time.monotonic()
        if not samples:  # a job that always had a single rank is not sampled
            return
        self._update_stillness(watched, samples, now)
        self._check_workers(watched, now)
        if watched.hang is not None and watched.still_since is None:
            self._report_moving_again(watched, now)
        elif watched.waits and watched.still_since is None:
            self._tell_wait(job, watched, [])
        is_alone = len(samples) < 2 and desired_pods(watched.job) < 2 and not watched.expects_others
        if is_alone or (watched.task is not None and not watched.task.done()):
            return
        coroutine: Coroutine[None, None, None] | None = None
        if watched.meeting.is_late and watched.still_since is None:
            coroutine = self._report_alone(watched)
        elif self._is_suspicious(watched, now):
            coroutine = self._examine_stacks(job, watched)
        elif watched.still_since is None and now >= watched.next_search and len(samples) > 1:
            coroutine = self._search_straggler(watched)
        watched.task = tasks.create_task(coroutine) if coroutine is not None else None

    def _check_workers(self, watched: WatchedJob, now: float) -> None:
        """Report once that the workers of an MPIJob run no rank: mpirun has started all of them in its own pod."""
        workers = sum(replica_role(each.pod) == "worker" for each in watched.running_pods)
        if not workers or not are_all_in_launcher(watched.ranks):
            watched.idle_since = None
            return
        watched.idle_since = watched.idle_since if watched.idle_since is not None else now
        if (seconds := now - watched.idle_since) >= IDLE:
            self._diagnostics.remarks.add(watched.job, remarks.idle_workers(len(watched.ranks), workers, seconds))

    def _update_stillness(self, watched: WatchedJob, samples: dict[RankProcess, RankSample], now: float) -> None:
        """Compare with the sample before, and note when a stillness begins or ends."""
        for rank, sample in samples.items():
            if before := watched.samples.get(rank):
                sample.cpu_share = (sample.cpu - before.cpu) / max(0.001, sample.at - before.at)
        output = max(pulse.output for pulse in samples.values())
        is_quiet = output <= watched.last_output and samples.keys() <= watched.samples.keys()
        is_still = is_quiet and watched.still_since is not None
        has_idle_rank = any(pulse.cpu_share < _IDLE or pulse.state == STOPPED for pulse in samples.values())
        if is_quiet and (has_idle_rank or is_still):
            watched.still_since = watched.still_since if watched.still_since is not None else now
        elif is_quiet and watched.last_output and time.time() - output > SILENT:
            watched.still_since = now - SILENT
        elif watched.still_since is not None:
            if watched.hang is None and watched.last_output:  # ignore the stillness before the first output
                watched.longest_stillness = max(watched.longest_stillness, now - watched.still_since)
            watched.still_since, watched.next_look, watched.look_delay = None, 0.0, _AGAIN
        watched.last_output, watched.samples = max(output, watched.last_output), samples

    def _is_suspicious(self, watched: WatchedJob, now: float) -> bool:
        if watched.still_since is None or watched.hang is not None or now < watched.next_look:
            return False
        is_stopped = any(pulse.state == STOPPED for pulse in watched.samples.values())
        longest = 0.0 if watched.are_agents else watched.longest_stillness
        return now - watched.still_since >= (HALTED if is_stopped else max(STILL, GROWTH * longest))

    async def _examine_stacks(self, job: str, watched: WatchedJob) -> None:
        """Read the stacks and judge them; a hang must be found twice."""
        watched.next_look = time.monotonic() + max(watched.look_delay, _SECONDS_PER_RANK * len(watched.ranks))
        if watched.still_since is None or time.monotonic() - watched.still_since > _SOON:
            watched.look_delay = min(2 * watched.look_delay, _MAX_LOOK_DELAY)
        since, (verdict, observations) = watched.still_since, await self._diagnostics.judge_job(job)
        if verdict.kind == "stopped":  # no doubt about it
            return self._report_hang(job, watched, verdict, observations)
        if watched.waits or verdict.kind == "absent":
            self._tell_wait(job, watched, observations if verdict.kind == "absent" else [])
        if verdict.is_hang:
            await asyncio.sleep(_CONFIRM)
            first_verdict, (verdict, later_observations) = verdict, await self._diagnostics.judge_job(job)
            is_same = (verdict.kind, verdict.culprits) == (first_verdict.kind, first_verdict.culprits) and _rank_places(
                observations
            ) == _rank_places(later_observations)
            if is_same:
                return self._report_hang(job, watched, verdict, later_observations)
        watched.blind_looks = watched.blind_looks + 1 if verdict.kind == "blind" else 0
        if since is None or (still_seconds := time.monotonic() - since) < SLOW:
            return
        if verdict.kind in ("slow", "behind"):
            self._report_straggler(watched, verdict)
        if still_seconds < _ENDING and all(look.blind == NO_CALL or NO_FILE in look.blind for look in observations):
            return  # Python is starting or exiting, which may take long on a busy machine
        if verdict.kind == "blind" and watched.last_output and _is_any_idle(watched, observations):
            watched.reported_ranks.add(BLIND)
            message = f"No rank has written a line for {format_duration(still_seconds)}, and at least one of them uses no CPU. {verdict.sentence}"
            self._diagnostics.record_event(watched.job, "Warning", "JobStill", message)

    def _tell_wait(self, job: str, watched: WatchedJob, observations: list[RankObservation]) -> None:
        """Show in the job's status that its ranks wait for one that has not begun ([] = no longer). No Event is recorded, as it is not a fault."""
        if self._jobs.get(job) is watched and watched.hang is None:
            watched.waits = bool(observations)
            self._diagnostics.set_hang(job, observations)

    def _report_hang(
        self, job: str, watched: WatchedJob, verdict: Verdict, observations: list[RankObservation]
    ) -> None:
        if self._jobs.get(job) is watched:
            watched.hang, watched.hang_since = verdict, time.monotonic()
            self._diagnostics.set_hang(job, observations)
            self._diagnostics.record_event(watched.job, "Warning", "JobHangs", verdict.sentence)

    def _report_moving_again(self, watched: WatchedJob, now: float) -> None:
        assert watched.hang is not None
        after = format_duration(now - watched.hang_since)
        self._diagnostics.record_event(
            watched.job, "Normal", "JobMovesAgain", f"The ranks make progress again, {after} after the hang was found."
        )
        watched.hang = None
        self._diagnostics.set_hang(uid(watched.job), [])

    async def _search_straggler(self, watched: WatchedJob) -> None:
        """Search for a straggler with several dumps in a row, and schedule the next search."""
        stacks_by_rank: dict[str, list[Stack]] = defaultdict(list)
        output_at_half = spent = 0.0
        for number in range(_SEARCH_LOOKS):
            output_at_half = _last_output_time(watched.running_pods) if number == _SEARCH_LOOKS // 2 else output_at_half
            spent -= time.monotonic()
            for rank, stack in (await self._diagnostics.dump_rank_stacks(watched.ranks)).items():
                stacks_by_rank[rank].append(stack)
            spent += time.monotonic()
            await asyncio.sleep(_APART)
        now = time.monotonic()
        watched.next_search = now + max(
            min(max(_SEARCH_INTERVAL, now - watched.first_seen), _MAX_LOOK_DELAY), spent / _SEARCH_SHARE
        )
        if (
            verdict := find_straggler(
                stacks_by_rank, has_output=_last_output_time(watched.running_pods) > output_at_half
            )
        ) is not None:
            self._report_straggler(watched, verdict)

    async def _report_alone(self, watched: WatchedJob) -> None:
        """Report that the ranks work although none has ever been connected to another."""
        rank = watched.ranks[0]
        stacks = await self._diagnostics.dump_rank_stacks([rank])
        hint = await asyncio.to_thread(_missing_for_group, rank, stacks.get(rank.name), watched)
        self._diagnostics.remarks.warn_of_meeting(watched.job, hint)

    def _report_straggler(self, watched: WatchedJob, verdict: Verdict) -> None:
        """Report a straggler, once for each culprit."""
        if not watched.reported_ranks >= set(verdict.culprits):
            watched.reported_ranks.update(verdict.culprits)
            self._diagnostics.record_event(watched.job, "Warning", "RankSlow", verdict.sentence)


def _is_any_idle(watched: WatchedJob, observations: Iterable[RankObservation]) -> bool:
    """Whether a standstill without stacks should be reported, once per job: all ranks are alive, and one of them is idle."""
    are_alive = all(stack_dumps.process_state(rank.pid) not in ("", "X", "Z") for rank in watched.ranks)
    is_new = BLIND not in watched.reported_ranks
    return is_new and are_alive and watched.blind_looks > 1 and any(look.is_idle for look in observations)


def _rank_places(observations: Iterable[RankObservation]) -> list[tuple[str, object]]:
    return [(look.rank, look.stack.position if look.stack else None) for look in observations]


def _last_output_time(running_pods: Iterable[RunningPod]) -> float:
    """When any rank last wrote a line."""
    return max((subject.last_output_time() for subject in running_pods), default=0.0)


def _sample_jobs(jobs: Iterable[WatchedJob]) -> tuple[Mapping[str, dict[RankProcess, RankSample]], float]:
    """Samples of all ranks of the jobs with several ranks, by job uid; and their cost in CPU seconds. Runs in a thread."""
    started, samples = time.thread_time(), dict[str, dict[RankProcess, RankSample]]()
    for watched in jobs:
        now = time.monotonic()
        if now - watched.scanned_at > RESCAN or not all(rank.is_alive for rank in watched.ranks):
            watched.ranks, watched.scanned_at = find_ranks(watched.running_pods), now
            watched.are_agents = bool(watched.ranks) and all(is_torchrun(rank.pid) for rank in watched.ranks)
            is_single = len(watched.ranks) == 1 and desired_pods(watched.job) < 2
            watched.expects_others = is_single and expects_others(watched.ranks[0].pid)
        has_several = len(watched.ranks) > 1 or desired_pods(watched.job) > 1 or watched.expects_others
        if watched.samples or (watched.ranks and has_several):
            samples[uid(watched.job)] = {rank: _sample_rank(rank, now) for rank in watched.ranks}
    return samples, time.thread_time() - started


def _sample_rank(rank: RankProcess, now: float) -> RankSample:
    """Sample a rank; it counts as stopped when its process or the program of its pod is."""
    is_stopped = any(stack_dumps.process_state(pid) == STOPPED for pid in {rank.pid, rank.running_pod.run.pid})
    return RankSample(
        now, stack_dumps.cpu_seconds(rank.pid), rank.running_pod.last_output_time(), STOPPED if is_stopped else "S"
    )


def _missing_for_group(rank: RankProcess, stack: Stack | None, watched: WatchedJob) -> str:
    """What is missing for the ranks of a job to form a group; "" when unknown. Runs in a thread."""
    packages = loaded_packages(rank.pid) | (stack.packages if stack is not None else set())
    return missing_for_group(packages, read_variables(rank.pid), watched.meeting.pods, str(watched.job.get("kind", "")))
