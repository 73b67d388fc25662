"""What every conformance test gets: a cluster behind `Api`, a namespace of its own, and a few objects to write."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from rowlock import kinds
from rowlock.api import Api, Change
from rowlock.errors import ApiError
from rowlock.kinds import Kind
from rowlock.objects import Object

Result = TypeVar("Result")
PATIENCE = 60.0


@dataclass
class World:
    """`real` is a kube-apiserver: it has controllers of its own and no node."""

    api: Api
    subject: str
    namespace: str = ""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def real(self) -> bool:
        return self.subject == "real"

    def beyond_the_store(self, why: str) -> None:
        """Skip on a bare store: what it leaves to the API server's door or to controllers."""
        if self.subject == "store":
            pytest.skip(why)

    async def enter(self) -> None:
        """A namespace that nobody else uses; ready for pods."""
        self.namespace = "conformance-" + uuid.uuid4().hex[:8]
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.api.create(kinds.NAMESPACE, made)
        if self.real:
            await self.soon(lambda: self.api.get(kinds.SERVICE_ACCOUNT, self.namespace, "default"))

    def config(self, name: str, **data: str) -> Object:
        return self._object(kinds.CONFIG_MAP, name, data=data)

    def pod(self, name: str, **spec: Any) -> Object:
        container = {"name": "main", "image": "example.test/none:1", "command": ["true"]}
        return self._object(kinds.POD, name, spec={"containers": [container], **spec})

    def job(self, name: str, workers: int = 1) -> Object:
        container = {"name": "pytorch", "image": "example.test/none:1"}
        replica = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
        return self._object(kinds.PYTORCHJOB, name, spec={"pytorchReplicaSpecs": {"Worker": replica}})

    def _object(self, kind: Kind, name: str, **content: Any) -> Object:
        meta = {"name": name, "namespace": self.namespace}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **content}

    async def create(self, obj: Object) -> Object:
        return await self.api.create(kinds.by_object(obj), obj)

    async def gone(self, kind: Kind, name: str) -> None:
        """Wait until there is no such object."""
        deadline = time.monotonic() + PATIENCE
        while await self.exists(kind, name):
            assert time.monotonic() < deadline, f"{kind.resource} {name} is still there"
            await asyncio.sleep(0.02)

    async def exists(self, kind: Kind, name: str) -> bool:
        page = await self.api.list(kind, self.namespace)
        return any(item["metadata"]["name"] == name for item in page.items)

    async def soon(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """The answer, once it is no error any more."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await ask()
            except ApiError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)

    def watch(self, kind: Kind = kinds.CONFIG_MAP, **options: Any) -> Watching:
        return Watching(self.api.watch(kind, self.namespace, **options))


class Watching:
    """A watch that is read step by step; on a real cluster the root certificate's ConfigMap is none of our business."""

    def __init__(self, changes: AsyncIterator[Change]) -> None:
        self._changes = changes

    async def __aenter__(self) -> Watching:
        return self

    async def __aexit__(self, *_: object) -> None:
        await aclosing(self._changes).__aexit__(None, None, None)  # type: ignore[type-var]  # watches are generators

    async def next(self) -> Change:
        async with asyncio.timeout(PATIENCE):
            while True:
                change = await anext(self._changes)
                if change.object.get("metadata", {}).get("name") != "kube-root-ca.crt":
                    return change

    async def until(self, type_: str) -> list[Change]:
        seen = [await self.next()]
        while seen[-1].type != type_:
            seen.append(await self.next())
        return seen


def names(changes: list[Change]) -> list[tuple[str, str]]:
    """`[("Added", "a"), ("Bookmark", "")]`"""
    return [(c.type, c.object.get("metadata", {}).get("name", "")) for c in changes]
