"""Container runs: reads their facts from disk, watches their shims, and stops them."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import NO_FACTS, ContainerFacts, Run
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.sync import MINIMUM_GRACE
from rowlock.kubelet.runtime import processes
from rowlock.kubelet.shim.fact_files import ticks

CONTAINERS_PER_SLICE = 16
"""Containers of one pod that are handled between two yields to the event loop."""

STOPPED_SHIM_MARGIN = 2.0
"""Seconds that a shim has to kill its program after the grace period, before it is checked for having been stopped."""


class ContainerRuns:
    """The runs of all pods of this machine."""

    def __init__(self, directories: PodDirectories, clock: Callable[[], float]) -> None:
        self._directories, self._clock = directories, clock
        self._pidfds: dict[int, int] = {}
        self._pods_with_strays: set[str] = set()
        self._stray_lock = asyncio.Lock()

    def read_facts(self, state: PodState, container: str) -> list[Run]:
        """Reads a container's facts from disk. Returns its run if that is alive and should be watched."""
        directory = self._directories.container_directory(state.card.uid, container)
        facts = state.containers.get(container, NO_FACTS)
        newest = (
            facts.asked if facts.asked is not None or facts.run is None else facts.run.number
        )  # no other was requested
        run = None if newest is None else processes.read_run(directory, newest)
        if run is None:  # it has not begun, or nothing is known yet
            newest = processes.newest_run(directory)
            if state.card.contained and (problem := processes.read_creation_problem(directory, facts.asked)):
                state.creation_problems[container] = problem
                before = None if newest is None else processes.read_run(directory, newest)
                state.set_facts(container, replace(facts, run=before, asked=None, shim=0))
                return []
            if _is_failed_start(facts, newest):
                state.set_facts(container, replace(facts, asked=None, shim=0))
                return []
            run = None if newest is None else processes.read_run(directory, newest)
        if run is None or newest is None:
            return []
        if run.exit is None and not processes.is_shim_alive(run):
            run = processes.record_lost_run(directory, run, self._clock())
            state.has_lost_shim = state.card.contained or bool(run.exit and run.exit.reason)
        last = facts.last
        if newest and (facts.run is None or facts.run.number != newest):
            previous = processes.read_run(directory, newest - 1)
            last = previous.exit if previous is not None else facts.last
        is_settled = run.started is not None or run.exit is not None
        requested = None if is_settled and (facts.asked is None or facts.asked <= newest) else facts.asked
        if not is_settled and requested is None:
            requested = newest
        is_new = facts.run is None or facts.run.number != newest or facts.run.started != run.started
        if is_new:
            facts = replace(facts, problem=None, started=False, ready=False)
        state.set_facts(container, replace(facts, run=run, last=last, asked=requested))
        return [run] if run.exit is None else []

    def watch_shim(self, run: Run, on_end: Callable[[], None]) -> None:
        """Calls `on_end` once when the shim has exited, whether or not it could report that."""
        if run.shim in self._pidfds or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(run.shim)
        except OSError:
            asyncio.get_running_loop().call_soon(on_end)
            return
        if not processes.is_shim_alive(run):
            os.close(fd)
            asyncio.get_running_loop().call_soon(on_end)
            return
        self._pidfds[run.shim] = fd

        def on_shim_exit() -> None:
            self._unwatch_shim(run.shim)
            on_end()

        asyncio.get_running_loop().add_reader(fd, on_shim_exit)

    def _unwatch_shim(self, shim: int) -> None:
        fd = self._pidfds.pop(shim, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        for shim in list(self._pidfds):
            self._unwatch_shim(shim)

    def stop_container(self, state: PodState, container: str, grace: float) -> None:
        """Stops a container: SIGTERM now, SIGKILL after `grace` seconds. Raises KeyError if the pod no longer has it."""
        facts = state.containers[container]
        if facts.run is not None and facts.run.exit is None:
            processes.stop_run(facts.run, grace)
            state.set_facts(container, replace(facts, stop_by=self._clock() + grace))
            delay = grace + STOPPED_SHIM_MARGIN
            asyncio.get_running_loop().call_later(delay, processes.kill_stopped_shim, facts.run)

    async def kill_strays(self, uid: str) -> None:
        """Kills what a lost shim of this pod has left running. Concurrent calls share the next scan of all processes: a machine that
        runs out of memory may kill a thousand shims."""
        self._pods_with_strays.add(uid)
        async with self._stray_lock:
            if uid in self._pods_with_strays:
                uids, self._pods_with_strays = self._pods_with_strays, set()
                try:
                    await asyncio.to_thread(processes.kill_strays, uids, self._directories.identity)
                except BaseException:  # the scan was not finished: the next one takes it over
                    self._pods_with_strays |= uids
                    raise

    async def kill_pod(self, state: PodState) -> bool:
        """Ends all programs of a pod that is no longer stored, with the least grace there is; True when none runs any more."""
        done = True
        for number, container in enumerate(list(state.containers), 1):
            if number % CONTAINERS_PER_SLICE == 0:
                await asyncio.sleep(0)
            facts = state.containers[container]
            if facts.is_alive:
                self.read_facts(state, container)
                facts = state.containers[container]
            if facts.run is not None and facts.run.exit is None:
                if facts.stop_by is None or facts.stop_by > self._clock() + MINIMUM_GRACE:
                    self.stop_container(state, container, MINIMUM_GRACE)
                done = False
        return done


def _is_failed_start(facts: ContainerFacts, newest: int | None) -> bool:
    """Whether the shim died before it could claim the start for which it was made."""
    waits = facts.asked is not None and (newest is None or newest < facts.asked)
    return waits and facts.shim > 0 and os.path.isdir("/proc/self") and not ticks(facts.shim)
