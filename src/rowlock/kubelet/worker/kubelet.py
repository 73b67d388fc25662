"""The kubelet: runs pods of this machine's nodes as processes and reports their status.

Level-triggered: a turn looks at one pod and its facts; `compute_pod_actions` decides what to do, `generate_pod_status` what to
report. Both are pure; the side effects are here. All memory may be lost: `start_kubelet` reads the facts from disk, so a
restart is the recovery code. The pod host (`shim/pod_host.py`) starts the programs.

What is determined once at the start is in a frozen `NodeContext`; every part gets its dependencies on construction.
"""

import asyncio
import contextlib
import logging
import math
import os
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from rowlock.api import Api, Change, ObservedView, View
from rowlock.controllers.recorder import Recorder
from rowlock.controllers.supervisor import ContainedTaskGroup, supervise
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import NotFound, Unavailable
from rowlock.kubelet.images.images import Images
from rowlock.kubelet.network.gateway import Gateway
from rowlock.kubelet.network.host_ports import HostPorts
from rowlock.kubelet.network.pod_network import PodNetwork, choose_network
from rowlock.kubelet.network.service_relays import ServiceRelays
from rowlock.kubelet.node import gpu_watch, leftovers, machine, pids_watch, registration
from rowlock.kubelet.node.machine import NodePlan
from rowlock.kubelet.node.node_context import NodeContext, PodHostAbilities
from rowlock.kubelet.node.tmp_watch import TmpWatch
from rowlock.kubelet.node.warm_ahead import WarmAhead
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.pod_state import PodState, PodStates
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.prober.probe_handlers import HandlerRunner
from rowlock.kubelet.prober.prober import Prober
from rowlock.kubelet.runtime.container_runs import ContainerRuns
from rowlock.kubelet.runtime.container_runtime import ContainerRuntime
from rowlock.kubelet.runtime.engine_gateway import EngineGateway
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.runtime.pod_host_client import PodHostClient
from rowlock.kubelet.shim import netns
from rowlock.kubelet.stats.usage_sampler import OnSeries, UsageSampler
from rowlock.kubelet.streams.exec_sessions import StreamingServer
from rowlock.kubelet.streams.log_files import PodLogs
from rowlock.kubelet.volumes import claims
from rowlock.kubelet.volumes.account_tokens import PodTokens, TokenSource
from rowlock.kubelet.volumes.checkpoints import Checkpoints, live_owner_uids
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.volumes.settled_clock import SettledClock
from rowlock.kubelet.worker.engine_backend import EngineBackend
from rowlock.kubelet.worker.image_pulls import ImagePuller
from rowlock.kubelet.worker.pod_context import PodContexts
from rowlock.kubelet.worker.pod_events import PodEventRecorder
from rowlock.kubelet.worker.pod_volumes import PodVolumes
from rowlock.kubelet.worker.pod_worker import PodWorker
from rowlock.kubelet.worker.pod_workers import ExitListener, PodWorkers
from rowlock.kubelet.worker.process_backend import ProcessBackend
from rowlock.kubelet.worker.settings import KubeletSettings
from rowlock.kubelet.worker.starting import ContainerStarter
from rowlock.objects import Key, Object

log = logging.getLogger("rowlock.kubelet")
_MAX_OPEN_FILES = 65536
RESYNC = 2.0
"""Seconds between polls of programs without a pidfd, and of a lost pod host."""
MAX_JOIN_CANDIDATES = 64
"""Shims whose network fabric a new pod host tries to join: several, since any of them may end meanwhile."""


