"""Which runs of a sweep are made, what their jobs are, and that neither a crash nor a user's edit makes others."""

from __future__ import annotations

import json

import pytest
from tests.sweeps.build import KEY, NAMESPACE, config_map, ended, make_sweep, variables

from rowlock import kinds, objects
from rowlock.api import Create, Decision, Patch, Record
from rowlock.objects import Object
from rowlock.sweeps.reconcile import ObservedSweep, has_ended, reconcile
from rowlock.sweeps.sweep import (
    BEGUN_ANNOTATION,
    DATA_KEY,
    SEAL_KEY,
    STOPPED_ANNOTATION,
    Sweep,
    index_of,
    read_object,
)
from rowlock.sweeps.template import build_run, longest_run
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads.objects import WORKLOAD_ID

NONE: dict[str, str] = {}


def created(decision: Decision) -> list[str]:
    return [objects.name(write.object) for write in decision.writes if isinstance(write, Create)]


def noted(decision: Decision) -> list[str]:
    patches = [write.patch for write in decision.writes if isinstance(write, Patch)]
    return [patch["metadata"]["annotations"][BEGUN_ANNOTATION] for patch in patches]


def events(decision: Decision) -> list[str]:
    return [write.reason for write in decision.writes if isinstance(write, Record)]


# ---------------------------------------------------------------- the jobs


def test_a_run_is_the_submit_with_its_values() -> None:
    sweep = make_sweep()
    job = build_run(sweep, config_map(sweep), 2)
    container = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template.spec.containers")[0]
    assert container["command"] == ["python", "train.py", "--lr", "0.2", "--out=2"]
    assert variables(job) == {"ROWLOCK_SWEEP_LR": "0.2", "ROWLOCK_SWEEP_SEED": "1", "ROWLOCK_SWEEP_INDEX": "2"}
    assert objects.key(job) == (NAMESPACE, "tune-2")
    assert objects.labels(job)["release"] == "tune-2" and objects.labels(job)[WORKLOAD_ID] == sweep.run_id(2)
    assert {v["value"] for v in container["env"] if v["name"] == "JOB_NAME"} == {"tune-2"}
    assert json.loads(objects.annotations(job)["rowlock.dev/sweep-parameters"]) == {"lr": "0.2", "seed": "1"}
    request = json.loads(objects.annotations(job)[REQUEST_ANNOTATION])
    assert (request["name"], request["spec"]["command"][3]) == ("tune-2", "0.2")
    assert objects.is_controlled_by(job, "uid-of-the-sweep")
    assert sweep.markers.name not in json.dumps(job) and sweep.id not in json.dumps(job)


@pytest.mark.parametrize("value", ['say "hi"', "back\\slash", "$(HOME)", "$$", "a b", "{lr}", "ü"])
def test_a_value_is_taken_as_it_is(value: str) -> None:
    """Kubernetes reads `$$` as a dollar, and `$(NAME)` as a variable."""
    job = build_run(sweep := make_sweep(parameters={"lr": [value]}), config_map(sweep), 0)
    container = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template.spec.containers")[0]
    assert container["command"][3] == value.replace("$", "$$")
    assert json.loads(objects.annotations(job)[REQUEST_ANNOTATION])["spec"]["command"][3] == value.replace("$", "$$")
    assert json.loads(objects.annotations(job)["rowlock.dev/sweep-parameters"]) == {"lr": value}


def test_ids_of_runs_are_uuids_that_differ() -> None:
    import uuid

    sweep = make_sweep()
    ids = [sweep.run_id(index) for index in range(4)]
    assert len(set(ids)) == 4 and [str(uuid.UUID(one)) for one in ids] == ids


# ---------------------------------------------------------------- which are made


def look(made: dict[int, bool], annotations: dict[str, str] = NONE, *, parallel: int = 2) -> Decision:
    sweep = make_sweep(maxParallel=parallel)
    return reconcile(ObservedSweep(config_map(sweep, annotations), sweep, made))


def test_as_many_are_made_as_may_be_unfinished() -> None:
    assert created(look({})) == ["tune-0", "tune-1"]
    assert created(look({0: False, 1: False})) == []
    assert created(look({0: True, 1: False})) == ["tune-2"]
    assert created(look({0: True, 1: True, 2: False, 3: False})) == []
    assert created(look({}, parallel=100)) == ["tune-0", "tune-1", "tune-2", "tune-3"]


def test_a_run_that_a_user_deleted_is_not_made_again() -> None:
    assert created(look({2: True}, {BEGUN_ANNOTATION: "3"})) == ["tune-3"]
    assert created(look({}, {BEGUN_ANNOTATION: "4"})) == []


def test_what_has_begun_is_noted_after_the_jobs_are_there() -> None:
    assert noted(look({})) == []
    assert noted(look({0: False, 1: False})) == ["2"]
    assert noted(look({0: False, 1: False}, {BEGUN_ANNOTATION: "2"})) == []


