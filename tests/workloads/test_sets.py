"""JobSets and TrainJobs as workloads: how many pods, which ranks, which phase."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import kinds
from rowlock.objects import Object
from rowlock.training.trainjob.owners import with_replicated_jobs
from rowlock.workloads import pods as ranks
from rowlock.workloads.frameworks import desired_pods, ranked_job, replica_specs
from rowlock.workloads.objects import cron_job_of
from rowlock.workloads.phase import join_sentences, phase_and_message, phase_of, waiting_step

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def replicated(name: str, replicas: int = 1, step: str = "", env: str = "", **spec: Any) -> dict[str, Any]:
    after = {"dependsOn": spec.pop("dependsOn")} if "dependsOn" in spec else {}
    variables = [{"name": "PET_NPROC_PER_NODE", "value": env}] if env else []
    spec["template"] = {"spec": {"containers": [{"name": "main", "env": variables}]}}
    metadata = {"labels": {STEP: step}} if step else {}
    return {"name": name, "replicas": replicas, "template": {"metadata": metadata, "spec": spec}, **after}


def job_set(*jobs: dict[str, Any], **fields: Any) -> Object:
    spec = {"replicatedJobs": list(jobs)}
    return {
        "apiVersion": kinds.JOB_SET.api_version,
        "kind": "JobSet",
        "metadata": {"name": "s"},
        "spec": spec,
        **fields,
    }


def train_job(*jobs: dict[str, Any], **fields: Any) -> Object:
    bare = {"apiVersion": kinds.TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": {"name": "s"}, "spec": {}}
    return with_replicated_jobs({**bare, **fields}, job_set(*jobs))


def pod(job: Object, name: str, phase: str = "Running") -> Object:
    """A pod of a set by its name without the set's, bound to a node."""
    full = f"s-{name}-abcde"
    metadata = {"name": full, "labels": ranks.labels_by_name(job, full)}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": phase}}


PAIRS = replicated("w", 2, parallelism=2, completions=2)


def test_ranks_go_on_from_job_to_job() -> None:
    job = job_set(PAIRS)
    names = ["w-1-1", "w-0-1", "w-1-0", "w-0-0"]
    in_order = ranks.sort_by_rank(pod(job, name) for name in names)
    assert [ranks.rank_label(job, one) for one in in_order] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert desired_pods(job) == 4


def test_pods_of_several_replicated_jobs_are_called_by_them() -> None:
    job = job_set(replicated("driver"), PAIRS)
    labels = [ranks.rank_label(job, pod(job, name)) for name in ("driver-0-0", "w-1-0")]
    assert labels == ["driver-0", "w-2"] and not ranks.has_ranked_pods(job)


def test_what_fetches_the_data_of_a_trainjob_is_no_rank_and_comes_last() -> None:
    job = train_job(replicated("dataset-initializer", step="dataset-initializer"), replicated("node", parallelism=2))
    in_order = ranks.sort_by_rank([pod(job, "dataset-initializer-0-0"), pod(job, "node-0-1"), pod(job, "node-0-0")])
    assert [ranks.rank_label(job, one) for one in in_order] == ["rank 0", "rank 1", "dataset-initializer-0"]
    assert ranks.chief_pod(in_order) == in_order[0] and ranked_job(job) == "node"


def test_what_trains_is_what_a_trainjob_shows() -> None:
    """Its image and command, in `describe` and on the pages, are those of the first entry."""
    steps = [replicated(f"{what}-initializer", step=f"{what}-initializer") for what in ("dataset", "model")]
    assert list(replica_specs(train_job(*steps, replicated("node", step="trainer")))) == [
        "node", "dataset-initializer", "model-initializer"
    ]  # fmt: skip
    assert list(replica_specs(train_job(replicated("node"), replicated("launcher", step="trainer")))) == [
        "launcher", "node"
    ]  # fmt: skip
    assert list(replica_specs(job_set(replicated("b"), replicated("a")))) == ["b", "a"]


