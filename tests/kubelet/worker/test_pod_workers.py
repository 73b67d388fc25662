"""Many pods at once: a restart begins with all of them, and others of the event loop have their turns meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.controllers.supervisor import ContainedTaskGroup
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
