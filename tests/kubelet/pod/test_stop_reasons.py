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
    assert deletion_reason(gone, owner, has_owner=True) == reason


def test_a_pod_without_an_owner_was_deleted() -> None:
    assert deletion_reason(pod(meta={"ownerReferences": []}), None, has_owner=False) == "delete: the pod was deleted"


def test_a_pod_whose_node_has_gone_has_its_grace() -> None:
    """A controller takes it away at once, since nobody may be left there; here this node's kubelet is."""
    gone = {"name": "a", "deletionTimestamp": "2026-11-29T00:00:00Z", "deletionGracePeriodSeconds": 0}
    lost = pod(("DeletionByPodGC", "PodGC: node no longer exists"), meta=gone, terminationGracePeriodSeconds=60)
    left = as_deleted_gracefully(lost, now=0.0)
    assert left is not None
    assert left["metadata"]["deletionTimestamp"] == "1970-01-01T00:01:00Z"
    assert left["metadata"]["deletionGracePeriodSeconds"] == 60


@pytest.mark.parametrize(
    "other",
    [
        pod(meta={"deletionGracePeriodSeconds": 0}),  # somebody wants it to go at once
        pod((SCHEDULER, "m"), meta={"deletionGracePeriodSeconds": 30}),
        pod((SCHEDULER, "m"), meta={"deletionGracePeriodSeconds": 0}, terminationGracePeriodSeconds=0),
    ],
)
def test_other_pods_have_what_their_deletion_says(other: Object) -> None:
    assert as_deleted_gracefully(other, now=0.0) is None


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
    assert deletion_reason(pod(), batch, has_owner=True) == reason


def test_the_kubelet_ends_pods_by_itself() -> None:
    spec = parse_pod_spec(pod(activeDeadlineSeconds=60))
    assert stop_reason(spec, "it used 2 GiB of disk", None, deadline_over=False) == "eviction: it used 2 GiB of disk"
    deadline = "deadline: the pod's activeDeadlineSeconds (60) are over"
    assert stop_reason(spec, "", job(), deadline_over=True) == deadline


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
    reason = stop_reason(parse_pod_spec(marked), "", job(), deadline_over=False)
    assert reason == "node removal: PodGC: node no longer exists"
