"""Nodes of a real cluster that no machine stands behind: a thread keeps them Ready and says that their pods run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rowlock import controllers
from rowlock.errors import ApiError
from rowlock.kinds import NODE, POD
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.kubelet.node.fake_nodes import FakeKubelet, make_fake_nodes

HEARTBEAT_S = 10.0
"""The cluster takes a node for lost after 40 s of silence."""


@contextmanager
def played_nodes(kubeconfig: Path, count: int, gpus: int) -> Iterator[None]:
    """`pretend-0000` … with this many GPUs each, until the end of the block."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    work: list[asyncio.Task[None]] = []

    def run() -> None:
        work.append(loop.create_task(_play(kubeconfig, count, gpus, ready)))
        loop.run_until_complete(asyncio.wait(work))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert ready.wait(200), "the nodes could not be made"
        yield
    finally:
        loop.call_soon_threadsafe(work[0].cancel)
        thread.join(200)
        loop.close()


async def _play(kubeconfig: Path, count: int, gpus: int, ready: threading.Event) -> None:
    async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as kube, asyncio.TaskGroup() as tasks:
        for node in make_fake_nodes(count, gpus, time.time()):
            await kube.create(NODE, node)
        cache = Cache(kube, (NODE, POD))
        tasks.create_task(cache.run())
        tasks.create_task(_heartbeat(kube, count, gpus, ready))
        await controllers.run(kube, cache.view, [FakeKubelet()], cache.changes())


async def _heartbeat(kube: Kube, count: int, gpus: int, ready: threading.Event) -> None:
    while True:
        for node in make_fake_nodes(count, gpus, time.time()):
            with suppress(ApiError):  # the API server may be gone for a while: the next one comes in time
                await kube.patch(NODE, "", node["metadata"]["name"], {"status": node["status"]}, subresource="status")
        ready.set()
        await asyncio.sleep(HEARTBEAT_S)
