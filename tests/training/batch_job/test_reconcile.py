"""One look at a Job: what it makes, removes, counts and says, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.api import Create, Decision, Delete, Patch, Record, Update
from rowlock.kinds import BATCH_JOB, POD
from rowlock.objects import Object, timestamp
from rowlock.training.batch_job.delays import FailureMemory
from rowlock.training.batch_job.look import ObservedJob
from rowlock.training.batch_job.model import TRACKING_FINALIZER, parse_batch_job
from rowlock.training.batch_job.reconcile import reconcile

NOW = 1_800_000_000.0


def batch_job(status: Object | None = None, **spec: Any) -> Object:
    template = {
        "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u-job"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "team", "uid": "u-job"},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec},
        "status": status or {},
    }


def pod(name: str, phase: str = "Running", index: int | None = None, **more: Any) -> Object:
    metadata: Object = {"name": name, "namespace": "team", "uid": f"u-{name}", "finalizers": [TRACKING_FINALIZER]}
    if index is not None:
        metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
    status: Object = {"phase": phase, **more.pop("status", {})}
    if phase in ("Succeeded", "Failed"):
        code = 0 if phase == "Succeeded" else 1
        end = {"exitCode": code, "finishedAt": timestamp(NOW)}
        status.setdefault("containerStatuses", [{"name": "main", "state": {"terminated": end}}])
    metadata |= more
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


def look(job: Object, *pods: Object, memory: FailureMemory | None = None, at: float = NOW, **more: Any) -> Decision:
    return reconcile(ObservedJob(parse_batch_job(job), pods, memory or FailureMemory(), **more), at)


def new_status(decision: Decision) -> Object:
    updates = [w for w in decision.writes if isinstance(w, Update)]
    assert [(u.kind, u.subresource) for u in updates] == [(BATCH_JOB, "status")]
    return dict(updates[0].object["status"])


def conditions(status: Object) -> list[tuple[str, str]]:
    return [(c["type"], c["status"]) for c in status.get("conditions", ())]


def made(decision: Decision) -> list[Object]:
    return [w.object for w in decision.writes if isinstance(w, Create)]


def test_a_new_job_makes_its_pods_and_says_that_they_are_active() -> None:
    decision = look(batch_job(parallelism=3, completions=5))
    assert [p["metadata"]["generateName"] for p in made(decision)] == ["job-"] * 3
    assert all(p["metadata"]["finalizers"] == [TRACKING_FINALIZER] for p in made(decision))
    status = new_status(decision)
    assert (status["active"], status["startTime"]) == (3, timestamp(NOW))
    assert decision.writes[-1] == Update(
        BATCH_JOB, {**batch_job(parallelism=3, completions=5), "status": status}, "status"
    )


def test_a_pod_that_was_refused_does_not_keep_the_status_from_being_told() -> None:
    decision = look(batch_job(), had_refusal=True)
    assert [type(w) for w in decision.writes] == [Update, Create, Record]
    assert "active" not in new_status(decision)


def test_an_end_is_counted_in_two_steps() -> None:
    """A crash between them neither loses the end nor counts it twice."""
    first = look(batch_job(), pod("a", "Succeeded"))
    status = new_status(first)
    assert status["uncountedTerminatedPods"] == {"succeeded": ["u-a"]}
    assert "succeeded" not in status and conditions(status) == [("SuccessCriteriaMet", "True")]
    assert isinstance(first.writes[-1], Patch)
    again = look(batch_job(status), pod("a", "Succeeded"))  # the server died before the finalizer was off
    assert [type(w) for w in again.writes] == [Patch]
    last = look(batch_job(status), pod("a", "Succeeded", finalizers=[]))
    assert new_status(last)["succeeded"] == 1
    assert conditions(new_status(last)) == [("SuccessCriteriaMet", "True"), ("Complete", "True")]
    assert [w.reason for w in last.writes if isinstance(w, Record)] == ["Completed"]


def test_after_a_failure_the_next_pod_waits_and_waits_longer_each_time() -> None:
    memory = FailureMemory()
    failed = pod("a", "Failed")
    first = look(batch_job(), failed, memory=memory)
    assert made(first) == [] and first.requeue_after == 10.0
    later = look(batch_job(), failed, memory=memory, at=NOW + 10)
    assert len(made(later)) == 1
    twice = look(batch_job(), failed, pod("b", "Failed"), memory=memory, at=NOW + 1)
    assert twice.requeue_after == 19.0


def test_a_preempted_pod_has_not_failed() -> None:
    """The scheduler took its room: it is made anew at once and the backoff limit knows nothing of it."""
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    taken = pod("a", "Running", deletionTimestamp=timestamp(NOW), status={"conditions": [disruption]})
    decision = look(batch_job(backoffLimit=0), taken)
    assert len(made(decision)) == 1
    status = new_status(decision)
    assert conditions(status) == [] and status["uncountedTerminatedPods"] == {}


def test_at_the_limit_the_others_are_stopped_and_the_job_has_failed_when_they_are_gone() -> None:
    job = batch_job(parallelism=2, completions=2, backoffLimit=0)
    first = look(job, pod("a", "Failed"), pod("b"))
    assert [w.name for w in first.writes if isinstance(w, Delete)] == ["b"]
    status = new_status(first)
    assert conditions(status) == [("FailureTarget", "True")] and status["terminating"] == 1
    assert status["uncountedTerminatedPods"] == {"failed": ["u-a", "u-b"]}
    leaving = pod("b", deletionTimestamp=timestamp(NOW), finalizers=[])
    second = new_status(look({**job, "status": status}, pod("a", "Failed", finalizers=[]), leaving))
    assert second["failed"] == 2 and conditions(second) == [("FailureTarget", "True")]
    last = new_status(look({**job, "status": second}, pod("a", "Failed", finalizers=[])))
    assert conditions(last) == [("FailureTarget", "True"), ("Failed", "True")] and "completionTime" not in last


def test_indexed_pods_have_their_index_in_name_hostname_and_environment() -> None:
    job = batch_job(parallelism=2, completions=3, completionMode="Indexed")
    first, second = made(look(job))
    assert [p["metadata"]["generateName"] for p in (first, second)] == ["job-0-", "job-1-"]
    assert second["spec"]["hostname"] == "job-1"
    (variable,) = second["spec"]["containers"][0]["env"]
    assert variable["name"] == "JOB_COMPLETION_INDEX"


def test_indexes_that_have_succeeded_are_written_as_ranges_and_not_made_again() -> None:
    job = batch_job({"completedIndexes": "0-2", "succeeded": 3}, parallelism=3, completions=6, completionMode="Indexed")
    decision = look(job, pod("e", "Succeeded", 4))
    assert [p["spec"]["hostname"] for p in made(decision)] == ["job-3", "job-5"]
    status = new_status(decision)
    assert (status["completedIndexes"], status["succeeded"]) == ("0-2,4", 4)


def test_a_suspended_job_removes_its_pods_without_counting_them() -> None:
    decision = look(batch_job({"startTime": timestamp(NOW - 5), "active": 1}, suspend=True), pod("a"))
    assert [type(w) for w in decision.writes[:3]] == [Patch, Delete, Record]
    status = new_status(decision)
    assert conditions(status) == [("Suspended", "True")] and "failed" not in status
    resumed = new_status(look(batch_job(status)))
    assert conditions(resumed) == [("Suspended", "False")] and resumed["startTime"] == timestamp(NOW)


@pytest.mark.parametrize(
    ("rule", "code", "ending"),
    [
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}, 1, "PodFailurePolicy"),
        ({"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [3]}}, 3, "BackoffLimitExceeded"),
        ({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}, 3, ""),
        ({"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}}, 3, "BackoffLimitExceeded"),
    ],
)
def test_a_failure_means_what_the_first_matching_rule_says(rule: Object, code: int, ending: str) -> None:
    end = {"exitCode": code, "finishedAt": timestamp(NOW)}
    failed = pod("a", "Failed", status={"containerStatuses": [{"name": "main", "state": {"terminated": end}}]})
    status = new_status(look(batch_job(backoffLimit=0, podFailurePolicy={"rules": [rule]}), failed))
    assert [c["reason"] for c in status.get("conditions", ())] == ([ending] if ending else [])


def test_the_success_policy_ends_the_job_and_its_other_pods_do_not_count_as_failed() -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    job = batch_job(parallelism=2, completions=2, completionMode="Indexed", successPolicy=policy)
    decision = look(job, pod("a", "Succeeded", 0), pod("b", "Running", 1))
    status = new_status(decision)
    assert status["conditions"][0]["message"] == "Matched rules at index 0"
    assert status["uncountedTerminatedPods"] == {} and [w.name for w in decision.writes if isinstance(w, Delete)] == [
        "b"
    ]


def test_a_deadline_is_looked_at_in_time() -> None:
    started = {
        "startTime": timestamp(NOW - 3),
        "active": 1,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    waiting = look(batch_job(started, activeDeadlineSeconds=5), pod("a"))
    assert waiting.requeue_after == 2.0 and waiting.writes == ()
    over = look(batch_job(started, activeDeadlineSeconds=3), pod("a"))
    assert new_status(over)["conditions"][0]["reason"] == "DeadlineExceeded"


def test_what_is_made_is_a_pod() -> None:
    (create,) = (w for w in look(batch_job()).writes if isinstance(w, Create))
    assert create.kind is POD and create.failure_records[0].message == "Error creating: {error}"


def test_a_job_that_fails_while_it_is_suspended_before_its_start_was_written_ends() -> None:
    """The API server refuses an end without a start: the Job would try for ever."""
    failed = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}
    status = new_status(look(batch_job({"conditions": [failed]}, suspend=True)))
    assert ("Failed", "True") in conditions(status) and status["startTime"] == timestamp(NOW)


def test_pods_of_a_template_near_the_limit_are_made_by_and_by() -> None:
    job = batch_job(parallelism=400, completions=400)
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": f"V{n}"} for n in range(30_000)]
    first = made(look(job))
    assert len(first) == 16
    pods = [pod(f"p{n}", "Pending") for n in range(400 - 5)]
    assert len(made(look(job, *pods))) == 5, "the next reconcile continues"


def test_the_time_while_a_job_was_suspended_is_not_part_of_its_deadline() -> None:
    """It ran, was suspended for longer than its deadline, and is resumed: the deadline begins anew."""
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
    job = batch_job({"startTime": timestamp(NOW - 500), "conditions": [suspended]}, activeDeadlineSeconds=60)
    status = new_status(look(job))
    assert (status["startTime"], conditions(status)) == (timestamp(NOW), [("Suspended", "False")])
    late = look({**job, "status": status}, pod("p"), at=NOW + 60)
    assert conditions(new_status(late))[-1] == ("FailureTarget", "True")


def test_a_job_that_is_resumed_starts_its_pods_before_its_deadline_is_judged() -> None:
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
    job = batch_job({"startTime": timestamp(NOW - 500), "conditions": [suspended]}, activeDeadlineSeconds=60)
    assert len(made(look(job))) == 1
