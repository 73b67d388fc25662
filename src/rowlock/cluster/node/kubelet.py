"""The kubelet: pods of this machine's nodes become processes, and what becomes of them becomes their status.

Level, not edge: a turn looks at one pod and its facts, `pod_sync.sync` says what to do, `pod_status.status` what to
report; both are pure, everything here is doing. Changes of pods, hints from shims (a line in the `wake` pipe), dead
shims (pidfd) and timers cause turns; turns of one pod never overlap. All memory can be lost: `prepare` reads the facts
from disk, so a restart is the recovery code. Programs are started by the pod host (`podhost.py`).
"""

import asyncio
import contextlib
import logging
import os
import resource
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from rowlock import kinds
from rowlock.api import LOG, Api, Change, LogOptions, View
from rowlock.cluster.node import claims, gpu_watch, machine, node_leases, pod_logs, registration
from rowlock.cluster.node.checkpoints import KEPT, Checkpoints, living
from rowlock.cluster.node.checks import Checks
from rowlock.cluster.node.entrance import Entrance
from rowlock.cluster.node.images import Images
from rowlock.cluster.node.log_writer import LIMIT
from rowlock.cluster.node.logs import Watcher
from rowlock.cluster.node.machine import Inventory, NodePlan, Wishes
from rowlock.cluster.node.network import PodNetwork, choose
from rowlock.cluster.node.pod_directory import PodCard, PodDirectories
from rowlock.cluster.node.pod_facts import Run, awaited_master
from rowlock.cluster.node.pod_starting import Starting
from rowlock.cluster.node.pod_tending import Tending
from rowlock.cluster.node.processes import PodHost
from rowlock.cluster.node.proxy import Proxy
from rowlock.cluster.node.runtime import Runtime
from rowlock.cluster.node.tended import Tended
from rowlock.cluster.node.volume_directories import VolumeDirectories
from rowlock.controllers.recorder import Recorder
from rowlock.errors import ApiError, Unavailable
from rowlock.objects import Key, Object, dig, key, namespace
from rowlock.objects import uid as uid_of

log = logging.getLogger("rowlock.kubelet")
_FILES = 65536
RESYNC = 2.0
"""Seconds between looks at programs that can only be polled, and at a pod host that has gone."""

_SHOWN = (kinds.CONFIG_MAP, kinds.SECRET, kinds.PERSISTENT_VOLUME_CLAIM)


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """What the kubelet is told at its start; None = take the machine as it is."""

    data_dir: Path
    nodes: int = 1
    gpus_per_node: int | None = None
    simulated_gpus: int = 0
    cpus_per_node: float | None = None
    memory_per_node: int | None = None
    node_name: str = ""
    network: str = "auto"
    restart_backoff: float = 10.0
    """Seconds before a second restart; doubles up to thirty times as much."""
    warm_start: bool = True
    """May programs that import torch be forked from a parent that has done so?"""
    keep_checkpoints: float = KEPT
    """Seconds for which a deleted job's checkpoints are kept."""
    log_limit: int = LIMIT
    """Bytes of one run's log that are kept; the oldest fifth goes when there is more."""
    limits: str = "auto"
    """How memory and CPU limits are kept: `auto` takes control groups where it can, `watchdog` never does."""
    measure: float = 10.0
    """Seconds between looks at what pods with a limit have on disk."""
    runtime: str = "auto"
    """`auto` (images of the container engine run in containers, others as processes), `process` or `container`."""
    sweep: float = 60.0
    """Seconds between looks at what deleted pods and claims left behind."""

    @property
    def wishes(self) -> Wishes:
        return Wishes(
            self.nodes,
            self.gpus_per_node,
            self.simulated_gpus,
            self.cpus_per_node,
            self.memory_per_node,
            self.node_name,
        )


