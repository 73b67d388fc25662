"""What a job says to the scheduler of a real cluster, and what is refused because nothing else would say so."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from rowlock.gangs.dialects import CLUSTER, COSCHEDULING, KAI, KUEUE, OWN, VOLCANO, Dialect, priority_class_of
from rowlock.gangs.evictions import clean_up_patch, remaining_grace
from rowlock.objects import Object
from rowlock.workloads.objects import Submitter, to_job
from rowlock.workloads.phase import phase_of
from rowlock.workloads.projects import Project
from rowlock.workloads.submission import Submission, parse_submission

PROJECT = Project("1", "team", "runai-team", "team", "default", "", Decimal(-1), Decimal(-1))


def submitted(**spec: Any) -> tuple[Object, Submission]:
    body = {"name": "j", "projectId": "1", "spec": {"image": "x", "numWorkers": 2, **spec}}
    submission = parse_submission(body)
    return to_job(submission, PROJECT, Submitter("id", "ana")), submission


def replicas(job: Object) -> dict[str, Any]:
    (field,) = [name for name in job["spec"] if name.endswith("ReplicaSpecs")]
    found: dict[str, Any] = job["spec"][field]
    return found


@pytest.mark.parametrize(("dialect", "name"), [(OWN, "rowlock-scheduler"), (KAI, "kai-scheduler")])
def test_every_pod_names_the_scheduler(dialect: Dialect, name: str) -> None:
    job, submission = submitted()
    dressed = replicas(dialect.dress(job, submission))
    assert {role: replica["template"]["spec"]["schedulerName"] for role, replica in dressed.items()} == {
        "Master": name,
        "Worker": name,
    }
    assert "schedulerName" not in replicas(job)["Master"]["template"]["spec"], "what was given was changed"


def test_jobs_of_the_clusters_own_scheduler_stay_as_they_are() -> None:
    job, submission = submitted()
    assert CLUSTER.dress(job, submission) == job


def test_an_evicted_job_starts_again_unless_somebody_asked_otherwise() -> None:
    for asked, expected in (("", "OnFailure"), ("Never", "Never"), ("Always", "Always")):
        job, submission = submitted(distributedFramework="TF", **({"restartPolicy": asked} if asked else {}))
        dressed = replicas(OWN.dress(job, submission))
        assert {replica["restartPolicy"] for replica in dressed.values()} == {expected}


def written(**spec: Any) -> Object:
    """A job as a manifest has it; `spec` is that of the master's pod."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}], **spec}}
    roles = {"Master": {"template": template}, "Worker": {"template": template, "restartPolicy": "Never"}, "Odd": 1}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles},
        "metadata": {"name": "j", "namespace": "runai-team", "labels": {"kai.scheduler/queue": "team"}},
    }  # fmt: skip


