"""The parts of the runner that need no cluster: cases as they are written, what counts in an object, what is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import OPERATOR_CASES
from tests.operator_cases.__main__ import written
from tests.operator_cases.actions import path
from tests.operator_cases.cases import Case, Step, load, manifest, merged
from tests.operator_cases.picture import bare, combined, decided, differences, job, marked, plain, tidy, wrong
from tests.operator_cases.playing import slowness

FILES = sorted(OPERATOR_CASES.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_every_written_case_is_recorded_step_by_step(file: Path) -> None:
    short, whole = load(file), load(file.with_suffix(".json"))
    assert [case.title for case in whole] == [case.title for case in short]
    for case, other in zip(short, whole, strict=True):
        assert [step.do for step in other.steps] == [step.do for step in case.steps], case.title
        assert all(bool(step.variants) != bool(step.do.get("nocheck")) for step in other.steps), case.title


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_what_is_written_is_what_was_read(file: Path, tmp_path: Path) -> None:
    cases = load(file.with_suffix(".json"))
    (tmp_path / "again.json").write_text(written(cases))
    assert load(tmp_path / "again.json") == cases


def test_a_word_that_no_case_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("f: [{name: a, kind: TFJob, replica: {}, steps: []}]")
    with pytest.raises(ValueError, match="replica"):
        load(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("f: [{name: a, kind: TFJob, steps: []}, {name: a, kind: TFJob, steps: []}]")
    with pytest.raises(ValueError, match="there twice"):
        load(tmp_path / "a.yaml")


def test_a_short_case_becomes_a_whole_job() -> None:
    given: dict[str, Any] = {"kind": "TFJob", "kinds": ["TFJob", "MPIJob"], "restart": {"PS": "Never"}}
    given |= {
        "replicas": {"PS": 1, "Launcher": 1, "Worker": None},
        "run": {"suspend": True},
        "meta": {"labels": {"a": "b"}},
    }
    given |= {"template": {"*": {"spec": {"x": 1}}, "PS": {"spec": {"x": None}}}, "spec": {"enableDynamicWorker": True}}
    container = {"name": "tensorflow", "image": "img"}
    assert manifest(given) == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "job", "labels": {"a": "b"}},
        "spec": {
            "tfReplicaSpecs": {
                "PS": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}},
                "Worker": {"template": {"spec": {"containers": [container], "x": 1}}},
            },
            "runPolicy": {"suspend": True},
            "enableDynamicWorker": True,
        },
    }
    assert manifest({"kind": "TFJob", "rawspec": [1], "jobname": "1"})["spec"] == [1]
    assert merged({"a": {"b": 1}, "c": 2}, {"a": {"b": None, "d": 3}, "c": {"e": 4}}) == {"a": {"d": 3}, "c": {"e": 4}}


def test_kinds_lie_where_the_api_has_them() -> None:
    assert path("Pod", "n", "a/status") == "/api/v1/namespaces/n/pods/a/status"
    assert path("PriorityClass", "n") == "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert path("MPIJob", "n", "a") == "/apis/kubeflow.org/v1/namespaces/n/mpijobs/a"


def test_random_lists_in_messages_are_sorted_and_nothing_else() -> None:
    assert tidy("x is invalid: [spec.b: no, spec.a: yes, really]") == "x is invalid: [spec.a: yes, really, spec.b: no]"
    assert tidy('no: supported values: "b", "a"') == 'no: supported values: "a", "b"'
    assert tidy("b, a") == "b, a"
    assert plain({"a": "in oc-1: 01234567-89ab-cdef-0123-456789abcdef"}, "oc-1") == {"a": "in $NS: $UID"}


def test_what_the_server_adds_to_an_object_does_not_count() -> None:
    assert bare({"a": None, "b": [], "c": {"protocol": "TCP", "d": 0}, "e": False}) == {"c": {"d": 0}, "e": False}
    token = {"name": "kube-api-access-x"}
    tolerations = [{"key": "node.kubernetes.io/not-ready"}, {"key": "mine"}]
    spec = {
        "containers": [{"name": "a", "volumeMounts": [token]}],
        "volumes": [token, {"name": "v"}],
        "dnsPolicy": "None",
    }
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {**spec, "tolerations": tolerations, "nodeName": "n"}}
    assert decided("Pod", pod) == {
        "labels": {"a": "b"},
        "spec": {
            "containers": [{"name": "a"}],
            "volumes": [{"name": "v"}],
            "dnsPolicy": "None",
            "tolerations": [{"key": "mine"}],
        },
    }


def test_a_life_is_marked() -> None:
    meta = {"uid": "2", "ownerReferences": [{"controller": True}]}
    assert marked({"metadata": meta}, "") == marked({"metadata": meta}, "2") == ""
    assert marked({"metadata": {"uid": "2", "deletionTimestamp": "t"}}, "1") == "+Recreated+Terminating+Unowned"


def test_a_jobs_selector_is_random_once_it_has_succeeded() -> None:
    counts = {"Worker": {"selector": "s", "active": 0, "succeeded": 1}}
    done = {"conditions": [{"type": "Succeeded", "status": "True"}], "replicaStatuses": counts, "startTime": "2"}
    assert job({"metadata": {}, "status": done}, "1") == {
        "conditions": [["Succeeded", "True", "", ""]],
        "replicaStatuses": {"Worker": {"succeeded": 1}},
        "startTime": True,
        "startTimeMoved": True,
        "completionTime": False,
    }
    going = job({"metadata": {"deletionTimestamp": "t"}, "status": {"replicaStatuses": counts}}, "")
    assert going["replicaStatuses"]["Worker"]["selector"] == "s" and going["terminating"] and not going["startTime"]


def test_a_state_is_right_when_one_variant_and_the_events_fit() -> None:
    step = Step({}, ({"pods": {"a": "Running"}}, {"pods": {"a": "Failed"}}), ("Normal A b",), ("Normal C d",))
    events = ["Normal A b"]
    assert wrong(step, {"pods": {"a": "Failed"}, "events": [*events, "Normal C d"]}) == []
    assert wrong(step, {"pods": {"a": "Failed"}, "events": [*events, "Normal X already exists"]}) == []
    assert wrong(step, {"pods": {"a": "Failed"}, "events": [*events, "Normal E f"]}) == [".events: surplus Normal E f"]
    assert wrong(step, {"pods": {"a": "Failed"}, "events": []}) == [".events: missing Normal A b"]
    assert wrong(step, {"pods": {"a": "Pending"}, "events": events}) == ['.pods.a: "Pending", recorded was "Running"']
    assert wrong(Step({}, ({},), (), ("*",)), {"events": ["Normal E f"]}) == []


def test_events_quote_refusals_without_the_insides_of_go() -> None:
    refusal = 'Warning FailedCreateService Error creating: Service "{}" is invalid: spec.ports[1]: Duplicate value: {}'
    go_struct = '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":1,"TargetPort":0,"NodePort":0}'
    ours = '{"protocol":"TCP","port":1}'
    step = Step({}, ({},), (refusal.format("a", go_struct),), (refusal.format("b", go_struct),))
    assert wrong(step, {"events": [refusal.format("a", ours), refusal.format("b", ours)]}) == []
    assert wrong(step, {"events": [refusal.format("b", ours)]}) == [f".events: missing {refusal.format('a', 'STRUCT')}"]


def test_differences_name_each_place() -> None:
    assert list(differences({"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 4}], "d": 5})) == [
        ".a[1].b: 4, recorded was 2",
        ".c: nothing, recorded was 3",
        ".d: 5, recorded was nothing",
    ]
    assert list(differences([1], [1, 2])) and list(differences(1, True)) and list(differences("", None))


def test_runs_are_combined_into_what_is_accepted() -> None:
    runs = [
        {"pods": {"a": "Running"}, "events": ["E 1", "E 2", "E already exists"]},
        {"pods": {"a": "Running"}, "events": ["E 1", "E already exists"]},
        {"pods": {"a": "Failed"}, "events": ["E 1", "E already exists"]},
    ]
    step = combined({"wait": 1}, runs, "TFJob", noisy=False)
    assert step.variants == ({"pods": {"a": "Running"}}, {"pods": {"a": "Failed"}})
    assert (step.events, step.maybe) == (("E 1",), ("E 2", "E already exists"))
    assert combined({}, runs, "TFJob", noisy=True).events == ("E 1", "E already exists")
    assert combined({}, runs, "MPIJob", noisy=False).maybe == ("*",)
    assert combined({"nocheck": True}, [None, None], "TFJob", noisy=False) == Step({"nocheck": True})
    assert Case("f", "TFJob", "n", (step,)).json()["steps"][0]["maybe"] == ["E 2", "E already exists"]


def test_an_overloaded_machine_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that waits for a processor writes nothing, and would be recorded as one that does nothing."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for waiting, slow in ((0.1, 1.0), (2.0, 1.0), (30.0, 15.0)):
        monkeypatch.setattr(os, "getloadavg", lambda waiting=waiting: (waiting, 0.0, 0.0))
        assert slowness() == slow
