"""Leader election by a Lease, as in client-go: one of several processes works.

The holder renews the Lease every few seconds. The others read it, and take it when it has not changed for its duration *by their own
clock*, so machines' clocks need not agree. A leader that could not renew it within the renew deadline stops its work before another one may
begin; one that is cancelled releases the Lease at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rowlock.api import Api
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import AlreadyExists, ApiError, Conflict, NotFound
from rowlock.kinds import LEASE
from rowlock.objects import Object, dig, micro_timestamp, revision

log = logging.getLogger("rowlock.kube")
_RELEASE_TIMEOUT_S = 2.0
_REPEAT_S = 60.0
"""Minimum of seconds between two log lines about the same problem."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """In seconds; client-go's defaults. A leader that cannot renew stops after `deadline` and is replaced after `duration`."""

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


class LeaderElection:
    """`await run(work)` runs `work` in at most one of all processes that use the same Lease."""

    def __init__(
        self,
        api: Api,
        lease: tuple[str, str],
        identity: str,
        times: LeaseTimes = LeaseTimes(),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`lease` is namespace and name; `identity` is unique to this process."""
        self._api, (self._namespace, self._name), self._identity = api, lease, identity
        self._times, self._monotonic, self._clock = times, monotonic, clock
        self._seen: tuple[int, float] = (-1, 0.0)
        """(last known revision of the Lease, time at which it was first seen)."""
        self.leader = ""
        """The holder of the Lease, as far as this process knows."""
        self._told: tuple[str, float] = ("", 0.0)
        """(last problem in the log, when it was logged)."""

    @property
    def is_leader(self) -> bool:
        """Whether this process holds the Lease, as far as it knows."""
        return self.leader == self._identity

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled: wait for the Lease, run `work` while it is held, and wait again when it is lost."""
        while True:
            await self._acquire()
            log.info("%s leads: it holds the Lease %s/%s", self._identity, self._namespace, self._name)
            try:
                await run_until_first_ends(work(), self._renew_until_lost())
            finally:
                await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try_to_hold():
                    return
            except ApiError as error:
                self._tell(f"cannot be taken: {error.message}")
            await asyncio.sleep(self._times.retry)

    async def _renew_until_lost(self) -> None:
        renewed_at = self._monotonic()
        while self._monotonic() - renewed_at < self._times.deadline:
            await asyncio.sleep(self._times.retry)
            began = self._monotonic()
            try:
                async with asyncio.timeout(max(0.0, renewed_at + self._times.deadline - began)):
                    held = await self._try_to_hold()
            except (ApiError, TimeoutError) as error:
                self._tell(f"could not be renewed: {str(error) or 'no answer in time'}")
                continue
            if not held:
                break
            renewed_at = began
        self.leader = "" if self.is_leader else self.leader
        log.warning("%s leads no longer: the Lease %s/%s is lost", self._identity, self._namespace, self._name)

    def _tell(self, trouble: str) -> None:
        """Log a problem, the same one only once per `_REPEAT_S`: attempts come every two seconds, perhaps for days."""
        now = self._monotonic()
        if trouble != self._told[0] or now - self._told[1] >= _REPEAT_S:
            self._told = trouble, now
            log.warning("the Lease %s/%s %s", self._namespace, self._name, trouble)

    async def _try_to_hold(self) -> bool:
        """Take or renew the Lease; False when another process holds it. Raises ApiError when the cluster does not answer."""
        try:
            current = await self._api.get(LEASE, self._namespace, self._name)
        except NotFound:
            return await self._write(None)
        now = self._monotonic()
        if self._seen[0] != revision(current):
            self._seen = revision(current), now
        self.leader = str(dig(current, "spec.holderIdentity") or "")
        duration = float(dig(current, "spec.leaseDurationSeconds") or self._times.duration)
        if self.leader and not self.is_leader and now - self._seen[1] < duration:
            return False
        return await self._write(current)

    async def _write(self, current: Object | None) -> bool:
        """Write our identity into the Lease, as `current` was read; False if another process wrote it meanwhile."""
        lease = self._lease_object(current)
        try:
            written = await (self._api.update(LEASE, lease) if current else self._api.create(LEASE, lease))
        except (Conflict, AlreadyExists):
            return False
        self._seen, self.leader = (revision(written), self._monotonic()), self._identity
        return True

    def _lease_object(self, current: Object | None) -> Object:
        previous: dict[str, Any] = dict((current or {}).get("spec") or {})
        moment, is_renewal = micro_timestamp(self._clock()), previous.get("holderIdentity") == self._identity
        transitions = int(previous.get("leaseTransitions") or 0) + (0 if is_renewal or current is None else 1)
        spec = {
            **previous,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "acquireTime": previous.get("acquireTime", moment) if is_renewal else moment,
            "renewTime": moment,
            "leaseTransitions": transitions,
        }
        fresh = {"apiVersion": LEASE.api_version, "kind": LEASE.name}
        metadata = {"namespace": self._namespace, "name": self._name}
        return {**(current or {**fresh, "metadata": metadata}), "spec": spec}

    async def _release(self) -> None:
        """Give the Lease back, so that the next leader need not wait. If that fails, it waits for `duration`."""
        if not self.is_leader:
            return
        self.leader = ""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                current = await self._api.get(LEASE, self._namespace, self._name)
                if dig(current, "spec.holderIdentity") == self._identity:
                    spec = {**current["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._api.update(LEASE, {**current, "spec": spec})
