"""A face over the real store in memory; jobs and pods are made by hand, so that every state can be had at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.conftest import ENGINES
from tests.engines.real_served import real_served
from tests.rest.served import Served, serving

from rowlock import kinds
from rowlock.accounts.user_accounts import FILE_NAME, UserAccounts
from rowlock.accounts.user_credentials import UserCredentials
from rowlock.api import LogOptions, View
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.archive.archive import Archive
from rowlock.diagnostics.event_files import EventFiles
from rowlock.gangs.dialects import Dialect
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage.store import Store
from rowlock.storage.write_verbs import Admission, AlwaysAdmit

CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"
TOKEN = "secret"


def node(name: str, gpus: int) -> Object:
    resources = {"cpu": "8", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    status = {"allocatable": resources, "capacity": resources}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


@dataclass
class World:
    """A running face with a client, and its store."""

    client: TestClient
    store: Store
    logs: dict[str, list[bytes]]
    rest: RestApi
    archive: Archive
    project_id: str = ""
    """Of the project that the test works in, where it needs it."""
    cluster: str = CLUSTER
    """The id of the cluster."""

    def do(self, call: Callable[[], Any]) -> Any:
        """Run a coroutine function in the server's event loop."""
        assert self.client.portal is not None
        return self.client.portal.call(call)

    def create(self, kind: Kind, obj: Object) -> Object:
        async def made() -> Object:
            return await self.store.create(kind, obj)

        result: Object = self.do(made)
        return result

    def patch(self, kind: Kind, namespace: str, name: str, patch: Any, subresource: str = "") -> Object:
        async def done() -> Object:
            current = await self.store.get(kind, namespace, name)
            merged = {**current, **patch}
            return await self.store.update(kind, merged, subresource=subresource)

        result: Object = self.do(done)
        return result

    def ensure_namespace(self, name: str) -> None:
        """A namespace that every cluster has, and an empty store has not."""
        self.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what a controller does; none works here, so that it must be so at once."""
        assert holds()

    def project(self, name: str = "team-a", gpus: float = 1) -> dict[str, Any]:
        body = {"name": name, "resources": [{"gpu": {"deserved": gpus}}]}
        answer = self.client.post("/api/v1/org-unit/projects", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def submit(self, **body: Any) -> Any:
        return self.client.post("/api/v1/workloads/distributed", json=submission(**{"clusterId": self.cluster, **body}))


def submission(**body: Any) -> dict[str, Any]:
    """The seed's request (surface 4.4), changed where `body` says so."""
    spec = {"image": "/kubeflow/pytorch-dist-mnist:latest", "numWorkers": 2, "distributedFramework": "PyTorch"}
    compute = {
        "cpuCoreRequest": 0.1,
        "gpuRequestType": "portion",
        "cpuMemoryRequest": "100M",
        "gpuDevicesRequest": 1,
        "gpuPortionRequest": 0.1,
    }
    top = {
        k: v for k, v in body.items() if k in ("name", "projectId", "clusterId", "masterSpec", "useGivenNameAsPrefix")
    }
    rest = {k: v for k, v in body.items() if k not in top}
    return {
        "name": "dist-train1",
        "projectId": "team-a",
        "clusterId": CLUSTER,
        **top,
        "spec": {"compute": compute, **spec, **rest},
    }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the mark `both_engines` runs over a store in memory, and over a real cluster."""
    if metafunc.definition.get_closest_marker("both_engines"):
        metafunc.parametrize("world", ENGINES, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if getattr(request, "param", "embedded") == "real":
        from tests.engines.real_world import real_world  # late: it has a World of its own

        with real_world(request.getfixturevalue("real_engine")) as made:
            yield made
        return
    yield from _world(
        RestSettings(
            user="ana",
            cluster_id=CLUSTER,
            version="1.0",
            sweep_key="sealed",
            accounts=UserAccounts(tmp_path / FILE_NAME),
            credentials=UserCredentials.open(tmp_path),
            event_files=EventFiles(tmp_path),
        ),
        tmp_path,
    )


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[World]:
    """A face that asks for a token."""
    yield from _world(RestSettings(token=TOKEN, user="ana", cluster_id=CLUSTER), tmp_path)


def admitting_world(directory: Path) -> Iterator[World]:
    """A face over a store that checks what comes in as the embedded cluster's does."""
    yield from _world(RestSettings(user="ana", cluster_id=CLUSTER), directory, lambda _: AdmissionChain())


def dialect_world(dialect: Dialect, directory: Path) -> Iterator[World]:
    """A face as over a real cluster whose jobs go to this scheduler; a store stands for its API server."""
    yield from _world(RestSettings(user="ana", cluster_id=CLUSTER, dialect=dialect), directory)


def _world(
    settings: RestSettings, directory: Path, admission: Callable[[View], Admission] = lambda _: AlwaysAdmit()
) -> Iterator[World]:
    logs: dict[str, list[bytes]] = {}

    async def log(namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        for line in logs.get(pod, []):
            yield line if options.timestamps else line.partition(b" ")[2]

    store = Store.open(None, log_source=log, admission=admission)
    archive = Archive(directory / "archive")
    face = RestApi(store, settings, archive=archive)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await store.create(kinds.NODE, node("node-1", 1))
        running = asyncio.create_task(face.run())
        yield
        running.cancel()
        await asyncio.wait({running})

    with TestClient(Starlette(routes=list(face.routes), lifespan=lifespan)) as client:
        yield World(client, store, logs, face, archive)


@pytest.fixture(params=ENGINES)
def served(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Served]:
    """The two programs against a server in a thread, or against the one over a real cluster."""
    if request.param == "real":
        with real_served(request.getfixturevalue("real_engine"), tmp_path, capsys) as server:
            yield server
    else:
        with serving(tmp_path, capsys) as server:
            yield server
