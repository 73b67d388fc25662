"""One look at a CronJob: which Job it makes, which it deletes, what its status says, and when it looks again."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.api import Create, Decision, Delete, Record, Update
from rowlock.kinds import BATCH_JOB, CRON_JOB
from rowlock.objects import Object, name, timestamp
from rowlock.training.cron_job.model import ObservedCronJob, build_job, reference
from rowlock.training.cron_job.reconcile import Memory, reconcile
from rowlock.training.cron_job.zones import UTC_ZONE, load_zone

NOW = 1_800_000_030.0  # 08:00:30 UTC
MINUTE = 1_800_000_000
HOUR = 3600


def cron(status: Object | None = None, created: float = NOW - 10, meta: Object | None = None, **spec: Any) -> Object:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}},
    }
    metadata = {"name": "tick", "namespace": "team", "uid": "u-tick", "creationTimestamp": timestamp(created)}
    defaults = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata | (meta or {}),
        "spec": {"schedule": "* * * * *", "jobTemplate": template, **defaults, **spec},
        **({"status": status} if status else {}),
    }


def job(of: Object, start: float, end: str = "", completed: float = 0.0, **meta: Any) -> Object:
    made = build_job(ObservedCronJob(of, ()), int(start))
    made["metadata"] |= {"uid": f"u-{name(made)}", "resourceVersion": "7", **meta}
    made["status"] = {"startTime": timestamp(start)}
    if end:
        made["status"]["conditions"] = [{"type": end, "status": "True"}]
        made["status"] |= {"completionTime": timestamp(completed)} if end == "Complete" else {}
    return made


def look(
    of: Object, *jobs: Object, at: float = NOW, memory: Memory | None = None, others: tuple[Object, ...] = ()
) -> Decision:
    found = {name(j): j for j in (*jobs, *others)}
    return reconcile(ObservedCronJob(of, jobs), found.get, memory or Memory(), at, UTC_ZONE)


def said(decision: Decision) -> list[str]:
    return [f"{w.type} {w.reason}: {w.message}" for w in decision.writes if isinstance(w, Record)]


def made(decision: Decision) -> list[Object]:
    return [w.object for w in decision.writes if isinstance(w, Create)]


def deleted(decision: Decision) -> list[str]:
    return [w.name for w in decision.writes if isinstance(w, Delete)]


def new_status(decision: Decision) -> Object | None:
    found = [w for w in decision.writes if isinstance(w, Update)]
    assert all((w.kind, w.subresource) == (CRON_JOB, "status") for w in found) and len(found) < 2
    return found[0].object["status"] if found else None


def test_a_new_cron_job_waits_for_its_first_start() -> None:
    decision = look(cron())
    assert decision.writes == ()
    assert decision.requeue_after == pytest.approx(30.1)


def test_a_far_start_is_looked_for_every_minute_because_clocks_are_set_and_laptops_sleep() -> None:
    assert look(cron(schedule="0 0 1 1 *")).requeue_after == 60.0


def test_a_start_makes_a_job_and_the_time_in_one_decision() -> None:
    of = cron(created=NOW - 40)
    decision = look(of)
    assert [type(w) for w in decision.writes] == [Create, Record, Update]
    assert said(decision) == ["Normal SuccessfulCreate: Created job tick-30000000"]
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE)}
    [found] = made(decision)
    assert found == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "tick-30000000",
            "namespace": "team",
            "labels": {"app": "x"},
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2027-01-15T08:00:00Z"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": "u-tick", "controller": True, "blockOwnerDeletion": True}
            ],
        },
        "spec": of["spec"]["jobTemplate"]["spec"],
    }  # fmt: skip


def test_the_annotation_has_the_time_of_the_zone_and_the_schedule_is_read_in_it() -> None:
    [found] = made(look(cron(created=NOW - HOUR, schedule="0 9 * * *", timeZone="Europe/Berlin")))
    assert found["metadata"]["annotations"] == {
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2027-01-15T09:00:00+01:00"
    }


def test_without_a_zone_the_schedule_is_read_in_that_of_the_server() -> None:
    of = cron(created=NOW - HOUR, schedule="0 17 * * *")
    decision = reconcile(ObservedCronJob(of, ()), lambda _: None, Memory(), NOW, load_zone("Asia/Tokyo"))
    assert [name(j) for j in made(decision)] == ["tick-30000000"]


def test_labels_for_the_scheduler_hold_for_the_jobs() -> None:
    [found] = made(look(cron(created=NOW - 40, meta={"labels": {"kai.scheduler/queue": "nights", "mine": "x"}})))
    assert found["metadata"]["labels"] == {"kai.scheduler/queue": "nights", "app": "x"}


def test_a_made_job_becomes_active_and_its_time_is_known_though_the_server_died_in_between() -> None:
    of = cron(created=NOW - 40)
    running = job(of, MINUTE)
    decision = look(of, running)
    assert made(decision) == [] and said(decision) == []
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE), "active": [reference(running)]}
    ended = job(of, MINUTE, "Complete", NOW)
    of["status"] = new_status(look(of, ended))
    assert of["status"] == {"lastSuccessfulTime": timestamp(NOW)}
    decision = look(of, ended)
    assert made(decision) == []
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE), "lastSuccessfulTime": timestamp(NOW)}


@pytest.mark.parametrize(("end", "success"), [("Complete", {"lastSuccessfulTime": timestamp(NOW)}), ("Failed", {})])
def test_an_ended_job_is_told_and_no_longer_active(end: str, success: Object) -> None:
    of = cron()
    of["status"] = {"lastScheduleTime": timestamp(MINUTE), "active": [reference(job(of, MINUTE))]}
    decision = look(of, job(of, MINUTE, end, NOW))
    assert said(decision) == [f"Normal SawCompletedJob: Saw completed job: tick-30000000, condition: {end}"]
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE)} | success


def test_an_active_job_that_is_gone_is_missing() -> None:
    of = cron()
    of["status"] = {"lastScheduleTime": timestamp(MINUTE), "active": [reference(job(of, MINUTE))]}
    decision = look(of)
    assert said(decision) == ["Normal MissingJob: Active job went missing: tick-30000000"]
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE)}


def test_the_oldest_ended_jobs_beyond_the_limits_are_deleted() -> None:
    of = cron(status={"lastScheduleTime": timestamp(MINUTE), "lastSuccessfulTime": timestamp(NOW)})
    jobs = [job(of, MINUTE - 60 * n, "Complete", NOW) for n in range(5)] + [
        job(of, MINUTE - 60 * n, "Failed") for n in range(5, 8)
    ]
    decision = look(of, *jobs)
    assert deleted(decision) == [f"tick-{30000000 - n}" for n in (4, 3, 7, 6)]
    assert said(decision)[0] == "Normal SuccessfulDelete: Deleted job tick-29999996"
    assert all(w.options.propagation == "Background" for w in decision.writes if isinstance(w, Delete))


def test_with_a_limit_of_nothing_an_ended_job_goes_and_its_success_stays() -> None:
    of = cron(successfulJobsHistoryLimit=0)
    of["status"] = {"lastScheduleTime": timestamp(MINUTE), "active": [reference(job(of, MINUTE))]}
    decision = look(of, job(of, MINUTE, "Complete", NOW))
    assert deleted(decision) == ["tick-30000000"]
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE), "lastSuccessfulTime": timestamp(NOW)}


def test_a_job_made_by_hand_counts_for_the_limits_and_is_told_once() -> None:
    of, memory = cron(), Memory()
    by_hand = job(
        of, MINUTE, name="manual", uid="u-manual", annotations={"cronjob.kubernetes.io/instantiate": "manual"}
    )
    expected = ["Warning UnexpectedJob: Saw a job that the controller did not create or forgot: manual"]
    assert said(look(of, by_hand, memory=memory)) == expected
    assert said(look(of, by_hand, memory=memory)) == []


def active(of: Object, start: float = MINUTE - 60) -> tuple[Object, Object]:
    running = job(of, start)
    of["status"] = {"lastScheduleTime": timestamp(start), "active": [reference(running)]}
    return of, running


def test_forbid_waits_for_the_active_job_and_says_so_once() -> None:
    (of, running), memory = active(cron(concurrencyPolicy="Forbid")), Memory()
    decision = look(of, running, memory=memory)
    assert said(decision) == [
        "Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid"
    ]
    assert made(decision) == [] and decision.requeue_after == pytest.approx(30.1)
    assert look(of, running, memory=memory).writes == ()


def test_replace_makes_room_first_and_the_next_look_starts() -> None:
    of, running = active(cron(concurrencyPolicy="Replace"))
    decision = look(of, running)
    assert deleted(decision) == ["tick-29999999"] and made(decision) == []
    assert new_status(decision) == {"lastScheduleTime": timestamp(MINUTE - 60)}
    of["status"] = new_status(decision)
    assert [name(j) for j in made(look(of))] == ["tick-30000000"]
    leaving = {**running, "metadata": {**running["metadata"], "deletionTimestamp": timestamp(NOW)}}
    assert [name(j) for j in made(look(of, leaving))] == ["tick-30000000"]


def test_allow_runs_both() -> None:
    of, running = active(cron())
    assert [name(j) for j in made(look(of, running))] == ["tick-30000000"]


def test_after_a_pause_only_the_last_missed_start_is_made_and_many_are_told() -> None:
    decision = look(cron(created=NOW - 2 * HOUR))
    assert [name(j) for j in made(decision)] == ["tick-30000000"]
    text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
    assert said(decision)[0] == f"Warning TooManyMissedTimes: {text}"
    few = look(cron(created=NOW - 2 * HOUR, startingDeadlineSeconds=600))
    assert said(few) == ["Normal SuccessfulCreate: Created job tick-30000000"]


def test_a_start_past_its_deadline_is_missed_and_told_once() -> None:
    of, memory = cron(created=NOW - 2 * HOUR, schedule="@hourly", startingDeadlineSeconds=29), Memory()
    decision = look(of, memory=memory)
    assert made(decision) == [] and new_status(decision) is None
    text = "Missed scheduled time to start a job: Fri, 15 Jan 2027 08:00:00 +0000"
    assert said(decision) == [f"Warning MissSchedule: {text}"]
    assert look(of, memory=memory).writes == ()
    assert len(made(look(cron(created=NOW - 2 * HOUR, schedule="@hourly", startingDeadlineSeconds=30)))) == 1


def test_every_so_often_starts_although_the_deadline_is_shorter_than_the_distance() -> None:
    of = cron(created=NOW - 1800, schedule="@every 30m", startingDeadlineSeconds=10)
    assert len(made(look(of))) == 1


def test_a_changed_schedule_begins_at_the_change() -> None:
    memory, of = Memory(), cron(created=NOW - 2 * HOUR, schedule="0 0 * * *")
    assert look(of, memory=memory).writes == ()
    changed = {**of, "spec": {**of["spec"], "schedule": "*/5 * * * *"}}
    decision = look(changed, memory=memory)
    assert made(decision) == [] and decision.requeue_after == 60.0
    assert [name(j) for j in made(look(changed, memory=memory, at=MINUTE + 301))] == ["tick-30000005"]


def test_a_suspended_one_makes_nothing_and_a_resumed_one_the_last_start() -> None:
    of = cron(created=NOW - 600, suspend=True)
    assert look(of) == Decision()
    of["spec"]["suspend"] = False
    assert [name(j) for j in made(look(of))] == ["tick-30000000"]


def test_one_that_is_deleted_only_keeps_its_status_true() -> None:
    of, running = active(cron(meta={"deletionTimestamp": timestamp(NOW)}))
    assert look(of, running) == Decision()
    assert new_status(look(of)) == {"lastScheduleTime": timestamp(MINUTE - 60)}


def test_a_name_that_another_job_has_is_told_and_the_next_start_is_awaited() -> None:
    of = cron(created=NOW - 40)
    other = {"metadata": {"name": "tick-30000000", "namespace": "team", "uid": "u-other"}}
    decision = look(of, others=(other,))
    assert made(decision) == [] and new_status(decision) is None
    assert said(decision)[0].startswith(
        'Warning FailedCreate: Error creating job: jobs.batch "tick-30000000" already exists'
    )
    assert decision.requeue_after == pytest.approx(30.1)


def test_a_refused_job_is_told() -> None:
    [create] = [w for w in look(cron(created=NOW - 40)).writes if isinstance(w, Create)]
    assert create.kind is BATCH_JOB
    assert [(r.reason, r.message) for r in create.failure_records] == [("FailedCreate", "Error creating job: {error}")]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedule": "nonsense"}, "UnparseableSchedule"),
        ({"timeZone": "No/Where"}, "UnknownTimeZone"),
        ({"schedule": "0 0 31 2 *"}, "InvalidSchedule"),
        ({"schedule": ""}, "UnparseableSchedule"),
    ],
)
def test_what_cannot_be_scheduled_is_told(spec: Object, reason: str) -> None:
    decision = look(cron(**spec))
    assert [line.split()[1] for line in said(decision)] == [f"{reason}:"]
    assert decision.requeue_after is None
