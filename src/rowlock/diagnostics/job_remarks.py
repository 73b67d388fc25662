"""Stores remarks on jobs (what is wrong with a result, other than failures), and records them as Events."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rowlock.api import View
from rowlock.controllers.recorder import Recorder
from rowlock.diagnosis import remarks
from rowlock.diagnosis.remarks import Remark, remark_from_dict
from rowlock.diagnostics.job_records import JobRecords
from rowlock.diagnostics.log_remarks import MAX_RANKS, remarks_of_logs
from rowlock.diagnostics.rank_connections import Meeting
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.objects import Object, uid
from rowlock.training.trainjob.owners import pods_of_workload
from rowlock.workloads.frameworks import desired_pods, main_container_name
from rowlock.workloads.pods import rank_label, replica_index, sort_by_rank

log = logging.getLogger("rowlock.diagnostics")

_COLLECT_SECONDS, _READ_INTERVAL = 0.05, 0.25
"""Seconds for which ended jobs are collected before their logs are read: the least, and from one read to the next."""


@dataclass(slots=True)
class KubeletContext:
    """What diagnostics need of the kubelet."""

    view: View
    pods: Mapping[str, PodState]
    directory: Callable[[str, str], Path]
    recorder: Recorder
    clock: Callable[[], float] = time.time


_EndedJob = tuple[Object, list[tuple[str, Path]]]
"""A job, and rank and log of each of its pods."""


def _remarks_of_jobs(ended: list[_EndedJob]) -> list[tuple[Object, list[Remark]]]:
    """The remarks on each job. A log that cannot be read loses the remarks of its own job only. Runs in a thread."""
    found = []
    for job, logs in ended:
        try:
            found.append((job, remarks_of_logs(logs)))
        except Exception:
            log.exception("The logs of job %s could not be read for remarks", uid(job))
    return found


class JobRemarks:
    """The remarks on the jobs of one kubelet, stored by job uid in the directory `remarks` of the data directory."""

    def __init__(
        self, context: KubeletContext, data: Path, record_event: Callable[[Object, str, str, str], None]
    ) -> None:
        self._context, self._record_event = context, record_event
        self._records = JobRecords(data / "remarks", remark_from_dict)
        self.meetings: dict[str, Meeting] = {}
        """By uid of a running job with several pods: whether its ranks have met. Maintained by the hang detector."""
        self._unread: dict[str, _EndedJob] = {}
        self._being_read: dict[str, _EndedJob] = {}
        self._reading: asyncio.Task[None] | None = None
        self._last_read = -_READ_INTERVAL
        """When the event loop's clock showed the end of the last read."""

    def handle_good_exit(self, job: Object, pod: Object, container: str, run: Run) -> None:
        """Check the control group of a program that exited with 0, and queue the logs of its job's ranks once the last has ended."""
        if run.exit is not None and run.exit.helpers_overuse:
            self.add(job, remarks.memory_kills(rank_label(job, pod), run.exit.helpers_overuse))
        logs = self._logs_to_read(job, pod) if main_container_name(job, pod) == container else []
        if logs:
            self._unread[uid(job)] = (job, logs)
            self._read_soon()

    def _read_soon(self) -> None:
        if self._unread and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_logs())

    def _logs_to_read(self, job: Object, pod: Object) -> list[tuple[str, Path]]:
        """Rank and log of each pod, once all have ended; empty before. For a job with more than `MAX_RANKS` pods, only those of each
        role's first pod: otherwise the ends of a thousand pods would be looked up a thousand times."""
        if desired_pods(job) > MAX_RANKS:
            pods = [pod] if replica_index(pod) == 0 else []
        else:
            pods = sort_by_rank(pods_of_workload(self._context.view, uid(job)))
        found = [self._log_of_ended(job, each) for each in pods]
        return [each for each in found if each is not None] if None not in found else []

    def _log_of_ended(self, job: Object, pod: Object) -> tuple[str, Path] | None:
        """Rank and log of a pod; None while its program runs or has not begun, and when it is not on this machine."""
        pod_state = self._context.pods.get(uid(pod))
        main_container = main_container_name(job, pod)
        facts = pod_state.containers.get(main_container) if pod_state is not None else None
        if facts is None or facts.run is None or facts.run.exit is None:
            return None
        return rank_label(job, pod), self._context.directory(uid(pod), main_container) / f"log.{facts.run.number}"

    async def _read_logs(self) -> None:
        """Read the queued logs in one thread call: with many short jobs, a call for each would cost more than the reading."""
        since_last_read = asyncio.get_running_loop().time() - self._last_read
        await asyncio.sleep(max(_COLLECT_SECONDS, _READ_INTERVAL - since_last_read))
        self._being_read, self._unread = self._unread, {}
        try:
            for job, found in await asyncio.to_thread(_remarks_of_jobs, list(self._being_read.values())):
                for remark in found:
                    self.add(job, remark)
        finally:
            self._being_read, self._reading = {}, None
            self._last_read = asyncio.get_running_loop().time()
        self._read_soon()

    def add(self, job: Object, remark: Remark) -> None:
        """Store a remark and record it as an Event of the job, once for each kind and rank."""
        if all((known.kind, known.rank) != (remark.kind, remark.rank) for known in self._records.of(uid(job))):
            remark = replace(remark, at=remark.at or self._context.clock())
            self._records.add(uid(job), remark, remark.to_dict())
            self._record_event(job, "Warning", remarks.EVENT_REASONS[remark.kind], remark.event_message)

    def close_meeting(self, job: Object, *, at_end: bool = True) -> None:
        """Store the remark that a job's ranks have never met, if so, after they have ended or were seen to train (`at_end`: False)."""
        meeting = self.meetings.get(uid(job))
        if meeting is not None:
            meeting.settle(at_end)
        if meeting is not None and (remark := meeting.remark) is not None:
            meeting.is_told = True
            self.add(job, remark)

    def warn_of_meeting(self, job: Object, hint: str) -> None:
        """Record an Event that running ranks have never met; `hint`: what is missing. The remark is stored if they train already."""
        meeting = self.meetings[uid(job)]
        meeting.note_hint(hint)
        if meeting.trains:
            self.close_meeting(job, at_end=False)
        elif (remark := meeting.remark) is not None:
            self._record_event(job, "Warning", remarks.EVENT_REASONS[remark.kind], f"So far, {remark.sentence}.")

    def of(self, job: str) -> list[Remark]:
        """The remarks on a job (its uid), including a preliminary one about ranks that have not met so far."""
        meeting = self.meetings.get(job)
        so_far = meeting.remark if meeting is not None and meeting.is_warned else None
        found = [*self._records.of(job), *([so_far] if so_far is not None else [])]
        are_alone = any(remark.kind == remarks.ALONE for remark in found)  # then different ends are expected
        return [remark for remark in found if remark.kind != remarks.LENGTHS or not are_alone]

    async def settle(self, job: str) -> None:
        """Wait until the logs of a job that has just ended are read."""
        while self._reading is not None and (job in self._unread or job in self._being_read):
            await asyncio.shield(self._reading)

    def prune_old_jobs(self) -> None:
        """Keep only the remarks on the newest jobs."""
        self._records.prune_old_jobs()