async def start_kubelet(
    api: Api,
    view: ObservedView,
    settings: KubeletSettings,
    *,
    clock: Callable[[], float] = time.time,
    token_source: TokenSource | None = None,
    on_logs_aside: Callable[[str], None] | None = None,
    on_usage: OnSeries | None = None,
) -> "Kubelet":
    """Inspects the machine, connects the pod host, restores pods from disk, registers the nodes. Raises ApiError with a sentence.
    `on_logs_aside` is called with each directory of logs of a removed pod (`PodDirectories`), `on_usage` with what pods used.

    The returned kubelet does nothing until `run` is called."""
    data_dir, server_env = settings.data_dir, dict(os.environ)
    open_file_limits = _allow_many_files()
    directories = PodDirectories(data_dir, on_logs_aside)
    runs, pod_states = ContainerRuns(directories, clock), PodStates()
    cards = await asyncio.to_thread(directories.read_cards)
    for card in cards:
        pod_states[card.uid] = PodState(card)
        for container in directories.started_containers(card.uid):
            runs.read_facts(pod_states[card.uid], container)
    host = PodHostClient(data_dir)
    engine_images = EngineImages(settings.runtime, Images(data_dir / "images"), pod_states, server_env)
    # the pod host starts while we look at the machine
    inventory, abilities, _ = await asyncio.gather(
        asyncio.to_thread(machine.inventory),
        connect_pod_host(host, settings.network, pod_states),
        engine_images.detect_engine(),
    )
    choice = choose_network(settings.network, abilities.fabric, abilities.problem)
    network = PodNetwork(
        data_dir, view, choice, engine_images.runs_in_containers, has_host_ports=bool(settings.host_ports)
    )
    network.restore(cards)
    limits_mode = "watchdog" if settings.limits == "watchdog" else abilities.limits
    if settings.runtime != "container":  # an engine enforces the limit itself
        pids_watch.refuse_unkept_limit(settings.pids_limit, abilities.pids_problem)
    try:
        nodes = {plan.name: plan for plan in machine.plan_nodes(inventory, settings.node_options)}
    except ValueError as error:
        raise Unavailable(str(error)) from None
    node_objects = [machine.node_object(p, (choice.mode, choice.reason), clock(), limits_mode) for p in nodes.values()]
    for node_object in node_objects:
        machine.set_runtime_info(node_object, engine_images.engine, engine_images.engine_problem)
        machine.set_rootfs_info(node_object, abilities.rootfs_problem)
        machine.set_process_info(node_object, abilities.process_problem)
        machine.add_limits_problem(node_object, "" if limits_mode == "watchdog" else abilities.cgroup_problem)
    await asyncio.gather(*(registration.register_node(api, node_object) for node_object in node_objects))
    retired = await registration.retire_nodes(api, nodes, {card.node for card in cards})
    nodes |= {name: machine.retired_node_plan(name, inventory) for name in retired}
    context = NodeContext(
        data_dir=data_dir,
        nodes=nodes,
        network=choice,
        limits_mode=limits_mode,
        mount_problem=abilities.mount_problem,
        can_mount_memory=abilities.can_mount_memory,
        rootfs_problem=abilities.rootfs_problem,
        process_problem=abilities.process_problem,
        cgroup_problem="" if limits_mode == "watchdog" else abilities.cgroup_problem,
        server_env=server_env,
        clock=clock,
        pids_limit=settings.pids_limit,
        open_file_limits=open_file_limits,
    )
    host_name, port = (netns.GATEWAY, netns.API_PORT) if network.has_namespaces else ("127.0.0.1", settings.api_port)
    tokens = PodTokens(token_source, clock, (host_name, port) if settings.api_port else None)
    return Kubelet(
        api,
        view,
        settings,
        context,
        tokens=tokens,
        host=host,
        pod_states=pod_states,
        directories=directories,
        runs=runs,
        engine_images=engine_images,
        network=network,
        on_usage=on_usage,
    )