def test_a_pod_in_which_torchrun_starts_several_ranks_is_not_called_one() -> None:
    job = train_job(replicated("node", parallelism=2, env="2"))
    second = pod(job, "node-0-1")
    assert ranks.rank_fields(job, second) == {"rank": "node-1", "launchedRanks": {"first": 2, "count": 2}}


def test_a_trainjob_without_a_set_asks_for_no_pods_yet() -> None:
    job = train_job()
    assert (replica_specs(job), ranked_job(job), phase_of(job, [], None)) == ({}, "", "Creating")


@pytest.mark.parametrize(
    ("conditions", "spec", "names", "phase"),
    [
        ({}, {}, ["w-0-0", "w-0-1", "w-1-0", "w-1-1"], "Running"),
        ({}, {}, ["w-0-0"], "Degraded"),
        ({"Completed": "True"}, {}, [], "Completed"),
        ({"Failed": "True"}, {}, [], "Failed"),
        ({"Suspended": "True"}, {"suspend": True}, ["w-0-0"], "Stopping"),
        ({"Suspended": "True"}, {"suspend": True}, [], "Stopped"),
        ({"Suspended": "True"}, {"suspend": False}, [], "Resuming"),
        ({"Suspended": "False"}, {"suspend": False}, [], "Creating"),
    ],
)
def test_the_phase_of_a_set(conditions: dict[str, str], spec: dict[str, Any], names: list[str], phase: str) -> None:
    status = {"conditions": [{"type": k, "status": v} for k, v in conditions.items()]}
    job = job_set(PAIRS, status=status)
    job["spec"] |= spec
    assert phase_of(job, [pod(job, name) for name in names], None) == phase


@pytest.mark.parametrize(("last", "phase"), [("Running", "Stopping"), ("Failed", "Stopped"), ("Succeeded", "Stopped")])
def test_a_suspended_set_has_stopped_when_no_pod_is_at_work(last: str, phase: str) -> None:
    """Pods of Jobs that have completed stay, such as those that fetched the data."""
    job = job_set(replicated("fetch"), replicated("train"))
    job["spec"]["suspend"] = True
    assert phase_of(job, [pod(job, "fetch-0-0", "Succeeded"), pod(job, "train-0-0", last)], None) == phase


def test_a_step_that_has_not_begun_makes_nothing_degraded() -> None:
    job = job_set(replicated("first"), replicated("then", dependsOn=[{"name": "first", "status": "Complete"}]))
    assert phase_of(job, [pod(job, "first-0-0")], None) == "Running"


@pytest.mark.parametrize("name", ["s-w-0-x-abcde", "s-other-0-0-abcde", "s-w-0-abcde", "x", "s--"])
def test_a_name_that_does_not_say_a_rank_has_none(name: str) -> None:
    assert ranks.labels_by_name(job_set(PAIRS), name) == {}


def test_the_name_of_a_pod_of_an_indexed_job_says_its_rank() -> None:
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a-b"}, "spec": spec}
    stub = {"metadata": {"name": "a-b-1-abcde", "labels": ranks.labels_by_name(job, "a-b-1-abcde")}}
    assert ranks.rank_label(job, stub) == "rank 1"
    assert ranks.labels_by_name({**job, "spec": {}}, "a-b-abcde") == {}


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"parallelism": 3, "completions": 0}, 0),
    ],
)
def test_a_job_has_no_more_pods_at_a_time_than_it_wants_completed(spec: dict[str, Any], pods: int) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {**spec, "template": {}}}
    assert desired_pods(job) == pods
    assert desired_pods(job_set(replicated("node", replicas=2, **spec))) == 2 * pods


@pytest.mark.parametrize(("kind", "made_by"), [("CronJob", "nightly"), ("Workflow", "")])
def test_a_job_says_which_cronjob_made_it(kind: str, made_by: str) -> None:
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": "nightly", "uid": "u", "controller": True}
    assert cron_job_of({"metadata": {"name": "j", "ownerReferences": [owner]}}) == made_by


