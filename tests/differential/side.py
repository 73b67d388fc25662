"""One cluster as the test sees it: a connection, and a copy of every object that matters, kept by watches.

The copy makes looking free: a thousand histories are compared again and again without one list request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.errors import AlreadyExists, ApiError, NotFound
from rowlock.kinds import Kind
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.objects import Object, micro_timestamp, name, timestamp, uid

NODE = "difference"
FOLLOWED: tuple[Kind, ...] = (
    kinds.POD, kinds.SERVICE, kinds.EVENT, kinds.CONFIG_MAP, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING,
    kinds.AUTOSCALER, kinds.BATCH_JOB, *kinds.JOBS,
)  # fmt: skip
BEAT = 10.0  # seconds between two signs of life of the node: the real cluster gives up on it after 40
PATIENCE = 60.0


@dataclass
class Space:
    """One namespace: what is in it now, and how often each name has been taken."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    lives: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(kind, name) → the uids that have borne it, in order."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    version: int = 0

    def all(self, kind: Kind) -> list[Object]:
        return [obj for (called, _), obj in sorted(self.objects.items()) if called == kind.name]

    def get(self, kind: Kind, called: str) -> Object | None:
        return self.objects.get((kind.name, called))

    def take(self, kind: Kind, change: str, obj: Object) -> None:
        key = kind.name, name(obj)
        if change == "Deleted":
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj
            lives = self.lives.setdefault(key, [])
            if uid(obj) not in lives:
                lives.append(uid(obj))
        self.version += 1
        self.news.set()


@dataclass
class Side:
    """`real` or `ours`."""

    title: str
    kube: Kube
    spaces: dict[str, Space] = field(default_factory=dict)

    def space(self, namespace: str) -> Space:
        return self.spaces.setdefault(namespace, Space())

    async def follow(self, kind: Kind, ready: asyncio.Event) -> None:
        async for change in self.kube.watch(kind, bookmarks=True):
            if change.type == "Bookmark":
                ready.set()
            else:
                self.space(str(change.object["metadata"].get("namespace"))).take(kind, change.type, change.object)

    async def enter(self, namespace: str) -> None:
        """A namespace in which pods may be made."""
        with suppress(AlreadyExists):
            await self.kube.create(kinds.NAMESPACE, _plain("v1", "Namespace", namespace))
        deadline = time.monotonic() + PATIENCE
        while self.space(namespace).get(kinds.SERVICE_ACCOUNT, "default") is None:
            assert time.monotonic() < deadline, f"{self.title}: {namespace} has no service account"
            await asyncio.sleep(0.02)

    async def leave(self, namespace: str, job: Kind) -> None:
        """Nothing stays that the operator would go on working at. The namespace does: a real cluster takes a second of
        work to end one, and these clusters are thrown away."""
        space = self.space(namespace)
        for kind in (job, kinds.POD):
            for obj in space.all(kind):
                with suppress(ApiError):
                    await self.kube.delete(kind, namespace, name(obj), options=DeleteOptions(grace=0))
        self.spaces.pop(namespace, None)

    async def beat(self) -> None:
        """The node that pods are bound to says that it lives, for ever."""
        while True:
            now = time.time()
            spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": micro_timestamp(now)}
            with suppress(ApiError):
                try:
                    await self.kube.patch(kinds.LEASE, "kube-node-lease", NODE, {"spec": spec})
                except NotFound:
                    lease = _plain("coordination.k8s.io/v1", "Lease", NODE, "kube-node-lease")
                    await self.kube.create(kinds.LEASE, {**lease, "spec": spec})
            await asyncio.sleep(BEAT)

    async def make_node(self) -> None:
        node = {**_plain("v1", "Node", NODE), "spec": {"unschedulable": True}}
        node["metadata"]["labels"] = {"rack": "r1"}  # some cases place pods by it
        with suppress(AlreadyExists):
            await self.kube.create(kinds.NODE, node)
        now = timestamp(time.time())
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **times}
        await self.kube.patch(kinds.NODE, "", NODE, {"status": {"conditions": [ready]}}, subresource="status")


def _plain(version: str, kind: str, called: str, namespace: str = "") -> Object:
    metadata: dict[str, Any] = {"name": called, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


@asynccontextmanager
async def opened(title: str, kubeconfig: Path, also: Sequence[Kind] = ()) -> AsyncIterator[Side]:
    """The side with its node and its watches (of `also`, too); ends them afterwards."""
    followed = (*FOLLOWED, *also)
    async with Kube.connect(kubeconfig, limits=Limits(qps=0)) as kube:
        side = Side(title, kube)
        await side.make_node()
        async with asyncio.TaskGroup() as tasks:
            ready = [asyncio.Event() for _ in followed]
            running = [tasks.create_task(side.follow(k, e)) for k, e in zip(followed, ready, strict=True)]
            running.append(tasks.create_task(side.beat()))
            for event in ready:
                await event.wait()
            try:
                yield side
            finally:
                for task in running:
                    task.cancel()
