"""An `Api` whose writes return only when a cache shows them, so that later reads of that cache include the write.

The cache follows each kind by a watch of its own, so it may lack an answered write for some milliseconds. A decision, or the
answer to a GET, would then be based on the state before the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from rowlock.api import DELETE, WRITE, Api, DeleteOptions, PatchType, WriteOptions
from rowlock.kinds import Kind
from rowlock.objects import Key, Object, dig, is_deleting, key, revision, uid

PATIENCE_S = 5.0
"""Seconds to wait until the cache shows a write. A watch may skip an object that was created and deleted at once."""


class FollowingCache(Protocol):
    """What a writer needs of a cache."""

    def follows(self, kind: Kind, obj: Object) -> bool:
        """Whether a write of this object will show."""
        ...

    async def wait_for_object(self, kind: Kind, key: Key, condition: Callable[[Object | None], bool]) -> None:
        """Wait until `condition` holds for the object in the cache (None = it does not exist), without a time limit."""
        ...


class ReadYourWrites:
    """Wraps `api`: writes return when `cache` shows them, or after `PATIENCE_S` seconds."""

    def __init__(self, api: Api, cache: FollowingCache) -> None:
        self.inner, self._cache = api, cache
        """`inner`: the wrapped API, for calls that are not verbs (an exec on a real cluster)."""
        self.keeps_order = api.keeps_order
        self.get, self.list, self.watch, self.bind, self.log = api.get, api.list, api.watch, api.bind, api.log

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        return await self._show(kind, await self.inner.create(kind, obj, options=options), options, is_new=True)

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE) -> Object:
        written = await self.inner.update(kind, obj, subresource=subresource, options=options)
        return await self._show(kind, written, options)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = "merge",
        subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object:
        written = await self.inner.patch(
            kind, namespace, name, patch, type=type, subresource=subresource, options=options
        )
        return await self._show(kind, written, options)

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        answer = await self.inner.delete(kind, namespace, name, options=options)
        if options.dry_run:
            return answer
        deleted = options.uid or str(dig(answer, "details.uid") or uid(answer))  # of a Status, or of the object itself

        def is_leaving(current: Object | None) -> bool:
            return current is None or is_deleting(current) or uid(current) != (deleted or uid(current))

        await self._wait(kind, Key(namespace if kind.namespaced else "", name), is_leaving)
        return answer

    async def _show(self, kind: Kind, written: Object, options: WriteOptions, *, is_new: bool = False) -> Object:
        """Wait until the cache has this revision of the object, or a later one; or an object that was there has gone."""
        if options.dry_run or not self._cache.follows(kind, written):
            return written
        target, was_there = revision(written), not is_new

        def is_shown(current: Object | None) -> bool:
            nonlocal was_there
            is_there, was_there = was_there, was_there or current is not None
            return is_there if current is None else revision(current) >= target

        await self._wait(kind, key(written), is_shown)
        return written

    async def _wait(self, kind: Kind, target: Key, condition: Callable[[Object | None], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._cache.wait_for_object(kind, target, condition)
        except TimeoutError:
            return  # a stale view causes a refused write or an old answer, but no lasting damage
