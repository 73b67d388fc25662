"""Why a pod's program was asked to end, and how it did: by equality, an action each."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.kubelet.pod.facts import Exit
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.stop_reasons import (
    as_deleted_gracefully,
    deletion_reason,
    is_ended_by_job,
    is_surplus,
    stop_reason,
    stop_sentence,
)
from rowlock.objects import Object

LABELS = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "2"}


def pod(mark: tuple[str, str] | None = None, **spec: Any) -> Object:
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": mark[0], "message": mark[1]}] if mark else []
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": "j", "controller": True}
    meta = {"name": "a-worker-2", "namespace": "n", "uid": "u", "labels": LABELS, "ownerReferences": [owner]}
    return {
        "metadata": meta | spec.pop("meta", {}),
        "spec": {"containers": [{"name": "c"}], **spec},
        "status": {"conditions": conditions},
    }


def job(*conditions: tuple[str, str], workers: int = 3, note: str = "", deleted: bool = False, **policy: Any) -> Object:
    meta: dict[str, Any] = {"uid": "j", "annotations": {"rowlock.dev/stopped-by": note} if note else {}}
    if deleted:
        meta["deletionTimestamp"] = "2026-11-29T00:00:00Z"
    return {
        "metadata": meta,
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": {"Worker": {"replicas": workers}}},
        "status": {"conditions": [{"type": t, "status": "True", "message": m} for t, m in conditions]},
    }


SCHEDULER = "PreemptionByScheduler"


@pytest.mark.parametrize(
    ("gone", "owner", "reason"),
    [
        (pod(), job(), "delete: the pod was deleted"),
        (pod(), None, "delete: its job was deleted"),
        (pod(), job(deleted=True), "delete: its job was deleted"),
        (
            pod(),
            job(deleted=True, note="rowlock run --rerun-on-save"),
            "delete: its job was deleted by `rowlock run --rerun-on-save`",
        ),
        (pod(), job(suspend=True), "suspend: its job was suspended"),
        (pod(), job(suspend=True, note="rowlock down"), "suspend: its job was suspended by `rowlock down`"),
        (
            pod(),
            job(
                ("Failed", "job a has failed because it was active longer than specified deadline."),
                cleanPodPolicy="All",
            ),
            "cleanPodPolicy All: its job has failed (job a has failed because it was active longer than specified deadline)",
        ),
        (
            pod(),
            job(("Succeeded", "done."), cleanPodPolicy="Running"),
            "cleanPodPolicy Running: its job has succeeded",
        ),
        (pod(), job(workers=2), "scale-down: its job has 2 worker now"),
        (
            pod((SCHEDULER, "Pod n/p was preempted by higher priority workload n/b.")),
            job(),
            "preemption: Pod n/p was preempted by higher priority workload n/b",
        ),
        (
            pod((SCHEDULER, "Pod n/p was preempted by workload n/b.\nqueue x: 1 GPU")),
            job(),
            "reclaim: Pod n/p was preempted by workload n/b",
        ),
        (
            pod((SCHEDULER, "Pod n/p moves to node m so that b fits.")),
            job(),
            "consolidation: Pod n/p moves to node m so that b fits",
        ),
        (
            pod((SCHEDULER, "Pod n/p was evicted: its node is reserved for b.")),
            job(),
            "eviction: Pod n/p was evicted: its node is reserved for b",
        ),
        (
            pod(
                (SCHEDULER, "Pod n/p was evicted: node m of its gang is gone; the gang starts again whole, elsewhere.")
            ),
            job(),
            "node removal: Pod n/p was evicted: node m of its gang is gone; the gang starts again whole, elsewhere",
        ),
        (pod(("EvictionByEvictionAPI", "Eviction API: evicting")), job(), "eviction: Eviction API: evicting"),
        (
            pod(("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")),
            job(),
            "node removal: Taint manager: deleting due to NoExecute taint",
        ),
    ],
)
def test_the_action_stands_in_the_objects(gone: Object, owner: Object | None, reason: str) -> None:
    assert deletion_reason(gone, [owner] if owner else []) == reason


@pytest.mark.parametrize("owner", [None, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "r"}])
def test_a_pod_without_a_job_was_deleted(owner: Object | None) -> None:
    owners = [{**owner, "controller": True}] if owner else []
    assert deletion_reason(pod(meta={"ownerReferences": owners}), []) == "delete: the pod was deleted"


BATCH = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": True}
DELETED = {"deletionTimestamp": "2026-11-29T00:00:00Z"}


def part(spec: Any = None, status: Any = None, **meta: Any) -> Object:
    """A Job, a JobSet or a TrainJob."""
    return {"metadata": meta, "spec": spec or {}, "status": status or {}}


def true(type_: str, message: str, reason: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": "True", "message": message, "reason": reason}]}


ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


@pytest.mark.parametrize(
    ("owners", "reason"),
    [
        (
            [part(**DELETED), part(status=true("Failed", "jobset failed (first failed job: a)"))],
            "end of the job: its job has failed (jobset failed (first failed job: a))",
        ),
        ([part(**DELETED), part(status=true("Completed", "m"))], "end of the job: its job has succeeded"),
        (
            [
                part(**DELETED, labels={ATTEMPT: "0"}),
                part(status={"restarts": 1, **true("RestartingJobSet", "applying RestartJobSet")}),
            ],
            "restart: its job starts again (applying RestartJobSet)",
        ),
        ([part(**DELETED, labels={ATTEMPT: "1"}), part(status={"restarts": 1})], "delete: its job was deleted"),
        (
            [
                part(**DELETED),
                part(**DELETED),
                part(**DELETED, annotations={"rowlock.dev/stopped-by": "rowlock delete"}),
            ],
            "delete: its job was deleted by `rowlock delete`",
        ),
        (
            [
                part({"suspend": True}),
                part({"suspend": True}),
                part({"suspend": True}, annotations={"rowlock.dev/stopped-by": "rowlock down"}),
            ],
            "suspend: its job was suspended by `rowlock down`",
        ),
        ([part(), part({"suspend": True})], "suspend: its job was suspended"),
        (
            [part(status=true("SuccessCriteriaMet", "m", "SuccessPolicy"))],
            "end of the job: its job has succeeded",
        ),
        (
            [part(status=true("FailureTarget", "no")), part(), part()],
            "end of the job: its job has failed (no)",
        ),
        ([part({"parallelism": 1})], "delete: the pod was deleted"),
    ],
)
def test_what_a_job_is_a_part_of_is_asked_too(owners: list[Object], reason: str) -> None:
    assert deletion_reason(pod(meta={"ownerReferences": [BATCH], "labels": {}}), owners) == reason


def test_a_job_that_runs_fewer_pods_says_so() -> None:
    surplus = pod(meta={"ownerReferences": [BATCH], "labels": {}})
    assert is_surplus(surplus)
    jobs = [part({"parallelism": 3, "completions": 2})]
    assert (
        deletion_reason(surplus, jobs, was_surplus=True)
        == "scale-down: its job runs at most 2 of its pods at a time now"
    )


@pytest.mark.parametrize(
    "other",
    [
        pod(meta={"ownerReferences": [BATCH], "finalizers": ["batch.kubernetes.io/job-tracking"]}),
        pod(meta={"ownerReferences": [BATCH], **DELETED}),  # counted: its Job has seen the deletion
        {**pod(meta={"ownerReferences": [BATCH]}), "status": {"phase": "Failed"}},  # counted: it has ended
        pod(),  # of another kind of job
    ],
)
def test_a_pod_whose_end_counts_is_no_surplus(other: Object) -> None:
    assert not is_surplus(other)


def test_a_job_that_has_succeeded_by_its_policy_ends_pods_before_it_says_so() -> None:
    assert is_ended_by_job(part(status=true("SuccessCriteriaMet", "m", "SuccessPolicy")), [])
    assert not is_ended_by_job(part(status=true("SuccessCriteriaMet", "m", "CompletionsReached")), [])
    assert not is_ended_by_job(None, [FAILED])


def test_a_pod_whose_node_has_gone_has_its_grace() -> None:
    """A controller takes it away at once, since nobody may be left there; here this node's kubelet is."""
    gone = {"name": "a", "deletionTimestamp": "2026-11-29T00:00:00Z", "deletionGracePeriodSeconds": 0}
    lost = pod(("DeletionByPodGC", "PodGC: node no longer exists"), meta=gone, terminationGracePeriodSeconds=60)
    left = as_deleted_gracefully(lost, pod(), now=0.0)
    assert left["metadata"]["deletionTimestamp"] == "1970-01-01T00:01:00Z"
    assert left["metadata"]["deletionGracePeriodSeconds"] == 60


