"""Schedules the turns of all pods: triggers them, never overlaps turns of one pod, and cleans up after deleted pods.

Changes of pods, hints from shims, dead shims (pidfd) and timers trigger turns; `PodWorker` carries one out.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rowlock import kinds
from rowlock.api import Change, Record, View
from rowlock.controllers.supervisor import ERRORS, back_off
from rowlock.errors import Conflict, NotFound, Timeout, TooManyRequests, Unavailable
from rowlock.kubelet.files.names import is_name
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.node.admission import admission_failure, is_placed
from rowlock.kubelet.node.gpus import assign_devices
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.pod.owners import Owners
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.progress import FIRST_BACKOFF
from rowlock.kubelet.pod.recreations import Recreations, StartDelay
from rowlock.kubelet.pod.spec import EMULATED_INIT, parse_pod_spec
from rowlock.kubelet.pod.stop_reasons import as_deleted_gracefully, is_surplus
from rowlock.kubelet.runtime.container_runs import ContainerRuns
from rowlock.objects import FINAL_PHASES, Key, Object, dig, is_deleting, key, meta, namespace, revision, seconds
from rowlock.objects import uid as uid_of
from rowlock.training.trainjob.owners import workload_of

FIRST_RETRY = 0.5
"""Seconds until a pod whose turn raised gets another one; doubled each time, up to `supervisor.MAX_DELAY`."""
HOSTS_RETRY = 1.0
PODS_PER_TURN = 8
"""Pods handled between two yields to the event loop: after a restart all of them are due."""
READING_SLICE = 0.01
"""Seconds for which facts are read before yielding to the event loop."""
_REMOVAL_THREADS = 2
"""A pool of its own: pods may have written millions of files, and removals must not block threads that read logs and the archive."""
_MOST_CHARACTERS = 1000
"""Characters of an error that an Event quotes."""
ExitListener = Callable[[PodState, str, Run], None]


class SyncsPods(Protocol):
    """The interface of a pod worker (`PodWorker`)."""

    async def sync_pod(self, pod: Object, state: PodState) -> float | None: ...
    async def kill_orphaned_pod(self, state: PodState) -> bool: ...


class PodWorkers:
    """One per kubelet; `run` for as long as it works."""

    def __init__(
        self,
        view: View,
        node: NodeContext,
        pod_states: dict[str, PodState],
        *,
        directories: PodDirectories,
        network: PodNetwork,
        runs: ContainerRuns,
        exit_listeners: list[ExitListener],
        record: Callable[[Record], None],
        on_pod_added: Callable[[Key], None] = lambda pod_key: None,
        prepare_network: Callable[[str, str], None] = lambda uid, address: None,
        backoff: float = FIRST_BACKOFF,
        told_until: float = 0.0,
    ) -> None:
        """`exit_listeners` are called for every container run that has ended, at least once; `record` takes events,
        `prepare_network` the uid and the address of a pod that will start. Ends of programs before `told_until`, in seconds since the
        epoch, were told by an earlier server."""
        self._told_until = told_until
        self._record, self._failures = record, Counter[str]()
        self._view, self._node, self._pod_states = view, node, pod_states
        self._directories, self._network, self._runs = directories, network, runs
        self._exit_listeners, self._on_pod_added = exit_listeners, on_pod_added
        self._prepare_network = prepare_network
        self.recreations = Recreations(backoff)
        self.owners = Owners(view)
        self._master_waiters: dict[Key, set[str]] = {}
        self._dirty: dict[str, None] = {}
        self._busy: set[str] = set()
        self._removed: set[str] = set()
        """Pods whose objects have gone, until their programs have ended, too."""
        self._wakeup = asyncio.Event()
        self._is_forgetting = False
        """Whether a timer is set that will drop the names of deleted objects."""
        self._hinted: dict[tuple[str, str], None] = {}
        self._removals = ThreadPoolExecutor(_REMOVAL_THREADS, "pod-removal")

    # ------------------------------------------------------------ what causes a turn

    def handle_change(self, change: Change) -> None:
        """Handles a change of a pod, a Service, an owner or an object that pods mount; or the bookmark that ends the initial list."""
        if change.kind is kinds.POD:
            self._handle_pod_change(change)
        elif change.kind is kinds.SERVICE:
            self._network.note_change(change)
            self._outdate_names(change)
            if not meta(change.object).get(
                "ownerReferences"
            ):  # a job's Services come with its pods, which cause turns anyway
                self._wakeup.set()
        elif change.kind in (kinds.CONFIG_MAP, kinds.SECRET, kinds.PERSISTENT_VOLUME_CLAIM):
            self._handle_mountable_change(change.object)
        elif change.type == "Bookmark" and change.kind is None:
            # pods on disk that are no longer stored: their turn removes them
            self.mark_dirty(*(uid for uid, pod_state in self._pod_states.items() if not pod_state.finished))
        else:
            self.owners.note_change(change)

    def _handle_pod_change(self, change: Change) -> None:
        pod, uid = change.object, uid_of(change.object)
        self._network.note_change(change)
        if change.type in ("Added", "Deleted"):
            self._outdate_names(change)
        if change.type == "Deleted":
            self._note_removal(pod, uid)
            self.mark_dirty(uid)
        elif dig(pod, "spec.nodeName") in self._node.nodes:
            try:
                if uid not in self._pod_states:
                    if not self._is_stored(pod):  # a stale change of a deleted pod, whose directory may be gone
                        return
                    self._add_pod(pod)
                elif change.type == "Added" and not self._take_over(pod, self._pod_states[uid]):
                    return
            except Exception as error:  # noqa: BLE001 (reported on the pod; other pods go on)
                self._retry_after(self._report_error(pod, uid, error), self._add_again, uid, key(pod))
                return
            state = self._pod_states[uid]
            state.was_surplus |= is_surplus(pod)
            if revision(pod) != state.written_revision:  # else it is what the pod's last turn has written
                self.mark_dirty(uid)
            self.mark_dirty(*self._master_waiters.get(key(pod), ()))

    def _take_over(self, pod: Object, pod_state: PodState) -> bool:
        """Tells the ends of programs of a pod that is found at the start, and opens its ports. False if nothing is left to do for it."""
        if pod_state.has_settled(pod, self._told_until):
            pod_state.finished = pod_state.is_released = True
            return False
        for container in [name for name in pod_state.containers if pod_state.has_ended(name)]:
            self.refresh_container(pod_state.card.uid, container)
        self._on_pod_added(pod_state.card.key)
        return True

    def _note_removal(self, pod: Object, uid: str) -> None:
        """Remembers a pod whose object has gone: its programs may not have been asked to end yet, or still have some time."""
        state = self._pod_states.get(uid)
        if state is not None and state.spec is not None:
            state.removed = as_deleted_gracefully(pod, state.spec.object, self._node.clock())
            self._removed.add(uid)

    def _is_stored(self, pod: Object) -> bool:
        stored = self._view.get(kinds.POD, *key(pod))
        return stored is not None and uid_of(stored) == uid_of(pod)

    def _outdate_names(self, change: Change) -> None:
        """Marks the hosts files as outdated: a pod or a Service was added or deleted, or a Service changed."""
        if change.type == "Deleted":
            self._network.note_gone()
        else:
            self._network.mark_dirty()

    def _handle_mountable_change(self, changed: Object) -> None:
        """Triggers pods that may wait for a changed ConfigMap, Secret or claim, or show it as files."""
        for uid, pod_state in self._pod_states.items():
            if pod_state.card.namespace == namespace(changed) and (
                pod_state.has_problem() or pod_state.has_file_volumes()
            ):
                pod_state.retry_problems()
                self.mark_dirty(uid)

    def _add_pod(self, pod: Object) -> None:
        """Admits a pod that was bound to one of our nodes: assigns devices and an address, writes its card."""
        uid, node = uid_of(pod), str(dig(pod, "spec.nodeName"))
        held_devices = {
            other: t.card.devices
            for other, t in (self._pod_states.items() if self._node.nodes[node].gpus else ())
            if t.card.node == node and t.holds_devices()
        }
        spec, plan, failure = parse_pod_spec(pod), self._node.nodes[node], None
        if not (placed := is_placed(spec)) and spec.phase not in FINAL_PHASES:
            others = [t.spec for t in self._pod_states.values() if t.card.node == node and t.holds_devices() and t.spec]
            failure = admission_failure(spec, plan, others, held_devices)
        devices = () if failure else assign_devices(spec, plan, held_devices, is_placed=placed)
        workload = workload_of(self._view, pod)
        address, owner = self._network.address(uid), uid_of(workload) if workload else spec.owner_uid
        card = PodCard(*key(pod), uid, node, address, self._node.clock(), devices, owner=owner)
        self._directories.write_card(card)
        state = self._pod_states[uid] = PodState(card, spec=spec, delay=self.recreations.start_delay(card))
        if failure:
            state.rejected = failure
            self._record(Record(pod, "Warning", *failure, "kubelet"))
        if state.delay.remaining:
            self._record(Record(pod, "Normal", "BackOff", _delay_sentence(state.delay), "kubelet"))
        if self._network.needs_namespace(pod):  # made while this process prepares the pod's start
            self._prepare_network(uid, address)
        self._on_pod_added(key(pod))

    def _add_again(self, uid: str, pod_key: Key) -> None:
        pod = self._view.get(kinds.POD, *pod_key)
        if pod is None or uid_of(pod) != uid:
            self._failures.pop(uid, None)
        else:
            self._handle_pod_change(Change("Modified", 0, kinds.POD, pod))

    def _report_error(self, pod: Object | None, uid: str, error: Exception) -> float:
        """Reports an error of one pod's turn, which ends no other turn. Returns the seconds until the next attempt."""
        self._failures[uid] += 1
        delay = back_off(self._failures[uid], FIRST_RETRY)
        ERRORS.report("a pod's turn", error, "this pod is looked at again, the others are not held up")
        if pod is not None:
            said = f"Error syncing pod, it is tried again after {delay:g} s: {type(error).__name__}: {error}"
            self._record(Record(pod, "Warning", "FailedSync", said[:_MOST_CHARACTERS], "kubelet"))
        return delay

    def _retry_after(self, delay: float, callback: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(delay, callback, *arguments)

    def mark_dirty(self, *uids: str) -> None:
        """These pods get a turn."""
        for uid in uids:
            self._dirty[uid] = None
        if uids:
            self._wakeup.set()

    def hint(self, uid: str, container: str) -> None:
        """Schedules a read of a container's facts: something may have happened to its program. If a thousand programs end at once,
        each round of the event loop reads some."""
        if not self._hinted:
            asyncio.get_running_loop().call_soon(self._read_hinted)
        self._hinted[uid, container] = None

    def _read_hinted(self) -> None:
        end = time.monotonic() + READING_SLICE
        while self._hinted:
            hinted = next(iter(self._hinted))
            del self._hinted[hinted]
            self.refresh_container(*hinted)
            if self._hinted and time.monotonic() > end:
                asyncio.get_running_loop().call_soon(self._read_hinted)
                return

    def refresh_container(self, uid: str, container: str) -> None:
        """Something happened to a container's program: read its facts."""
        pod_state = self._pod_states.get(uid)
        if pod_state is None or not is_name(container):  # programs of this user can write to the pipe
            return
        try:
            self._read_facts(pod_state, uid, container)
        except Exception as error:  # noqa: BLE001 (reported on the pod; it is read again)
            pod = self._view.get(kinds.POD, pod_state.card.namespace, pod_state.card.name)
            self._retry_after(self._report_error(pod, uid, error), self.refresh_container, uid, container)
        self.mark_dirty(uid, *self._master_waiters.get(pod_state.card.key, ()))

    def _read_facts(self, pod_state: PodState, uid: str, container: str) -> None:
        for run in self._runs.read_facts(pod_state, container):
            self._runs.watch_shim(run, lambda: self.hint(uid, container))
        facts = pod_state.containers.get(container)
        if facts is not None and facts.run is not None and facts.run.exit is not None:
            for listener in self._exit_listeners:
                listener(pod_state, container, facts.run)

    # ------------------------------------------------------------ turns

    async def run(self, tasks: asyncio.TaskGroup, pod_worker: SyncsPods) -> None:
        """Runs turns until cancelled."""
        for number, uid in enumerate(list(self._pod_states), 1):
            for container in self._directories.started_containers(uid):
                pod_state = self._pod_states.get(uid)
                if pod_state is not None and not pod_state.has_ended(container):  # the others were read a moment ago
                    self.refresh_container(uid, container)
            if number % PODS_PER_TURN == 0:
                await asyncio.sleep(0)
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._network.dirty:
                try:
                    await self._network.refresh_hosts()
                except Exception as error:  # noqa: BLE001 (a full disk: pods that start now lack new names)
                    ERRORS.report("the hosts files of pods", error, "they are written again")
                    self._retry_after(HOSTS_RETRY, self._wakeup.set)
            elif self._network.has_old_names and not self._is_forgetting:
                self._is_forgetting = True
                asyncio.get_running_loop().call_later(self._network.forget_delay, self._forget_old_names)
            ready = [uid for uid in self._dirty if uid not in self._busy]
            for number, uid in enumerate(ready, 1):
                del self._dirty[uid]
                if uid in self._pod_states:
                    self._busy.add(uid)
                    tasks.create_task(self._sync_pod(pod_worker, uid, self._pod_states[uid]))
                else:  # the pod is gone; this was a retry after an error
                    self._failures.pop(uid, None)
                if number % PODS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _forget_old_names(self) -> None:
        self._is_forgetting = False
        if self._network.has_old_names:
            self._network.mark_dirty()
            self._wakeup.set()

    async def _sync_pod(self, pod_worker: SyncsPods, uid: str, pod_state: PodState) -> None:
        retry_after: float | None = None
        pod: Object | None = None
        try:
            pod = self._view.get(kinds.POD, pod_state.card.namespace, pod_state.card.name)
            if pod is None or uid_of(pod) != uid:
                retry_after = await self._terminate_pod(pod_worker, pod_state)
            elif self._awaits_devices(pod, pod_state):
                retry_after = 0.2
            else:
                self._await_master(pod, pod_state)
                retry_after = await pod_worker.sync_pod(pod, pod_state)
            self._failures.pop(uid, None)
        except (Conflict, NotFound, TooManyRequests, Unavailable, Timeout):
            retry_after = 0.2  # another writer was first, or the store is busy: retry
        except Exception as error:  # noqa: BLE001 (reported on the pod; other pods go on)
            retry_after = self._report_error(pod, uid, error)
        finally:
            self._busy.discard(uid)
        if retry_after is not None:
            asyncio.get_running_loop().call_later(retry_after, self.mark_dirty, uid)
        if uid in self._dirty:
            self._wakeup.set()

    def _awaits_devices(self, pod: Object, pod_state: PodState) -> bool:
        """Whether a pod must wait for GPUs that programs of a removed pod still have. The scheduler knows nothing of those."""
        if not pod_state.card.devices or not pod_state.is_unstarted() or is_deleting(pod):
            return False
        for uid in self._removed:
            other = self._pod_states.get(uid)
            if other is None or other.finished or not set(other.card.devices) & set(pod_state.card.devices):
                continue
            if pod_state.awaits_devices_of != uid:
                pod_state.awaits_devices_of = uid
                said = f"Waits for GPUs of pod {'/'.join(other.card.key)}: it was deleted at once, and its programs still have their grace"
                self._record(Record(pod, "Normal", "WaitingForDevices", said, "kubelet"))
            return True
        return False

    def _await_master(self, pod: Object, pod_state: PodState) -> None:
        """For the emulated init container: notes whether the master's program has started, else waits for it."""
        spec = pod_state.spec_of(pod)
        master_name, told = spec.awaited_master, spec.reported.containers.get(EMULATED_INIT)
        if not master_name or pod_state.master_ready is not None:
            return
        if told is not None and told.finished_at:  # an earlier server saw it start
            pod_state.master_ready = seconds(told.finished_at)
            return
        master = Key(pod_state.card.namespace, master_name)
        self._master_waiters.setdefault(master, set()).add(uid_of(pod))
        master_pod = self._view.get(kinds.POD, *master)
        master_state = self._pod_states.get(uid_of(master_pod)) if master_pod else None
        if master_state is not None and master_state.has_started():
            pod_state.master_ready = self._node.clock()
            self._forget_waiter(master, uid_of(pod))

    def _forget_waiter(self, master: Key, uid: str) -> None:
        waiters = self._master_waiters.get(master, set())
        waiters.discard(uid)
        if not waiters:
            self._master_waiters.pop(master, None)

    async def _terminate_pod(self, pod_worker: SyncsPods, pod_state: PodState) -> float | None:
        """Ends the programs of a pod that is no longer stored and removes its directory. Returns the seconds until a retry, if any."""
        if not await pod_worker.kill_orphaned_pod(pod_state):
            return 0.2
        uid = pod_state.card.uid
        # forget it first: noticing its dead shim during the removal would write a new exit and keep the directory
        self._pod_states.pop(uid, None)
        self._removed.discard(uid)
        try:
            is_retired = await asyncio.to_thread(self._directories.retire, pod_state.card)
        except BaseException:  # no thread can be started now: without its state the directory would never be removed
            self._pod_states[uid] = pod_state
            raise
        self._directories.forget(pod_state.card)
        if pod_state.spec is not None and pod_state.spec.awaited_master:
            self._forget_waiter(Key(pod_state.card.namespace, pod_state.spec.awaited_master), uid)
        self._network.release(pod_state.card)
        if is_retired:
            await asyncio.get_running_loop().run_in_executor(self._removals, self._directories.remove_retired, uid)
        return None

    def close(self) -> None:
        """Stops removals at once, as the server ends: the next server removes what is left."""
        self._directories.stop_removals()
        self._removals.shutdown(wait=False, cancel_futures=True)


def _delay_sentence(delay: StartDelay) -> str:
    """The text is the same for the same wait, so that such Events are aggregated."""
    return (
        f"Starting {delay.seconds:.3g} s after the failure of the pod before it: pods of this name fail again and again. "
        "On a cluster each start takes a node a second or two"
    )
