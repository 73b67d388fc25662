"""`LocalCluster`: one machine as a whole cluster: store, job operators, scheduler, collector and kubelet, assembled.

An async context manager. Entered, it has an open store with the initial objects of a cluster; `run()` runs its controllers
and its kubelet until cancelled. Serving it over HTTP is up to `assembly.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from rowlock import controllers
from rowlock.api import Controller, LogOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.admission.draining import Draining
from rowlock.apiserver.patch.patches import Patcher
from rowlock.archive.archive import Archive
from rowlock.archive.database import put_samples
from rowlock.archive.retention import Retention
from rowlock.authentication.service_account_tokens import KEY_FILE, ServiceAccountTokens
from rowlock.authorization import bootstrap_policy
from rowlock.authorization.pod_token_source import PodTokenSource
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.authorization.user_rights import may_create_runs
from rowlock.controllers.key_maker import KeyMaker
from rowlock.controllers.local_time_zone import read_local_zone
from rowlock.controllers.supervisor import supervise
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.diagnostics import diagnostics
from rowlock.diagnostics.hang_detector import HangDetector
from rowlock.errors import AlreadyExists
from rowlock.kinds import EVENT, NAMESPACE, NODE, POD, POD_GROUP, SECRET, SERVICE, Kind
from rowlock.kubelet.node import fake_nodes, leftovers
from rowlock.kubelet.pod.directory import EARLIER_RUNS, PodCard
from rowlock.kubelet.streams.remote_logs import read_remote_log
from rowlock.kubelet.volumes.settled_clock import SettledClock
from rowlock.kubelet.worker.kubelet import Kubelet, start_kubelet
from rowlock.kubelet.worker.settings import FOLLOWED_KINDS, KubeletSettings
from rowlock.objects import Key, Object, key, name, namespace, phase
from rowlock.objects import uid as uid_of
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.snapshot import SchedulerSettings as Planning
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.sweeps.controller import SweepController
from rowlock.system import registry as system
from rowlock.system.ending_pods import ending_pods
from rowlock.system.event_expiry import EVENT_TTL
from rowlock.system.unix_accounts import UnixAccountRules
from rowlock.training import controller as training
from rowlock.training.batch_job import controller as batch_job
from rowlock.training.cron_job.controller import CronJobController
from rowlock.training.cron_job.zones import Zone
from rowlock.training.jobset.controller import JobSetController
from rowlock.training.jobset.gangs import JobSetGroupController
from rowlock.training.jobset.lost_groups import LostGroupController
from rowlock.training.model import PARITIES
from rowlock.training.pod_group import PodGroupController
from rowlock.training.trainjob.controller import TrainJobController
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks
from rowlock.workloads.figures.usage_series import UsageSeries

_ENDING_TIMEOUT = 40.0
"""Seconds that a cluster which is asked to stop waits for pods that end without a further request; as long as `rowlock down`."""
_ENDING_INTERVAL = 0.1
"""Seconds between two looks for such pods; each looks at all pods."""
KNOWN_BY_METADATA = frozenset({EVENT, POD_GROUP, SECRET, SERVICE})
"""Kinds of which every controller finds the keys to reconcile by an object's metadata alone (controller-runtime: OnlyMetadata). There
may be tens of thousands at a start."""


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of a cluster. `disabled_parts` may contain "kubelet" and "scheduler"."""

    data_dir: Path
    kubelet: KubeletSettings
    disabled_parts: frozenset[str] = frozenset()
    fake_nodes: int = 0
    """Nodes that run nothing, for trying the scheduler; each with `kubelet.simulated_gpus` GPUs."""
    ca_certificate: str = ""
    """The CA certificate that pods and clients should trust (PEM)."""
    parity: str = "default"
    """How closely the job operators follow Kubeflow's: a key of `training.model.PARITIES`."""
    event_ttl: float = EVENT_TTL
    """Seconds that an Event is kept after it was last seen."""
    retention: Retention = field(default_factory=Retention)
    """How long, and how much, the archive keeps."""
    requires_unix_accounts: bool = False
    """Whether pods run only in projects that have a Unix account, because several users share the machine."""
    accepts_loss: bool = False
    """Whether to continue with a database that lacks changes which were once durable."""
    sweep_key: str = ""
    """With it the server seals sweeps; "" = there are none."""
    half_life: float = 0.0
    """The half-life of past usage in time-based fair share, in seconds; 0 = past usage does not count."""


