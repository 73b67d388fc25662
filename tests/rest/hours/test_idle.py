"""Jobs that hold GPUs and do nothing are told once, after half an hour, and again when they idle anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import World
from tests.rest.run_history.test_past_runs import NAMESPACE, give_pod, submit
from tests.rest.served import UsageTable

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.hours.idle import IDLE_SECONDS, REASON, IdleJobs
from rowlock.rest.notifications.notices import notice_of_event
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample

NOW = 1_800_000_000.0


def used(idle_since: float | None) -> LatestUsage:
    return LatestUsage(NOW, UsageSample(), idle_since, 0.0, 0.0, 0.0, 0.0, 0.0, {})


class Watched:
    """A job of one worker with a GPU, and the watch over it."""

    def __init__(self, world: World, *, gpus: int = 1, simulated: bool = False) -> None:
        self.world, self.usage, self.now = world, UsageTable(), NOW
        if simulated:
            node = world.store.view.get(kinds.NODE, "", "node-1")
            assert node is not None
            meta = {**node["metadata"], "annotations": {"rowlock.dev/simulated-gpus": "true"}}
            world.patch(kinds.NODE, "", "node-1", {"metadata": meta})
        self.job = submit(world)[1]
        self._give_worker(gpus)
        world.rest.cache.pod_usage, world.rest.cache.clock = self.usage, lambda: self.now
        self.watch = IdleJobs(world.store, world.rest.cache)

    def _give_worker(self, gpus: int) -> None:
        for role in ("master", "worker"):
            give_pod(self.world, self.job, role)
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        for pod in self.pods:
            containers = [{"name": "pytorch", "image": "i", "resources": {"limits": limits}}]
            self.world.patch(
                kinds.POD, NAMESPACE, objects.name(pod), {"spec": {**pod["spec"], "containers": containers}}
            )
        while self.world.rest.cache.phase(objects.uid(self.job)) != "Running":
            pass

    @property
    def pods(self) -> list[Object]:
        return list(self.world.store.view.all(kinds.POD, NAMESPACE))

    def idle(self, *since: float | None) -> None:
        for pod, one in zip(self.pods, since, strict=True):
            self.usage[objects.uid(pod)] = used(one)

    def told(self) -> list[dict[str, Any]]:
        self.world.do(self.watch.look)
        return [event for event in self.world.store.view.all(kinds.EVENT, NAMESPACE) if event["reason"] == REASON]


def test_an_idle_job_is_told_once(world: World) -> None:
    watched = Watched(world)
    watched.idle(NOW - IDLE_SECONDS - 60, NOW - IDLE_SECONDS)
    (event,) = watched.told()
    assert event["message"] == "all pods have done nothing for 30 min, and hold 2 GPUs."
    assert event["involvedObject"]["uid"] == objects.uid(watched.job)
    notice = notice_of_event(event)
    assert notice is not None and notice.event == "idle"
    assert notice.sentence == "is idle: all pods have done nothing for 30 min, and hold 2 GPUs."
    watched.now += 600
    assert len(watched.told()) == 1
    watched.idle(NOW, None)
    assert len(watched.told()) == 1
    watched.now += 2 * IDLE_SECONDS
    watched.idle(NOW, NOW)
    assert len(watched.told()) == 2, "it idles anew"


def test_simulated_gpus_are_called_so(world: World) -> None:
    watched = Watched(world, simulated=True)
    watched.idle(0.0, 0.0)
    assert "hold 2 simulated GPUs" in watched.told()[0]["message"]


@pytest.mark.parametrize("since", [(NOW - IDLE_SECONDS + 1, 0.0), (None, 0.0)])
def test_who_works_or_rests_is_not_idle(world: World, since: tuple[float | None, ...]) -> None:
    watched = Watched(world)
    watched.idle(*since)
    assert not watched.told()


def test_what_is_not_measured_is_not_called_idle(world: World) -> None:
    watched = Watched(world)
    watched.usage[objects.uid(watched.pods[0])] = used(0.0)
    assert not watched.told()


def test_who_holds_no_gpus_may_idle(world: World) -> None:
    watched = Watched(world, gpus=0)
    watched.idle(0.0, 0.0)
    assert not watched.told()
