"""A TrainJob and its runtime become the JobSet that Kubeflow Trainer made of them: every recorded case."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from tests.training.trainer_cases import cases, compact, stored, title

from rowlock.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    COSCHEDULING_POD_GROUP,
    JOB_SET,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    VOLCANO_POD_GROUP,
)
from rowlock.objects import timestamp
from rowlock.training.admission.jobset import default_jobset
from rowlock.training.trainjob.jobset import make_jobset
from rowlock.training.trainjob.model import set_variables, variable
from rowlock.training.trainjob.plugins import mpi
from rowlock.training.trainjob.pod_groups import make_pod_groups, named_groups
from rowlock.training.trainjob.runtimes import shipped_runtimes
from rowlock.training.trainjob.snapshot import BadSnapshot, make_snapshot, read_snapshot
from rowlock.training.trainjob.status import time_left

Json = Any
SHIPPED = {one["metadata"]["name"]: stored(CLUSTER_TRAINING_RUNTIME, one, "") for one in shipped_runtimes()}


def created(case: Json) -> tuple[Json, Json, Json] | None:
    """The TrainJob of a case, its runtime and the new objects; None where no JobSet was made of it."""
    runtimes = dict(SHIPPED)
    for step in case["steps"]:
        for obj in step["do"].get("setup", ()):
            if obj["kind"] == TRAINING_RUNTIME.name:
                runtimes[obj["metadata"]["name"]] = stored(TRAINING_RUNTIME, obj)
        if "create" in step["do"]:
            job, new = stored(TRAIN_JOB, step["do"]["create"]), step["variants"][0]["new"]
            made = f"JobSet/{job['metadata']['name']}" in new and case["name"] != "a set of somebody else"
            return (job, runtimes[job["spec"]["runtimeRef"]["name"]], new) if made else None
    return None


MADE = [(case, found) for case in cases("trainjob") if (found := created(case))]


@pytest.mark.parametrize(("case", "found"), MADE, ids=[title(case) for case, _ in MADE])
def test_the_set_is_as_recorded(case: Json, found: tuple[Json, Json, Json]) -> None:
    job, runtime, new = found
    before = copy.deepcopy((job, runtime))
    made, plan = make_jobset(job, runtime)
    kept = stored(JOB_SET, default_jobset(stored(JOB_SET, made)))
    recorded = new[f"JobSet/{job['metadata']['name']}"]
    assert compact(kept["spec"]) == recorded["spec"]
    for part in ("labels", "annotations"):
        assert compact(kept["metadata"]).get(part, {}) == recorded.get(part, {})
    hosts = new.get("ConfigMap/tj-mpi-hostfile")
    assert ("mpi" in plan.policy) == (hosts is not None)
    if hosts is not None:
        assert mpi.host_file(plan) == hosts["data"]["hostfile"]
    assert (job, runtime) == before, "what the store gave is never changed"


@pytest.mark.parametrize(("case", "found"), MADE, ids=[title(case) for case, _ in MADE])
def test_the_pod_groups_are_as_recorded(case: Json, found: tuple[Json, Json, Json]) -> None:
    job, runtime, new = found
    made, plan = make_jobset(job, runtime)
    policy = runtime["spec"].get("podGroupPolicy") or {}
    names = {COSCHEDULING_POD_GROUP: "PodGroup/tj", VOLCANO_POD_GROUP: "VolcanoPodGroup/tj"}
    groups = dict(make_pod_groups(plan, policy, made["metadata"].get("annotations") or {}))
    assert {names[kind]: obj["spec"] for kind, obj in groups.items()} == {
        name: recorded["spec"] for name, recorded in new.items() if name in names.values()
    }
    assert set(groups) == set(named_groups(made))


def test_a_pod_group_asks_for_what_all_pods_request() -> None:
    """Limits are no requests here; of what runs before the containers, the largest counts."""
    resources = [
        {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 4}},
        {"requests": {"cpu": 1}},
    ]
    containers = [{"name": "node", "resources": resources[0]}, {"name": "other", "resources": resources[1]}]
    before = [{"name": "fetch", "resources": {"requests": {"memory": "3Gi"}}}]
    pod = {"containers": containers, "initContainers": before, "priorityClassName": "high"}
    meta = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": meta, "spec": {"template": {"spec": pod}}}}
    policy = {"coscheduling": {"scheduleTimeoutSeconds": 9}, "volcano": {"networkTopology": {"mode": "hard"}}}
    runtime = {"spec": {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}}}
    job = stored(TRAIN_JOB, {"metadata": {"name": "tj"}, "spec": {"runtimeRef": {"name": "x"}}})
    _, plan = make_jobset(job, runtime)
    specs = [obj["spec"] for _, obj in make_pod_groups(plan, policy, {"scheduling.volcano.sh/queue-name": "q"})]
    shared = {"minMember": 2, "minResources": {"cpu": "5", "memory": "6Gi"}}
    assert specs == [
        {**shared, "scheduleTimeoutSeconds": 9},
        {**shared, "queue": "q", "priorityClassName": "high", "networkTopology": {"mode": "hard"}},
    ]


def test_most_cases_make_a_set() -> None:
    assert len(MADE) >= 46


def test_what_a_snapshot_holds_makes_the_same_set() -> None:
    for _, (job, runtime, _) in MADE:
        snapshot = make_snapshot(job, runtime)
        assert make_jobset(job, read_snapshot(job, snapshot))[0] == make_jobset(job, runtime)[0]


def test_a_hostfile_that_no_config_map_holds_is_not_written() -> None:
    runtime = next(one for one in shipped_runtimes() if one["metadata"]["name"] == "deepspeed-distributed")
    spec = {"runtimeRef": {"name": "x"}, "trainer": {"numNodes": 2**31 - 1}}
    _, plan = make_jobset(stored(TRAIN_JOB, {"metadata": {"name": "tj"}, "spec": spec}), runtime)
    with pytest.raises(mpi.TooManyHosts, match="the hostfile of 2147483647 nodes would be larger"):
        mpi.host_file(plan)


def test_a_variable_is_replaced_where_it_stands_first() -> None:
    container: Json = {"name": "node", "env": [{"name": name, "value": "old"} for name in ("A", "B", "A")]}
    set_variables(container, [variable("A", 1), variable("C", 2), variable("C", 3)])
    assert [(one["name"], one["value"]) for one in container["env"]] == [
        ("A", "1"),
        ("B", "old"),
        ("A", "old"),
        ("C", "3"),
    ]


@pytest.mark.parametrize(
    ("suspended", "left"),
    [(None, -190.0), ("True", 10.0), ("False", 4.0)],
    ids=["never suspended", "resumed in this turn", "resumed before"],
)
def test_a_deadline_counts_from_the_last_resume(suspended: str | None, left: float) -> None:
    """A job that was suspended for longer than its deadline does not fail as it is resumed."""
    resumed = {"type": "Suspended", "status": suspended, "lastTransitionTime": timestamp(1_000_194.0)}
    job = {
        "metadata": {"creationTimestamp": timestamp(1_000_000.0)},
        "spec": {"activeDeadlineSeconds": 10},
        "status": {"conditions": [resumed] if suspended else []},
    }
    assert time_left(job, 1_000_200.0) == left


def test_a_large_runtime_is_copied_once_and_shared_otherwise() -> None:
    """16 patches of a runtime near its limit copied it for each of them, on the event loop."""
    variables = [{"name": f"V{n}", "value": "x" * 20} for n in range(10_000)]
    node = {"name": "node", "image": "i", "env": variables}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {
        "name": "node",
        "template": {"metadata": {"labels": step}, "spec": {"template": {"spec": {"containers": [node]}}}},
    }
    runtime = {
        "metadata": {"name": "r"},
        "spec": {"template": {"spec": {"replicatedJobs": [job]}}, "mlPolicy": {"numNodes": 2}},
    }
    patch = {"name": "node", "template": {"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}}}
    wanted = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patch]}}}}
    head = {"apiVersion": TRAIN_JOB.api_version, "kind": TRAIN_JOB.name}
    trainjob: Json = {
        **head,
        "metadata": {"name": "t", "namespace": "n", "uid": "u"},
        "spec": {"runtimePatches": [wanted] * 16},
    }
    before = copy.deepcopy((trainjob, runtime))
    began = time.process_time()
    made, _ = make_jobset(trainjob, runtime)
    assert time.process_time() - began < 1
    (kept,) = made["spec"]["replicatedJobs"]
    spec = kept["template"]["spec"]["template"]["spec"]
    assert len(spec["containers"][0]["env"]) == 10_000 and spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert (trainjob, runtime) == before, "neither was changed"
    spec["volumes"].append({"name": "w"})
    assert (
        patch == before[0]["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    )


def test_a_snapshot_that_somebody_has_made_yaml_is_read_while_it_is_short() -> None:
    trainjob = {"apiVersion": "a/b", "kind": "T", "metadata": {"name": "t", "namespace": "n", "uid": "u"}}
    head = make_snapshot(trainjob, {"apiVersion": "a/b", "kind": "K", "metadata": {"name": "r"}, "spec": {}})[
        "metadata"
    ]
    assert read_snapshot(trainjob, {"metadata": head, "data": {"runtime": "spec: {a: b}"}}) == {"spec": {"a": "b"}}
    with pytest.raises(BadSnapshot, match="it is no JSON"):
        read_snapshot(trainjob, {"metadata": head, "data": {"runtime": "spec: {a: b}" + " " * 20_000 + "# c"}})
