"""The roles of a real cluster, followed by watches, for answers about rights that cannot wait for the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from rowlock import kinds
from rowlock.api import Change
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.errors import Unavailable
from rowlock.kinds import Kind
from rowlock.kube.cache import Cache
from rowlock.objects import Object


class FollowedRoles:
    """The cluster's roles and bindings, kept current by watches, as the source of an `RbacAuthorizer`."""

    def __init__(self, cache: Cache) -> None:
        """`cache` follows the kinds of RBAC, and maybe others."""
        self._cache = cache
        self._observers: list[Callable[[Change], None]] = []
        self.authorizer: RbacAuthorizer | None = None
        """None until the roles have been read once."""

    def all(self, kind: Kind) -> Iterable[Object]:
        """Every object of a kind."""
        return self._cache.view.all(kind)

    def observe(self, kinds: Iterable[Kind], observer: Callable[[Change], None]) -> None:
        """Call `observer` with every change. `kinds` is ignored: only the kinds of RBAC are followed."""
        self._observers.append(observer)

    async def run(self) -> None:
        """Follow the roles until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        async for _ in self.changes():
            pass

    async def changes(self) -> AsyncIterator[Change]:
        """Wait until the roles are read, then yield the changes of the cache; the authorizer knows those of roles when they are yielded."""
        await self._cache.synced.wait()
        self.authorizer = RbacAuthorizer(self)
        async for change in self._cache.changes():
            if change.kind in kinds.RBAC:
                for observe in self._observers:
                    observe(change)
            yield change

    def require_authorizer(self) -> RbacAuthorizer:
        """The authorizer. Raises Unavailable, with the reason, until the roles have been read."""
        if self.authorizer is None:
            reason = "; ".join(self._cache.watch_errors.values()) or "they are being read"
            raise Unavailable(f"the roles of the cluster are not known yet ({reason}): try again in a moment")
        return self.authorizer
