"""Which pods of a set start together: how many its PodGroups wait for, and what becomes of pods that have lost their set."""

from __future__ import annotations

from typing import Any

from tests.training.test_jobset import a_set, all_jobs

from rowlock.api import Change, Create, Patch, Update, Write
from rowlock.controllers.view.state import State
from rowlock.kinds import BATCH_JOB, JOB_SET, POD, POD_GROUP, Kind
from rowlock.objects import Key, Object, key, owner_reference
from rowlock.training.batch_job.gang import sync_gang
from rowlock.training.batch_job.model import parse_batch_job
from rowlock.training.jobset.gangs import GROUP_ANNOTATION, UID_KEY, JobSetGroupController, gangs_of, group_name
from rowlock.training.jobset.jobs import SetNumbers

NOW = 1_800_000_000.0
GANG = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}


class Seen:
    """A view and the controller's keys that are due."""

    def __init__(self) -> None:
        self.view, self.controller, self.due = State(), JobSetGroupController(), set[Key]()

    def tell(self, kind: Kind, obj: Object, type_: Any = "") -> None:
        old = self.view.get(kind, *key(obj))
        change = Change(type_ or ("Modified" if old else "Added"), self.view.revision + 1, kind, obj, old)
        self.view.apply(change)
        self.due.update(self.controller.keys(self.view, change))

    def writes(self) -> list[Write]:
        found = [write for one in sorted(self.due) for write in self.controller.decide(self.view, one, NOW).writes]
        self.due.clear()
        return found


def indexed_set(*names: str, **spec: Any) -> Object:
    template = {"spec": {**GANG, "template": {"spec": {"containers": [{"name": "main", "image": "img"}]}}}}
    jobset = a_set(*({"name": name, "template": template} for name in names), **spec)
    return {**jobset, "metadata": {**jobset["metadata"], "namespace": "team", "uid": "u-js"}}


def job_of(jobset: Object, name: str, **status: Any) -> Object:
    job = all_jobs(jobset)[name]
    metadata = {**job["metadata"], "uid": f"u-{name}", "ownerReferences": [owner_reference(jobset)]}
    return {**job, "metadata": metadata, "status": status}


def pod_of(jobset: Object, job: Object, index: int, phase: str) -> Object:
    metadata = {
        "name": f"{job['metadata']['name']}-{index}",
        "namespace": "team",
        "uid": f"u-{job['metadata']['name']}-{index}",
        "labels": job["spec"]["template"]["metadata"]["labels"],
        "annotations": {GROUP_ANNOTATION: group_name(jobset, "a")},
        "ownerReferences": [owner_reference(job)],
    }
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase}}


def least(write: Write) -> int:
    assert isinstance(write, Create | Update) and write.kind is POD_GROUP
    return int(write.object["spec"]["minMember"])


def test_a_set_waits_for_no_pod_that_has_succeeded_and_is_gone() -> None:
    seen, jobset = Seen(), indexed_set("a", "b")
    seen.tell(JOB_SET, jobset)
    (create,) = seen.writes()
    assert least(create) == 4 and isinstance(create, Create)
    seen.tell(POD_GROUP, create.object)
    half = job_of(jobset, "js-a-0", completedIndexes="0", succeeded=1)
    done = pod_of(jobset, half, 0, "Succeeded")
    seen.tell(BATCH_JOB, half)
    seen.tell(POD, done)
    assert seen.writes() == []
    seen.tell(POD, done, "Deleted")  # a user tidies up
    (update,) = seen.writes()
    assert least(update) == 3


def test_a_set_that_restarts_waits_for_all_of_its_pods_again() -> None:
    seen, jobset = Seen(), indexed_set("a", failurePolicy={"maxRestarts": 2})
    seen.tell(JOB_SET, jobset)
    (create,) = seen.writes()
    assert isinstance(create, Create)
    seen.tell(POD_GROUP, create.object)
    job = job_of(jobset, "js-a-0", completedIndexes="0", succeeded=1)
    seen.tell(BATCH_JOB, job)
    (fewer,) = seen.writes()
    assert isinstance(fewer, Update) and least(fewer) == 1
    seen.tell(POD_GROUP, fewer.object)
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    seen.tell(BATCH_JOB, {**job, "status": {**job["status"], **failed}})
    (again,) = seen.writes()
    assert isinstance(again, Update) and least(again) == 2
    seen.tell(POD_GROUP, again.object)
    seen.tell(JOB_SET, {**jobset, "status": {"restarts": 1}})
    seen.tell(BATCH_JOB, job, "Deleted")
    assert seen.writes() == []