def test_a_pod_that_is_deleted_by_force_has_its_own_grace() -> None:
    """As a kubelet does it, which sees only that the object has gone."""
    gone = pod(meta={**DELETED, "deletionGracePeriodSeconds": 0})
    left = as_deleted_gracefully(gone, pod(), now=0.0)
    assert left["metadata"]["deletionTimestamp"] == "1970-01-01T00:00:30Z"
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_pod_that_is_deleted_by_force_while_it_ends_has_what_is_left() -> None:
    before = pod(meta={"deletionTimestamp": "1970-01-01T00:01:00Z", "deletionGracePeriodSeconds": 60})
    assert as_deleted_gracefully(pod(meta={**DELETED, "deletionGracePeriodSeconds": 0}), before, now=9.0) is before


FAILED = {"status": {"phase": "Failed"}}
RUNS = {"status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("condition", "message", "others", "ended"),
    [
        ("Failed", "Job a has failed because it was active longer than specified deadline", [], True),
        ("Failed", "Job a has failed because it has reached the specified backoff limit", [], True),
        ("FailureTarget", "Job has reached the specified backoff limit", [], True),
        ("Failed", "PyTorchJob a is failed because 1 Master replica(s) failed.", [RUNS], False),
        ("Failed", "PyTorchJob a is failed because 1 Master replica(s) failed.", [RUNS, FAILED], True),
        ("Running", "PyTorchJob a is running.", [FAILED], False),
    ],
)
def test_a_failed_job_ends_pods_before_it_says_so(
    condition: str, message: str, others: list[Object], *, ended: bool
) -> None:
    assert is_ended_by_job(job((condition, message)), others) is ended


