"""A Kubernetes API on a free port of loopback, over HTTPS: the store, admission and the API server, no controllers.

`python tests/apiserver/conftest.py DIR` runs one until it is stopped; tests use `serving`, which runs it in a thread. Namespaces get
what a real cluster's controllers would give them: the default service account and the root CA's config map.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from tests.waiting import PATIENCE

from rowlock import controllers, kinds, objects
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.server import application
from rowlock.apiserver.server.settings import ApiServerSettings
from rowlock.authentication.service_account_tokens import KEY_FILE, ServiceAccountTokens
from rowlock.authorization import bootstrap_policy
from rowlock.http_server import certificates, http_protocol, tls
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.system import registry as system
from rowlock.training import controller as training

TOKEN = "a-test-token"


@dataclass(frozen=True)
class Running:
    url: str
    kubeconfig: Path
    ca: Path
    store: Store
    loop: asyncio.AbstractEventLoop


class Harness:
    def __init__(self, directory: Path, *, disk: bool = False, collect: bool = True, operate: bool = False) -> None:
        self.directory, self.collect, self.operate = directory, collect, operate
        self.store = Store.open(directory / "cluster.db" if disk else None, admission=AdmissionChain, patches=Patcher())
        self.ready = threading.Event()
        self.running: Running | None = None
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        papers = certificates.ensure_certificates(self.directory)
        accounts = ServiceAccountTokens(self.directory / KEY_FILE, self.store.view)
        app = application.application([], self.store, ApiServerSettings(TOKEN, service_accounts=accounts))
        config = uvicorn.Config(
            app, port=0, log_level="error", lifespan="off", access_log=False, proxy_headers=False,
            http=http_protocol.protocol_factory(tls.server_context(papers.certificate, papers.key)), timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        for kind, obj in [*bootstrap.initial_objects(), *bootstrap_policy.initial_objects()]:
            await self.store.create(kind, obj)
        tasks = [asyncio.create_task(self._furnish())]
        if self.collect:
            tasks.append(asyncio.create_task(self._collect()))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        self._announce(server.servers[0].sockets[0].getsockname()[1], papers.ca)
        self.ready.set()
        await self._stop.wait()
        server.should_exit = True
        await serving
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    def _announce(self, port: int, ca: Path) -> None:
        url = f"https://127.0.0.1:{port}"
        context = {"cluster": "c", "user": "u", "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(ca)}}],
            "contexts": [{"name": "c", "context": context}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        }
        path = self.directory / "kubeconfig"
        path.write_text(json.dumps(config))
        assert self._loop is not None
        self.running = Running(url, path, ca, self.store, self._loop)

    async def _furnish(self) -> None:
        async for change in self.store.watch(kinds.NAMESPACE):
            if change.type == "Added" and not objects.is_deleting(change.object):
                space = objects.name(change.object)
                for kind, name in ((kinds.SERVICE_ACCOUNT, "default"), (kinds.CONFIG_MAP, "kube-root-ca.crt")):
                    if self.store.view.get(kind, space, name) is None:
                        meta = {"name": name, "namespace": space}
                        await self.store.create(kind, {"apiVersion": "v1", "kind": kind.name, "metadata": meta})

    async def _collect(self) -> None:
        made = [*system.deleting_controllers(), *(training.controllers() if self.operate else ())]
        await controllers.run(self.store, self.store.view, made, self.store.changes())

    def stop(self) -> None:
        if self._loop and self._stop:
            self._loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def serving(directory: Path) -> Iterator[Running]:
    harness = Harness(directory)
    thread = threading.Thread(target=lambda: asyncio.run(harness.main()), daemon=True)
    thread.start()
    assert harness.ready.wait(200), "the test server did not start"
    assert harness.running is not None
    try:
        yield harness.running
    finally:
        harness.stop()
        thread.join(PATIENCE)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Running) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=str(server.ca))
    head = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=server.url, verify=context, headers=head, timeout=PATIENCE) as made:
        yield made


_SPACES = itertools.count(1)


@pytest.fixture
def space(client: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of its own; its path."""
    called = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[:40].strip("-")
    name = f"t-{called}-{next(_SPACES)}"  # two cases of one test may be called alike, and a namespace takes time to go
    client.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    yield f"/api/v1/namespaces/{name}"
    client.delete(f"/api/v1/namespaces/{name}")


if __name__ == "__main__":
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 1000)
    made = Harness(
        Path(sys.argv[1]), disk="disk" in sys.argv, collect="bare" not in sys.argv, operate="operate" in sys.argv
    )
    asyncio.run(made.main())
