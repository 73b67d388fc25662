"""Claims: protected while pods use them, and what is said of one that waits."""

from __future__ import annotations

from tests.storage.conftest import pod
from tests.system.cluster import CLAIM, EVENT, POD, Cluster

from rowlock import objects
from rowlock.api import WRITE, Change, Record
from rowlock.kinds import NAMESPACE, PERSISTENT_VOLUME_CLAIM
from rowlock.objects import Key
from rowlock.storage.store import Store
from rowlock.system.volume_claims import PVC_PROTECTION_FINALIZER, FirstConsumerEvents


def test_a_claim_stays_for_the_pods_that_are_placed_and_not_over(cluster: Cluster) -> None:
    claim = {"metadata": {"name": "data", "namespace": "default", "finalizers": [PVC_PROTECTION_FINALIZER]}}
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    for name, node in (("runs", "n1"), ("waits", ""), ("other", "n1")):
        made = pod(name, node=node)
        made["spec"]["volumes"] = volumes if name != "other" else []
        cluster.create(POD, made)
    cluster.create(CLAIM, claim)
    cluster.delete(CLAIM, "data")
    assert cluster.names(CLAIM) == ["data"]
    cluster.delete(POD, "other")
    assert cluster.names(CLAIM) == ["data"]
    cluster.status(POD, "runs", {"phase": "Succeeded"})
    assert cluster.names(CLAIM) == []


def test_a_claim_goes_with_its_last_pod_and_at_once_without_any(cluster: Cluster) -> None:
    for name in ("used", "unused"):
        cluster.create(
            CLAIM,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "finalizers": [PVC_PROTECTION_FINALIZER],
                }
            },
        )
    made = pod("p", node="n1")
    made["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "used"}}]
    cluster.create(POD, made)
    for name in ("used", "unused"):
        cluster.delete(CLAIM, name)
    assert cluster.names(CLAIM) == ["used"]
    cluster.delete(POD, "p")
    assert cluster.names(CLAIM) == []


def test_a_claim_gets_its_protection_back() -> None:
    cluster = Cluster()
    cluster.create(CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": {}})
    held = cluster.core.latest_object(CLAIM, "default", "c")
    assert held is not None and held["metadata"]["finalizers"] == [PVC_PROTECTION_FINALIZER]
    cluster.delete(CLAIM, "c")
    assert cluster.core.latest_object(CLAIM, "default", "c") is None


def test_a_claim_that_waits_says_so_once() -> None:
    store, waiting, key = Store.open(), FirstConsumerEvents(), Key("team-a", "data")
    store.core.create(NAMESPACE, {"metadata": {"name": "team-a"}}, WRITE)
    store.commit()
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
