"""The client with which a scheduler binds pods. It ensures that no decision is made on a view without the last bind.

A real API server's answer to a Binding lacks the pod, and the watch shows it some milliseconds later. A scheduler that decided in between
would use the same resources twice. kube-scheduler assumes that a bind succeeds; this client waits until the cache shows its outcome, so
nothing is decided while the watch is broken.
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
"""Seconds to wait until the cache shows the reason of a refused bind; some reasons never appear in a watch."""
CLAIM_ATTEMPTS = 5
"""How often to try to write the node to a claim despite conflicts, before the pod is planned again."""
EVENT_DELAY_S = 5.0
"""Seconds that Events are delayed at most during a burst of binds: an Event costs the API server as much as a bind and is less urgent."""


class SchedulerClient(Kube):
    """`Kube` whose `bind` returns when the cache shows its outcome."""

    def __init__(self, connection: Connection | UserConnection, cache: Cache) -> None:
        super().__init__(connection)
        self._cache = cache
        self._binds, self._burst_began = 0, 0.0
        self._no_binds = asyncio.Event()
        self._no_binds.set()

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        """Create an object. Events wait until no bind is in flight, or a burst of binds has lasted `EVENT_DELAY_S`."""
        if kind == EVENT and self._binds:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._burst_began + EVENT_DELAY_S - time.monotonic()):
                    await self._no_binds.wait()
        return await super().create(kind, obj, options=options)

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None:
        """Bind a pod and wait until the cache shows it. Raises Conflict for a bound pod, once the cache shows why; or another ApiError."""
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
            with suppress(TimeoutError):  # the next decision uses the view as it is then
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
                    break  # it was just deleted: the kubelet reports that
                except Conflict:  # a concurrent write, perhaps of the node for another pod of the gang
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
    """Whether the pod of this uid can no longer be bound: it is bound, being deleted, or gone."""
    if pod is None or (pod_uid and uid(pod) != pod_uid):
        return True
    return bool(dig(pod, "spec.nodeName")) or is_deleting(pod)
