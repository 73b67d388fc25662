"""Namespaces get what Kubernetes gives them. By equality, on a real store in memory."""

from __future__ import annotations

from rowlock import objects
from rowlock.api import WRITE, Create
from rowlock.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.system import namespace_deletion


def put(store: Store, kind: Kind, name: str, **more: object) -> Object:
    made = store.core.create(kind, {"apiVersion": "v1", "kind": kind.name, "metadata": {"name": name}, **more}, WRITE)
    store.commit()
    return made


def test_a_namespace_gets_its_account_and_the_authority() -> None:
    store = Store.open()
    put(store, NAMESPACE, "team-a")
    writes = namespace_deletion.NamespaceDefaults("PEM").decide(store.view, Key("", "team-a"), 0.0).writes
    made = [(w.kind, objects.name(w.object), w.object.get("data")) for w in writes if isinstance(w, Create)]
    assert made == [(SERVICE_ACCOUNT, "default", None), (CONFIG_MAP, "kube-root-ca.crt", {"ca.crt": "PEM"})]
    for write in writes:
        assert isinstance(write, Create)
        store.core.create(write.kind, write.object, WRITE)
    store.commit()
    assert namespace_deletion.NamespaceDefaults("PEM").decide(store.view, Key("", "team-a"), 0.0).writes == ()