class Kubelet:
    """One per cluster; `prepare()` before, `run()` for as long as it shall work."""

    def __init__(
        self, api: Api, view: View, settings: KubeletSettings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.nodes: dict[str, NodePlan] = {}
        self._api, self._view, self._clock = api, view, clock
        self._data = settings.data_dir
        self._directories = PodDirectories(self._data)
        self.images = Images(self._data / "images")
        self.network = PodNetwork(self._data, view)
        self._host = PodHost(self._data)
        self._recorder = Recorder(api, clock)
        self._full = claims.Full(self._recorder.record)
        self._watcher = Watcher()
        self._pods: dict[str, Tended] = {}
        self.runtime = Runtime(settings.runtime, self._data, self.images, self.network, self._pods)
        self._awaiting: dict[Key, set[str]] = {}
        self._neighbours: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        self._busy: set[str] = set()
        self._awake = asyncio.Event()
        self._pipe = -1
        self._rest = b""
        starting = Starting(
            view=view,
            images=self.images,
            network=self.network,
            directories=self._directories,
            nodes=self.nodes,
            server=dict(os.environ),
            wake="",
            neighbours=self._neighbours,
            places=VolumeDirectories(self._data),
            checkpoints=Checkpoints(self._data, settings.keep_checkpoints),
            runtime=self.runtime,
            log_limit=settings.log_limit,
            warm_start=settings.warm_start,
        )
        self._tending = Tending(self._api, self._host, starting, self._recorder, clock=clock)
        self._tending.backoff = self._tending.pulling.backoff = settings.restart_backoff
        self.entrance = Entrance(view, self._host, self.network, self._directories, self._pods, self.log)
        self._tending.probing.checks = Checks(self.entrance, self._host, self.network)
        self._tending.probing.changed = self._tending.pulling.changed = self._mark
        self.pods, self.recorder, self.directory = self._pods, self._recorder, self._directories.container
        self.on_end: Callable[[Tended, str, Run], None] = lambda tended, container, run: None
        """Told of every run of a container that has ended, once or more."""

    # ------------------------------------------------------------ beginning

    async def prepare(self) -> None:
        """Finds the machine, the pod host and the pods of before; registers the nodes. Raises ApiError with a sentence."""
        self._allow_many_files()
        self._open_pipe()
        cards = await asyncio.to_thread(self._directories.cards)
        self._adopt(cards)
        # the pod host starts while we look at the machine
        found, *_ = await asyncio.gather(asyncio.to_thread(machine.inventory), self._connect(), self.runtime.begin())
        try:
            self.nodes |= {plan.name: plan for plan in machine.plan(found, self.settings.wishes)}
        except ValueError as error:
            raise Unavailable(str(error)) from None
        self.network.restore(cards)
        await asyncio.gather(*(self._register(plan, found) for plan in list(self.nodes.values())))
        for name in await registration.retire(self._api, self.nodes, {card.node for card in cards}):
            self.nodes[name] = machine.closed(name, found)

    def _allow_many_files(self) -> None:
        """A pidfd per pod, a connection per client."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            self._tending.open_files = (soft, hard)

    def _open_pipe(self) -> None:
        path = self._data / "wake"
        if not path.is_fifo():
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # RDWR: never at end of file
        self._tending.starting.wake = str(path)

    def _adopt(self, cards: list[PodCard]) -> None:
        for card in cards:
            tended = Tended(card)
            for container in self._directories.containers(card.uid):
                self._tending.look(tended, container)
            self._pods[card.uid] = tended

    async def _connect(self) -> None:
        """To the pod host that is there, or to a new one inside the fabric of the pods that run."""
        alive = [(uid, run) for uid, tended in self._pods.items() for run in tended.alive()]
        join = next((run.shim for _, run in alive if run.pid), 0)
        wanted = self.settings.network
        hello = await self._host.connect("none" if wanted == "rewrite" else "auto", join)
        self.network.choice = choose(wanted, bool(hello.get("fabric")), str(hello.get("problem") or "no fabric"))
        starting = self._tending.starting
        starting.limits = "watchdog" if self.settings.limits == "watchdog" else str(hello.get("limits") or "watchdog")
        starting.unmountable, starting.memory = str(hello.get("unmountable") or ""), bool(hello.get("memory"))
        for uid, run in alive:
            if run.pid:
                await self._host.ask("adopt", uid=uid, pid=run.pid, shim=run.shim)

    async def _register(self, plan: NodePlan, found: Inventory) -> None:
        choice = self.network.choice
        limits = self._tending.starting.limits
        node = machine.node_object(plan, (choice.mode, choice.why), self._clock(), limits)
        machine.tell_runtime(node, self.runtime.engine, self.runtime.why)
        await registration.register(self._api, node)

    # ------------------------------------------------------------ at work

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Until cancelled. Pods live on when it is."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._hints)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tending.probing.group = self._tending.pulling.group = tasks
                tasks.create_task(self._feed(changes))
                tasks.create_task(self._recorder.run())
                tasks.create_task(self._resync())
                tasks.create_task(gpu_watch.watch(self._view, self.nodes, self._pods, self._recorder))
                tasks.create_task(self._measure())
                tasks.create_task(node_leases.renew(self._api, self._view, self.nodes, self._clock))
                if self.network.real:
                    tasks.create_task(self._serve_proxy())
                await self._turns(tasks)
        finally:
            loop.remove_reader(self._pipe)
            self._watcher.close()
            self._tending.close()
            self.runtime.close()
            if not any(run for tended in self._pods.values() for run in tended.alive()):
                await self._host.dismiss()
            await self._host.close()
            os.close(self._pipe)

    async def _feed(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            if change.kind is kinds.POD:
                self._pod_changed(change)
            elif change.kind is kinds.SERVICE:
                self.network.dirty = True
            elif change.kind in _SHOWN:
                self._shown_changed(change.object)
            elif change.type == "Bookmark" and change.kind is None:
                self._forget_strangers()

    def _pod_changed(self, change: Change) -> None:
        pod, uid = change.object, uid_of(change.object)
        if change.type in ("Added", "Deleted"):
            self.network.dirty = True
        if change.type == "Deleted":
            self._mark(uid)
        elif dig(pod, "spec.nodeName") in self.nodes:
            if uid not in self._pods:
                self._begin(pod)
            self._mark(uid)
            self._mark(*self._awaiting.get(key(pod), ()))

    def _shown_changed(self, shown: Object) -> None:
        """A ConfigMap, a Secret, a claim: pods may wait for it, or show it as files."""
        for uid, tended in self._pods.items():
            if tended.card.namespace == namespace(shown) and (tended.has_problem() or tended.shows_files()):
                tended.hasten()
                self._mark(uid)

    def _begin(self, pod: Object) -> None:
        """A pod has been bound to one of our nodes."""
        uid, node = uid_of(pod), dig(pod, "spec.nodeName")
        held = {other: t.card.devices for other, t in self._pods.items() if t.card.node == node and t.holds_devices()}
        devices = self._tending.starting.devices(pod, held)
        card = PodCard(*key(pod), uid, node, self.network.address(uid), self._clock(), devices)
        self._directories.write(card)
        self._pods[uid] = Tended(card)
        self._count()

    def _count(self) -> None:
        """Pods per node that are at work: they share its CPUs."""
        self._neighbours.clear()
        for tended in self._pods.values():
            if not tended.finished:
                self._neighbours[tended.card.node] = self._neighbours.get(tended.card.node, 0) + 1

    def _forget_strangers(self) -> None:
        """Directories whose pod is not in the store any more: their turn ends them."""
        self._mark(*self._pods)

    def _mark(self, *uids: str) -> None:
        for uid in uids:
            self._dirty[uid] = None
        if uids:
            self._awake.set()

    def _hints(self) -> None:
        """Lines from shims: `started uid/container N`, `exited uid/container N`."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    words = line.decode(errors="replace").split(" ")
                    uid, _, container = words[1].partition("/") if len(words) == 3 else ("", "", "")
                    self._noticed(uid, container)

    def _noticed(self, uid: str, container: str) -> None:
        """Something happened to a container's program: read its facts."""
        tended = self._pods.get(uid)
        if tended is None:
            return
        for run in self._tending.look(tended, container):
            self._tending.watch(run, lambda: self._noticed(uid, container))
        known = tended.containers.get(container)
        if known is not None and known.run is not None and known.run.exit is not None:
            self.on_end(tended, container, known.run)
        self._mark(uid, *self._awaiting.get(Key(tended.card.namespace, tended.card.name), ()))

    async def _turns(self, tasks: asyncio.TaskGroup) -> None:
        for uid in self._pods:
            for container in self._directories.containers(uid):
                self._noticed(uid, container)
        while True:
            await self._awake.wait()
            self._awake.clear()
            if self.network.dirty:
                self.network.write_hosts()
            ready = [uid for uid in self._dirty if uid not in self._busy]
            for uid in ready:
                del self._dirty[uid]
                if uid in self._pods:
                    self._busy.add(uid)
                    tasks.create_task(self._turn(uid, self._pods[uid]))

    async def _turn(self, uid: str, tended: Tended) -> None:
        again: float | None = None
        try:
            pod = self._view.get(kinds.POD, tended.card.namespace, tended.card.name)
            if pod is None or uid_of(pod) != uid:
                again = await self._end(tended)
            else:
                self._await_master(pod, tended)
                was = tended.finished
                again = await self._tending.turn(pod, tended)
                if tended.finished != was:
                    self._count()
        except ApiError:
            again = 0.2  # somebody wrote first, or the store is busy: look again
        finally:
            self._busy.discard(uid)
        if again is not None:
            asyncio.get_running_loop().call_later(again, self._mark, uid)
        if uid in self._dirty:
            self._awake.set()

    def _await_master(self, pod: Object, tended: Tended) -> None:
        """For the emulated init container: is the master's program running?"""
        waits = awaited_master(pod)
        if not waits or tended.master_ready is not None:
            return
        master = Key(tended.card.namespace, waits)
        self._awaiting.setdefault(master, set()).add(uid_of(pod))
        found = self._view.get(kinds.POD, *master)
        theirs = self._pods.get(uid_of(found)) if found else None
        if theirs is not None and theirs.has_started():
            tended.master_ready = self._clock()
            self._awaiting[master].discard(uid_of(pod))

    async def _end(self, tended: Tended) -> float | None:
        """The pod is not in the store any more: nothing of it may run, and its directory goes."""
        if not await self._tending.put_down(tended):
            return 0.2
        # forgotten first: a dead shim noticed while its directory goes would be written a new end, and the directory stay
        self._pods.pop(tended.card.uid, None)
        await asyncio.to_thread(self._directories.remove, tended.card)
        self._awaiting.pop(Key(tended.card.namespace, tended.card.name), None)
        self.network.release(tended.card)
        self._count()
        return None

    async def _resync(self) -> None:
        """What no event tells: a pod host that has gone, programs where there are no pidfds, old logs."""
        swept = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._host.gone.wait(), min(RESYNC, self.settings.sweep))
            if not self._host.connected:
                await self._connect()
                self._mark(*self._pods)
            for uid, tended in list(self._pods.items()):
                for container in tended.unsure(pidfds=hasattr(os, "pidfd_open")):
                    self._noticed(uid, container)
            if self._clock() - swept > self.settings.sweep:
                swept = self._clock()
                await self._sweep()

    async def _measure(self) -> None:
        """Pods that have more on disk than they may."""
        while True:
            await asyncio.sleep(self.settings.measure)
            for uid, tended in list(self._pods.items()):
                if await self._tending.measure(tended):
                    self._mark(uid)

    async def _sweep(self) -> None:
        """What deleted pods and claims left behind."""
        await asyncio.to_thread(self._directories.forget_old_logs)
        await self.runtime.sweep()
        forget = self._tending.starting.checkpoints.forget
        for job in await asyncio.to_thread(forget, living(self._view), self._clock()):
            log.info("the checkpoints of job %s, which was deleted, are removed", job)
        cards = [tended.card for tended in self._pods.values()]
        pods = [self._view.get(kinds.POD, card.namespace, card.name) for card in cards]
        with contextlib.suppress(Unavailable):  # the store is busy: the next look will do
            await claims.forget(self._api, self._tending.starting.places, claims.used(p for p in pods if p))
        await self._full.look(self._view, self._tending.starting.places)

    async def _serve_proxy(self) -> None:
        while True:
            with contextlib.suppress(ApiError, OSError):
                await Proxy(await self._host.passed("proxy"), os.environ).run()
            await asyncio.sleep(RESYNC)

    # ------------------------------------------------------------ logs

    def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        """A container's log, as `Api.log` has it; of deleted pods too, while it is kept."""
        found = self._view.get(kinds.POD, namespace, pod)
        tended = self._pods.get(uid_of(found)) if found else None
        source = pod_logs.Source(self._directories, self._watcher, found, tended)
        return pod_logs.read(source, Key(namespace, pod), options)