class Kubelet:
    """One per cluster. `start_kubelet` makes it; it works while `run()` does."""

    def __init__(
        self,
        api: Api,
        view: View,
        settings: KubeletSettings,
        node: NodeContext,
        *,
        tokens: PodTokens,
        host: PodHostClient,
        pod_states: PodStates,
        directories: PodDirectories,
        runs: ContainerRuns,
        engine_images: EngineImages,
        network: PodNetwork,
        on_usage: OnSeries | None = None,
    ) -> None:
        self._api, self._view, self._settings, self._tokens = api, view, settings, tokens
        self.node, self.host, self.pod_states, self.directories = node, host, pod_states, directories
        self.engine_images, self.network, self._runs = engine_images, network, runs
        self.recorder = Recorder(api, node.clock)
        self.logs = PodLogs(view, directories, pod_states, settings.log_limit)
        self.streaming = StreamingServer(view, host, network, directories, pod_states, self.logs.read_log)
        record_event = PodEventRecorder(self.recorder.record).record_event
        self._host_ports = HostPorts(
            view, pod_states, self.streaming.dial, record_event, has_namespaces=network.has_namespaces
        )
        gateway = EngineGateway(network, host, lambda: engine_images.engine, settings.api_port)
        self._service_relays = ServiceRelays(view, network, host, self.streaming.dial, record_event, gateway.listen)
        self.exit_listeners: list[ExitListener] = []
        """Called for every container run that has ended, at least once."""
        self.pod_workers = PodWorkers(
            view,
            node,
            pod_states,
            directories=directories,
            network=network,
            runs=runs,
            exit_listeners=self.exit_listeners,
            record=self.recorder.record,
            on_pod_added=self._announce_pod,
            prepare_network=host.prepare_network,
            backoff=settings.restart_backoff,
            told_until=registration.told_until(view, node.nodes),
        )
        self._runtime = ContainerRuntime(node.data_dir, engine_images, network, directories, pod_states, gateway)
        self._volume_directories = VolumeDirectories(node.data_dir)
        self._checkpoints = Checkpoints(node.data_dir, settings.keep_checkpoints)
        self._settled_clock = SettledClock(node.clock)
        self._claim_usage = claims.ClaimUsageMonitor(self.recorder.record)
        self.usage = UsageSampler(pod_states, node.nodes, node.clock, on_usage)
        self._warm_ahead = WarmAhead(node.data_dir, api, view, next(iter(node.nodes), ""), host.ask)

    def pod_remarks(self, template: Object) -> list[str]:
        """What a pod of this template requests and does not get here, one sentence each."""
        pod, runtime = parse_pod_spec(template), self._runtime
        is_contained = self.engine_images.needs_engine(pod)
        return runtime.unmet_wishes(pod, self.node.limits_mode, is_contained=is_contained)

    def _announce_pod(self, pod_key: Key) -> None:
        self.logs.announce_pod(pod_key)
        self._host_ports.note_pod(pod_key)

    @property
    def nodes(self) -> Mapping[str, NodePlan]:
        """Every node that pods of this machine may be bound to."""
        return self.node.nodes

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Runs until cancelled. Pods keep running after that."""
        loop = asyncio.get_running_loop()
        hints = ShimHints(self.node.wake_path, self.pod_workers.hint)
        loop.add_reader(hints.fd, hints.read_lines)
        try:
            async with asyncio.TaskGroup() as tasks, ContainedTaskGroup("a pod's probe, hook or pull") as pod_tasks:
                worker = self._make_pod_worker(pod_tasks)
                tasks.create_task(self._watch_changes(changes))
                tasks.create_task(supervise("the recorder of the kubelet's events", self.recorder.run))
                for name, look in self._background_looks(worker).items():
                    tasks.create_task(supervise(name, look))
                await self.pod_workers.run(tasks, worker)
        finally:
            loop.remove_reader(hints.fd)
            self.pod_workers.close()
            self.logs.close()
            self._runs.close()
            self._runtime.close()
            if not any(run for pod_state in self.pod_states.values() for run in pod_state.live_runs()):
                await self.host.dismiss()
            await self.host.close()
            hints.close()

    def _make_pod_worker(self, tasks: asyncio.TaskGroup) -> PodWorker:
        node, mark_dirty = self.node, self.pod_workers.mark_dirty
        record_event = PodEventRecorder(self.recorder.record).record_event
        volume_directories, network = self._volume_directories, self.network
        starter = ContainerStarter(
            node,
            self._view,
            self.engine_images,
            self._checkpoints,
            processes=ProcessBackend(node, network, volume_directories, warm_start=self._settings.warm_start),
            engine=EngineBackend(self._runtime, network, volume_directories, node.pids_limit),
            log_limit=self._settings.log_limit,
        )
        prober = Prober(
            tasks,
            HandlerRunner(self.streaming, self.network, self._settings.host_ports).perform,
            node.clock,
            on_changed=mark_dirty,
            record_event=record_event,
            stop_container=self._runs.stop_container,
        )
        image_puller = ImagePuller(
            tasks,
            self.engine_images,
            self._view,
            node.clock,
            backoff=self._settings.restart_backoff,
            on_changed=mark_dirty,
            record_event=record_event,
        )
        return PodWorker(
            self._api,
            self._view,
            self.host,
            node,
            directories=self.directories,
            runtime=self._runtime,
            contexts=PodContexts(
                node, self._view, network, self._tokens, self.directories.identity, self.pod_states.count_active
            ),
            volumes=PodVolumes(self._api, self._view, node, self._tokens, volume_directories),
            starter=starter,
            prober=prober,
            image_puller=image_puller,
            runs=self._runs,
            recreations=self.pod_workers.recreations,
            owners=self.pod_workers.owners,
            record_event=record_event,
            note_warm_start=self._warm_ahead.note,
            backoff=self._settings.restart_backoff,
        )

    def _background_looks(self, worker: PodWorker) -> dict[str, Callable[[], Awaitable[None]]]:
        """The tasks beside the pods' turns, by name. Each is supervised: an error in one ends neither it nor the others."""
        view, nodes, pods, record = self._view, self.node.nodes, self.pod_states, self.recorder.record
        looks: dict[str, Callable[[], Awaitable[None]]] = {
            "the kubelet's resync": self._resync,
            "the watch over GPU memory": lambda: gpu_watch.watch_gpu_memory(view, nodes, pods, self.recorder),
            "the measure of pods' disks": lambda: self._check_disk_usage(worker),
            "the sampler of what pods use": self.usage.run,
            "the watch over what jobs share in /tmp": TmpWatch(view, pods, record, self.network.has_namespaces).run,
            "the watch over limits of processes": pids_watch.PidsWatch(view, pods, self.node.pids_limit, record).run,
            "the host ports of pods": self._host_ports.run,
            "the addresses of Services": self._service_relays.run,
            "the way of containers to this machine": self._runtime.gateway.run,
            "the renewal of node leases": lambda: registration.renew_leases(self._api, view, nodes, self.node.clock),
        }
        looks |= {"the imports for warm starts": self._warm_ahead.run} if self._settings.warm_start else {}
        looks |= Gateway(self.host, self.network, self._settings.api_port, self._settings.host_ports).services()
        return looks

    async def _watch_changes(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            self.pod_workers.handle_change(change)

    async def _resync(self) -> None:
        """Polls for what no event reports: a lost pod host, programs without a pidfd, leftovers to collect."""
        last_sweep, clock = -math.inf, asyncio.get_running_loop().time
        while True:
            await run_until_first_ends(self.host.disconnected.wait(), timeout=min(RESYNC, self._settings.sweep))
            if not self.host.is_connected:
                await self._reconnect_pod_host()
            for uid, pod_state in self.pod_states.held_pods():
                for container in pod_state.containers_to_poll(pidfds=hasattr(os, "pidfd_open")):
                    self.pod_workers.hint(uid, container)
            if clock() - last_sweep > self._settings.sweep:
                last_sweep = clock()
                self.pod_workers.mark_dirty(*self._tokens.renewable_pods(self.pod_states))
                await self._collect_garbage()

    async def _reconnect_pod_host(self) -> None:
        """Connects a new pod host, in the network fabric of the running pods or in a new one of the same kind.

        The node's status stays as it is: if the new host has no such network, starts are refused and tried again."""
        try:
            abilities = await connect_pod_host(self.host, self._settings.network, self.pod_states)
        except Unavailable as error:
            log.error("%s; trying again in %g s", error, RESYNC)
            await asyncio.sleep(RESYNC)
            return
        if self.network.has_namespaces and not abilities.fabric:
            log.error("the new pod host has no pod network (%s): no pod starts until one has", abilities.problem)
            await self.host.dismiss()
        self.pod_workers.mark_dirty(*self.pod_states)

    async def _check_disk_usage(self, worker: PodWorker) -> None:
        """Marks pods that use more disk than they may as evicted, every `measure` seconds."""
        while True:
            await asyncio.sleep(self._settings.measure)
            for uid, pod_state in list(self.pod_states.items()):
                if await worker.measure_disk(pod_state):
                    self.pod_workers.mark_dirty(uid)

    async def _collect_garbage(self) -> None:
        """Removes what deleted pods and claims left behind."""
        await asyncio.to_thread(self.directories.collect_garbage)
        await asyncio.to_thread(leftovers.limit_growth, self.directories.data, self._settled_clock())
        await self._runtime.remove_orphans()
        remove_expired = self._checkpoints.remove_expired
        live_owners = await live_owner_uids(self._view)
        for job in await asyncio.to_thread(remove_expired, live_owners, self._settled_clock()):
            log.info("the checkpoints of job %s, which was deleted, are removed", job)
        in_use = await claims.claims_in_use(self._view, self.pod_states)
        with contextlib.suppress(Unavailable, NotFound):  # the store is busy, or a claim was deleted: next sweep
            await claims.remove_unused(self._api, self._volume_directories, in_use, self._settled_clock())
            await claims.correct_directories(self._api, self._view, self._volume_directories)
        await self._claim_usage.check_sizes(self._view, self._volume_directories)


READ_BYTES = 8192
"""Bytes of hints read at once; longer than any line that a shim writes."""


class ShimHints:
    """The pipe into which shims write lines: `started uid/container N`, `exited uid/container N`."""

    def __init__(self, path: str, on_hint: Callable[[str, str], None]) -> None:
        """`on_hint` takes a pod's uid and a container's name."""
        self._on_hint = on_hint
        if not Path(path).is_fifo():
            Path(path).unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # RDWR: never at end of file
        self._partial_line = b""

    def read_lines(self) -> None:
        """Reads one piece of what is there and leaves the rest to the next round of the event loop: any program of this user can
        write here, without end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.fd, READ_BYTES)
            *lines, rest = (self._partial_line + data).split(b"\n")
            self._partial_line = rest[-READ_BYTES:]
            for line in lines:
                words = line.decode(errors="replace").split(" ")
                uid, _, container = words[1].partition("/") if len(words) == 3 else ("", "", "")
                self._on_hint(uid, container)

    def close(self) -> None:
        os.close(self.fd)


async def connect_pod_host(
    host: PodHostClient, network_mode: str, pod_states: Mapping[str, PodState]
) -> PodHostAbilities:
    """Connects to the existing pod host, or starts one inside the fabric of the running pods; makes it adopt these pods."""
    alive = [(uid, run) for uid, pod_state in pod_states.items() for run in pod_state.live_runs()]
    join = [run.shim for _, run in alive if run.pid][:MAX_JOIN_CANDIDATES]
    hello = await host.connect("none" if network_mode == "rewrite" else "auto", join)
    for uid, run in alive:
        if run.pid:
            await host.ask("adopt", uid=uid, pid=run.pid, shim=run.shim)
    return PodHostAbilities.from_hello(hello)


def _allow_many_files() -> tuple[int, int] | None:
    """Raises the limit of open files: a pidfd per pod, a connection per client. Returns the old limits; None if nothing changed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= new_limit:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
    return soft, hard
