"""A quota's status says what its namespace uses, which `kubectl get quota` prints. By equality, on a store in memory."""

from __future__ import annotations

from rowlock.api import WRITE, Change, Patch
from rowlock.kinds import CONFIG_MAP, NAMESPACE, POD, RESOURCE_QUOTA, Kind
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.system.resource_quota import ResourceQuotaController


def put(store: Store, kind: Kind, name: str, **more: object) -> Object:
    meta = {"name": name, "namespace": "default"} if kind.namespaced else {"name": name}
    made = store.core.create(kind, {"apiVersion": "v1", "kind": kind.name, "metadata": meta, **more}, WRITE)
    store.commit()
    return made


def pod(cpu: str) -> dict[str, object]:
    return {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}


def test_a_quota_says_what_is_used_and_follows_what_happens() -> None:
    store, quotas = Store.open(), ResourceQuotaController()
    put(store, NAMESPACE, "default")
    hard = {"pods": "5", "requests.cpu": "4", "memory": "8Gi", "count/configmaps": "3"}
    put(store, RESOURCE_QUOTA, "q", spec={"hard": hard})
    put(store, POD, "a", spec=pod("500m"))
    put(store, POD, "b", spec=pod("1"))
    done = put(store, POD, "done", spec=pod("1"))
    store.core.update(POD, {**done, "status": {"phase": "Succeeded"}}, "status", WRITE)
    other = put(store, CONFIG_MAP, "c")
    key = Key("default", "q")
    assert list(quotas.keys(store.view, Change("Added", 1, CONFIG_MAP, other))) == [key]
    (write,) = quotas.decide(store.view, key, 0.0).writes
    assert isinstance(write, Patch) and write.subresource == "status"
    used = {"pods": "2", "requests.cpu": "1500m", "memory": "2Gi", "count/configmaps": "1"}
    assert write.patch["status"] == {"hard": hard, "used": used}
    quota = store.core.latest_object(RESOURCE_QUOTA, *key)
    assert quota
    store.core.update(RESOURCE_QUOTA, {**quota, **write.patch}, "status", WRITE)
    store.commit()
    assert quotas.decide(store.view, key, 0.0).writes == (), "nothing to say twice"
