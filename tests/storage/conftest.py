"""Stores to test: in memory and on disk, with a clock and ids that are the same in every run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rowlock import kinds
from rowlock.api import Change
from rowlock.objects import Object
from rowlock.storage.store import Store

NOW = 1_700_000_000.0
Result = TypeVar("Result")


class Clock:
    """Time that stands still until told."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def counted_ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"


@pytest.fixture(params=["memory", "disk"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "cluster.db" if request.param == "disk" else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run(coroutine: Coroutine[Any, Any, Result], seconds: float = 60.0) -> Result:
    return asyncio.run(asyncio.wait_for(coroutine, seconds))


class Opened:
    """`async with Opened(path) as store`: a store with the namespace `default`, closed at the end."""

    def __init__(self, path: Path | None, clock: Clock | None = None, window: int = 2048) -> None:
        self._path, self._clock, self._window = path, clock or Clock(), window

    async def __aenter__(self) -> Store:
        self._store = Store.open(self._path, clock=self._clock, new_uid=counted_ids(), window=self._window)
        if self._store.view.get(kinds.NAMESPACE, "", "default") is None:
            await self._store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
        return self._store

    async def __aexit__(self, *error: object) -> None:
        await self._store.close()


def config(name: str, namespace: str = "default", data: str = "1", **meta: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, **meta}, "data": {"a": data}}


def pod(name: str, namespace: str = "default", node: str = "", **meta: Any) -> Object:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "host"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "namespace": namespace, **meta}, "spec": spec}


async def take(watch: AsyncIterator[Change], count: int) -> list[Change]:
    """The next changes of a watch; bookmarks count."""
    return [await anext(watch) for _ in range(count)]


def story(changes: list[Change]) -> list[tuple[str, str]]:
    return [(c.type, c.object["metadata"]["name"] if c.object else "") for c in changes]


def every(*awaitables: Awaitable[Any]) -> Awaitable[list[Any]]:
    return asyncio.gather(*awaitables)
