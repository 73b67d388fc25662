"""The kubelet: pods of this machine's nodes become processes, and what becomes of them becomes their status.

Level, not edge: a turn looks at one pod and its facts, `pod_sync.sync` says what to do, `pod_status.status` what to
report; both are pure, everything here is doing. Changes of pods, hints from shims (a line in the `wake` pipe), dead
shims (pidfd) and timers cause turns; turns of one pod never overlap. All memory can be lost: `prepare` reads the facts
from disk, so a restart is the recovery code. Programs are started by the pod host (`pod_host.py`).
"""

import asyncio
import contextlib
import logging
import os
import resource
import time
from collections.abc import AsyncIterator, Callable

from rowlock import kinds
from rowlock.api import LOG, Api, Change, LogOptions, View
from rowlock.controllers.recorder import Recorder
from rowlock.errors import ApiError, Unavailable
from rowlock.kubelet.files.names import is_name
from rowlock.kubelet.images.images import Images
from rowlock.kubelet.network.egress_proxy import EgressProxy
from rowlock.kubelet.network.pod_network import PodNetwork, choose_network
from rowlock.kubelet.node import gpu_watch, leases, machine, registration
from rowlock.kubelet.node.machine import Inventory, NodePlan
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.pod.facts import Run, awaited_master
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.prober.probe_handlers import HandlerRunner
from rowlock.kubelet.runtime.container_runtime import ContainerRuntime
from rowlock.kubelet.runtime.pod_host_client import PodHostClient
from rowlock.kubelet.streams import log_files
from rowlock.kubelet.streams.exec_sessions import StreamingServer
from rowlock.kubelet.streams.logs import LogWatcher
from rowlock.kubelet.volumes import claims
from rowlock.kubelet.volumes.checkpoints import Checkpoints, live_owner_uids
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.worker.pod_worker import PodWorker
from rowlock.kubelet.worker.settings import KubeletSettings
from rowlock.kubelet.worker.starting import ContainerStarter
from rowlock.objects import Key, Object, dig, key, namespace
from rowlock.objects import uid as uid_of

log = logging.getLogger("rowlock.kubelet")
_MAX_OPEN_FILES = 65536
RESYNC = 2.0
"""Seconds between looks at programs that can only be polled, and at a pod host that has gone."""