@pytest.mark.parametrize("text", ["many", "-1", "²", "", "1.5"])
def test_a_note_that_is_no_number_is_written_anew(text: str) -> None:
    decision = look({0: False, 1: False}, {BEGUN_ANNOTATION: text})
    assert (created(decision), noted(decision)) == ([], ["2"])


def test_a_note_beyond_the_last_run_makes_nothing() -> None:
    assert created(look({}, {BEGUN_ANNOTATION: "999999"})) == []


def test_a_stopped_sweep_makes_no_runs() -> None:
    decision = look({0: True, 1: True}, {STOPPED_ANNOTATION: "true"})
    assert (created(decision), noted(decision)) == ([], ["2"])


def test_a_name_that_another_job_has_is_waited_for() -> None:
    sweep = make_sweep()
    observed = ObservedSweep(config_map(sweep), sweep, {}, lambda name: name == "tune-1")
    assert (created(reconcile(observed)), events(reconcile(observed))) == (["tune-0"], ["NameTaken"])


def test_a_submitter_who_lost_the_right_gets_no_more_runs() -> None:
    sweep = make_sweep(is_owner=False)
    decision = reconcile(ObservedSweep(config_map(sweep), sweep, {}, may_create=False))
    assert (created(decision), events(decision)) == ([], ["Forbidden"])


def test_a_run_has_ended_with_either_condition() -> None:
    job: Object = {"metadata": {"name": "tune-0"}}
    assert (has_ended(job), has_ended(ended(job)), has_ended(ended(job, "Failed"))) == (False, True, True)
    assert not has_ended(ended(job, "Suspended"))


def test_only_jobs_that_the_sweep_made_are_its_runs() -> None:
    sweep = make_sweep()
    job = build_run(sweep, config_map(sweep), 1)
    assert index_of(job, sweep) == 1
    for key, value in (
        ("rowlock.dev/sweep-index", "2"),
        ("rowlock.dev/sweep-index", "²"),
        ("rowlock.dev/sweep", "other"),
    ):
        forged = {**job, "metadata": {**job["metadata"], "labels": {**objects.labels(job), key: value}}}
        assert index_of(forged, sweep) is None


# ---------------------------------------------------------------- what users may write


def test_a_sweep_is_read_as_it_was_written() -> None:
    for sweep in (make_sweep(), make_sweep(search="random", samples=3, seed=5, parameters={"lr": "uniform(0,1)"})):
        assert read_object(config_map(sweep), KEY) == sweep


def test_nobody_but_the_server_writes_a_sweep() -> None:
    sweep = make_sweep()
    made = config_map(sweep)
    text = made["data"][DATA_KEY]
    changed = {**made, "data": {**made["data"], DATA_KEY: text.replace("train.py", "steal.py")}}
    elsewhere = {**made, "metadata": {**made["metadata"], "namespace": "runai-theirs"}}
    renamed = {**made, "metadata": {**made["metadata"], "name": "sweep-x", "labels": {"rowlock.dev/sweep": "x"}}}
    for forged in (
        changed,
        elsewhere,
        renamed,
        {**made, "data": {DATA_KEY: text}},
        {**made, "data": None},
        {**made, "data": {SEAL_KEY: 1}},
    ):
        assert read_object(forged, KEY) is None
    assert read_object(made, b"another key") is None
    assert kinds.by_object(sweep.template) is kinds.PYTORCHJOB


# ---------------------------------------------------------------- runs that are large


def large_sweep(words: int, length: int) -> Sweep:
    """A sweep of 40 runs at a time whose command names a parameter often; the values of that are long."""
    spec = {"image": "i", "distributedFramework": "PyTorch", "noWorkers": True, "command": ["echo", *["{lr}"] * words]}
    values = ["x" * length + str(n) for n in range(40)]
    return make_sweep(parameters={"lr": values}, maxParallel=40, workload={"projectId": "team-a", "spec": spec})


def test_large_runs_are_made_a_few_a_turn() -> None:
    """Each is some hundred KB: forty of them in one turn held the event loop for seconds."""
    sweep = large_sweep(300, 900)
    decision = reconcile(ObservedSweep(config_map(sweep), sweep, {}))
    size = len(json.dumps(build_run(sweep, config_map(sweep), 39)))
    assert 200_000 < size and 1 <= len(created(decision)) <= 3
    small = make_sweep(parameters={"lr": "1..40"}, maxParallel=40)
    assert len(created(reconcile(ObservedSweep(config_map(small), small, {})))) == 40


def test_the_longest_run_is_known_before_one_is_made() -> None:
    for sweep in (large_sweep(300, 900), large_sweep(1, 3), make_sweep()):
        made = len(json.dumps(build_run(sweep, config_map(sweep), sweep.total - 1), ensure_ascii=False))
        assert 0.5 < longest_run(sweep) / made < 1.5
