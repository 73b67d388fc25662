"""The job operators of the embedded cluster on a real one, each behind a Lease, as long as the cluster's own is not there.

There are three parts: the v1 kinds, JobSets, TrainJobs. They are the operators of `training`, unchanged, on a View that watches keep up to
date. They have no state that a restart could lose. When the cluster's own operator of a part is installed, ours stop within
`LOOK_INTERVAL_S`; they continue when it is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rowlock import controllers
from rowlock.api import NOTHING, Api, Controller, Decision, Record, View
from rowlock.controllers.supervisor import supervise
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import ApiError, Conflict
from rowlock.kinds import JOB_SET, JOBS, OTHER_POD_GROUPS, TRAIN_JOB, Kind
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.installation import KINDS_REMEDY, missing_kinds
from rowlock.kube.leader_election import LeaderElection, LeaseTimes
from rowlock.kube.rights import JOBSET_LEASE, OPERATOR_LEASE, TRAINER_LEASE
from rowlock.kube_operator.client import OperatorClient
from rowlock.kube_operator.presence import JOBSET_CONTROLLER, PROBE_LABEL, TRAINER, TRAINING_OPERATOR, Rival
from rowlock.kube_operator.trainer_controllers import (
    create_runtimes,
    jobset_controllers,
    jobset_gang_controllers,
    trainer_controllers,
)
from rowlock.objects import Key, Object, labels
from rowlock.training.admission.webhooks import review_job
from rowlock.training.controller import JobController

log = logging.getLogger("rowlock.operator")
START_PATIENCE_S = 3.0
"""Seconds to wait at server start for an answer of Kubeflow's operator. An idle operator answers within 0.1 s."""
PATIENCE_S, LOOK_INTERVAL_S = 10.0, 60.0
EVENT_SOURCE = "rowlock-operator"


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """Times in seconds: of the Lease, between two checks for another operator, and how long a check waits for its answer."""

    lease: LeaseTimes = field(default_factory=LeaseTimes)
    look_interval: float = LOOK_INTERVAL_S
    patience: float = PATIENCE_S


class CheckedJobController(JobController):
    """A `JobController` for objects that no webhook has checked: for a job that Kubeflow's webhook would refuse it writes an Event
    and does nothing else. Jobs that name another operator are ignored."""

    def decide(self, view: View, key: Key, now: float) -> Decision:
        job = view.get(self.framework.kind, key.namespace, key.name)
        if job is None or PROBE_LABEL in labels(job):
            return NOTHING
        message = self._refusal(job)
        if message:
            return Decision((Record(job, "Warning", "InvalidJob", f"the job cannot run: {message}", EVENT_SOURCE),))
        return super().decide(view, key, now)

    def _refusal(self, job: Object) -> str:
        """Why Kubeflow's webhook would refuse the job, in its own words, also for a malformed one; "" when it is valid."""
        try:
            return review_job(self.framework.kind, None, job).message
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            return f"its spec is not one of a {self.framework.kind.name} ({type(error).__name__}: {error})"


def _training_controllers(served: Sequence[Kind]) -> list[CheckedJobController]:
    return [CheckedJobController(kind) for kind in JOBS if kind in served]


async def _prepare_nothing(api: Api) -> None:
    """Nothing has to be there before the operators begin."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one operator does, and which one of others it would fight with."""

    rival: Rival
    lease: tuple[str, str]
    kinds: tuple[Kind, ...]
    """Some of these must be served."""
    controllers: Callable[[Sequence[Kind]], Sequence[Controller]]
    """Kinds that are served, of `kinds` and `more_kinds` → the controllers."""
    prepare: Callable[[Api], Awaitable[None]] = _prepare_nothing
    more_kinds: tuple[Kind, ...] = ()


