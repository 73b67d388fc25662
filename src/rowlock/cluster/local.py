"""`LocalCluster`: one machine as a whole cluster: store, job operators, scheduler, collector and kubelet, assembled.

An async context manager. Entered, it has an open store with what a new cluster holds; `run()` keeps its controllers
and its kubelet at work until it is cancelled. Who serves it over HTTP is none of its business (`assembly.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rowlock import collection, controllers, furnishing, quotas
from rowlock.api import Controller
from rowlock.cluster import seeds
from rowlock.cluster.api.admission import Admission
from rowlock.cluster.api.patches import Patches
from rowlock.cluster.inquest import inquest
from rowlock.cluster.inquest.watch import Watch
from rowlock.cluster.node import pretend
from rowlock.cluster.node.kubelet import Kubelet, KubeletSettings
from rowlock.cluster.storage.store import Store
from rowlock.errors import AlreadyExists
from rowlock.kinds import NODE, Kind
from rowlock.objects import Object
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.snapshot import Settings as Planning
from rowlock.training import controller as training
from rowlock.training.framework import PARITIES
from rowlock.training.group import GroupController


@dataclass(frozen=True)
class ClusterSettings:
    """What a cluster is told at its start. `without` may name "kubelet" and "scheduler"."""

    data_dir: Path
    kubelet: KubeletSettings
    without: frozenset[str] = frozenset()
    pretend_nodes: int = 0
    """Nodes that run nothing, for trying the scheduler; each with `kubelet.simulated_gpus` GPUs."""
    authority: str = ""
    """The CA certificate that pods and clients should trust (PEM)."""
    parity: str = "default"
    """How closely the job operators follow Kubeflow's: a key of `training.framework.PARITIES`."""
    half_life: float = 0.0
    """Of time-based fair share, in seconds; 0 = the past does not count."""
    say: Callable[[str], None] = field(default=lambda _: None)
    """Takes sentences that a person who starts the cluster should read."""


class LocalCluster:
    """The embedded cluster over one data directory."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        admission = Admission()
        admission.schedules = "scheduler" not in settings.without
        self.store = Store.open(settings.data_dir / "cluster.db", admission=admission, patches=Patches())
        admission.parity = PARITIES[settings.parity]
        admission.view = self.store.core.latest  # quotas, priority classes and service accounts are looked up in it
        planning = Planning(half_life=settings.half_life)
        self.scheduler = None if "scheduler" in settings.without else Scheduler(planning)
        self.kubelet: Kubelet | None = None
        self.inquest: inquest.Inquest | None = None
        if "kubelet" not in settings.without:
            self.kubelet = Kubelet(self.store, self.store.view, settings.kubelet)
            self.store.logs = self.kubelet.log
            self.inquest = inquest.attached(self.kubelet, self.store.view, settings.data_dir)

    async def __aenter__(self) -> Self:
        await asyncio.gather(self._seed(), *([self.kubelet.prepare()] if self.kubelet else []))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.store.close()

    async def _seed(self) -> None:
        async def make(kind: Kind, obj: Object) -> None:
            try:
                await self.store.create(kind, obj)
            except AlreadyExists:
                pass  # edited or not, it is theirs now

        found = self.settings
        pretended = pretend.nodes(found.pretend_nodes, found.kubelet.simulated_gpus, time.time())
        wanted = [*seeds.initial(), *((NODE, node) for node in pretended)]
        missing = [(k, o) for k, o in wanted if self.store.view.get(k, "", o["metadata"]["name"]) is None]
        await asyncio.gather(*(make(kind, obj) for kind, obj in missing))  # one commit
        for name in pretend.superfluous(self.store.view, pretended):
            await self.store.delete(NODE, "", name)

    def controllers(self) -> list[Controller]:
        """Who decides here. Without a scheduler nobody declares gangs either: both belong together."""
        made: list[Controller] = [
            *training.controllers(PARITIES[self.settings.parity]),
            *collection.controllers(),
            pretend.Pretending(),
            *furnishing.controllers(self.settings.authority),
            quotas.Quotas(),
        ]
        if self.scheduler is not None:
            made += [GroupController(), self.scheduler]
        return made

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self.kubelet:
                tasks.create_task(self.kubelet.run(self.store.changes()))
            if self.inquest:
                tasks.create_task(Watch(self.inquest).run())
            tasks.create_task(controllers.run(self.store, self.store.view, self.controllers(), self.store.changes()))
