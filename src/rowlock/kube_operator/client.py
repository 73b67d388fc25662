"""The client of the job operators. A write returns when the cache shows it, so that no decision is made on an older view.

The loop waits for the newest revision that *any* kind has reached, which is enough for a store in one process. A real
cluster tells of each kind by a watch of its own: jobs may be ahead of pods, and a pod that was just made would be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rowlock.api import DELETE, WRITE, DeleteOptions, PatchType, WriteOptions
from rowlock.kinds import Kind
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.connection import Connection
from rowlock.kube.users.user_connection import UserConnection
from rowlock.objects import Key, Object, is_deleting, key, revision, uid

PATIENCE_S = 5.0
"""Seconds to wait until the cache shows a write. A watch may skip an object that was created and deleted at once."""


class OperatorClient(Kube):
    """`Kube` whose writes of the `followed` kinds return when the cache shows them, and whose deletes mean what it shows."""

    def __init__(self, connection: Connection | UserConnection, cache: Cache, followed: frozenset[Kind]) -> None:
        super().__init__(connection)
        self._cache, self._followed = cache, followed

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        written = await super().create(kind, obj, options=options)
        await self._wait_for_revision(kind, written)
        return written

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE) -> Object:
        written = await super().update(kind, obj, subresource=subresource, options=options)
        await self._wait_for_revision(kind, written)
        return written

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
        written = await super().patch(kind, namespace, name, patch, type=type, subresource=subresource, options=options)
        await self._wait_for_revision(kind, written)
        return written

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        """Delete the object that the cache shows. Raises Conflict when the cluster has a later object of the same name."""
        seen = self._cache.view.get(kind, namespace, name)
        seen_uid = options.uid or (uid(seen) if seen is not None else "")
        answer = await super().delete(kind, namespace, name, options=replace(options, uid=seen_uid))
        await self._wait(
            kind,
            Key(namespace, name),
            lambda current: current is None or uid(current) != seen_uid or is_deleting(current),
        )
        return answer

    async def _wait_for_revision(self, kind: Kind, written: Object) -> None:
        target = revision(written)
        await self._wait(kind, key(written), lambda current: current is not None and revision(current) >= target)

    async def _wait(self, kind: Kind, target: Key, condition: Callable[[Object | None], bool]) -> None:
        if kind not in self._followed:
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._cache.wait_for_object(kind, target, condition)
        except TimeoutError:
            return  # names are fixed and deletes name a uid: an old view causes a refused write, never a second pod
