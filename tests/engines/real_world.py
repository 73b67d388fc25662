"""The REST API over a real cluster, for tests that know a `World`: its client speaks to the server, its store is the cluster."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx
from tests import waiting
from tests.engines.real_engine import PATIENCE, RealEngine, now_heard_of
from tests.rest.conftest import World, node

from rowlock import kinds
from rowlock.errors import Conflict
from rowlock.kinds import Kind
from rowlock.objects import Object, name

WHOLE_GPU = {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M", "gpuDevicesRequest": 1}
"""What a pod asks for where the test does not say: rowlock's scheduler gives whole GPUs of real nodes."""
_ABSENT = cast(Any, None)
"""Parts of the server, which is another process."""


class RealWorld(World):
    """What is written beside the server reaches it by a watch: nodes are waited for, the rest is for the test to wait for (`until`)."""

    def __init__(self, engine: RealEngine, client: httpx.Client) -> None:
        cluster = client.get("/api/v1/clusters").json()[0]["uuid"]
        super().__init__(cast(Any, client), engine.kube, {}, _ABSENT, _ABSENT, cluster=cluster)
        self._engine = engine

    def do(self, call: Callable[[], Any]) -> Any:
        return self._engine.do(call)

    def ensure_namespace(self, name: str) -> None:
        assert self.store.view.get(kinds.NAMESPACE, "", name)

    def until(self, holds: Callable[[], bool]) -> None:
        waiting.until(holds, every=0.02)  # polled: the cluster's controllers are other processes

    def create(self, kind: Kind, obj: Object) -> Object:
        if kind is not kinds.NODE:
            return super().create(kind, obj)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", **now_heard_of()}
        made = super().create(kind, {**obj, "status": {**obj["status"], "conditions": [ready]}})
        self._engine.await_node(name(obj))
        return made

    def patch(self, kind: Kind, namespace: str, name: str, patch: Any, subresource: str = "") -> Object:
        while True:  # until no controller was faster
            try:
                return super().patch(kind, namespace, name, patch, subresource)
            except Conflict:
                continue

    def submit(self, **body: Any) -> Any:
        return super().submit(**{"compute": WHOLE_GPU, **body})


@contextmanager
def real_world(engine: RealEngine) -> Iterator[World]:
    """With a node of one GPU, as the store of the embedded one has it."""
    data = engine.cluster.data
    server, token = json.loads((data / "server.json").read_text()), (data / "token").read_text().strip()
    tls = ssl.create_default_context(cafile=str(data / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server["url"], verify=tls, headers=headers, timeout=PATIENCE) as client:
        world = RealWorld(engine, client)
        world.create(kinds.NODE, node("node-1", 1))
        yield world
        engine.sweep()
