"""A deleted namespace is emptied, and says what holds it."""

from __future__ import annotations

from typing import Any

from tests.storage.conftest import config, pod
from tests.system.cluster import CM, NS, POD, Cluster

from rowlock.objects import Key


def test_a_deleted_namespace_is_emptied_first(cluster: Cluster) -> None:
    cluster.create(NS, {"metadata": {"name": "team"}})
    for n in range(3):
        cluster.create(CM, config(f"c{n}", "team"))
    cluster.create(POD, pod("p", "team", node="n1"))
    cluster.delete(NS, "team", namespace="")
    assert cluster.names() == [] and cluster.names(NS) == ["default", "team"]
    cluster.delete(POD, "p", namespace="team")
    assert cluster.names(NS) == ["default"]


def test_a_namespace_says_what_holds_it(cluster: Cluster) -> None:
    cluster.create(NS, {"metadata": {"name": "team"}})
    for name in ("a", "b"):
        meta = {"name": name, "namespace": "team", "finalizers": ["example.com/archive"]}
        cluster.create(CM, {"metadata": meta})
    cluster.delete(NS, "team", namespace="")
    cluster.pass_time(1.0)

    def conditions() -> dict[str, dict[str, Any]]:
        namespace = cluster.store.view.get(NS, "", "team")
        assert namespace is not None
        return {c["type"].removeprefix("Namespace"): c for c in namespace["status"]["conditions"]}

    said = conditions()
    assert [(type_, c["status"], c["reason"]) for type_, c in said.items()] == [
        ("DeletionDiscoveryFailure", "False", "ResourcesDiscovered"),
        ("DeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions"),
        ("DeletionContentFailure", "False", "ContentDeleted"),
        ("ContentRemaining", "True", "SomeResourcesRemain"),
        ("FinalizersRemaining", "True", "SomeFinalizersRemain"),
    ]
    assert said["ContentRemaining"]["message"] == "Some resources are remaining: configmaps. has 2 resource instances"
    text = "Some content in the namespace has finalizers remaining: example.com/archive in 2 resource instances"
    assert said["FinalizersRemaining"]["message"] == text

    def release(name: str) -> None:
        cluster.core.patch(CM, Key("team", name), {"metadata": {"finalizers": None}})
        cluster.settle()

    release("a")
    cluster.pass_time(1.0)
    later = conditions()
    assert later["ContentRemaining"]["message"].endswith("configmaps. has 1 resource instances")
    assert later["ContentRemaining"]["lastTransitionTime"] > said["ContentRemaining"]["lastTransitionTime"]
    assert later["DeletionContentFailure"] == said["DeletionContentFailure"], "what says the same keeps its time"
    release("b")
    assert cluster.store.view.get(NS, "", "team") is None
