"""Shares of GPUs where the scheduler gives none: replicas of NVIDIA's device plugin, where nodes say that they have them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gangs.test_dialects import SHARE, replicas, submitted

from rowlock.gangs.dialects import CLUSTER, KAI, KUEUE, OWN, VOLCANO, Dialect
from rowlock.objects import Object
from rowlock.workloads.compute import pod_gpus

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def node(parts: int, strategy: str = "time-slicing", resource: str = GPU, cards: int = 2) -> Object:
    """As GPU feature discovery and the device plugin describe it."""
    labels = {"nvidia.com/gpu.replicas": str(parts), "nvidia.com/gpu.sharing-strategy": strategy}
    return {"metadata": {"labels": labels}, "status": {"allocatable": {"cpu": "8", resource: str(parts * cards)}}}


WHOLE = node(1, "none")
HALVES, QUARTERS = node(2), node(4)


def share(**more: Any) -> Object:
    return submitted(compute={**SHARE["compute"], **more})[0]


def refused(job: Object, *nodes: Object, dialect: Dialect = OWN) -> str:
    causes = list(dialect.refusals(job, nodes))
    assert len(causes) in (0, 2), "one for each role"
    return causes[0].message if causes else ""


@pytest.mark.parametrize(
    ("changes", "nodes", "words"),
    [
        ({}, [WHOLE, HALVES], ""),
        ({"gpuPortionRequest": 0.25}, [HALVES], ""),
        ({"gpuPortionRequest": 0.33}, [node(3)], ""),
        ({}, [node(2, resource=SHARED)], ""),
        ({}, [], "no node says that NVIDIA's device plugin divides its GPUs"),
        ({}, [WHOLE], "no node says that NVIDIA's device plugin divides its GPUs"),
        ({}, [node(2, cards=0)], "no node says"),
        ({}, [QUARTERS], "the nodes divide their GPUs into 4: ask for at most 0.25 of one"),
        ({"gpuPortionRequest": 0.6}, [QUARTERS, HALVES], "into 2 or 4: ask for at most 0.5 of one"),
        ({"gpuDevicesRequest": 2}, [HALVES], "a part of one GPU only"),
        (
            {"gpuRequestType": "memory", "gpuPortionRequest": None, "gpuMemoryRequest": "4G"},
            [HALVES],
            "knows no memory: ask for a portion",
        ),
    ],
)
def test_what_no_replica_can_be_is_refused(changes: dict[str, Any], nodes: list[Object], words: str) -> None:
    compute = {key: value for key, value in {**SHARE["compute"], **changes}.items() if value is not None}
    message = refused(submitted(compute=compute)[0], *nodes)
    assert words in message and bool(message) == bool(words)
    assert not message or message.endswith("or let KAI Scheduler place the job (`rowlock up --scheduler kai`)")


@pytest.mark.parametrize("dialect", [OWN, CLUSTER, VOLCANO, KUEUE])
def test_a_share_is_a_device_on_a_node_that_divides_its_gpus(dialect: Dialect) -> None:
    job, _ = dialect.share_gpus(share(), [WHOLE, HALVES])
    for replica in replicas(job).values():
        pod = replica["template"]
        resources = pod["spec"]["containers"][0]["resources"]
        assert resources["limits"][GPU] == resources["requests"][GPU] == "1"
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        assert [(e["key"], e["operator"], e["values"]) for e in term["matchExpressions"]] == [
            ("nvidia.com/gpu.replicas", "Gt", ["1"]),
            ("nvidia.com/gpu.replicas", "Lt", ["3"]),
        ]
        assert pod_gpus(pod) == pytest.approx(0.5), "what lists and quotas count"
    assert not refused(job, WHOLE, dialect=dialect), "who sends it again has said it already"
    assert dialect.share_gpus(job, [WHOLE]) == (job, [])


def test_other_rules_of_a_pod_stay() -> None:
    job = share()
    for replica in replicas(job).values():
        spec = replica["template"]["spec"]
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
            "podAffinity": {"x": 1},
        }
        spec["containers"].append({"name": "beside", "image": "x"})
        replica["template"]["metadata"]["annotations"]["gpu-fraction-container-name"] = "beside"
    changed, _ = OWN.share_gpus(job, [node(2, resource=SHARED)])
    spec = replicas(changed)["Worker"]["template"]["spec"]
    assert spec["affinity"]["podAffinity"] == {"x": 1}
    kept = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [[e["key"] for e in term["matchExpressions"]] for term in kept] == [
        ["zone", "nvidia.com/gpu.replicas", "nvidia.com/gpu.replicas"]
    ] * 2
    assert spec["containers"][1]["resources"]["limits"] == {SHARED: "1"}, "the plugin may be told to rename them"
    assert GPU not in str(spec["containers"][0].get("resources")), "only the container that was named has it"


def test_who_submits_hears_what_time_slicing_does_not_hold() -> None:
    for nodes, told in (([HALVES], 1), ([node(2, "mps")], 0), ([node(2, "mps"), HALVES], 1)):
        notices = OWN.share_gpus(share(), nodes)[1]
        assert len(notices) == told and all("GPU's memory" in notice for notice in notices)


def test_a_whole_gpu_is_refused_where_all_are_divided_and_we_place_the_pods() -> None:
    whole, _ = submitted(compute={"gpuDevicesRequest": 1})
    assert refused(whole, HALVES, QUARTERS).endswith(
        "the nodes divide all their GPUs: ask for a share, at most 0.5 of one"
    )
    for nodes in ((HALVES, WHOLE), (node(2, cards=0),), ()):
        assert not refused(whole, *nodes)
    assert not refused(whole, HALVES, dialect=CLUSTER), "who asks the device plugin itself takes what it gives"
    assert not refused(submitted()[0], HALVES)


def test_kai_gives_shares_itself_and_whole_gpus_stay_whole() -> None:
    assert KAI.share_gpus(share(), [HALVES]) == (share(), []) and not refused(share(), dialect=KAI)
    whole, _ = submitted(compute={"gpuDevicesRequest": 1})
    assert OWN.share_gpus(whole, [HALVES]) == (whole, [])
