"""On a real cluster pods go where their volumes can be mounted, and wait while that is not known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduling.cluster import Bench

from rowlock.api import DeleteOptions
from rowlock.kinds import PERSISTENT_VOLUME_CLAIM, POD, POD_GROUP
from rowlock.objects import with_field
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.scheduler_identity import CLUSTER_SCHEDULER_NAME, EMBEDDED, REAL_CLUSTER
from rowlock.scheduling.volume_topology import PERSISTENT_VOLUME, SELECTED_NODE_ANNOTATION, STORAGE_CLASS

ZONE = "topology.kubernetes.io/zone"


def bench_of_two_zones(*, identity: Any = REAL_CLUSTER) -> Bench:
    bench = Bench(scheduler=Scheduler(identity=identity))
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        bench.node(name, 4, metadata={"labels": {ZONE: zone}})
    bench.queue("default")
    bench.put(STORAGE_CLASS, "", "late", volumeBindingMode="WaitForFirstConsumer")
    bench.put(STORAGE_CLASS, "", "early", volumeBindingMode="Immediate")
    return bench


def volume(bench: Bench, name: str, claim: str, *terms: dict[str, Any]) -> None:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    reference = {"claimRef": {"namespace": "t", "name": claim}}
    bench.put(PERSISTENT_VOLUME, "", name, spec={**affinity, **reference})


def claim(bench: Bench, name: str, volume_name: str = "", storage_class: str | None = "late", **meta: Any) -> None:
    spec = {"volumeName": volume_name} if volume_name else {}
    bench.put(PERSISTENT_VOLUME_CLAIM, "t", name, metadata=meta, spec={**spec, "storageClassName": storage_class})


def in_zone(zone: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}


def on_node(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def uses(*claims: str) -> dict[str, Any]:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return {"schedulerName": CLUSTER_SCHEDULER_NAME, "volumes": volumes}


def end(bench: Bench, pod: str) -> None:
    bench.store.core.delete(POD, "t", pod, DeleteOptions(grace=0))
    bench.store.commit()


def test_a_pod_goes_where_all_of_its_volumes_are() -> None:
    bench = bench_of_two_zones()
    volume(bench, "pv-zone", "data", in_zone("a"), in_zone("b"))
    volume(bench, "pv-node", "scratch", on_node("n3"))
    claim(bench, "data", "pv-zone")
    claim(bench, "scratch", "pv-node")
    bench.pod("reader", spec=uses("data", "scratch"))
    bench.turn()
    assert bench.node_of("reader") == "n3"


def test_a_gang_shares_the_zone_of_its_volume() -> None:
    bench = bench_of_two_zones()
    volume(bench, "pv", "data", in_zone("b"))
    claim(bench, "data", "pv")
    bench.put(POD_GROUP, "t", "gang", spec={"minMember": 8, "queue": "default"})
    for number in range(8):
        bench.pod(f"rank-{number}", spec=uses("data"), annotations={"pod-group-name": "gang"})
    bench.turn()
    assert {bench.node_of(f"rank-{number}") for number in range(8)} == {"n2", "n3"}


def test_where_no_node_is_right_it_is_said_in_the_words_of_kube_scheduler() -> None:
    bench = bench_of_two_zones()
    volume(bench, "pv-a", "one", in_zone("a"))
    volume(bench, "pv-b", "other", in_zone("b"))
    claim(bench, "one", "pv-a")
    claim(bench, "other", "pv-b")
    bench.pod("torn", spec=uses("one", "other"))
    bench.turn()
    assert bench.node_of("torn") == ""
    assert any("3 node(s) didn't match PersistentVolume's node affinity" in line for line in bench.events())


@pytest.mark.parametrize("storage_class", ["early", ""])
def test_a_pod_waits_for_a_volume_that_does_not_wait_for_it(storage_class: str) -> None:
    bench = bench_of_two_zones()
    claim(bench, "data", storage_class=storage_class)
    bench.pod("reader", spec=uses("data"))
    bench.turn()
    assert bench.node_of("reader") == ""
    assert any("PersistentVolumeClaim data has no volume yet" in line for line in bench.events())
    volume(bench, "pv", "data", on_node("n2"))
    unbound = bench.all(PERSISTENT_VOLUME_CLAIM)["data"]
    bench.store.core.update(PERSISTENT_VOLUME_CLAIM, with_field(unbound, "spec.volumeName", "pv"))
    bench.store.commit()
    bench.turn()
    assert bench.node_of("reader") == "n2", "the change of the claim is enough"


@pytest.mark.parametrize("storage_class", ["late", "unknown", None])
def test_nobody_waits_for_a_volume_that_waits_for_the_pod(storage_class: str | None) -> None:
    bench = bench_of_two_zones()
    claim(bench, "data", storage_class=storage_class)
    bench.pod("reader", spec=uses("data"))
    bench.turn()
    assert bench.node_of("reader")


def test_a_pod_waits_for_a_claim_that_is_not_there_yet() -> None:
    """Nobody would tell it the node, and a volume that waits for its first consumer would never be made."""
    bench = bench_of_two_zones()
    bench.pod("reader", spec={**uses(), "volumes": [{"name": "cache", "ephemeral": {}}]})
    bench.turn()
    assert bench.node_of("reader") == ""
    assert any("PersistentVolumeClaim reader-cache is not there yet" in line for line in bench.events())
    claim(bench, "reader-cache")
    bench.turn()
    assert bench.node_of("reader"), "that the claim came is enough"


def test_a_pod_waits_for_a_claim_that_is_being_deleted() -> None:
    bench = bench_of_two_zones()
    volume(bench, "pv", "data", in_zone("a"))
    claim(bench, "data", "pv", finalizers=["kubernetes.io/pvc-protection"])
    bench.store.core.delete(PERSISTENT_VOLUME_CLAIM, "t", "data", DeleteOptions())
    bench.store.commit()
    bench.pod("reader", spec=uses("data"))
    bench.turn()
    assert bench.node_of("reader") == ""
    assert any("PersistentVolumeClaim data is being deleted" in line for line in bench.events())


@pytest.mark.parametrize(
    ("topologies", "expected"),
    [
        ([("b",)], {"n2", "n3"}),
        ([("a", "c")], {"n1"}),
        ([("c",), ("a",)], {"n1"}),
        ([("c",)], set()),
        ([()], set()),  # a term without expressions selects nothing
        ([], {"n1", "n2", "n3"}),
    ],
)
def test_a_new_volume_is_made_where_its_class_may_make_it(topologies: list[Any], expected: set[str]) -> None:
    bench = bench_of_two_zones()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]} if zones else {} for zones in topologies]
    bench.put(STORAGE_CLASS, "", "zonal", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=terms)
    for number in range(3):
        claim(bench, f"data-{number}", storage_class="zonal")
        bench.pod(f"big-{number}", gpus=4, spec=uses(f"data-{number}"))
    bench.turn()
    assert {bench.node_of(f"big-{number}") for number in range(3)} - {""} == expected
    if not expected:
        reason = "3 node(s) didn't find available persistent volumes to bind"
        assert any(reason in line for line in bench.events())


def test_a_class_that_is_known_after_its_claim_counts() -> None:
    bench = bench_of_two_zones()
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["c"]}]}]
    bench.put(STORAGE_CLASS, "", "zonal", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=terms)
    claim(bench, "data", storage_class="zonal")
    bench.pod("reader", spec=uses("data"))
    bench.turn()
    assert bench.node_of("reader") == ""
    terms[0]["matchLabelExpressions"][0]["values"] = ["a"]
    changed = with_field(bench.all(STORAGE_CLASS)["zonal"], "allowedTopologies", terms)
    bench.store.core.update(STORAGE_CLASS, changed)
    bench.store.commit()
    bench.turn()
    assert bench.node_of("reader") == "n1", "the change of the class is enough"


def test_who_shares_a_new_volume_goes_to_the_node_that_was_chosen_for_it() -> None:
    bench = bench_of_two_zones()
    claim(bench, "data", annotations={SELECTED_NODE_ANNOTATION: "n2"})
    bench.pod("second", spec=uses("data"))
    bench.turn()
    assert bench.node_of("second") == "n2"


def test_a_volume_that_is_known_after_its_claim_counts() -> None:
    bench = bench_of_two_zones()
    claim(bench, "data", "pv")
    bench.pod("big", gpus=4, spec=uses("data"))
    for pod, node in (("first", "n1"), ("second", "n2"), ("third", "n3")):
        bench.pod(pod, gpus=4, spec={"schedulerName": CLUSTER_SCHEDULER_NAME, "nodeName": node})
    bench.turn()
    assert bench.node_of("big") == "", "no node is free"
    volume(bench, "pv", "data", in_zone("b"))
    end(bench, "first")
    bench.turn()
    assert bench.node_of("big") == "", "the node that is free now cannot mount its volume"
    end(bench, "third")
    bench.turn()
    assert bench.node_of("big") == "n3"


def test_volumes_that_are_made_for_a_pod_count() -> None:
    bench = bench_of_two_zones()
    volume(bench, "pv", "reader-cache", on_node("n2"))
    claim(bench, "reader-cache", "pv")
    spec = {"schedulerName": CLUSTER_SCHEDULER_NAME, "volumes": [{"name": "cache", "ephemeral": {}}]}
    bench.pod("reader", spec=spec)
    bench.turn()
    assert bench.node_of("reader") == "n2"


def test_on_one_machine_volumes_are_everywhere() -> None:
    bench = bench_of_two_zones(identity=EMBEDDED)
    claim(bench, "data", storage_class="early")
    bench.pod("reader", spec=uses("data"))
    bench.turn()
    assert bench.node_of("reader")
