"""rowlock's scheduler and gang controller on a real cluster: what `rowlock up --kubeconfig … --scheduler own` adds.

Pods with schedulerName `rowlock-scheduler` are placed by the embedded cluster's planner, unchanged, on a View that watches keep current.
Several processes may run it: the holder of a Lease works, the others wait. It has no state of its own: the next leader reads everything
from the cluster, so it may be stopped at any moment.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from dataclasses import dataclass

from rowlock import controllers
from rowlock.api import View
from rowlock.controllers.supervisor import supervise
from rowlock.errors import Unavailable
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.leader_election import LeaderElection, LeaseTimes
from rowlock.kube.rights import SCHEDULER_LEASE
from rowlock.kube.scheduler_client import SchedulerClient
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.scheduler_identity import REAL_CLUSTER
from rowlock.scheduling.model.snapshot import SchedulerSettings, Snapshot
from rowlock.training.pod_group import PodGroupController

SETTINGS = SchedulerSettings(node_grace=60.0, unready_grace=300.0)
"""A node that is not ready often comes back with its pods still running; Kubernetes waits five minutes as well."""


@dataclass(frozen=True, slots=True)
class _Term:
    """What exists only while this process leads."""

    scheduler: Scheduler
    view: View


class KubeScheduler:
    """`run()` until cancelled. `kube` is a client of its own: its requests do not queue behind users'."""

    def __init__(self, kube: Kube, times: LeaseTimes = LeaseTimes()) -> None:
        self._kube = kube
        self.election = LeaderElection(kube, SCHEDULER_LEASE, process_name(), times)
        self._term: _Term | None = None

    async def run(self) -> None:
        """Take part in the election, and schedule as long as this process leads."""
        await supervise("the scheduler", self._run_elected)

    def snapshot(self) -> Snapshot:
        """The snapshot that the next cycle would plan from. Raises Unavailable while another process leads."""
        if self._term is None:
            leader = self.election.leader or "nobody yet"
            raise Unavailable(f"this process does not schedule: {leader} leads. Ask the server of that process")
        return self._term.scheduler.snapshot(self._term.view, time.time())

    def current(self) -> Scheduler | None:
        """The scheduler while this process leads, for metrics; None while another one does."""
        return self._term.scheduler if self._term is not None else None

    async def _run_elected(self) -> None:
        await self.election.run(self._schedule)

    async def _schedule(self) -> None:
        """One term as leader, with a new cache and scheduler, so that all state is read again."""
        scheduler = Scheduler(SETTINGS, REAL_CLUSTER, time.perf_counter)
        gangs = PodGroupController(REAL_CLUSTER.names, REAL_CLUSTER.event_source)
        cache = Cache(self._kube, tuple(dict.fromkeys((*scheduler.kinds, *gangs.kinds))))
        client = SchedulerClient(self._kube.connection, cache)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cache.run())
            await cache.synced.wait()
            self._term = _Term(scheduler, cache.view)
            try:
                await controllers.run(client, cache.view, [gangs, scheduler], cache.changes())
            finally:
                self._term = None


def process_name() -> str:
    """This process's holderIdentity in a Lease: host name, pid and a random part."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
