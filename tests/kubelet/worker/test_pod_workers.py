"""Many pods at once: a restart begins with all of them, and others of the event loop have their turns meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.conftest import until

from rowlock.controllers.supervisor import ERRORS, ContainedTaskGroup
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.worker import pod_workers
from rowlock.kubelet.worker.pod_workers import PodWorkers

PODS = 5 * pod_workers.PODS_PER_TURN


class SlowWorker:
    """Notes in which turn of the event loop each pod's sync began."""

    def __init__(self) -> None:
        self.turn = 0
        self.reads: list[int] = []
        self.syncs: list[int] = []

    def started_containers(self, uid: str) -> list[str]:
        self.reads.append(self.turn)
        return []

    async def sync_pod(self, pod: Any, state: Any) -> None:
        self.syncs.append(self.turn)

    async def kill_orphaned_pod(self, state: Any) -> bool:
        self.syncs.append(self.turn)
        return True

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


def most_in_a_turn(turns: list[int]) -> int:
    return max(map(turns.count, turns))


def test_a_restart_with_many_pods_lets_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodWorkers, "_terminate_pod", lambda _, worker, state: worker.kill_orphaned_pod(state))

    async def body() -> SlowWorker:
        worker = SlowWorker()
        card = SimpleNamespace(namespace="d", name="p")
        states: Any = {f"uid-{n}": SimpleNamespace(card=card) for n in range(PODS)}
        view: Any = SimpleNamespace(get=lambda *place: None)
        parts: Any = SimpleNamespace(started_containers=worker.started_containers, dirty=False, has_old_names=False)
        workers = PodWorkers(
            view, parts, states, directories=parts, network=parts, runs=parts, exit_listeners=[], record=lambda _: None
        )
        workers.mark_dirty(*states)
        async with ContainedTaskGroup("a test") as tasks:
            running = [tasks.create_task(worker.count_turns()), tasks.create_task(workers.run(tasks, worker))]
            while len(worker.syncs) < PODS:
                await asyncio.sleep(0)
            for task in running:
                task.cancel()
        return worker

    worker = asyncio.run(asyncio.wait_for(body(), 30))
    assert len(worker.reads) == len(worker.syncs) == PODS
    assert most_in_a_turn(worker.reads) <= pod_workers.PODS_PER_TURN
    assert most_in_a_turn(worker.syncs) <= pod_workers.PODS_PER_TURN


class Machine:
    """A worker's surroundings: pods that have gone from the store, whose removal may fail."""

    def __init__(self, *uids: str) -> None:
        self.errors: list[Exception] = []
        self.removing, self.retired, self.released = threading.Event(), list[str](), list[str]()
        self.dirty = self.has_old_names = False
        self.states: Any = {}
        for uid in uids:
            card = PodCard("d", uid, uid, "n", "", 0.0)
            spec = parse_pod_spec({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": []}})
            self.states[uid] = PodState(card, spec=spec)
        parts: Any = self
        self.workers = PodWorkers(
            parts,
            parts,
            self.states,
            directories=parts,
            network=parts,
            runs=parts,
            exit_listeners=[],
            record=lambda _: None,
        )

    def get(self, *place: str) -> None:
        """No pod is in the store."""

    def started_containers(self, uid: str) -> list[str]:
        return []

    async def kill_orphaned_pod(self, state: PodState) -> bool:
        return True

    async def sync_pod(self, pod: Any, state: Any) -> None:
        raise AssertionError("no pod is in the store")

    async def refresh_hosts(self) -> None:
        raise ValueError("an odd name")

    def retire(self, card: PodCard) -> bool:
        if self.errors:
            raise self.errors.pop()
        self.retired.append(card.uid)
        return True

    def remove_retired(self, uid: str) -> None:
        self.removing.wait(30)

    def stop_removals(self) -> None:
        self.removing.set()

    def forget(self, card: PodCard) -> None:
        """Its logs are aside."""

    def release(self, card: PodCard) -> None:
        self.released.append(card.uid)

    def run_until(self, condition: Callable[[], bool]) -> None:
        async def body() -> None:
            async with ContainedTaskGroup("a test") as tasks:
                running = tasks.create_task(self.workers.run(tasks, self))
                self.workers.mark_dirty(*self.states)
                try:
                    await until(condition)
                finally:
                    running.cancel()
                    self.workers.close()

        asyncio.run(body())


def test_files_of_deleted_pods_take_no_thread_from_others() -> None:
    """A hundred pods with endless directories: each one's logs are aside, its address is free, and threads are left."""
    machine = Machine(*(f"uid-{n}" for n in range(100)))
    machine.run_until(lambda: len(machine.released) == 100)
    assert sorted(machine.retired) == sorted(machine.released)


def test_a_removal_that_raises_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no thread can be started: the directory and the address would stay until the next start of the server."""
    monkeypatch.setattr(pod_workers, "FIRST_RETRY", 0.01)
    machine = Machine("uid-1")
    machine.errors = [RuntimeError("can't start new thread")]
    machine.run_until(lambda: machine.released == ["uid-1"])
    assert not machine.states and not machine.workers._failures


def test_hosts_files_that_cannot_be_written_end_no_turns() -> None:
    machine = Machine("uid-1")
    machine.dirty = True
    machine.run_until(lambda: machine.released == ["uid-1"])
    assert ERRORS.counts["the hosts files of pods"]


def test_nothing_is_kept_of_who_waited_for_a_master_that_went() -> None:
    machine = Machine("worker")
    state = machine.states["worker"]
    waiter: Any = {"metadata": {"uid": "worker"}}
    state.spec = replace(state.spec, object=waiter, awaited_master="master")
    machine.workers._await_master(waiter, state)
    assert machine.workers._master_waiters
    machine.run_until(lambda: machine.released == ["worker"])
    assert not machine.workers._master_waiters
