"""Namespaces get what Kubernetes gives them; cordoned nodes get their taint. By equality, on a real store in memory."""

from __future__ import annotations

from rowlock import furnishing, objects
from rowlock.api import WRITE, Create, Patch
from rowlock.cluster.storage.store import Store
from rowlock.kinds import CONFIG_MAP, NAMESPACE, NODE, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object


def put(store: Store, kind: Kind, name: str, **more: object) -> Object:
    made = store.core.create(kind, {"apiVersion": "v1", "kind": kind.name, "metadata": {"name": name}, **more}, WRITE)
    store.commit()
    return made


def test_a_namespace_gets_its_account_and_the_authority() -> None:
    store = Store.open()
    put(store, NAMESPACE, "team-a")
    writes = furnishing.Furnishing("PEM").decide(store.view, Key("", "team-a"), 0.0).writes
    made = [(w.kind, objects.name(w.object), w.object.get("data")) for w in writes if isinstance(w, Create)]
    assert made == [(SERVICE_ACCOUNT, "default", None), (CONFIG_MAP, "kube-root-ca.crt", {"ca.crt": "PEM"})]
    for write in writes:
        assert isinstance(write, Create)
        store.core.create(write.kind, write.object, WRITE)
    store.commit()
    assert furnishing.Furnishing("PEM").decide(store.view, Key("", "team-a"), 0.0).writes == ()


def test_cordon_and_uncordon_move_the_taint() -> None:
    store = Store.open()
    node = put(store, NODE, "n", spec={"unschedulable": True, "taints": [{"key": "mine", "effect": "NoSchedule"}]})
    (write,) = furnishing.Cordons().decide(store.view, Key("", "n"), 0.0).writes
    assert isinstance(write, Patch)
    assert [t["key"] for t in write.patch["spec"]["taints"]] == ["mine", furnishing.CORDONED]
    store.core.update(NODE, {**node, "spec": {"taints": write.patch["spec"]["taints"]}}, "", WRITE)
    store.commit()
    (write,) = furnishing.Cordons().decide(store.view, Key("", "n"), 0.0).writes
    assert isinstance(write, Patch) and [t["key"] for t in write.patch["spec"]["taints"]] == ["mine"]