def test_a_batch_job_has_no_policy_for_pods() -> None:
    failed = {"type": "FailureTarget", "status": "True", "message": "Job was active longer than specified deadline"}
    batch = {"metadata": {"uid": "j"}, "spec": {}, "status": {"conditions": [failed]}}
    reason = "end of the job: its job has failed (Job was active longer than specified deadline)"
    assert deletion_reason(pod(), [batch]) == reason


def test_the_kubelet_ends_pods_by_itself() -> None:
    spec = parse_pod_spec(pod(activeDeadlineSeconds=60))
    assert stop_reason(spec, "it used 2 GiB of disk", [], deadline_over=False) == "eviction: it used 2 GiB of disk"
    deadline = "deadline: the pod's activeDeadlineSeconds (60) are over"
    assert stop_reason(spec, "", [job()], deadline_over=True) == deadline


@pytest.mark.parametrize("owners", [[], [job()], [job(deleted=True)]])
def test_a_namespace_that_is_deleted_takes_its_pods_with_it(owners: list[Object]) -> None:
    gone = parse_pod_spec(pod(meta=DELETED))
    space: Object = {"metadata": {"name": "n", **DELETED}}
    reason = "namespace deletion: the namespace n was deleted with all that is in it"
    assert stop_reason(gone, "", owners, deadline_over=False, namespace=space) == reason
    assert stop_reason(gone, "", owners, deadline_over=False, namespace={"metadata": {"name": "n"}}) != reason
    preempted = pod((SCHEDULER, "Pod n/p was preempted by workload n/b."), meta=DELETED)
    why = stop_reason(parse_pod_spec(preempted), "", owners, deadline_over=False, namespace=space)
    assert why.startswith("reclaim: ")


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (
            Exit(0, 1, 2, stop_grace=30, stop_took=0.42),
            "It ended 0.4 s after SIGTERM, of 30 s of grace, with exit code 0",
        ),
        (
            Exit(137, 1, 2, stop_grace=5, stop_took=5.1, used_grace=True),
            "It used the 5 s of its grace up, and was killed",
        ),
        (Exit(137, 1, 2, stop_grace=0, stop_took=0.1, used_grace=True), "It had no grace, and was killed"),
    ],
)
def test_what_became_of_the_grace(end: Exit, sentence: str) -> None:
    assert stop_sentence("c", "suspend: its job was suspended", end) == (
        f"Container c was stopped (suspend: its job was suspended). {sentence}"
    )


def test_a_pod_that_is_to_go_and_has_failed_already_says_why() -> None:
    marked = pod(("DeletionByPodGC", "PodGC: node no longer exists"))
    reason = stop_reason(parse_pod_spec(marked), "", [job()], deadline_over=False)
    assert reason == "node removal: PodGC: node no longer exists"
