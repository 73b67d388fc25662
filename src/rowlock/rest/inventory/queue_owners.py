"""Makes the namespace of a project the owner of its queue, so that no queue outlives a project whose namespace was deleted by kubectl.

The cluster's own garbage collector deletes the queue then. Only queues that rowlock has made are given an owner. Several servers may do
this at once: the patch is always the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Api, WriteOptions
from rowlock.errors import ApiError, NotFound
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.projects import PROJECT_ANNOTATION

log = logging.getLogger(__name__)
_INTERVAL = 5.0
"""Seconds between two looks, which read the cache only."""


def owners_patch(queue: Object, namespaces: Iterable[Object]) -> dict[str, Any] | None:
    """The patch with which these namespaces, whose projects have the queue, own it; None if they do, or if rowlock has not made it. A
    namespace that has gone stays an owner until another one has its place."""
    present = [_reference(each) for each in sorted(namespaces, key=objects.name)]
    if PROJECT_ANNOTATION not in objects.labels(queue) or objects.is_deleting(queue) or not present:
        return None
    owners = objects.meta(queue).get("ownerReferences") or []
    wanted = [*(owner for owner in owners if owner.get("kind") != "Namespace"), *present]
    if wanted == owners:
        return None
    return {"metadata": {"ownerReferences": wanted, "resourceVersion": objects.meta(queue).get("resourceVersion")}}


def _reference(namespace: Object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "name": objects.name(namespace), "uid": objects.uid(namespace)}


class QueueOwners:
    """One per server of a real cluster. `run` for as long as it works."""

    def __init__(self, api: Api, cache: InformerCache) -> None:
        self._api, self._cache = api, cache

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL)

    async def look(self) -> None:
        """Write what is missing. A refused write is tried again at the next look."""
        namespaces: dict[str, list[Object]] = {}
        for project in self._cache.projects().values():
            if (namespace := self._cache.namespace(project.namespace)) is not None:
                namespaces.setdefault(project.queue, []).append(namespace)
        for queue in list(self._cache.queues()):
            patch = owners_patch(queue, namespaces.get(objects.name(queue), ()))
            if patch is None:
                continue
            try:
                options = WriteOptions(manager="rowlock")
                await self._api.patch(kinds.QUEUE, "", objects.name(queue), patch, type="merge", options=options)
            except NotFound:
                continue
            except ApiError as error:
                log.info("queue %s has no owner yet: %s", objects.name(queue), error.message)
