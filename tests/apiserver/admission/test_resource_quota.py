"""A namespace's quota counts what is on its way to disk too: no two pods slip through the same gap."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import WRITE
from rowlock.apiserver.admission import resource_quota as quota_admission
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.errors import Forbidden
from rowlock.objects import Object
from rowlock.storage import bootstrap
from rowlock.storage.store import Store


def opened() -> Store:
    store = Store.open()
    store.core.create(kinds.NAMESPACE, {"metadata": {"name": "default"}}, WRITE)
    return store


def test_a_quota_asks_every_container_for_what_it_limits() -> None:
    store = opened()
    limits = {"spec": {"hard": {"pods": "1", "requests.cpu": "1", "limits.memory": "1Gi"}}}
    store.core.create(kinds.RESOURCE_QUOTA, {"metadata": {"name": "q", "namespace": "default"}, **limits}, WRITE)
    store.commit()
    with pytest.raises(
        Forbidden, match=r"failed quota: q: must specify limits.memory for: main; requests.cpu for: main"
    ):
        quota_admission.check_quotas(kinds.POD, pod("a"), store.view)


def test_a_quota_with_scopes_counts_only_their_pods() -> None:
    store = opened()
    only = {"spec": {"hard": {"pods": "0"}, "scopes": ["BestEffort", "NotTerminating"]}}
    store.core.create(kinds.RESOURCE_QUOTA, {"metadata": {"name": "q", "namespace": "default"}, **only}, WRITE)
    store.commit()
    with pytest.raises(Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"):
        quota_admission.check_quotas(kinds.POD, pod("a"), store.view)
    asking = pod("a")
    asking["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    quota_admission.check_quotas(kinds.POD, asking, store.view)
    hasty = pod("a")
    quota_admission.check_quotas(
        kinds.POD, {**hasty, "spec": {**hasty["spec"], "activeDeadlineSeconds": 5}}, store.view
    )


def pod(name: str) -> Object:
    spec = {"containers": [{"name": "main", "image": "x"}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def rush(directory: Path) -> list[Any]:
    """Three pods at once into a quota of two, on disk; then one that is refused until another has gone."""
    store = Store.open(directory / "cluster.db", admission=AdmissionChain, patches=Patcher())
    try:
        for kind, obj in bootstrap.initial_objects():
            await store.create(kind, obj)
        quota = {"metadata": {"name": "few", "namespace": "default"}, "spec": {"hard": {"pods": "2"}}}
        await store.create(kinds.RESOURCE_QUOTA, quota)
        made = [store.create(kinds.POD, pod(name)) for name in ("a", "b", "c")]
        found = await asyncio.gather(*made, return_exceptions=True)
        swapped = [store.delete(kinds.POD, "default", "a"), store.create(kinds.POD, pod("d"))]
        return [*found, *await asyncio.gather(*swapped, return_exceptions=True)]
    finally:
        await store.close()


def test_pods_created_together_share_one_quota(tmp_path: Path) -> None:
    first, second, third, _, fourth = asyncio.run(rush(tmp_path))
    assert first["metadata"]["name"] == "a" and second["metadata"]["name"] == "b"
    assert isinstance(third, Forbidden)
    assert third.message == (
        'pods "c" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
    )
    assert fourth["metadata"]["name"] == "d"  # its room was free as soon as the deletion was written
