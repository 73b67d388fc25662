"""The client of the job operators. A write returns when the cache shows it, so that no decision is made on an older view.

The loop waits for the newest revision that *any* kind has reached, which is enough for a store in one process. On a real cluster each kind
has its own watch: jobs may be ahead of pods, and a decision would miss a pod that was just created.
"""

from __future__ import annotations

from dataclasses import replace

from rowlock.api import DELETE, Api, DeleteOptions
from rowlock.controllers.read_your_writes import ReadYourWrites
from rowlock.kinds import Kind
from rowlock.kube.cache import Cache
from rowlock.objects import Object, uid


class OperatorClient(ReadYourWrites):
    """A client whose deletes apply only to the object (by uid) that the cache shows."""

    def __init__(self, api: Api, cache: Cache) -> None:
        super().__init__(api, cache)
        self._view = cache.view

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        """Delete the object that the cache shows. Raises Conflict when the cluster has a later object of the same name."""
        seen = self._view.get(kind, namespace, name)
        seen_uid = options.uid or (uid(seen) if seen is not None else "")
        return await super().delete(kind, namespace, name, options=replace(options, uid=seen_uid))
