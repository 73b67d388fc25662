"""The client with which a scheduler binds pods. It makes sure that no decision is made on a view without the last bind.

A real API server answers a Binding without the pod, and the watch tells of it some milliseconds later. A scheduler that
decided in between would use the same resources twice. kube-scheduler assumes a bind's success; this client waits until
the cache shows its outcome. While the watch is broken, nothing is decided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from rowlock.api import WRITE, WriteOptions
from rowlock.errors import ApiError, Conflict, NotFound, Timeout, Unavailable
from rowlock.kinds import EVENT, PERSISTENT_VOLUME_CLAIM, POD, Kind
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.connection import Connection
from rowlock.kube.rate_limit import Backoff
from rowlock.kube.users.user_connection import UserConnection
from rowlock.objects import Key, Object, dig, is_deleting, uid
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.volume_topology import SELECTED_NODE_ANNOTATION, claim_keys

CONFLICT_TIMEOUT_S = 5.0
"""Seconds to wait for the reason of a refused bind to show: it may be one that no watch tells of."""
CLAIM_ATTEMPTS = 5
"""How often the node is written to a claim that others change meanwhile; then the pod is planned anew."""
EVENT_DELAY_S = 5.0
"""Seconds of a burst of binds in which Events let them go first: an Event is a courtesy, and costs the API server as much as a bind."""


class SchedulerClient(Kube):
    """`Kube` whose `bind` returns when the cache shows its outcome."""

    def __init__(self, connection: Connection | UserConnection, cache: Cache) -> None:
        super().__init__(connection)
        self._cache = cache
        self._binds, self._burst_began = 0, 0.0
        self._no_binds = asyncio.Event()
        self._no_binds.set()

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        """Events wait until no bind is on its way, or a burst of binds has gone on for too long."""
        if kind == EVENT and self._binds:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._burst_began + EVENT_DELAY_S - time.monotonic()):
                    await self._no_binds.wait()
        return await super().create(kind, obj, options=options)

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None:
        """Raises Conflict for a pod that is bound already, when the cache shows why, and what else the server answers."""
        if not self._binds:
            self._burst_began = time.monotonic()
        self._binds += 1
        self._no_binds.clear()
        try:
            await self._bind(Key(namespace, pod), node, annotations, uid)
        finally:
            self._binds -= 1
            if not self._binds:
                self._no_binds.set()

    async def _bind(self, target: Key, node: str, annotations: Mapping[str, str] | None, uid: str) -> None:
        await self._choose_node_of_claims(target, node)
        try:
            await super().bind(*target, node, annotations=annotations, uid=uid)
        except (Conflict, NotFound):
            with suppress(TimeoutError):  # the next decision uses what is known by then
                async with asyncio.timeout(CONFLICT_TIMEOUT_S):
                    await self._wait_until_settled(target, uid)
            raise
        except (Timeout, Unavailable):
            await self._wait_for_lost_bind(target, uid)
            raise
        await self._wait_until_settled(target, uid)

    async def _choose_node_of_claims(self, target: Key, node: str) -> None:
        """Write the chosen node to claims that wait for their first consumer, as kube-scheduler does; their provisioner
        waits for it, and the kubelet waits for the volume."""
        for claim_key in claim_keys(self._cache.view.get(POD, *target) or {}):
            for attempt in range(CLAIM_ATTEMPTS):
                try:
                    await self._choose_node_of_claim(claim_key, node)
                    break
                except NotFound:
                    break  # it was deleted a moment ago: the kubelet says so
                except Conflict:  # another pod of the gang has written a node, or somebody something else
                    if attempt + 1 == CLAIM_ATTEMPTS:
                        raise

    async def _choose_node_of_claim(self, claim_key: Key, node: str) -> None:
        claim = await self.get(PERSISTENT_VOLUME_CLAIM, *claim_key)
        if dig(claim, "spec.volumeName") or SELECTED_NODE_ANNOTATION in annotations_of(claim):
            return
        seen = {"resourceVersion": claim["metadata"]["resourceVersion"]}
        patch = {"metadata": {**seen, "annotations": {SELECTED_NODE_ANNOTATION: node}}}
        await self.patch(PERSISTENT_VOLUME_CLAIM, *claim_key, patch)

    async def _wait_until_settled(self, target: Key, pod_uid: str) -> None:
        await self._cache.wait_for_object(POD, target, lambda pod: is_settled(pod, pod_uid))

    async def _wait_for_lost_bind(self, target: Key, pod_uid: str) -> None:
        """After a lost answer: ask the server until it says whether the pod is bound, then wait until the cache shows it."""
        backoff = Backoff()
        while True:
            try:
                current: Object | None = await self.get(POD, target.namespace, target.name)
            except NotFound:
                current = None
            except ApiError:
                await asyncio.sleep(backoff.next_delay())
                continue
            if is_settled(current, pod_uid):
                await self._wait_until_settled(target, pod_uid)
            return


def is_settled(pod: Object | None, pod_uid: str) -> bool:
    """Whether nobody can bind the pod of this uid any more: it is bound, on its way out, or gone."""
    if pod is None or (pod_uid and uid(pod) != pod_uid):
        return True
    return bool(dig(pod, "spec.nodeName")) or is_deleting(pod)
