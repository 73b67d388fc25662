"""Sweeps on a real cluster: the controller of the embedded one, on a view that watches keep up to date.

One of several servers makes the runs: the holder of a Lease. All of them seal sweeps with one key, which a Secret of the cluster holds: a
server that comes anew, or one that takes over, goes on with what others have sealed.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64decode, b64encode
from contextlib import suppress
from functools import partial

from rowlock import controllers, kinds
from rowlock.authorization.user_rights import may_create_runs
from rowlock.errors import AlreadyExists, ApiError, NotFound
from rowlock.gangs.dialects import Dialect
from rowlock.kinds import Kind
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.installation import ensure_system_namespace
from rowlock.kube.leader_election import LeaderElection, LeaseTimes
from rowlock.kube.rights import SWEEP_RULES, SWEEPS_LEASE, SYSTEM_NAMESPACE, missing_rights
from rowlock.kube.users.followed_roles import FollowedRoles
from rowlock.kube_operator.client import OperatorClient
from rowlock.objects import Object, dig
from rowlock.rest.sweeps.search_loop import GoOnWithSweeps
from rowlock.selectors import parse_labels
from rowlock.sweeps.controller import SweepController
from rowlock.sweeps.sweep import LABEL, SweepSubmitter

KEY_SECRET = "rowlock-sweeps"
_KEY = "key"


async def read_sweep_key(kube: Kube, dialect: Dialect) -> tuple[str, str]:
    """The key that seals the sweeps of this cluster, which is made if there is none, and ""; or "" and why there can be no sweeps."""
    if dialect.group_kind is not None or dialect.job_queue_label:
        return "", f"{dialect.title} needs an object or an admission for each job, which rowlock makes at a submit only"
    try:
        if missing := await missing_rights(kube, SWEEP_RULES):
            return "", f"its credentials lack rights ({', '.join(missing)}), which `rowlock manifests` has"
        secret = await _find_or_create_key(kube)
    except ApiError as error:
        return "", f"the key that seals them cannot be read: {error.message}"
    if key := _decode_key(secret):
        return key, ""
    return "", f"the Secret {KEY_SECRET} in {SYSTEM_NAMESPACE} has no key: delete it, and start this server again"


async def _find_or_create_key(kube: Kube) -> Object:
    with suppress(NotFound):
        return await kube.get(kinds.SECRET, SYSTEM_NAMESPACE, KEY_SECRET)
    await ensure_system_namespace(kube)
    secret: Object = {
        "apiVersion": kinds.SECRET.api_version,
        "kind": kinds.SECRET.name,
        "metadata": {"name": KEY_SECRET, "namespace": SYSTEM_NAMESPACE},
        "data": {_KEY: b64encode(secrets.token_hex(32).encode()).decode()},
    }
    try:
        return await kube.create(kinds.SECRET, secret)
    except AlreadyExists:  # another server has just made it
        return await kube.get(kinds.SECRET, SYSTEM_NAMESPACE, KEY_SECRET)


def _decode_key(secret: Object) -> str:
    """The key; "" if the Secret has none of at least 32 characters."""
    try:
        key = b64decode(str(dig(secret, f"data.{_KEY}") or ""), validate=True).decode()
    except ValueError:
        return ""
    return key if len(key) >= 32 else ""


class KubeSweeps:
    """`run()` until cancelled."""

    def __init__(self, kube: Kube, key: str, process: str, times: LeaseTimes = LeaseTimes()) -> None:
        """`process` identifies this process among all others."""
        self._kube, self._key = kube, key
        self.election = LeaderElection(kube, SWEEPS_LEASE, process, times)

    async def run(self, search: GoOnWithSweeps) -> None:
        """Take part in the election, and make runs while this process leads; `search` goes on with the sweeps that learn meanwhile."""

        async def lead() -> None:
            followed = (kinds.CONFIG_MAP, *kinds.JOBS, *kinds.RBAC)
            cache = Cache(self._kube, followed, selectors={kinds.CONFIG_MAP: parse_labels(LABEL)})
            roles = FollowedRoles(cache)

            def may_create(submitter: SweepSubmitter, kind: Kind, namespace: str) -> bool:
                return may_create_runs(roles.require_authorizer(), submitter, kind, namespace)

            controller = SweepController(self._key.encode(), may_create)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(cache.run())
                await cache.synced.wait()
                tasks.create_task(search(partial(cache.view.all, kinds.CONFIG_MAP)))
                client = OperatorClient(self._kube, cache)
                await controllers.run(client, cache.view, [controller], roles.changes())

        await self.election.run(lead)
