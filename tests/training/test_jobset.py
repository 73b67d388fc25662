"""A JobSet's Jobs and its status are what the JobSet controller made of the same: the recorded cases, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.training.trainer_cases import cases, compact, steps, stored, title, without_ids

from rowlock.api import Create, Record, Update
from rowlock.kinds import BATCH_JOB, JOB_SET
from rowlock.objects import Object, dig
from rowlock.training.admission.jobset import default_jobset
from rowlock.training.jobset.jobs import SetNumbers
from rowlock.training.jobset.model import PREFIX, REPLICATED_JOB_KEY, RESTART_KEY, ObservedSet
from rowlock.training.jobset.pod_webhook import admit_pod
from rowlock.training.jobset.reconcile import MAX_JOBS_PER_LOOK, reconcile

Json = Any
NOW = 1_800_000_000.0


def made_set(case: Json) -> Json | None:
    found = next((s["do"]["create"] for s in case["steps"] if "create" in s["do"]), None)
    return None if found is None else stored(JOB_SET, default_jobset(stored(JOB_SET, found)))


def all_jobs(jobset: Object) -> dict[str, Object]:
    """Every Job that a set may have, by name."""
    found = {}
    for position, one in enumerate(jobset["spec"].get("replicatedJobs") or ()):
        for index in range(one["replicas"]):
            job = SetNumbers(jobset).job_of(position, index, 0)
            found[job["metadata"]["name"]] = job
    return found


RECORDED = [(case, step) for case, step in steps("jobset") if "create" in step["do"]]


@pytest.mark.parametrize(("case", "step"), RECORDED, ids=[title(case) for case, _ in RECORDED])
def test_jobs_are_as_recorded(case: Json, step: Json) -> None:
    jobset = made_set(case)
    assert jobset is not None
    jobs = all_jobs(jobset)
    for key, new in step["variants"][0]["new"].items():
        kind, _, name = key.partition("/")
        if kind != BATCH_JOB.name:
            continue
        job = without_ids({**jobs[name], "metadata": {**jobs[name]["metadata"], "namespace": ""}})
        for part in ("labels", "annotations"):
            assert job["metadata"][part] == {k: v for k, v in new[part].items() if "uid" not in k or "jobset" in k}
        template, own = new["spec"]["template"], compact(job["spec"]["template"])
        assert own["spec"].items() >= template["spec"].items()
        assert own["metadata"]["annotations"] == template["metadata"]["annotations"]


def recorded_job(job: Object, recorded: Json, restarts: int) -> Object:
    """A Job as a step of a record shows it."""
    fields = ("type", "status", "reason", "message")
    conditions = [dict(zip(fields, one, strict=True)) for one in recorded["conditions"]]
    status = {k: v for k, v in recorded.items() if k in ("active", "ready", "succeeded", "failed")}
    labels = {**job["metadata"]["labels"], RESTART_KEY: str(restarts)}
    spec = {**job["spec"], "suspend": bool(recorded.get("suspend"))}
    spec = {"parallelism": spec.get("completions", 1), "completions": 1, **spec}
    return {
        **job,
        "metadata": {**job["metadata"], "labels": labels},
        "spec": spec,
        "status": {**status, "conditions": conditions},
    }


def shown(status: Json) -> Json:
    """A status as the recorder shows it."""
    fields = ("type", "status", "reason", "message")
    conditions = [[one[field] for field in fields] for one in status.get("conditions", ())]
    rest = {k: v for k, v in status.items() if k != "conditions" and v not in (0, [], {}, "")}
    return {"conditions": conditions, **rest}


STILL = [case for case in cases("jobset") if made_set(case)]


@pytest.mark.parametrize("case", STILL, ids=map(title, STILL))
def test_the_status_follows_the_jobs_as_recorded(case: Json) -> None:
    """Steps in which a set restarts show only where it ends, so the ones after them are not played."""
    jobset = made_set(case)
    assert jobset is not None
    jobs = all_jobs(jobset)
    for step in case["steps"]:
        variants = [v for v in step.get("variants", ()) if "js" in v.get("JobSet", {})]
        if "patch" in step["do"]:
            jobset = stored(JOB_SET, {**jobset, "spec": {**jobset["spec"], **step["do"]["patch"]}})
        if not variants or any("terminating" in v["JobSet"]["js"] for v in variants):
            continue
        recorded, restarts = variants[0], dig(jobset, "status.restarts", 0)
        if recorded["JobSet"]["js"].get("restarts", 0) != restarts:
            return
        there = [recorded_job(jobs[name], one, restarts) for name, one in recorded.get("Job", {}).items()]
        for _ in range(3):
            decision = reconcile(ObservedSet(jobset, there, has_service=True), NOW)
            for write in decision.writes:
                if isinstance(write, Update) and write.kind is JOB_SET:
                    jobset = write.object
        assert shown(jobset.get("status") or {}) == recorded["JobSet"]["js"]


def a_set(*jobs: Json, **spec: Json) -> Object:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "img"}]}}}}
    replicated = [{"template": template, **job} for job in jobs]
    obj = {"metadata": {"name": "js"}, "spec": {"replicatedJobs": replicated, **spec}}
    return default_jobset(stored(JOB_SET, obj))


def ended(jobset: Object, name: str, type_: str, message: str = "", at: str = "2026-01-01T00:00:00Z") -> Object:
    condition = {"type": type_, "status": "True", "reason": "Because", "message": message, "lastTransitionTime": at}
    return {**all_jobs(jobset)[name], "status": {"conditions": [condition]}}


def test_the_job_that_failed_first_is_named() -> None:
    jobset = a_set({"name": "a"}, {"name": "b"})
    late = ended(jobset, "js-a-0", "Failed", at="2026-01-01T00:00:05Z")
    decision = reconcile(ObservedSet(jobset, [late, ended(jobset, "js-b-0", "Failed")], has_service=True), NOW)
    (event,) = (write for write in decision.writes if isinstance(write, Record))
    assert event.message == "jobset failed due to one or more job failures (first failed job: js-b-0)"


def test_a_pattern_that_is_no_regular_expression_matches_nothing() -> None:
    rules = [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]}]
    jobset = a_set({"name": "a"}, failurePolicy={"maxRestarts": 1, "rules": rules})
    decision = reconcile(ObservedSet(jobset, [ended(jobset, "js-a-0", "Failed", "(")], has_service=True), NOW)
    reasons = [write.reason for write in decision.writes if isinstance(write, Record)]
    assert reasons == ["RestartJobSetFailurePolicyAction", "DefaultFailurePolicy"]


def test_patterns_that_take_too_long_fail_the_set_and_say_so() -> None:
    rules = [{"name": "r", "action": "RestartJobSet", "onJobFailureMessagePatterns": ["(a?){500}b"] * 400}]
    jobset = a_set({"name": "a"}, failurePolicy={"maxRestarts": 1, "rules": rules})
    decision = reconcile(ObservedSet(jobset, [ended(jobset, "js-a-0", "Failed", "a" * 512)], has_service=True), NOW)
    (event,) = (write for write in decision.writes if isinstance(write, Record))
    assert event.reason == "FailurePolicyTooLong" and "use fewer or simpler ones" in event.message


def test_a_suspended_set_stops_jobs_whose_dependency_is_gone() -> None:
    jobset = a_set({"name": "a"}, {"name": "b", "dependsOn": [{"name": "a", "status": "Ready"}]}, suspend=True)
    running = {**all_jobs(jobset)["js-b-0"]}
    running = {**running, "spec": {**running["spec"], "suspend": False}}
    decision = reconcile(ObservedSet(jobset, [running], has_service=True), NOW)
    assert any(getattr(write, "patch", None) == {"spec": {"suspend": True}} for write in decision.writes)
    assert [
        dig(w.object, "metadata.labels").get(REPLICATED_JOB_KEY) for w in decision.writes if isinstance(w, Create)
    ] == ["a"]


def test_a_set_of_any_size_is_made_by_and_by() -> None:
    jobset = a_set({"name": "a", "replicas": 2**31 - 1}, {"name": "b"})
    jobs = list[Object]()
    for _ in range(3):
        writes = reconcile(ObservedSet(jobset, jobs, has_service=True), NOW).writes
        made = [write.object for write in writes if isinstance(write, Create)]
        jobs += made
        assert len(made) == MAX_JOBS_PER_LOOK
    assert [job["metadata"]["name"] for job in jobs] == [f"js-a-{n}" for n in range(3 * MAX_JOBS_PER_LOOK)]


def test_thousands_of_replicated_jobs_are_numbered_once() -> None:
    """Each has its numbers among all of the set and of its group, without counting them again."""
    jobset = a_set(*({"name": f"r{n}", "replicas": 2, "groupName": f"g{n % 2}"} for n in range(2_000)))
    job = SetNumbers(jobset).job_of(1_001, 1, 0)
    numbers = ("job-global-index", "global-replicas", "job-group-index", "group-replicas")
    assert [job["metadata"]["labels"][f"{PREFIX}{one}"] for one in numbers] == ["2003", "4000", "1001", "2000"]


def test_a_label_that_says_nothing_is_the_first_attempt() -> None:
    jobset = a_set({"name": "a"})
    job = all_jobs(jobset)["js-a-0"]
    strange = {**job, "metadata": {**job["metadata"], "labels": {**job["metadata"]["labels"], RESTART_KEY: "²"}}}
    decision = reconcile(ObservedSet(jobset, [strange], has_service=True), NOW)
    assert not [write for write in decision.writes if not isinstance(write, Update)]


def test_nodes_that_were_labelled_beforehand_are_selected_by_label() -> None:
    marks = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", "alpha.jobset.sigs.k8s.io/node-selector": "true"}
    jobset = a_set({"name": "a"})
    marked = {**jobset, "metadata": {**jobset["metadata"], "annotations": marks}}
    pods = all_jobs(marked)["js-a-0"]["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"alpha.jobset.sigs.k8s.io/namespaced-job": "ns_js-a-0"}
    assert pods["metadata"]["annotations"].items() >= marks.items()
    pod = {"metadata": {**pods["metadata"], "namespace": "ns"}, "spec": pods["spec"]}
    assert admit_pod(pod, lambda label: None) == pod, "no affinity, and no waiting for pod 0"
    alone = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
    without = all_jobs({**jobset, "metadata": {**jobset["metadata"], "annotations": alone}})["js-a-0"]["spec"][
        "template"
    ]
    assert "nodeSelector" not in without["spec"]
