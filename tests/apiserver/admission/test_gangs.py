"""Shares that are none, queues in a circle, sub-groups without a parent: refused by admission, with the field and the fix.

What a real KAI refuses is refused in its words; what it admits and holds for ever is admitted with a warning.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from rowlock import kinds, quantity
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.errors import ApiError, Forbidden, Invalid
from rowlock.kinds import Kind
from rowlock.objects import Object, timestamp
from rowlock.scheduling.admission import group_causes
from rowlock.scheduling.model.from_objects import RETIRED_ANNOTATION
from rowlock.storage.store import Store
from rowlock.workloads.compute import Compute
from rowlock.workloads.feasibility import infeasible_cause, never_fits_message

POSITIVE = "gpu-fraction annotation value must be a positive number smaller than 1.0"
NOTE = "metadata.annotations[gpu-fraction]"


class Door:
    """A store with admission, as an API server has it."""

    def __init__(self, *, has_scheduler: bool = True) -> None:
        admission = partial(AdmissionChain, has_scheduler=has_scheduler)
        self.store = Store.open(admission=admission, patches=Patcher())
        self.create(kinds.NAMESPACE, "", "n")

    def create(self, kind: Kind, namespace: str, name: str, **parts: Any) -> list[str]:
        """The warnings."""
        meta = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
        options = WriteOptions()
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **parts}
        self.store.core.create(kind, obj, options)
        self.store.commit()
        return options.warnings

    def change(self, kind: Kind, obj: Object) -> list[str]:
        options = WriteOptions()
        self.store.core.update(kind, obj, "", options)
        self.store.commit()
        return options.warnings

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        found = self.store.view.get(kind, namespace, name)
        assert found is not None
        return found

    def queue(self, name: str, parent: str = "", **spec: Any) -> list[str]:
        return self.create(kinds.QUEUE, "", name, spec={**({"parentQueue": parent} if parent else {}), **spec})


def template(notes: dict[str, str], gpus: str = "", container: str = "pytorch") -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {
        "metadata": {"annotations": notes},
        "spec": {"containers": [{"name": container, "image": "x", "resources": {"limits": limits}}]},
    }


def job(notes: dict[str, str], gpus: str = "", **meta: Any) -> dict[str, Any]:
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template(notes, gpus)}
    return {"metadata": meta, "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}}


@pytest.mark.parametrize(
    ("notes", "gpus", "words", "fix"),
    [
        ({"gpu-fraction": "0"}, "", POSITIVE, f'{NOTE} is "0"; write a share such as "0.5"'),
        ({"gpu-fraction": "-0.1"}, "", POSITIVE, 'write a share such as "0.5"'),
        ({"gpu-fraction": "1"}, "", POSITIVE, "ask for whole GPUs with resources.limits[nvidia.com/gpu]"),
        ({"gpu-fraction": "1.5"}, "", POSITIVE, f'{NOTE} is "1.5"; ask for whole GPUs'),
        ({"gpu-fraction": "NaN"}, "", POSITIVE, f'{NOTE} is "NaN"; write a share'),
        ({"gpu-fraction": "Infinity"}, "", POSITIVE, "write a share"),
        ({"gpu-fraction": "abc"}, "", POSITIVE, "write a share"),
        ({"gpu-fraction": ""}, "", POSITIVE, "write a share"),
        ({"gpu-fraction": "0.004"}, "", POSITIVE, "the smallest share is 0.01"),
        ({"gpu-fraction": "0.5", "gpu-memory": "500"}, "", "cannot request both GPU and GPU memory", "keep one of them"),
        ({"gpu-fraction": "0.5"}, "1", "cannot have both GPU fraction request and whole GPU", "keep one of them"),
        ({"gpu-memory": "500"}, "1", "cannot have both GPU fraction request and whole GPU", "keep one of them"),
        ({"gpu-memory": "0"}, "", "gpu-memory annotation value must be a positive integer greater than 0", "write MiB"),
        ({"gpu-memory": "5Gi"}, "", "gpu-memory annotation value must be a positive integer", "write MiB"),
        ({"gpu-fraction-num-devices": "2"}, "", "cannot request multiple fractional devices without", "add gpu-fraction"),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "",
            "fraction count annotation value must be a positive integer greater than 0", "on how many cards",
        ),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "nosuch"}, "",
            "failed to get fraction container ref: container with name nosuch not found for fraction request", "pytorch",
        ),
    ],
)  # fmt: skip
def test_a_share_that_is_none_is_refused(notes: dict[str, str], gpus: str, words: str, fix: str) -> None:
    door = Door()
    pod = template(notes, gpus)
    with pytest.raises(Forbidden) as refused:
        door.create(kinds.POD, "n", "p", **pod)
    assert refused.value.message.startswith('admission webhook "admission.kai-scheduler.svc" denied the request: ')
    assert words in refused.value.message and fix in refused.value.message
    with pytest.raises(Forbidden) as refused:
        door.create(kinds.PYTORCHJOB, "n", "j", **job(notes, gpus))
    assert words in refused.value.message
    assert "spec.pytorchReplicaSpecs.Master.template." in refused.value.message


@pytest.mark.parametrize("notes", [
    {"gpu-fraction": "0.1"}, {"gpu-fraction": "0.50"}, {"gpu-memory": "5000", "gpu-fraction-num-devices": "2"},
    {"gpu-fraction": "0.5", "gpu-fraction-container-name": "pytorch"},
])  # fmt: skip
def test_a_share_is_admitted(notes: dict[str, str]) -> None:
    door = Door()
    door.create(kinds.POD, "n", "p", **template(notes))
    door.queue("default")
    assert door.create(kinds.PYTORCHJOB, "n", "j", **job(notes)) == []


def test_more_than_two_decimals_are_rounded_and_said() -> None:
    (text,) = Door().create(kinds.POD, "n", "p", **template({"gpu-fraction": "0.125"}))
    assert text == (
        'metadata.annotations[gpu-fraction] "0.125" counts as 0.13: shares are counted in hundredths of a card'
    )


def test_a_running_job_cannot_be_changed_to_nonsense_but_its_labels_can() -> None:
    door = Door()
    door.create(kinds.PYTORCHJOB, "n", "j", **job({"gpu-fraction": "0.1"}))
    stored = door.get(kinds.PYTORCHJOB, "n", "j")
    with pytest.raises(Forbidden, match="gpu-fraction annotation value"):
        door.change(kinds.PYTORCHJOB, {**stored, **{"spec": job({"gpu-fraction": "2"})["spec"]}})
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert door.change(kinds.PYTORCHJOB, labelled) == []


# ---------------------------------------------------------------- queues


def test_a_queue_may_hang_below_one_that_comes_later_but_not_below_itself() -> None:
    door = Door()
    door.queue("a", parent="b")
    with pytest.raises(Invalid) as refused:
        door.queue("b", parent="a")
    assert "spec.parentQueue" in refused.value.message
    assert "queues would form a cycle (b → a → b); name a parent that is not below b" in refused.value.message
    with pytest.raises(Invalid, match=r"form a cycle \(self → self\)"):
        door.queue("self", parent="self")
    door.queue("b")
    door.queue("c", parent="a")
    stored = door.get(kinds.QUEUE, "", "b")
    with pytest.raises(Invalid, match=r"form a cycle \(b → c → a → b\)"):
        door.change(kinds.QUEUE, {**stored, "spec": {"parentQueue": "c"}})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resources": {"gpu": {"quota": -7}}}, "spec.resources.gpu.quota"),
        ({"resources": {"cpu": {"limit": -0.5}}}, "spec.resources.cpu.limit"),
        ({"resources": {"memory": {"overQuotaWeight": -1}}}, "spec.resources.memory.overQuotaWeight"),
        ({"preemptMinRuntime": "banana"}, "spec.preemptMinRuntime"),
        ({"reclaimMinRuntime": "10"}, "spec.reclaimMinRuntime"),
    ],
)
def test_numbers_of_a_queue_that_mean_nothing(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        Door().queue("q", **spec)
    assert [cause.field for cause in refused.value.causes] == [field]


def test_a_queue_as_it_should_be() -> None:
    gpu = {"quota": 4, "limit": -1, "overQuotaWeight": 0.5}
    assert Door().queue("q", resources={"gpu": gpu}, preemptMinRuntime="1h30m", reclaimMinRuntime="0") == []


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([{"name": "a"}, {"name": "a"}], 'spec.subGroups[1].name: Duplicate value: "a"'),
        ([{"minMember": 1}], "spec.subGroups[0].name: Required value"),
        ([{"name": "a", "parent": "b"}, {"name": "c"}], "spec.subGroups[0].parent: Invalid value: \"b\": there is no such"),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "would form a cycle"),
    ],
)  # fmt: skip
def test_sub_groups_are_a_tree(groups: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(ApiError) as refused:
        Door().create(kinds.POD_GROUP, "n", "g", spec={"minMember": 1, "subGroups": groups})
    assert sentence in refused.value.message


# ---------------------------------------------------------------- warnings


def test_a_queue_that_is_not_there_is_a_warning() -> None:
    """A real KAI admits such pods, and holds them."""
    door = Door()
    labels = {"kai.scheduler/queue": "nosuch"}
    pod = template({})
    warned = door.create(kinds.POD, "n", "p", metadata={"labels": labels}, spec=pod["spec"])
    assert warned == [
        'queue "nosuch" does not exist: the pods wait until it does (kubectl get queues shows those there are)'
    ]
    assert door.create(kinds.PYTORCHJOB, "n", "j", **job({}, labels=labels)) == warned
    door.queue("nosuch")
    assert door.create(kinds.PYTORCHJOB, "n", "k", **job({}, labels=labels)) == []
    door.queue("leaf", parent="nosuch")
    (text,) = door.create(kinds.PYTORCHJOB, "n", "l", **job({}, labels=labels))
    assert text.startswith('queue "nosuch" is a department: ') and "(leaf)" in text


def test_a_pod_of_a_job_that_no_node_could_hold_is_a_warning() -> None:
    door = Door()
    door.queue("default")
    assert door.create(kinds.PYTORCHJOB, "n", "a", **job({}, "3")) == [], "without nodes the benefit of the doubt"
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}
    door.create(kinds.NODE, "", "n1", status={"allocatable": room, "capacity": room})
    warned = door.create(kinds.PYTORCHJOB, "n", "b", **job({}, "3"))
    assert len(warned) == 2 and "a pod asks for 3 GPUs, but the largest node has 2" in warned[0]
    assert warned[0].startswith("spec.pytorchReplicaSpecs.Master.template: ")
    assert door.create(kinds.PYTORCHJOB, "n", "c", **job({}, "2")) == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"spec": {"unschedulable": True}}, "Node big could, but is cordoned (`kubectl uncordon big`)."),
        ({"ready": 1_000.0}, "Node big could, but is not ready (its kubelet is silent)."),
        ({"ready": 30.0}, ""),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "but the largest node has 2."),
        (
            {"metadata": {"annotations": {RETIRED_ANNOTATION: "true"}}, "spec": {"unschedulable": True}},
            "but the largest node has 2.",
        ),
        ({}, ""),
    ],
)
def test_a_node_that_takes_no_pods_holds_none(state: dict[str, Any], said: str) -> None:
    def node(name: str, gpus: int, **more: Any) -> Object:
        status = {"allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus)}, "conditions": more.get("conditions", [])}
        return {"metadata": {"name": name, **more.get("metadata", {})}, "spec": more.get("spec", {}), "status": status}

    def told(gpus: int) -> str:
        return never_fits_message(template({}, str(gpus)), nodes, now)

    now = 2_000_000_000.0
    if since := state.pop("ready", None):
        state["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": timestamp(now - since)}]
    nodes = [node("n1", 2), node("big", 8, **state)]
    assert said in told(5) and bool(said) == bool(told(5))
    assert told(2) == ""
    waits = "largest" not in said
    assert (infeasible_cause(Compute(devices=5), nodes) is None) == waits, "what is closed now is worth waiting for"
    assert "Ask for at most" in told(9) or not said, "nothing is said of a node that could not hold it either"
    nodes = [node("big", 8, **state)]
    assert "could" not in told(5), "of a cluster without an open node nothing is known"


def test_without_our_scheduler_nothing_is_said_about_where_pods_could_go() -> None:
    warnings = []
    for has_scheduler in (True, False):
        door = Door(has_scheduler=has_scheduler)
        door.create(kinds.NODE, "", "small", status={"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}})
        warnings.append(door.create(kinds.PYTORCHJOB, "n", "a", **job({}, "8")))
    assert warnings[0] and warnings[1] == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("abc", False), ("1d12h", False), ("30", False), ("30 m", False), ("1h30m", True), ("90.5s", True)],
)
@pytest.mark.parametrize("note", ["rowlock.dev/max-runtime", "kai.scheduler/staleness-grace-period"])
def test_a_time_that_cannot_be_read_is_said(note: str, text: str, is_one: bool) -> None:
    door = Door()
    door.queue("default")
    said = door.create(kinds.PYTORCHJOB, "n", "j", **job({}, annotations={note: text}))
    assert said == ([] if is_one else [
        f'metadata.annotations[{note}] "{text}" is no duration, so it counts for nothing: write a duration such as "90s", "10m" or "1h30m"'
    ])  # fmt: skip
    made = door.get(kinds.PYTORCHJOB, "n", "j")
    assert door.change(kinds.PYTORCHJOB, {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}) == []
    assert (quantity.parse_duration(text) is not None) is is_one
    assert (
        bool(door.create(kinds.POD, "n", "p", metadata={"annotations": {note: text}}, spec=template({})["spec"]))
        is not is_one
    )


NODE: Object = {"status": {"allocatable": {"pods": "100"}}}
POD_TEMPLATE: Object = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}


def of_jobs(kind: Kind, count: int) -> Object:
    if kind is kinds.JOB_SET:
        return {"replicatedJobs": [{"name": "r", "replicas": count, "template": {"spec": {"template": POD_TEMPLATE}}}]}
    return {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": POD_TEMPLATE}


@pytest.mark.parametrize("kind", [kinds.BATCH_JOB, kinds.JOB_SET])
def test_more_pods_than_nodes_could_hold_together_are_refused_whatever_makes_them(kind: Kind) -> None:
    door = Door()
    door.create(kind, "n", "before-there-is-a-node", spec=of_jobs(kind, 101))
    door.create(kinds.NODE, "", "one", **NODE)
    door.create(kind, "n", "fits", spec=of_jobs(kind, 100))
    with pytest.raises(
        Forbidden, match="the job asks for 101 pods, but the cluster's only node holds 100: ask for fewer"
    ):
        door.create(kind, "n", "large", spec=of_jobs(kind, 101))


def test_pods_that_need_not_run_together_may_wait_but_not_any_number_of_them() -> None:
    door = Door()
    door.create(kinds.NODE, "", "one", **NODE)
    apart = {"parallelism": 1_000, "template": POD_TEMPLATE}
    door.create(kinds.BATCH_JOB, "n", "waits", spec=apart)
    with pytest.raises(
        Forbidden, match=r"it asks for 1001 pods or Jobs at a time, .* no more than 10 times as many may wait"
    ):
        door.create(kinds.BATCH_JOB, "n", "large", spec={**apart, "parallelism": 1_001})
    job = door.get(kinds.BATCH_JOB, "n", "waits")
    with pytest.raises(Forbidden, match="no more than 10 times as many"):
        door.change(kinds.BATCH_JOB, {**job, "spec": {**job["spec"], "parallelism": 1_001}})
    empty = of_jobs(kinds.JOB_SET, 1_001)
    empty["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 0
    with pytest.raises(Forbidden, match="1001 pods or Jobs"):
        door.create(kinds.JOB_SET, "n", "of-jobs-without-pods", spec=empty)


@pytest.mark.parametrize("parent", ["n{before}", "n{after}", "x{number}"])
def test_thousands_of_sub_groups_are_looked_at_once_each(parent: str) -> None:
    """Each below the one before took 10 s; each below none that there is would have been refused with a gigabyte of names."""
    count = 10_000
    groups = [
        {"name": f"n{n}", "parent": parent.format(before=n - 1, after=(n + 1) % count, number=n)} for n in range(count)
    ]
    groups[0] |= {} if parent != "n{before}" else {"parent": ""}
    began = time.process_time()
    causes = list(group_causes({"spec": {"subGroups": groups}}))
    assert time.process_time() - began < 3
    assert len(causes) == (0 if parent == "n{before}" else count)
    assert all(len(cause.message) < 500 for cause in causes)
