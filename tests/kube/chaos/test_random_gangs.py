"""Random gangs, and two replicas of our scheduler of which the leader is killed again and again: no half gang stays, no node gets too much.

On a real cluster the API server is killed with -9, too. Gangs are bare pods with a PodGroup, so that nobody but the scheduler
is under test; who is whole goes, and makes room for the next.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.conformance.subjects import REPO, embedded_server, real_cluster, real_cluster_missing
from tests.kube.chaos.api_server import ApiServer
from tests.kube.played_nodes import played_nodes

from rowlock import kinds, objects
from rowlock.api import DeleteOptions
from rowlock.errors import AlreadyExists, ApiError, NotFound
from rowlock.kinds import POD, POD_GROUP, Kind
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.installation import require_kinds
from rowlock.kube.rate_limit import Limits
from rowlock.kube.rights import SCHEDULER_LEASE
from rowlock.objects import Object, dig

NODES, GPUS, NAMESPACE, OPEN = 4, 4, "runai-random", 12
HALF_GANG_LIMIT_S = 30.0
"""How long a gang may be half bound under one and the same leader: an API server that comes back (5 s), and a loaded machine. A new
leader has as long, since a machine that is loaded enough takes the Lease (3 s) from leaders that nobody has killed."""


@dataclass(frozen=True)
class Chaos:
    """How much is played, and how often the leader is killed."""

    gangs: int
    gangs_between_kills: int
    """Counted and not timed, so that a loaded machine gets on."""
    restart_api_server: Callable[[], None] | None


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Chaos]]:
    with ExitStack() as stack:
        if request.param == "embedded":
            flags = ("--without", "scheduler,kubelet", "--pretend-nodes", str(NODES), "--simulated-gpus", str(GPUS))
            yield stack.enter_context(embedded_server(tmp_path, "rowlock.serve", *flags)), Chaos(12, 4, None)
            return
        if missing := real_cluster_missing():
            pytest.skip(missing)
        kubeconfig = stack.enter_context(real_cluster(tmp_path, "--crds"))
        server = stack.enter_context(ApiServer(tmp_path))
        stack.enter_context(played_nodes(kubeconfig, NODES, GPUS))
        yield kubeconfig, Chaos(200, 15, server.restart)


@dataclass
class Replicas:
    """Two processes that want to schedule."""

    kubeconfig: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: int = 0

    def __enter__(self) -> Replicas:
        for _ in range(2):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait(10)

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.kube.chaos.scheduler_replica", str(self.kubeconfig)]
        self.processes.append(subprocess.Popen(command, cwd=REPO))

    async def kill_leader(self, kube: Kube) -> None:
        """With -9, as soon as one leads; another process takes its place."""
        before = self.kills
        while self.kills == before:
            with suppress(ApiError):
                await self._kill_holder(kube)
            await asyncio.sleep(0.02)

    async def _kill_holder(self, kube: Kube) -> None:
        lease = await kube.get(kinds.LEASE, *SCHEDULER_LEASE)
        holder = str(dig(lease, "spec.holderIdentity") or "")
        for process in self.processes:
            if f"_{process.pid}_" in holder:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
                self.processes.remove(process)
                self.kills += 1
                self._start()
                return


class Gangs:
    """Makes gangs, a few at a time, and ends those that are whole."""

    def __init__(self, kube: Kube, cache: Cache, count: int) -> None:
        draw = random.Random(7)
        self._kube, self._cache = kube, cache
        self._waiting = {f"g{number:03}": draw.randint(1, 6) for number in range(count)}
        self._open: dict[str, int] = {}
        self._half_since: dict[tuple[str, object], float] = {}
        """By the name of the gang and who leads: monotonic seconds."""
        self.longest_half, self.done = 0.0, 0
        self.allowed = 0
        """How many may be made: the last ones wait for the last kill."""

    async def run(self) -> None:
        while self._waiting or self._open:
            while self._waiting and len(self._open) < OPEN and self.done + len(self._open) < self.allowed:
                name = next(iter(self._waiting))
                self._open[name] = self._waiting.pop(name)
            with suppress(ApiError):  # the API server is gone for a while, or somebody was faster
                await self._look()
            await asyncio.sleep(0.01)

    async def _look(self) -> None:
        pods: dict[str, list[Object]] = {}
        for pod in self._cache.view.all(POD, NAMESPACE):
            if not objects.is_deleting(pod):
                pods.setdefault(objects.labels(pod)["gang"], []).append(pod)
        self._check_nodes()
        for name, size in list(self._open.items()):
            bound = sum(bool(dig(pod, "spec.nodeName")) for pod in pods.get(name, ()))
            self._note(name, is_half=0 < bound < size)
            if bound == size:
                await self._end(name, size)
            else:
                await self._make(name, size, {objects.name(pod) for pod in pods.get(name, ())})

    def _check_nodes(self) -> None:
        """Every pod holds a GPU until it is gone."""
        held = Counter(dig(pod, "spec.nodeName") for pod in self._cache.view.all(POD, NAMESPACE))
        del held[None]
        assert not held or max(held.values()) <= GPUS, f"a node was given more than it has: {held}"

    def _note(self, name: str, *, is_half: bool) -> None:
        key = name, dig(self._cache.view.get(kinds.LEASE, *SCHEDULER_LEASE) or {}, "spec.holderIdentity")
        if not is_half or key not in self._half_since:
            self._half_since = {old: since for old, since in self._half_since.items() if old[0] != name}
        if not is_half:
            return
        half = time.monotonic() - self._half_since.setdefault(key, time.monotonic())
        self.longest_half = max(self.longest_half, half)
        assert half < HALF_GANG_LIMIT_S, f"{name} has been half bound for {half:.0f} s"

    async def _make(self, name: str, size: int, present: set[str]) -> None:
        """Also what the scheduler has evicted of a gang that it could not complete."""
        spec = {"minMember": size, "queue": "random"}
        group = {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "spec": spec}
        await self._create(POD_GROUP, {**group, "metadata": {"name": name, "namespace": NAMESPACE}})
        for rank in range(size):
            if f"{name}-{rank}" not in present:
                await self._create(POD, gang_pod(name, rank))

    async def _create(self, kind: Kind, obj: Object) -> None:
        with suppress(AlreadyExists):
            if self._cache.view.get(kind, NAMESPACE, objects.name(obj)) is None:
                await self._kube.create(kind, obj)

    async def _end(self, name: str, size: int) -> None:
        for rank in range(size):
            with suppress(NotFound):
                await self._kube.delete(POD, NAMESPACE, f"{name}-{rank}", options=DeleteOptions(grace=0))
        with suppress(NotFound):
            await self._kube.delete(POD_GROUP, NAMESPACE, name)
        del self._open[name]
        self.done += 1


def gang_pod(gang: str, rank: int) -> Object:
    meta = {"name": f"{gang}-{rank}", "namespace": NAMESPACE, "labels": {"gang": gang, "kai.scheduler/queue": "random"},
            "annotations": {"pod-group-name": gang}}  # fmt: skip
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"schedulerName": "rowlock-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def play(kubeconfig: Path, chaos: Chaos, replicas: Replicas) -> Gangs:
    async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as kube, asyncio.TaskGroup() as tasks:
        cache = Cache(kube, (POD, POD_GROUP, kinds.LEASE))
        gangs = Gangs(kube, cache, chaos.gangs)
        background = [tasks.create_task(cache.run()), tasks.create_task(kill(kube, chaos, replicas, gangs))]
        await cache.synced.wait()
        await gangs.run()
        for task in background:
            task.cancel()
    return gangs


async def kill(kube: Kube, chaos: Chaos, replicas: Replicas, gangs: Gangs) -> None:
    draw = random.Random(11)
    for turn in range(1, chaos.gangs // chaos.gangs_between_kills):
        gangs.allowed = turn * chaos.gangs_between_kills + chaos.gangs_between_kills // 2
        while gangs.done < turn * chaos.gangs_between_kills:
            await asyncio.sleep(0.01)
        await asyncio.sleep(draw.uniform(0, 0.3))  # amid a cycle, or between two
        if turn % 4 == 0 and chaos.restart_api_server:
            await asyncio.to_thread(chaos.restart_api_server)
        else:
            await replicas.kill_leader(kube)
    gangs.allowed = chaos.gangs


async def prepare(kubeconfig: Path) -> None:
    async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as kube:
        await require_kinds(kube, install=True)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await kube.create(kinds.NAMESPACE, namespace)
        queue = {"apiVersion": kinds.QUEUE.api_version, "kind": "Queue", "metadata": {"name": "random"}}
        await kube.create(kinds.QUEUE, {**queue, "spec": {"resources": {"gpu": {"quota": -1}}}})


@pytest.mark.timeout(500)
def test_no_half_gang_stays_whoever_is_killed(cluster: tuple[Path, Chaos]) -> None:
    kubeconfig, chaos = cluster
    asyncio.run(prepare(kubeconfig))
    with Replicas(kubeconfig) as replicas:
        gangs = asyncio.run(play(kubeconfig, chaos, replicas))
    print(f"{gangs.done} gangs, {replicas.kills} leaders killed; longest half gang: {gangs.longest_half:.2f} s")
    assert gangs.done == chaos.gangs and replicas.kills >= 2, "the leader was to be killed"