def test_a_manifest_that_names_no_scheduler_is_dressed() -> None:
    for dialect, restarts in ((OWN, ["OnFailure", "Never"]), (COSCHEDULING, [None, "Never"])):
        dressed = replicas(dialect.dress_manifest(written()))
        assert dressed.pop("Odd") == 1, "what is wrong stays, so that admission says it"
        pods = [replica["template"] for replica in dressed.values()]
        assert {pod["spec"]["schedulerName"] for pod in pods} == {dialect.scheduler_name}
        assert [replica.get("restartPolicy") for replica in dressed.values()] == restarts
    assert pods[0]["metadata"]["labels"] == {"scheduling.x-k8s.io/pod-group": "j"}
    assert KUEUE.dress_manifest(written())["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert CLUSTER.dress_manifest(written()) == written()


def test_a_manifest_that_names_its_scheduler_is_known() -> None:
    assert not any(dialect.is_named_in(written()) for dialect in (OWN, KAI, KUEUE, CLUSTER))
    assert OWN.is_named_in(written(schedulerName="default-scheduler"))
    queued = written()
    queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "other"
    assert KUEUE.is_named_in(queued) and not OWN.is_named_in(queued)


SHARE = {"compute": {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}}


def test_shares_of_gpus_are_for_kai_alone() -> None:
    job, _ = submitted(**SHARE)
    assert list(KAI.refusals(job, ())) == []
    for dialect in (OWN, CLUSTER):
        causes = list(dialect.refusals(job, ()))
        assert len(causes) == 2 and "whole GPUs" in causes[0].message


def test_what_kai_would_refuse_of_the_pods_is_refused_of_the_job() -> None:
    job, _ = submitted(annotations=[{"name": "gpu-fraction", "value": "NaN"}])
    messages = [cause.message for cause in KAI.refusals(job, ())]
    assert len(messages) == 2 and "must be a positive number smaller than 1.0" in messages[0]


def test_queue_and_priority_are_labels() -> None:
    job, _ = submitted(priorityClass="high")
    assert job["metadata"]["labels"]["kai.scheduler/queue"] == "team"
    assert replicas(job)["Worker"]["template"]["metadata"]["labels"]["kai.scheduler/queue"] == "team"
    assert priority_class_of(job) == "high"


@pytest.mark.parametrize(
    ("dialect", "place", "key"),
    [
        (VOLCANO, "annotations", "scheduling.k8s.io/group-name"),
        (COSCHEDULING, "labels", "scheduling.x-k8s.io/pod-group"),
    ],
)
def test_pods_name_the_gang_that_is_made_beside_their_job(dialect: Dialect, place: str, key: str) -> None:
    job, submission = submitted()
    dressed = dialect.dress(job, submission)
    for replica in replicas(dressed).values():
        assert replica["template"]["metadata"][place][key] == "j"
    created = {**dressed, "metadata": {**dressed["metadata"], "uid": "u"}}
    gang = dialect.gang_object(created)
    assert gang is not None and gang["metadata"]["name"] == "j" and gang["spec"]["minMember"] == 3
    assert gang["metadata"]["ownerReferences"][0]["uid"] == "u", "it goes with the job"


def test_kueue_gets_the_job_suspended_and_with_its_queue() -> None:
    job, submission = submitted()
    dressed = KUEUE.dress(job, submission)
    assert dressed["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert dressed["spec"]["runPolicy"]["suspend"] is True and KUEUE.gang_object(dressed) is None
    assert phase_of(dressed, [], None) == "Pending", "it is no job that somebody has stopped"
    needed = KUEUE.needed_queue(job)
    assert needed is not None and (needed.namespace, needed.name) == ("runai-team", "team")
    assert OWN.needed_queue(job) is KAI.needed_queue(job) is None


def policies(job: Object) -> set[str]:
    return {replica["restartPolicy"] for replica in replicas(job).values()}


def test_who_wants_no_second_try_goes_on_when_it_is_evicted_and_only_then() -> None:
    """`rowlock run` sends no restartPolicy and `backoffLimit: 0`."""
    job, submission = submitted(backoffLimit=0)
    assert policies(job) == {"Never"}
    for dialect in (OWN, KAI, VOLCANO):
        dressed = dialect.dress(job, submission)
        assert policies(dressed) == {"OnFailure"} and dressed["spec"]["runPolicy"] == {"backoffLimit": 1}
        assert dressed["metadata"]["annotations"]["rowlock.dev/restarts"] == "evicted"
        assert dialect.notice(dressed) == ""
    asked_with_retries, submission = submitted(backoffLimit=4, restartPolicy="OnFailure")
    assert OWN.dress(asked_with_retries, submission)["spec"]["runPolicy"] == {"backoffLimit": 4}


@pytest.mark.parametrize(
    ("dialect", "spec"),
    [
        (COSCHEDULING, {}),
        (replace(OWN, spares_evicted=True), {}),
        (OWN, {"preemptibility": "non-preemptible"}),
        (OWN, {"priorityClass": "high"}),
    ],
)
def test_never_stays_where_no_eviction_ends_the_job(dialect: Dialect, spec: Any) -> None:
    job, submission = submitted(backoffLimit=0, **spec)
    dressed = dialect.dress(job, submission, {"high": 125})
    assert policies(dressed) == {"Never"} and dressed["spec"]["runPolicy"] == {"backoffLimit": 0}
    assert dialect.notice(dressed, {"high": 125}) == ""


def test_a_class_counts_by_its_value_in_the_cluster() -> None:
    job, submission = submitted(backoffLimit=0, priorityClass="high")
    assert policies(OWN.dress(job, submission, {"high": 20})) == {"OnFailure"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"restartPolicy": "Never"}, "since its restartPolicy is Never"),
        ({"restartPolicy": "Never", "preemptibility": "preemptible", "priorityClass": "high"}, "is Never"),
        ({"backoffLimit": 0, "cleanPodPolicy": "None"}, "since its restartPolicy is Never"),
        ({"distributedFramework": "TF"}, "as every TFJob"),
        ({"distributedFramework": "TF", "backoffLimit": 0}, "as every TFJob"),
    ],
)
def test_who_would_be_failed_by_an_eviction_is_told_at_the_submit(spec: Any, said: str) -> None:
    job, submission = submitted(**spec)
    dressed = OWN.dress(job, submission, {"high": 125})
    assert said in OWN.notice(dressed, {"high": 125}) and "rowlock's scheduler evicts it" in OWN.notice(dressed)
    assert "rowlock.dev/restarts" not in dressed["metadata"]["annotations"]
    assert CLUSTER.notice(job) == "" == replace(OWN, spares_evicted=True).notice(dressed)


def test_a_manifest_with_never_is_told_of_evictions() -> None:
    assert "is Never" in OWN.notice(OWN.dress_manifest(written())), "its workers ask for it"


@pytest.mark.parametrize("end", ["Failed", "Succeeded"])
def test_what_still_runs_of_a_submitted_job_that_ended_is_stopped_and_of_no_other(end: str) -> None:
    job, submission = submitted(backoffLimit=0)
    dressed = OWN.dress(job, submission)
    ended = {"conditions": [{"type": end, "status": "True"}]}
    assert clean_up_patch({**dressed, "status": ended}) == {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}
    assert clean_up_patch({**job, "status": ended}) == {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}
    cleaned, submission = submitted(backoffLimit=0, cleanPodPolicy="None")
    for other in (dressed, {**written(), "status": ended}, {**OWN.dress(cleaned, submission), "status": ended}):
        assert clean_up_patch(other) is None


@pytest.mark.parametrize(
    ("now", "remaining"), [(1000.0, 30.0), (1010.5, 19.5), (1030.0, 0.0), (5000.0, 0.0), (10.0, 30.0)]
)
def test_other_ranks_have_half_a_minute_by_either_clock(now: float, remaining: float) -> None:
    succeeded = {"type": "Succeeded", "status": "True", "lastTransitionTime": "1970-01-01T00:16:40Z"}
    assert remaining_grace({"status": {"conditions": [succeeded]}}, now) == remaining
    assert remaining_grace({"status": {"conditions": [], "completionTime": "1970-01-01T00:16:40Z"}}, now) == remaining
