"""Our scheduler over an API server that refuses, throttles and loses answers: everything is placed once, and whole."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from multidict import CIMultiDict
from tests.conformance.subjects import embedded_server
from yarl import URL

from rowlock import kinds
from rowlock.api import Change
from rowlock.errors import AlreadyExists, Conflict, Timeout
from rowlock.kinds import Kind
from rowlock.kube import scheduler_client
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.config import ClientConfig, Credentials
from rowlock.kube.connection import Connection, Request
from rowlock.kube.rate_limit import Limits
from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.kube.scheduler_client import SchedulerClient, is_settled
from rowlock.kube_scheduler import KubeScheduler
from rowlock.objects import Object, dig, key, name, uid
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.volume_topology import SELECTED_NODE_ANNOTATION

GANGS, SIZE, GPUS = 8, 4, 32
FAULTS = ("throttled", "conflict", "lost request", "lost answer")


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    flags = ("--without", "scheduler,kubelet", "--pretend-nodes", "4", "--simulated-gpus", "8")
    with embedded_server(tmp_path_factory.mktemp("faults"), "rowlock.serve", *flags) as path:
        yield path


class Faulty(Connection):
    """Every third write goes wrong in one of four ways."""

    def __init__(self, kubeconfig: Path, seed: int) -> None:
        super().__init__(Credentials(kubeconfig), Limits(qps=0))
        self.random, self.faults = random.Random(seed), Counter[str]()

    async def _send_once(self, request: Request, endless: bool, config: ClientConfig) -> aiohttp.ClientResponse:
        about_pods = request.path.endswith("/binding")
        fault = self.random.choice(FAULTS) if about_pods and self.random.random() < 0.35 else ""
        self.faults[fault] += 1
        if fault == "throttled":
            return answer(429, "TooManyRequests", {"Retry-After": "0"})
        if fault == "conflict":
            return answer(409, "Conflict", {})
        if fault == "lost request":
            raise aiohttp.ClientConnectionError("refused")
        response = await super()._send_once(request, endless, config)
        if fault == "lost answer":
            response.close()
            raise aiohttp.SocketTimeoutError("no answer")
        return response


class Lagging(Kube):
    """Its watches tell of pods late, as those of a busy API server do."""

    async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Change]:
        async for change in super().watch(kind, namespace, **options):
            if kind is kinds.POD:
                await asyncio.sleep(0.03)
            yield change


class Refusal:
    """What a connection reads of an answer that says no."""

    url, reason, connection = URL("http://test"), "no", None

    def __init__(self, status: int, reason: str, headers: dict[str, str]) -> None:
        self.status, self.headers = status, CIMultiDict(headers)
        self._body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}

    async def read(self) -> bytes:
        return json.dumps({**self._body, "message": "no"}).encode()

    def close(self) -> None:
        """There is no connection behind it."""


def answer(code: int, reason: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
    return cast(aiohttp.ClientResponse, Refusal(code, reason, headers))


def gang_job(number: int) -> Object:
    pod = {
        "schedulerName": "rowlock-scheduler",
        "containers": [{"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }
    replicas = {
        "Master": {"replicas": 1, "template": {"spec": pod}},
        "Worker": {"replicas": SIZE - 1, "template": {"spec": pod}},
    }
    metadata = {"name": f"g{number}", "namespace": "runai-default"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def test_gangs_are_placed_whole_though_a_third_of_the_binds_goes_wrong(kubeconfig: Path) -> None:
    async def run() -> Counter[str]:
        faulty = Lagging(Faulty(kubeconfig, seed=7))
        async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as admin, faulty:
            await ensure_namespace(admin)
            working = asyncio.create_task(KubeScheduler(faulty).run())
            for number in range(GANGS):
                await admin.create(kinds.PYTORCHJOB, gang_job(number))
            async with asyncio.timeout(200):
                while await count_bound(admin) < GPUS:
                    await asyncio.sleep(0.05)
            by_node = Counter(dig(p, "spec.nodeName") for p in (await admin.list(kinds.POD, "runai-default")).items)
            assert set(by_node.values()) == {8}, f"a node was given more than it has: {by_node}"
            working.cancel()
            await asyncio.wait([working])
        assert isinstance(faulty.connection, Faulty)
        return faulty.connection.faults

    faults = asyncio.run(run())
    assert all(faults[fault] for fault in FAULTS), f"the test has lost its faults: {faults}"


async def ensure_namespace(admin: Kube) -> None:
    namespace: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    try:
        await admin.create(kinds.NAMESPACE, namespace)
    except AlreadyExists:
        return


async def count_bound(admin: Kube) -> int:
    pods = (await admin.list(kinds.POD, "runai-default")).items
    return sum(bool(dig(pod, "spec.nodeName")) for pod in pods)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (None, True),
        ({"metadata": {"uid": "u"}, "spec": {}}, False),
        ({"metadata": {"uid": "other"}, "spec": {}}, True),
        ({"metadata": {"uid": "u"}, "spec": {"nodeName": "n"}}, True),
        ({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}, True),
    ],
)
def test_a_bind_is_settled_when_nobody_can_bind_the_pod_any_more(pod: Object | None, expected: bool) -> None:
    assert is_settled(pod, "u") is expected


class LosingAnswers(Connection):
    """The server does what it is asked to, and nobody hears of it."""

    async def _send_once(self, request: Request, endless: bool, config: ClientConfig) -> aiohttp.ClientResponse:
        response = await super()._send_once(request, endless, config)
        if request.path.endswith("/binding"):
            response.close()
            raise aiohttp.SocketTimeoutError("no answer")
        return response


@pytest.mark.parametrize("connection_class", [Connection, LosingAnswers])
def test_a_bind_is_done_when_the_cache_shows_it(kubeconfig: Path, connection_class: type[Connection]) -> None:
    pod_name = f"alone-{connection_class.__name__.lower()}"
    container = {"name": "main", "image": "x"}
    metadata = {"name": pod_name, "namespace": "runai-default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}

    async def run() -> None:
        async with Lagging(connection_class(Credentials(kubeconfig), Limits(qps=0))) as kube:
            cache = Cache(kube, (kinds.POD,))
            following = asyncio.create_task(cache.run())
            await cache.synced.wait()
            created = await kube.create(kinds.POD, pod)
            await cache.wait_for_object(kinds.POD, key(created), lambda shown: shown is not None)
            client = SchedulerClient(kube.connection, cache)
            try:
                await client.bind("runai-default", pod_name, "pretend-0000", uid=uid(created))
                assert connection_class is Connection, "the answer was lost, and nobody was told"
            except Timeout:
                assert connection_class is LosingAnswers
            shown = cache.view.get(kinds.POD, "runai-default", pod_name)
            assert dig(shown or {}, "spec.nodeName") == "pretend-0000", "a scheduler would take its room for free"
            with pytest.raises(Conflict if connection_class is Connection else Timeout):
                await client.bind("runai-default", pod_name, "pretend-0001", uid=uid(created))
            following.cancel()
            await asyncio.wait([following])

    asyncio.run(run())


def test_a_claim_that_waits_for_its_first_consumer_is_told_the_node(kubeconfig: Path) -> None:
    async def run() -> dict[str, str | None]:
        async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as kube:
            for claim_name, volume_name in (("waits", ""), ("bound", "pv-1"), ("consumer-scratch", "")):
                await kube.create(kinds.PERSISTENT_VOLUME_CLAIM, claim(claim_name, volume_name))
            volumes: list[dict[str, Any]] = [
                {"name": claim_name, "persistentVolumeClaim": {"claimName": claim_name}}
                for claim_name in ("waits", "bound", "absent")
            ]
            template = {"spec": claim("", "")["spec"]}
            volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
            metadata = {"name": "consumer", "namespace": "runai-default"}
            spec = {"containers": [{"name": "main", "image": "x"}], "volumes": volumes}
            created = await kube.create(
                kinds.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
            cache = Cache(kube, (kinds.POD,))
            following = asyncio.create_task(cache.run())
            await cache.wait_for_object(kinds.POD, key(created), lambda shown: shown is not None)
            await SchedulerClient(kube.connection, cache).bind(
                "runai-default", "consumer", "pretend-0002", uid=uid(created)
            )
            following.cancel()
            await asyncio.wait([following])
            claims = (await kube.list(kinds.PERSISTENT_VOLUME_CLAIM, "runai-default")).items
            return {name(c): annotations_of(c).get(SELECTED_NODE_ANNOTATION) for c in claims}

    told = {"waits": "pretend-0002", "bound": None, "consumer-scratch": "pretend-0002"}
    assert asyncio.run(run()) == told


class ChangedMeanwhile:
    """A connection to a claim that others change `changes` times between a look at it and a write, and the cache of its pod."""

    def __init__(self, changes: int) -> None:
        self.changes, self.told, self.is_bound, self.view = changes, "", False, self

    def get(self, *_: object) -> Object:
        return {"metadata": {"name": "p", "namespace": "n"}, "spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}  # fmt: skip

    async def wait_for_object(self, *_: object) -> None: ...

    async def send(self, request: Request, warnings: list[str] | None = None) -> dict[str, Any]:
        if request.path.endswith("/binding"):
            self.is_bound = True
        elif request.method == "PATCH" and self.changes:
            self.changes -= 1
            raise Conflict("the object has been modified")
        elif request.method == "PATCH":
            self.told = request.body["metadata"]["annotations"][SELECTED_NODE_ANNOTATION]
        return {"metadata": {"name": "data", "namespace": "n", "resourceVersion": str(self.changes)}, "spec": {}}


@pytest.mark.parametrize("changes", [3, 1000])
def test_a_claim_that_others_change_meanwhile_is_told_the_node_or_its_pod_waits(changes: int) -> None:
    cluster = ChangedMeanwhile(changes)
    bind = SchedulerClient(cast(Connection, cluster), cast(Cache, cluster)).bind("n", "p", "node")
    with pytest.raises(Conflict) if changes == 1000 else nullcontext():
        asyncio.run(bind)
    assert (cluster.told, cluster.is_bound) == (("", False) if changes == 1000 else ("node", True))


def claim(claim_name: str, volume_name: str) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "late",
        "volumeName": volume_name,
    }
    metadata = {"name": claim_name, "namespace": "runai-default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


class Gated:
    """A connection whose binds wait for `gate`, and the cache that shows them at once."""

    def __init__(self) -> None:
        self.gate, self.sent, self.view = asyncio.Event(), list[str](), self

    def get(self, *_: object) -> None:
        return None

    async def wait_for_object(self, *_: object) -> None: ...

    async def send(self, request: Request, warnings: list[str] | None = None) -> dict[str, Any]:
        if request.path.endswith("/binding"):
            await self.gate.wait()
        self.sent.append(request.path.rpartition("/")[2])
        return {}


@pytest.mark.parametrize(("delay", "order"), [(60.0, ["binding", "events"]), (0.0, ["events", "binding"])])
def test_events_let_a_burst_of_binds_go_first(delay: float, order: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_client, "EVENT_DELAY_S", delay)

    async def run() -> list[str]:
        gated = Gated()
        client = SchedulerClient(cast(Connection, gated), cast(Cache, gated))
        binding = asyncio.create_task(client.bind("n", "p", "node"))
        await asyncio.sleep(0)
        event = {"metadata": {"name": "e", "namespace": "n"}}
        telling = asyncio.create_task(client.create(kinds.EVENT, event))
        for _ in range(20):
            await asyncio.sleep(0)
        gated.gate.set()
        await asyncio.gather(binding, telling)
        await client.create(kinds.EVENT, event)
        return gated.sent

    assert asyncio.run(run()) == [*order, "events"]