class LocalCluster:
    """The embedded cluster over one data directory."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        parity, has_scheduler = PARITIES[settings.parity], "scheduler" not in settings.disabled_parts
        self._draining = Draining()
        admission = partial(
            AdmissionChain,
            parity=parity,
            has_scheduler=has_scheduler,
            draining=self._draining,
            webhooks=TrainerWebhooks(),
            unix_accounts=UnixAccountRules(settings.requires_unix_accounts, can_switch=os.geteuid() == 0),
        )
        if "kubelet" not in settings.disabled_parts:
            leftovers.refuse_copy(settings.data_dir)
        self.store = Store.open(
            settings.data_dir / "cluster.db", admission=admission, patches=Patcher(), log_source=self._read_log,
            accepts_loss=settings.accepts_loss,
        )  # fmt: skip
        self.service_accounts = ServiceAccountTokens(settings.data_dir / KEY_FILE, self.store.view)
        self.authorizer = RbacAuthorizer(self.store.view)
        self.notice = self._describe_leftovers()
        """Warnings for the user who starts the cluster, in sentences; "" = none."""
        planning = Planning(half_life=settings.half_life)
        self.scheduler = Scheduler(planning, stopwatch=time.perf_counter) if has_scheduler else None
        self.archive = Archive(
            settings.data_dir / "archive",
            settings.retention,
            SettledClock(time.time),
            log_limit=settings.kubelet.log_limit,
        )
        self.archive.watch_spool(settings.data_dir / "logs")
        self.archive.watch_spool(settings.data_dir / "logs" / EARLIER_RUNS)
        self.kubelet: Kubelet | None = None
        """None before the cluster is entered, and when the kubelet is disabled."""
        self.diagnostics: diagnostics.Diagnostics | None = None

    def _describe_leftovers(self) -> str:
        directory, view = self.settings.data_dir, self.store.view
        if not any(view.all(NAMESPACE)):
            return leftovers.set_aside(directory, time.time())
        if not self.store.notice:
            return ""
        return ". ".join(filter(None, (self.store.notice, leftovers.describe_unknown(directory, view))))

    async def __aenter__(self) -> Self:
        has_kubelet = "kubelet" not in self.settings.disabled_parts
        await asyncio.gather(self._bootstrap(), *([self._start_kubelet()] if has_kubelet else []))
        return self

    async def _start_kubelet(self) -> None:
        settings, view = self.settings, self.store.view
        source = PodTokenSource(self.service_accounts, self.authorizer, view)
        self.kubelet = await start_kubelet(
            self.store, view, settings.kubelet, token_source=source,
            on_logs_aside=self.archive.take_logs, on_usage=self._archive_usage,
        )  # fmt: skip
        self.diagnostics = diagnostics.attach_diagnostics(self.kubelet, view, settings.data_dir)

    def _archive_usage(self, card: PodCard, series: UsageSeries) -> None:
        """Archive the usage of a pod, if it belongs to a job."""
        if card.owner:
            body = {"pod": card.uid, **series.to_json()}
            self.archive.put(f"usage/{card.uid}/{series.start}", put_samples(card.owner, card.name, series.start, body))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.store.close()

    def drain(self, seconds: float) -> None:
        """Refuse new jobs, and pods without a job, for so many seconds: the cluster is about to be stopped."""
        self._draining.begin(seconds)

    def ending_pods(self) -> list[str]:
        """`namespace/name` of the pods whose programs still run here and will be ended without a further request: terminating pods, those
        that lose their owner, and those that were deleted at once."""
        if self.kubelet is None:
            return []
        view, nodes = self.store.view, self.kubelet.nodes
        keys = {key(pod) for pod in ending_pods(view) if pod["spec"]["nodeName"] in nodes}
        keys |= {
            state.card.key
            for uid, state in self.kubelet.pod_states.items()
            if not state.finished and any(state.live_runs()) and not self._is_stored(state.card.key, uid)
        }
        return sorted("/".join(one) for one in keys)

    async def let_pods_end(self, is_urgent: asyncio.Event, limit: float = _ENDING_TIMEOUT) -> None:
        """Before the cluster stops: wait for `ending_pods`, until `is_urgent` is set or `limit` seconds have passed, and refuse new jobs
        meanwhile. Without the cluster nobody would run their hooks, end their sidecars, or ask further pods of a deleted job to end."""
        self.drain(limit)
        deadline, is_announced = time.monotonic() + limit, False
        while (names := self.ending_pods()) and not is_urgent.is_set() and time.monotonic() < deadline:
            if not is_announced:
                is_announced = True
                print(
                    f"rowlock waits up to {limit:.0f} s: {_being_deleted(names)}; another Ctrl-C or SIGTERM ends it at once",
                    flush=True,
                )
            await run_until_first_ends(is_urgent.wait(), timeout=_ENDING_INTERVAL)
        if names:
            print(f"rowlock waits no longer: {_being_deleted(names)}. The next `rowlock up` ends them", flush=True)
        pods = self.store.view.all(POD)
        if running := sum(phase(pod) == "Running" and "/".join(key(pod)) not in names for pod in pods):
            which, it = ("1 pod keeps running", "it") if running == 1 else (f"{running} pods keep running", "them")
            print(f"rowlock stops; {which}: `rowlock up` finds {it} again, `rowlock down` then stops {it}", flush=True)

    def _is_stored(self, pod_key: Key, uid: str) -> bool:
        pod = self.store.view.get(POD, *pod_key)
        return pod is not None and uid_of(pod) == uid

    def _read_log(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        if self.kubelet:
            return self.kubelet.logs.read_log(namespace, pod, options)
        return read_remote_log(self.store.view, namespace, pod, options)

    async def _bootstrap(self) -> None:
        async def create_missing(kind: Kind, obj: Object) -> None:
            try:
                await self.store.create(kind, obj)
            except AlreadyExists:
                pass  # never overwrite an existing one: users may have edited it

        settings = self.settings
        node_objects = fake_nodes.make_fake_nodes(settings.fake_nodes, settings.kubelet.simulated_gpus, time.time())
        initial_objects = [
            *bootstrap.initial_objects(),
            *bootstrap_policy.initial_objects(),
            *((NODE, node) for node in node_objects),
        ]
        view = self.store.view
        missing = [(k, o) for k, o in initial_objects if view.get(k, namespace(o), name(o)) is None]
        await asyncio.gather(*(create_missing(kind, obj) for kind, obj in missing))  # one commit
        for kind, obj in bootstrap_policy.reconcile(self.store.view):
            await self.store.update(kind, obj)
        for node in fake_nodes.superfluous_nodes(self.store.view, node_objects):
            await self.store.delete(NODE, "", node)

    def controllers(self) -> list[Controller]:
        """The controllers of this cluster. Without a scheduler no controller creates PodGroups either."""
        active: list[Controller] = [
            *training.controllers(PARITIES[self.settings.parity]),
            *batch_job.controllers(declares_gangs=self.scheduler is not None),
            CronJobController(Zone(read_local_zone(os.environ))),
            JobSetController(),
            TrainJobController(KeyMaker()),
            *system.controllers(self.settings.ca_certificate, self.settings.event_ttl),
            fake_nodes.FakeKubelet(),
        ]
        if self.settings.sweep_key:
            active.append(SweepController(self.settings.sweep_key.encode(), partial(may_create_runs, self.authorizer)))
        if self.scheduler is not None:
            active += [PodGroupController(), JobSetGroupController(), LostGroupController(), self.scheduler]
        return active

    async def run(self) -> None:
        """Run the controllers, the kubelet and its diagnostics until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self.kubelet:
                tasks.create_task(self.kubelet.run(self.store.changes(FOLLOWED_KINDS)))
            if self.diagnostics:
                detector = HangDetector(self.diagnostics)
                tasks.create_task(supervise("the hang detector", detector.run))
            changes = self.store.changes(only_metadata=KNOWN_BY_METADATA)
            tasks.create_task(controllers.run(self.store, self.store.view, self.controllers(), changes))


def _being_deleted(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    return f"{len(names)} {'pod is' if len(names) == 1 else 'pods are'} being deleted ({shown})"
