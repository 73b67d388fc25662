"""Which pods a TrainJob and a JobSet have, in whatever order the watches tell of them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Object, key, uid
from rowlock.rest.cluster_view.parts import Parts
from rowlock.training.trainjob.owners import is_part


def made(kind: Kind, name: str, owner: Object | None = None, space: str = "a", **fields: Any) -> Object:
    metadata: dict[str, Any] = {"name": name, "namespace": space, "uid": f"{kind.name} {space}/{name}"}
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [reference | {"name": owner["metadata"]["name"], "uid": uid(owner)}]
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}


TRAIN = made(kinds.TRAIN_JOB, "t", spec={"runtimeRef": {"name": "r"}})
SET = made(kinds.JOB_SET, "t", TRAIN, spec={"replicatedJobs": [{"name": "node"}]})
JOB = made(kinds.BATCH_JOB, "t-node-0", SET, status={"startTime": "2026-01-01T00:00:00Z"})
POD = made(kinds.POD, "t-node-0-0-abcde", JOB)


KNOWN: dict[tuple[Kind, str, str], Object] = {}


def get(kind: Kind, namespace: str, name: str) -> Object | None:
    return KNOWN.get((kind, namespace, name))


@pytest.fixture(autouse=True)
def know_nothing() -> None:
    KNOWN.clear()


def tell(parts: Parts, *told: Object) -> Parts:
    for one in told:
        kind = kinds.by_object(one)
        KNOWN[kind, *key(one)] = one
        if kind is kinds.POD:
            owner = one["metadata"]["ownerReferences"][0]["uid"]
            parts.add_pod(owner, key(one))
        else:
            assert is_part(kind, one)
            parts.add(kind, one)
    return parts


def test_a_pod_is_its_trainjobs_whatever_is_told_first() -> None:
    for order in permutations((SET, JOB, POD)):
        parts = tell(Parts(get), *order)
        assert parts.pods_of(uid(TRAIN), "a") == [POD]
        assert {parts.workload_uid(uid(one)) for one in (TRAIN, SET, JOB)} == {uid(TRAIN)}


def test_a_trainjob_has_the_replicated_jobs_of_its_set_and_the_start_of_its_first_job() -> None:
    assert Parts(get).complete(TRAIN) == TRAIN
    complete = tell(Parts(get), JOB, SET).complete(TRAIN)
    assert complete["spec"] == {"runtimeRef": {"name": "r"}, "replicatedJobs": [{"name": "node"}]}
    assert complete["status"] == {"startTime": "2026-01-01T00:00:00Z"}


def test_parts_of_another_namespace_or_of_another_kind_of_owner_are_no_parts() -> None:
    stranger = made(kinds.BATCH_JOB, "x", SET, space="b")
    parts = tell(Parts(get), SET, stranger, made(kinds.POD, "x-0", stranger, space="b"))
    assert parts.pods_of(uid(TRAIN), "a") == []
    training = made(kinds.PYTORCHJOB, "p")
    job = made(kinds.BATCH_JOB, "y", training)
    parts = tell(Parts(get), job, made(kinds.POD, "y-0", job))
    assert parts.pods_of(uid(training), "a") == [] and parts.workload_uid(uid(job)) == uid(job)


def test_owners_in_a_circle_end() -> None:
    first = made(kinds.JOB_SET, "1", made(kinds.TRAIN_JOB, "2"))
    first["metadata"]["ownerReferences"][0]["uid"] = uid(first)
    parts = tell(Parts(get), first)
    assert parts.workload_uid(uid(first)) == uid(first) and parts.pods_of(uid(first), "a") == []
    parts.drop(uid(first))


def test_pods_that_outlive_their_parts_are_still_the_workloads_and_nothing_is_kept_after_them() -> None:
    parts = tell(Parts(get), SET, JOB, POD)
    parts.drop(uid(SET))
    parts.drop(uid(JOB))
    assert parts.workload_uid(uid(JOB)) == uid(TRAIN) and parts.pods_of(uid(TRAIN), None) == [POD]
    parts.drop_pod(uid(JOB), key(POD))
    assert vars(parts) == vars(Parts(get))


def test_a_part_that_is_handed_to_another_owner_is_that_ones() -> None:
    other = made(kinds.JOB_SET, "o")
    moved = {**made(kinds.BATCH_JOB, "t-node-0", other), "status": {}}
    parts = tell(Parts(get), JOB, POD, moved)
    assert parts.pods_of(uid(SET), "a") == [] and parts.pods_of(uid(other), "a") == [POD]


def test_a_job_that_a_cron_job_has_made_is_a_workload() -> None:
    cron = made(kinds.CRON_JOB, "nightly")
    assert not is_part(kinds.BATCH_JOB, made(kinds.BATCH_JOB, "nightly-30000000", cron))
    assert not is_part(kinds.CRON_JOB, cron)
