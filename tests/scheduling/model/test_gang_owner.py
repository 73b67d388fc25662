"""Which object gets the events about a gang: the one that a user has made."""

from __future__ import annotations

from typing import Any

from rowlock.kinds import JOB_SET, TRAIN_JOB
from rowlock.objects import Object
from rowlock.scheduling.explain.writes import event_targets
from rowlock.scheduling.model.from_objects import bare_pod_gang, pod_group_gang
from rowlock.scheduling.model.scheduler_identity import EMBEDDED
from rowlock.scheduling.model.snapshot import Gang
from rowlock.training.pod_group import make_group, top_owner_note


def made(api_version: str, kind: str, **metadata: Any) -> Object:
    head = {"name": "x", "namespace": "n", "uid": f"uid of {kind}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**head, **metadata}}


JOBSET = made(JOB_SET.api_version, "JobSet")
TRAINJOB = made(TRAIN_JOB.api_version, "TrainJob")


def gang_of(notes: dict[str, str]) -> Gang:
    group = {**make_group(JOBSET, "pg", {"minMember": 2}, notes)}
    group["metadata"] |= {"uid": "uid of PodGroup", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return pod_group_gang(group, [], "default", {}, EMBEDDED)


def targets(gang: Gang) -> list[tuple[str, str]]:
    return [(target["kind"], target["metadata"]["uid"]) for target in event_targets(gang)]


GROUP = ("PodGroup", "uid of PodGroup")


def test_of_a_set_that_a_trainjob_has_made_it_is_the_trainjob() -> None:
    assert targets(gang_of(top_owner_note(TRAIN_JOB, TRAINJOB))) == [GROUP, ("TrainJob", "uid of TrainJob")]


def test_of_any_other_set_it_is_the_set() -> None:
    for notes in (top_owner_note(JOB_SET, JOBSET), {}, {"kai.scheduler/top-owner-metadata": "name: nobody"}):
        assert targets(gang_of(notes)) == [GROUP, ("JobSet", "uid of JobSet")]


def test_of_a_pod_without_a_group_it_is_its_job() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid of Job", "controller": True}
    pod = {**made("v1", "Pod"), "spec": {}}
    assert targets(bare_pod_gang(pod, "default", {}, EMBEDDED)) == []
    pod["metadata"]["ownerReferences"] = [owner]
    assert targets(bare_pod_gang(pod, "default", {}, EMBEDDED)) == [("Job", "uid of Job")]
