"""One suite, three subjects: the store itself, our API server over HTTPS, and a real kube-apiserver over HTTPS.

Tests are coroutines that take a `world`; the hook below runs each in a loop of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server, open_store, real_cluster, real_cluster_missing
from tests.conformance.world import World

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.objects import Object

FAST = Limits(qps=0)
Opening = Callable[[], AbstractAsyncContextManager[World]]


@pytest.fixture(params=["store", "https", pytest.param("real", marks=pytest.mark.real)])
def world(request: pytest.FixtureRequest) -> Opening:
    """Opened by the hook, inside the test's own event loop."""
    if request.param == "store":
        return _opened_store
    kubeconfig = request.getfixturevalue("embedded" if request.param == "https" else "real_kubeconfig")

    @asynccontextmanager
    async def opened() -> AsyncIterator[World]:
        async with Kube.connect(kubeconfig, limits=FAST) as kube:
            made = World(kube, request.param)
            await made.enter()
            yield made

    return opened


@asynccontextmanager
async def _opened_store() -> AsyncIterator[World]:
    store = open_store()
    await store.create(*default_namespace())
    made = World(store, "store")
    await made.enter()
    yield made


def default_namespace() -> tuple[Kind, Object]:
    return kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    where = tmp_path_factory.mktemp("embedded")
    with embedded_server(where, "tests.conformance.embedded", "--without", "kubelet,scheduler") as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="session")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    missing = real_cluster_missing()
    if missing:
        pytest.skip(missing)
    with real_cluster(tmp_path_factory.mktemp("real"), "--crds") as kubeconfig:
        yield kubeconfig


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        opening: Opening = wanted.pop("world")
        async with opening() as made:
            await pyfuncitem.obj(world=made, **wanted)

    asyncio.run(run())
    return True