def counted(name: str, **counts: int) -> dict[str, Any]:
    return {"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}


COMPLETE_FIRST = replicated("then", dependsOn=[{"name": "first", "status": "Complete"}])


@pytest.mark.parametrize(
    ("jobs", "counts", "names", "sentence"),
    [
        ([replicated("first"), COMPLETE_FIRST], [], ["first-0-0"], "then starts when first has completed."),
        (
            [replicated("first", 3), COMPLETE_FIRST],
            [counted("first", succeeded=2, active=1)],
            ["first-0-0"],
            "then starts when first has completed (2 of 3 Jobs so far).",
        ),
        ([replicated("first"), COMPLETE_FIRST], [counted("first", succeeded=1)], ["first-0-0"], ""),
        ([replicated("first"), COMPLETE_FIRST], [counted("first", active=1)], ["first-0-0", "then-0-0"], ""),
        (
            [replicated("node"), replicated("launcher", dependsOn=[{"name": "node", "status": "Ready"}])],
            [counted("node", active=1)],
            ["node-0-0"],
            "launcher starts when node is ready.",
        ),
        (
            [replicated("a"), replicated("b", dependsOn=[{"name": "b", "status": "Complete"}])],
            [counted("a", succeeded=1)],
            ["a-0-0"],
            "b never starts: its dependsOn names b itself.",
        ),
        (
            [
                replicated("data"),
                replicated("model"),
                replicated("node", dependsOn=[{"name": one, "status": "Complete"} for one in ("data", "model")]),
                replicated("after", dependsOn=[{"name": "node", "status": "Complete"}]),
            ],
            [counted("data", active=1), counted("model", active=1)],
            ["data-0-0", "model-0-0"],
            "node starts when data has completed and model has completed. 1 more replicated job waits behind it.",
        ),
    ],
)
def test_a_step_that_waits_says_for_what(
    jobs: list[dict[str, Any]], counts: list[dict[str, Any]], names: list[str], sentence: str
) -> None:
    """A JobSet has its counts in `replicatedJobsStatus`, the TrainJob above it in `jobsStatus`."""
    for job in (
        job_set(*jobs, status={"replicatedJobsStatus": counts}),
        train_job(*jobs, status={"jobsStatus": counts}),
    ):
        assert waiting_step(job, [pod(job, name) for name in names]) == sentence


def test_a_set_whose_next_step_never_comes_waits() -> None:
    itself = replicated("b", dependsOn=[{"name": "b", "status": "Complete"}])
    job = job_set(replicated("a"), itself, status={"replicatedJobsStatus": [counted("a", succeeded=1)]})
    found = phase_and_message(job, [pod(job, "a-0-0", "Succeeded")], {"metadata": {"name": "pg"}})
    assert found == ("Pending", "b never starts: its dependsOn names b itself.")


def test_a_set_that_starts_in_order_says_what_comes_next() -> None:
    job = job_set(replicated("a"), replicated("b"), status={"replicatedJobsStatus": [counted("a", active=1)]})
    assert waiting_step(job, [pod(job, "a-0-0")]) == ""
    job["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert waiting_step(job, [pod(job, "a-0-0")]) == "b starts when a is ready."


def test_a_failed_step_is_told_with_what_waits_for_it() -> None:
    job = train_job(replicated("fetch"), replicated("node", dependsOn=[{"name": "fetch", "status": "Complete"}]))
    failed = pod(job, "fetch-0-0", "Failed")
    failed["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    failed["status"]["containerStatuses"] = [{"state": {"terminated": {"exitCode": 3, "finishedAt": ""}}}]
    assert phase_and_message(job, [failed], {"metadata": {"name": "pg"}}) == (
        "Pending",
        "s-fetch-0-0-abcde ended with exit code 3. The next pod is made after a delay of 10 s that doubles with each failure "
        "(1 pod has failed, 6 may). node starts when fetch has completed.",
    )


def test_a_message_without_a_full_stop_gets_one_before_the_next_sentence() -> None:
    """Of a step that could not be pulled: "…: `rowlock image add x --host` node starts when …"."""
    step = "node starts when data has completed."
    assert join_sentences("Back-off pulling image `x`", "", step) == f"Back-off pulling image `x`. {step}"
    assert join_sentences("It failed.", step) == f"It failed. {step}"
    assert join_sentences("no image", "") == "no image" and join_sentences("", "") == ""