_MOUNTABLE_KINDS = (kinds.CONFIG_MAP, kinds.SECRET, kinds.PERSISTENT_VOLUME_CLAIM)


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
        self._pod_host = PodHostClient(self._data)
        self._recorder = Recorder(api, clock)
        self._claim_usage = claims.ClaimUsageMonitor(self._recorder.record)
        self._log_watcher = LogWatcher()
        self._pod_states: dict[str, PodState] = {}
        self.runtime = ContainerRuntime(settings.runtime, self._data, self.images, self.network, self._pod_states)
        self._master_waiters: dict[Key, set[str]] = {}
        self._active_pods_per_node: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        self._busy: set[str] = set()
        self._wakeup = asyncio.Event()
        self._pipe = -1
        self._partial_line = b""
        starting = ContainerStarter(
            view=view,
            images=self.images,
            network=self.network,
            directories=self._directories,
            nodes=self.nodes,
            server_env=dict(os.environ),
            wake_path="",
            neighbours=self._active_pods_per_node,
            volume_directories=VolumeDirectories(self._data),
            checkpoints=Checkpoints(self._data, settings.keep_checkpoints),
            runtime=self.runtime,
            log_limit=settings.log_limit,
            warm_start=settings.warm_start,
        )
        self._pod_worker = PodWorker(self._api, self._pod_host, starting, self._recorder, clock=clock)
        self._pod_worker.backoff = self._pod_worker.image_pulls.backoff = settings.restart_backoff
        self.streaming = StreamingServer(
            view, self._pod_host, self.network, self._directories, self._pod_states, self.log
        )
        self._pod_worker.probe_manager.probe_handlers = HandlerRunner(self.streaming, self._pod_host, self.network)
        self._pod_worker.probe_manager.on_changed = self._pod_worker.image_pulls.on_changed = self._mark_dirty
        self.pod_states, self.recorder, self.directory = (
            self._pod_states,
            self._recorder,
            self._directories.container_directory,
        )
        self.on_end: Callable[[PodState, str, Run], None] = lambda pod_state, container, run: None
        """Told of every run of a container that has ended, once or more."""

    # ------------------------------------------------------------ beginning

    async def prepare(self) -> None:
        """Finds the machine, the pod host and the pods of before; registers the nodes. Raises ApiError with a sentence."""
        self._allow_many_files()
        self._open_pipe()
        cards = await asyncio.to_thread(self._directories.read_cards)
        self._adopt_pods(cards)
        # the pod host starts while we look at the machine
        inventory, *_ = await asyncio.gather(
            asyncio.to_thread(machine.inventory), self._connect_pod_host(), self.runtime.detect_engine()
        )
        try:
            self.nodes |= {plan.name: plan for plan in machine.plan_nodes(inventory, self.settings.node_options)}
        except ValueError as error:
            raise Unavailable(str(error)) from None
        self.network.restore(cards)
        await asyncio.gather(*(self._register_node(plan, inventory) for plan in list(self.nodes.values())))
        for name in await registration.retire_nodes(self._api, self.nodes, {card.node for card in cards}):
            self.nodes[name] = machine.retired_node_plan(name, inventory)

    def _allow_many_files(self) -> None:
        """A pidfd per pod, a connection per client."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        new_limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < new_limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
            self._pod_worker.open_file_limits = (soft, hard)

    def _open_pipe(self) -> None:
        path = self._data / "wake"
        if not path.is_fifo():
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # RDWR: never at end of file
        self._pod_worker.starter.wake_path = str(path)

    def _adopt_pods(self, cards: list[PodCard]) -> None:
        for card in cards:
            pod_state = PodState(card)
            for container in self._directories.started_containers(card.uid):
                self._pod_worker.read_facts(pod_state, container)
            self._pod_states[card.uid] = pod_state

    async def _connect_pod_host(self) -> None:
        """To the pod host that is there, or to a new one inside the fabric of the pods that run."""
        alive = [(uid, run) for uid, pod_state in self._pod_states.items() for run in pod_state.live_runs()]
        join = next((run.shim for _, run in alive if run.pid), 0)
        network_mode = self.settings.network
        hello = await self._pod_host.connect("none" if network_mode == "rewrite" else "auto", join)
        self.network.choice = choose_network(
            network_mode, bool(hello.get("fabric")), str(hello.get("problem") or "no fabric")
        )
        starting = self._pod_worker.starter
        starting.limits_mode = (
            "watchdog" if self.settings.limits == "watchdog" else str(hello.get("limits") or "watchdog")
        )
        starting.mount_problem, starting.can_mount_memory = (
            str(hello.get("unmountable") or ""),
            bool(hello.get("memory")),
        )
        for uid, run in alive:
            if run.pid:
                await self._pod_host.ask("adopt", uid=uid, pid=run.pid, shim=run.shim)

    async def _register_node(self, plan: NodePlan, inventory: Inventory) -> None:
        choice = self.network.choice
        limits = self._pod_worker.starter.limits_mode
        node = machine.node_object(plan, (choice.mode, choice.reason), self._clock(), limits)
        machine.set_runtime_info(node, self.runtime.engine, self.runtime.engine_problem)
        await registration.register_node(self._api, node)

    # ------------------------------------------------------------ at work

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Until cancelled. Pods live on when it is."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._read_shim_hints)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._pod_worker.probe_manager.task_group = self._pod_worker.image_pulls.task_group = tasks
                tasks.create_task(self._watch_changes(changes))
                tasks.create_task(self._recorder.run())
                tasks.create_task(self._resync())
                tasks.create_task(gpu_watch.watch_gpu_memory(self._view, self.nodes, self._pod_states, self._recorder))
                tasks.create_task(self._check_disk_usage())
                tasks.create_task(leases.renew_leases(self._api, self._view, self.nodes, self._clock))
                if self.network.has_namespaces:
                    tasks.create_task(self._serve_proxy())
                await self._sync_loop(tasks)
        finally:
            loop.remove_reader(self._pipe)
            self._log_watcher.close()
            self._pod_worker.close()
            self.runtime.close()
            if not any(run for pod_state in self._pod_states.values() for run in pod_state.live_runs()):
                await self._pod_host.dismiss()
            await self._pod_host.close()
            os.close(self._pipe)

    async def _watch_changes(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            if change.kind is kinds.POD:
                self._pod_changed(change)
            elif change.kind is kinds.SERVICE:
                self.network.dirty = True
            elif change.kind in _MOUNTABLE_KINDS:
                self._mountable_changed(change.object)
            elif change.type == "Bookmark" and change.kind is None:
                self._mark_all_dirty()

    def _pod_changed(self, change: Change) -> None:
        pod, uid = change.object, uid_of(change.object)
        if change.type in ("Added", "Deleted"):
            self.network.dirty = True
        if change.type == "Deleted":
            self._mark_dirty(uid)
        elif dig(pod, "spec.nodeName") in self.nodes:
            if uid not in self._pod_states:
                self._add_pod(pod)
            self._mark_dirty(uid)
            self._mark_dirty(*self._master_waiters.get(key(pod), ()))

    def _mountable_changed(self, changed: Object) -> None:
        """A ConfigMap, a Secret, a claim: pods may wait for it, or show it as files."""
        for uid, pod_state in self._pod_states.items():
            if pod_state.card.namespace == namespace(changed) and (
                pod_state.has_problem() or pod_state.has_file_volumes()
            ):
                pod_state.retry_problems()
                self._mark_dirty(uid)

    def _add_pod(self, pod: Object) -> None:
        """A pod has been bound to one of our nodes."""
        uid, node = uid_of(pod), dig(pod, "spec.nodeName")
        held_devices = {
            other: t.card.devices for other, t in self._pod_states.items() if t.card.node == node and t.holds_devices()
        }
        devices = self._pod_worker.starter.assign_devices(pod, held_devices)
        card = PodCard(*key(pod), uid, node, self.network.address(uid), self._clock(), devices)
        self._directories.write_card(card)
        self._pod_states[uid] = PodState(card)
        self._count_active_pods()

    def _count_active_pods(self) -> None:
        """Pods per node that are at work: they share its CPUs."""
        self._active_pods_per_node.clear()
        for pod_state in self._pod_states.values():
            if not pod_state.finished:
                self._active_pods_per_node[pod_state.card.node] = (
                    self._active_pods_per_node.get(pod_state.card.node, 0) + 1
                )

    def _mark_all_dirty(self) -> None:
        """Directories whose pod is not in the store any more: their turn ends them."""
        self._mark_dirty(*self._pod_states)

    def _mark_dirty(self, *uids: str) -> None:
        for uid in uids:
            self._dirty[uid] = None
        if uids:
            self._wakeup.set()

    def _read_shim_hints(self) -> None:
        """Lines from shims: `started uid/container N`, `exited uid/container N`."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 65536):
                *lines, self._partial_line = (self._partial_line + data).split(b"\n")
                for line in lines:
                    words = line.decode(errors="replace").split(" ")
                    uid, _, container = words[1].partition("/") if len(words) == 3 else ("", "", "")
                    self._refresh_container(uid, container)

    def _refresh_container(self, uid: str, container: str) -> None:
        """Something happened to a container's program: read its facts."""
        pod_state = self._pod_states.get(uid)
        if pod_state is None or not is_name(container):  # programs of this user can write to the pipe
            return
        for run in self._pod_worker.read_facts(pod_state, container):
            self._pod_worker.watch_shim(run, lambda: self._refresh_container(uid, container))
        facts = pod_state.containers.get(container)
        if facts is not None and facts.run is not None and facts.run.exit is not None:
            self.on_end(pod_state, container, facts.run)
        self._mark_dirty(uid, *self._master_waiters.get(Key(pod_state.card.namespace, pod_state.card.name), ()))

    async def _sync_loop(self, tasks: asyncio.TaskGroup) -> None:
        for uid in self._pod_states:
            for container in self._directories.started_containers(uid):
                self._refresh_container(uid, container)
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self.network.dirty:
                self.network.write_hosts()
            ready = [uid for uid in self._dirty if uid not in self._busy]
            for uid in ready:
                del self._dirty[uid]
                if uid in self._pod_states:
                    self._busy.add(uid)
                    tasks.create_task(self._sync_pod(uid, self._pod_states[uid]))

    async def _sync_pod(self, uid: str, pod_state: PodState) -> None:
        retry_after: float | None = None
        try:
            pod = self._view.get(kinds.POD, pod_state.card.namespace, pod_state.card.name)
            if pod is None or uid_of(pod) != uid:
                retry_after = await self._terminate_pod(pod_state)
            else:
                self._await_master(pod, pod_state)
                was_finished = pod_state.finished
                retry_after = await self._pod_worker.sync_pod(pod, pod_state)
                if pod_state.finished != was_finished:
                    self._count_active_pods()
        except ApiError:
            retry_after = 0.2  # somebody wrote first, or the store is busy: look again
        finally:
            self._busy.discard(uid)
        if retry_after is not None:
            asyncio.get_running_loop().call_later(retry_after, self._mark_dirty, uid)
        if uid in self._dirty:
            self._wakeup.set()

    def _await_master(self, pod: Object, pod_state: PodState) -> None:
        """For the emulated init container: is the master's program running?"""
        master_name = awaited_master(pod)
        if not master_name or pod_state.master_ready is not None:
            return
        master = Key(pod_state.card.namespace, master_name)
        self._master_waiters.setdefault(master, set()).add(uid_of(pod))
        master_pod = self._view.get(kinds.POD, *master)
        master_state = self._pod_states.get(uid_of(master_pod)) if master_pod else None
        if master_state is not None and master_state.has_started():
            pod_state.master_ready = self._clock()
            self._master_waiters[master].discard(uid_of(pod))

    async def _terminate_pod(self, pod_state: PodState) -> float | None:
        """The pod is not in the store any more: nothing of it may run, and its directory goes."""
        if not await self._pod_worker.kill_orphaned_pod(pod_state):
            return 0.2
        # forgotten first: a dead shim noticed while its directory goes would be written a new end, and the directory stay
        self._pod_states.pop(pod_state.card.uid, None)
        await asyncio.to_thread(self._directories.remove, pod_state.card)
        self._master_waiters.pop(Key(pod_state.card.namespace, pod_state.card.name), None)
        self.network.release(pod_state.card)
        self._count_active_pods()
        return None

    async def _resync(self) -> None:
        """What no event tells: a pod host that has gone, programs where there are no pidfds, old logs."""
        last_sweep = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pod_host.disconnected.wait(), min(RESYNC, self.settings.sweep))
            if not self._pod_host.is_connected:
                await self._connect_pod_host()
                self._mark_dirty(*self._pod_states)
            for uid, pod_state in list(self._pod_states.items()):
                for container in pod_state.containers_to_poll(pidfds=hasattr(os, "pidfd_open")):
                    self._refresh_container(uid, container)
            if self._clock() - last_sweep > self.settings.sweep:
                last_sweep = self._clock()
                await self._collect_garbage()

    async def _check_disk_usage(self) -> None:
        """Pods that have more on disk than they may."""
        while True:
            await asyncio.sleep(self.settings.measure)
            for uid, pod_state in list(self._pod_states.items()):
                if await self._pod_worker.measure_disk(pod_state):
                    self._mark_dirty(uid)

    async def _collect_garbage(self) -> None:
        """What deleted pods and claims left behind."""
        await asyncio.to_thread(self._directories.forget_old_logs)
        await self.runtime.remove_orphans()
        remove_expired = self._pod_worker.starter.checkpoints.remove_expired
        for job in await asyncio.to_thread(remove_expired, live_owner_uids(self._view), self._clock()):
            log.info("the checkpoints of job %s, which was deleted, are removed", job)
        cards = [pod_state.card for pod_state in self._pod_states.values()]
        pods = [self._view.get(kinds.POD, card.namespace, card.name) for card in cards]
        with contextlib.suppress(Unavailable):  # the store is busy: the next look will do
            await claims.remove_unused(
                self._api, self._pod_worker.starter.volume_directories, claims.used_claims(p for p in pods if p)
            )
        await self._claim_usage.check_sizes(self._view, self._pod_worker.starter.volume_directories)

    async def _serve_proxy(self) -> None:
        while True:
            with contextlib.suppress(ApiError, OSError):
                await EgressProxy(await self._pod_host.request_socket("proxy"), os.environ).run()
            await asyncio.sleep(RESYNC)

    # ------------------------------------------------------------ logs

    def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        """A container's log, as `Api.log` has it; of deleted pods too, while it is kept."""
        pod_object = self._view.get(kinds.POD, namespace, pod)
        pod_state = self._pod_states.get(uid_of(pod_object)) if pod_object else None
        source = log_files.LogSource(self._directories, self._log_watcher, pod_object, pod_state)
        return log_files.read_log(source, Key(namespace, pod), options)