V1_JOBS = Part(TRAINING_OPERATOR, OPERATOR_LEASE, JOBS, _training_controllers)
JOB_SETS = Part(JOBSET_CONTROLLER, JOBSET_LEASE, (JOB_SET,), jobset_controllers)
GANGS_OF_JOB_SETS = Part(JOBSET_CONTROLLER, JOBSET_LEASE, (JOB_SET,), jobset_gang_controllers)
"""With PodGroups for rowlock's scheduler, whose rights it needs."""
TRAIN_JOBS = Part(TRAINER, TRAINER_LEASE, (TRAIN_JOB,), trainer_controllers, create_runtimes, OTHER_POD_GROUPS)


class KubeOperator:
    """`run()` until cancelled. `kube` is a client of its own: its requests do not queue behind users'."""

    def __init__(self, kube: Kube, process: str, times: OperatorTimes | None = None, part: Part = V1_JOBS) -> None:
        """`process` identifies this process among all others."""
        self._kube, self._times, self._part = kube, times or OperatorTimes(), part
        self._probe = process.rsplit("_", 1)[-1].lower()
        self._is_alone = False
        """No other operator was there when this process last looked, possibly in an earlier term."""
        self._told = ""
        """The reason to wait that was logged last."""
        self.election = LeaderElection(kube, part.lease, process, self._times.lease)

    async def refuse_second(self) -> None:
        """Raises Conflict where the cluster's own operator works: two on one job would undo each other's writes."""
        rival = self._part.rival
        if found := await rival.find(self._kube, self._probe, START_PATIENCE_S):
            raise Conflict(
                f"the cluster has {rival.title} ({found}), and two operators on one job would fight:"
                " leave out --operator own, or remove that one first"
            )

    async def run(self) -> None:
        """Take part in the election, and act on jobs while this process leads and the cluster's own operator is absent."""
        await supervise("the job operators", self._run_elected)

    async def _run_elected(self) -> None:
        await self.election.run(self._lead)

    async def _lead(self) -> None:
        """One term: act while the cluster's own operator is absent, and keep looking for it. If it was absent in an earlier term, act at once
        and look at the same time: jobs have already waited."""
        while True:
            was_alone = self._is_alone
            if not was_alone and (why := await self._reason_to_wait()):
                await self._wait(why)
                continue
            self._is_alone = True
            pause = 0.0 if was_alone else self._times.look_interval
            await run_until_first_ends(self._act(), self._look_until_found(pause))

    async def _look_until_found(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            try:
                if await self._look():
                    self._is_alone = False
                    return
            except ApiError as error:
                log.warning("it is not known whether %s has come: %s", self._part.rival.title, error.message)
            pause = self._times.look_interval

    async def _reason_to_wait(self) -> str:
        """Why the operators cannot act now; "" if they can."""
        if len(absent := await missing_kinds(self._kube, self._part.kinds)) == len(self._part.kinds):
            return f"the cluster does not serve {', '.join(kind.resource for kind in absent)}: {KINDS_REMEDY}"
        found = await self._look()
        return f"{self._part.rival.title} has the jobs ({found}): rowlock's operators wait" if found else ""

    async def _wait(self, why: str) -> None:
        """Wait until it is time to look again; log the reason where it is another one than before."""
        if why != self._told:
            log.warning("%s", why)
        self._told = why
        await asyncio.sleep(self._times.look_interval)

    async def _look(self) -> str:
        return await self._part.rival.find(self._kube, self._probe, self._times.patience)

    async def _act(self) -> None:
        """Run the operators with a new cache, so that all state is read again."""
        part, self._told = self._part, ""
        await part.prepare(self._kube)
        wanted = (*part.kinds, *part.more_kinds)
        absent = await missing_kinds(self._kube, wanted)
        operators = part.controllers([kind for kind in wanted if kind not in absent])
        followed = tuple(dict.fromkeys(kind for operator in operators for kind in operator.kinds))
        cache = Cache(self._kube, followed)
        client = OperatorClient(self._kube, cache)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cache.run())
            await cache.synced.wait()
            await controllers.run(client, cache.view, operators, cache.changes())
