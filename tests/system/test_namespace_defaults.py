"""Namespaces get what Kubernetes gives them; cordoned nodes get their taint. By equality, on a real store in memory."""

from __future__ import annotations

from rowlock import objects
from rowlock.api import WRITE, Change, Create, Patch, Record
from rowlock.kinds import CONFIG_MAP, EVENT, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.system import namespace_defaults


def put(store: Store, kind: Kind, name: str, **more: object) -> Object:
    made = store.core.create(kind, {"apiVersion": "v1", "kind": kind.name, "metadata": {"name": name}, **more}, WRITE)
    store.commit()
    return made


def test_a_namespace_gets_its_account_and_the_authority() -> None:
    store = Store.open()
    put(store, NAMESPACE, "team-a")
    writes = namespace_defaults.NamespaceDefaults("PEM").decide(store.view, Key("", "team-a"), 0.0).writes
    made = [(w.kind, objects.name(w.object), w.object.get("data")) for w in writes if isinstance(w, Create)]
    assert made == [(SERVICE_ACCOUNT, "default", None), (CONFIG_MAP, "kube-root-ca.crt", {"ca.crt": "PEM"})]
    for write in writes:
        assert isinstance(write, Create)
        store.core.create(write.kind, write.object, WRITE)
    store.commit()
    assert namespace_defaults.NamespaceDefaults("PEM").decide(store.view, Key("", "team-a"), 0.0).writes == ()


def test_cordon_and_uncordon_move_the_taint() -> None:
    store = Store.open()
    node = put(store, NODE, "n", spec={"unschedulable": True, "taints": [{"key": "mine", "effect": "NoSchedule"}]})
    (write,) = namespace_defaults.UnschedulableTaint().decide(store.view, Key("", "n"), 0.0).writes
    assert isinstance(write, Patch)
    assert [t["key"] for t in write.patch["spec"]["taints"]] == ["mine", namespace_defaults.UNSCHEDULABLE_TAINT]
    store.core.update(NODE, {**node, "spec": {"taints": write.patch["spec"]["taints"]}}, "", WRITE)
    store.commit()
    (write,) = namespace_defaults.UnschedulableTaint().decide(store.view, Key("", "n"), 0.0).writes
    assert isinstance(write, Patch) and [t["key"] for t in write.patch["spec"]["taints"]] == ["mine"]


def test_a_claim_that_waits_says_so_once() -> None:
    store, waiting, key = Store.open(), namespace_defaults.FirstConsumerEvents(), Key("team-a", "data")
    put(store, NAMESPACE, "team-a")
    meta = {"name": "data", "namespace": "team-a"}
    claim = store.core.create(PERSISTENT_VOLUME_CLAIM, {"metadata": meta, "status": {"phase": "Pending"}}, WRITE)
    claim = store.core.update(PERSISTENT_VOLUME_CLAIM, {**claim, "status": {"phase": "Pending"}}, "status", WRITE)
    store.commit()
    assert list(waiting.keys(store.view, Change("Added", 1, PERSISTENT_VOLUME_CLAIM, claim))) == [key]
    assert list(waiting.keys(store.view, Change("Modified", 2, PERSISTENT_VOLUME_CLAIM, claim))) == []
    (said,) = waiting.decide(store.view, key, 0.0).writes
    text = "waiting for first consumer to be created before binding"
    assert said == Record(claim, "Normal", "WaitForFirstConsumer", text, "persistentvolume-controller")
    told = {"metadata": {"name": "e", "namespace": "team-a"}, "involvedObject": {"uid": objects.uid(claim)}}
    event = store.core.create(EVENT, told, WRITE)
    store.commit()
    assert waiting.decide(store.view, key, 0.0).writes == (), "a restarted server does not repeat it"
    store.core.delete(EVENT, "team-a", objects.name(event))
    store.core.update(PERSISTENT_VOLUME_CLAIM, {**claim, "status": {"phase": "Bound"}}, "status", WRITE)
    store.commit()
    assert waiting.decide(store.view, key, 0.0).writes == (), "a pod uses it already"
