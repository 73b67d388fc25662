"""Which Events are about a workload."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from rowlock.archive.records import RunRecord
from rowlock.objects import Object
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads import history
from rowlock.workloads.history import count_repeats, event_json, events_of
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload

JOB = {"metadata": {"name": "a", "namespace": "n", "uid": "job", "creationTimestamp": "2026-01-01T00:00:10Z"}}
OTHERS_BEFORE = "2026-01-01T00:00:09Z"


def event(kind: str, about: str, uid: str = "", time: str = "2026-01-01T00:00:20Z", namespace: str = "n") -> Object:
    regarding = {"kind": kind, "name": about, "uid": uid, "namespace": namespace}
    return {"metadata": {"name": f"{about}.{uid}", "resourceVersion": "7"}, "involvedObject": regarding, "lastTimestamp": time}  # fmt: skip


def workload_of(pods: tuple[Any, ...]) -> Workload:
    return Workload(JOB, pods, None, cast(Project, None), "cluster")


def test_events_of_a_job_its_pods_and_its_group_are_its_own() -> None:
    own = [
        event("PyTorchJob", "a", "job", "2026-01-01T00:00:11Z"),
        event("PodGroup", "pg-a-job", "group", "2026-01-01T00:00:12Z"),
        event("Pod", "a-worker-0", "pod", "2026-01-01T00:00:13Z"),
        event("Pod", "a-master-0", "gone", "2026-01-01T00:00:14Z"),
    ]
    others = [
        event("PyTorchJob", "a", "job", namespace="elsewhere"),
        event("PyTorchJob", "a", "earlier"),
        event("Pod", "a-worker-0", "earlier", OTHERS_BEFORE),
        event("Pod", "a-b-worker-0", "other"),
        event("Pod", "aa-worker-0", "other"),
        event("PodGroup", "pg-a-earlier", "other"),
        {"metadata": {"name": "empty"}},
    ]
    pods: tuple[Any, ...] = ({"metadata": {"name": "a-worker-0", "uid": "pod"}},)
    workload = workload_of(pods)
    assert events_of(workload, [*others, *reversed(own)]) == own


def names_told(job: Object, told: list[Object], *parts: str) -> list[str]:
    workload = Workload(job, (), None, cast(Project, None), "cluster", part_uids=parts)
    return [str(one["involvedObject"]["name"]) for one in events_of(workload, told)]


def made(maker: str, uid: str, pod: str, time: str = "2026-01-01T00:00:20Z") -> Object:
    return {**event("Job", maker, uid, time), "reason": "SuccessfulCreate", "message": f"Created pod: {pod}"}


def test_pods_of_a_batch_job_are_found_when_they_are_gone() -> None:
    """A suspended Job has no pods any more: what its kubelets said of their ends was found for no Job."""
    plain = {**JOB, "apiVersion": "batch/v1", "kind": "Job", "spec": {"completionMode": "NonIndexed"}}
    indexed = {**plain, "spec": {"completionMode": "Indexed"}}
    of_plain = [event("Pod", "a-bcdfg"), event("Pod", "a-b2456")]
    of_indexed = [event("Pod", "a-0-bcdfg"), event("Pod", "a-10-bcdfg")]
    others = [event("Pod", name) for name in ("a-b-bcdfg", "a-0-1-bcdfg", "aa-bcdfg", "a-worker-0", "a-bcdfa", "a")]
    others += [event("Pod", name, time=OTHERS_BEFORE) for name in ("a-bcdfg", "a-0-bcdfg")]
    assert names_told(plain, [*of_plain, *of_indexed, *others]) == ["a-bcdfg", "a-b2456"]
    assert names_told(indexed, [*of_plain, *of_indexed, *others]) == ["a-0-bcdfg", "a-10-bcdfg"]
    long = "n" * 63
    head = {**JOB["metadata"], "name": long}
    cut = [event("Pod", f"{long[:58]}bcdfg"), event("Pod", f"{long[:55]}-3-bcdfg")]
    assert names_told({**plain, "metadata": head}, cut) == [f"{long[:58]}bcdfg"]
    assert names_told({**indexed, "metadata": head}, cut) == [f"{long[:55]}-3-bcdfg"]


def test_the_maker_of_a_pod_says_whose_it_is() -> None:
    """The Indexed Job `a` and the Job `a-0` make pods of like names."""
    indexed = {**JOB, "apiVersion": "batch/v1", "kind": "Job", "spec": {"completionMode": "Indexed"}}
    told = [made("a-0", "other", "a-0-bcdfg"), made("a", "job", "a-0-22222"), made("a", "earlier", "a-0-44444")]
    told += [event("Pod", f"a-0-{random}") for random in ("bcdfg", "22222", "44444", "55555")]
    assert names_told(indexed, told) == ["a", "a-0-22222", "a-0-55555"]


def test_pods_and_jobs_of_a_set_are_found_when_they_are_gone() -> None:
    """A restart deletes the Jobs of a set, a deadline the JobSet of a TrainJob."""
    replicated: list[dict[str, Any]] = [
        {"name": "w"},
        {"name": "w-x", "template": {"spec": {"completionMode": "NonIndexed"}}},
    ]
    job_set = {
        **JOB,
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": replicated},
    }
    told = [
        event("Pod", "a-w-0-1-bcdfg"),
        event("Pod", "a-w-x-3-bcdfg"),
        event("Job", "a-w-0", "deleted"),
        {**event("JobSet", "a", "deleted"), "eventTime": "2026-01-01T00:00:10.5Z", "lastTimestamp": None},
    ]
    others = [
        event("Pod", name)
        for name in ("a-v-0-1-bcdfg", "a-w-y-1-bcdfg", "a-worker-0", "w-0-1-bcdfg", "a-bcdfg", "a-0-bcdfg")
    ]
    others += [event("Job", "a-v-0"), event("Job", "w-0"), event("Job", "a"), event("Job", "a-w-0", time=OTHERS_BEFORE)]
    others += [made("a-w-y", "other", "a-w-0-2-bcdfg"), event("Pod", "a-w-0-2-bcdfg")]
    assert names_told(job_set, [*others, *told]) == ["a-w-0-1-bcdfg", "a-w-x-3-bcdfg", "a-w-0"]
    status = {"jobsStatus": [{"name": "w"}, {"name": "w-x"}]}
    train_job = {**JOB, "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {}, "status": status}
    assert names_told(train_job, [*others, *told]) == ["a", "a-w-0-1-bcdfg", "a-w-x-3-bcdfg", "a-w-0"]


def test_a_job_has_no_events_of_pods_of_an_earlier_job_with_its_name() -> None:
    """The pods of a deleted job end up to their grace period later, so their last events come after the next job of this name was made."""
    own = {**event("Pod", "a-master-0", "gone"), "firstTimestamp": "2026-01-01T00:00:10Z"}
    micro = {**event("Pod", "a-worker-0", "also-gone", ""), "eventTime": "2026-01-01T00:00:10.500000Z"}
    others = [
        event("Pod", "a-master-0", "earlier", "2026-01-01T00:00:12Z"),
        event("Pod", "a-master-0", "earlier", OTHERS_BEFORE),
        {**event("Pod", "a-worker-0", "repeated"), "firstTimestamp": OTHERS_BEFORE},
    ]
    assert events_of(workload_of(()), [*others, own, micro]) == [micro, own]
    assert events_of(workload_of(({"metadata": {"name": "a-worker-0", "uid": "repeated"}},)), others) == others[2:], (
        "the job's own pod keeps its events, whatever the clock of a node says"
    )


def test_what_stands_between_a_set_and_its_pods_tells_why_there_are_none() -> None:
    """A TrainJob has no pods when its JobSet or a Job is refused something: the newest refusal of the innermost one is the reason."""

    def refusal(about: str, uid: str, reason: str, message: str) -> Object:
        return {**event("Job", about, uid), "reason": reason, "message": message}

    told = [
        refusal("a", "job", "TrainJobResourcesCreationFailed", "at first"),
        refusal("a", "set", "JobCreationFailed", "the job was refused"),
        refusal("a-node-0", "node", "FailedCreate", "exceeded quota"),
        refusal("b-node-0", "another", "FailedCreate", "of another workload"),
    ]
    workload = Workload(JOB, (), None, cast(Project, None), "cluster", part_uids=("set", "node"))
    assert events_of(workload, told) == told[:3]
    nothing: dict[str, Any] = {"incidents": [], "verdict": None, "ranks": []}
    for count, sentence in ((4, "exceeded quota"), (2, "the job was refused"), (1, "at first")):
        assert history.explain_workload(workload, nothing, events_of(workload, told[:count]))["sentence"] == sentence
    messages = history.create_failure_messages(told)
    assert history.create_failure_message(messages, "job", ("set", "node")) == "exceeded quota"
    assert history.create_failure_message(messages, "job", ()) == "at first"
    assert history.create_failure_message(messages, "unknown", ()) == ""


def test_events_do_not_cost_their_number_times_that_of_pods() -> None:
    """2,400 events and 40 pods held the event loop for 89 ms."""
    looked = 0

    class Pod(dict[str, Any]):
        def get(self, *path: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().get(*path)

        def __getitem__(self, key: str) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(key)

    pods = tuple(Pod(metadata={"name": f"a-worker-{n}", "uid": f"pod{n}"}) for n in range(40))
    found = events_of(workload_of(pods), [event("Pod", f"a-worker-{n % 40}", f"pod{n % 40}") for n in range(400)])
    assert len(found) == 400 and 0 < looked < 400


def test_a_failure_that_is_known_comes_before_ranks_that_cannot_be_seen() -> None:
    job = {"metadata": {"name": "j", "uid": "u"}, "spec": {}}
    pods = [{"metadata": {"name": "j-master-0"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}]
    project = Project("p", "p", "runai-p", "p", "", "", Decimal(0), Decimal(0))
    workload = Workload(job, pods, None, project, "c")
    blind = {"kind": "blind", "sentence": "No rank has written a line for 5 s.", "culprits": []}
    failed = {"sentence": "rank 1 failed.", "deaths": [], "asked": False}
    found = {"incidents": [failed], "verdict": blind, "ranks": []}
    assert history.explain_workload(workload, found)["sentence"] == "rank 1 failed."
    assert history.explain_workload(workload, {**found, "incidents": []})["sentence"] == blind["sentence"]
    done = {**job, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    completed = Workload(done, pods, None, project, "c")
    assert history.explain_workload(completed, {**found, "incidents": []})["sentence"].startswith("It completed")


def test_what_each_pod_of_a_gang_is_told_stands_once() -> None:
    """And is kept once, else a gang's pods would push all else out of its record."""

    def waits(kind: str, about: str, uid: str, sentence: str) -> Object:
        return {**event(kind, about, uid), "reason": "FailedScheduling", "message": sentence}

    job, pod = waits("PyTorchJob", "a", "job", "no room"), waits("Pod", "a-worker-0", "pod", "no room")
    alone = waits("Pod", "a-worker-1", "gone", "0/1 nodes are available")
    assert events_of(workload_of(()), [pod, job, alone]) == [job, alone]
    notes = RunNotes(RunRecord("job", "id", "a", "n", "", "p", "PyTorchJob", 0.0))
    for number, each in enumerate((job, pod, alone)):
        notes.note_event({**each, "metadata": {**each["metadata"], "uid": str(number)}})
    assert [e["involvedObject"]["name"] for e in notes.events()] == ["a", "a-worker-1"]


def test_what_pods_of_one_name_say_again_and_again_is_counted() -> None:
    def said(number: int, message: str, **more: object) -> Object:
        when = f"2026-01-01T00:{number:02}:00Z"
        return {
            **event("Pod", "a-master-0", f"u{number}"),
            "message": message,
            "firstTimestamp": when,
            "lastTimestamp": when,
            **more,
        }

    started = [said(n, "Started container pytorch", count=2) for n in range(10)]
    other = said(10, "Started container sidecar")
    last = said(11, "Started container pytorch")
    counted, newest = (
        count_repeats([*started, other, last]),
        {**last, "count": 21, "firstTimestamp": "2026-01-01T00:00:00Z"},
    )
    assert counted == [other, newest]
    assert event_json(counted[1], "c")["count"] == 21
    assert event_json(counted[1], "c")["createdAt"] == "2026-01-01T00:11:00Z"