def test_the_jobs_of_a_set_that_is_gone_take_their_pods_into_their_own_gang() -> None:
    """`kubectl delete jobset --cascade=orphan`: the Jobs stay, and the pods of one do not wait for those of another."""
    seen, jobset = Seen(), indexed_set("a", "b")
    owned = job_of(jobset, "js-a-0")
    seen.tell(BATCH_JOB, owned)
    pods = [pod_of(jobset, owned, index, "Pending") for index in (0, 1)]
    for pod in pods:
        seen.tell(POD, pod)
    assert seen.writes() == []  # the set is not there yet, or any more; the Job is its own
    orphan = {**owned, "metadata": {k: v for k, v in owned["metadata"].items() if k != "ownerReferences"}}
    seen.tell(BATCH_JOB, orphan)
    assert seen.writes() == []  # the Job's own gang does not exist
    (gang,) = sync_gang(seen.view, parse_batch_job(orphan), pods)
    assert isinstance(gang, Create) and UID_KEY in gang.object["metadata"]["labels"]
    seen.tell(POD_GROUP, gang.object)
    patches = seen.writes()
    assert [(write.name, write.patch["metadata"]) for write in patches if isinstance(write, Patch)] == [
        (pod["metadata"]["name"], {"uid": pod["metadata"]["uid"], "annotations": {GROUP_ANNOTATION: None}})
        for pod in pods
    ]
    late = pod_of(jobset, orphan, 2, "Pending")
    seen.tell(POD, late)  # admitted while the set was still there
    assert len(seen.writes()) == 3


def test_a_pod_that_has_lost_its_job_leaves_the_gang() -> None:
    """Its Job is made again (`kubectl delete job --cascade=orphan`): the old pod would count for the new one's."""
    seen, jobset = Seen(), indexed_set("a")
    pod = pod_of(jobset, job_of(jobset, "js-a-0"), 0, "Pending")
    del pod["metadata"]["ownerReferences"]
    seen.tell(POD, pod)
    (patch,) = seen.writes()
    assert isinstance(patch, Patch) and patch.patch["metadata"]["annotations"] == {GROUP_ANNOTATION: None}
    pod["metadata"]["annotations"][GROUP_ANNOTATION] = "mine"
    seen.tell(POD, pod)
    assert seen.writes() == []


def test_where_templates_name_the_group_of_a_set_that_is_gone_its_pods_do_not_wait() -> None:
    """On a cluster without our admission, Jobs name the group in their templates, and new pods would join it for ever."""
    seen, jobset = Seen(), indexed_set("a", "b")
    job = job_of(jobset, "js-a-0")
    del job["metadata"]["ownerReferences"]
    job["spec"]["template"]["metadata"]["annotations"][GROUP_ANNOTATION] = group_name(jobset, "a")
    group = {"metadata": {"name": group_name(jobset, "a"), "namespace": "team"}, "spec": {"minMember": 4}}
    seen.tell(POD_GROUP, group)
    seen.tell(BATCH_JOB, job)
    (update,) = seen.writes()
    assert least(update) == 1


def test_a_job_of_a_set_that_changes_in_nothing_its_gang_needs_wakes_nobody() -> None:
    seen, jobset = Seen(), indexed_set("a")
    job = job_of(jobset, "js-a-0")
    seen.tell(BATCH_JOB, job)
    seen.due.clear()
    seen.tell(BATCH_JOB, {**job, "status": {"active": 2, "ready": 1}})
    assert not seen.due


def test_the_pods_of_a_set_of_any_size_are_multiplied_not_counted() -> None:
    seen, jobset = Seen(), indexed_set("a", "b")
    first, *_ = jobset["spec"]["replicatedJobs"]
    first["replicas"] = 2**31 - 1
    seen.tell(BATCH_JOB, job_of_set(jobset, 0, 7))
    assert gangs_of(seen.view, jobset) == {group_name(jobset, "a"): 2 * 2**31}


def job_of_set(jobset: Object, position: int, index: int) -> Object:
    job = SetNumbers(jobset).job_of(position, index, 0)
    return {**job, "metadata": {**job["metadata"], "uid": f"u-{position}-{index}"}}
