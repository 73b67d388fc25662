"""A pod's status from facts, against what a real kubelet wrote (`kubectl-walk/pods.golden.json`)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.evidence import WALKS

from rowlock.kubelet.pod.facts import ContainerFacts, Exit, PodFacts, Problem, Run
from rowlock.kubelet.pod.progress import assess_progress
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.status import PHASES, format_duration, generate_pod_status, phase_case
from rowlock.objects import Object

GOLDEN = WALKS / "pods.golden.json"
NOW = 1_000_000.0
RUNNING = ContainerFacts(Run(0, 1, 1, 2, NOW), image_id="rowlock://x")
LOOKUP = "for i in 1; do if nslookup m-0; then break; fi; done"


def ended(code: int, number: int = 0, backoff: int = 0) -> ContainerFacts:
    return ContainerFacts(Run(number, 1, 1, 2, NOW, backoff, Exit(code, NOW, NOW)))


def status_of(given: Object, known: PodFacts, now: float) -> dict[str, Any]:
    return generate_pod_status(assess_progress(parse_pod_spec(given), known, now))


def pod(policy: str, mains: int = 1, inits: int = 0) -> Object:
    spec: dict[str, Any] = {"restartPolicy": policy, "containers": [_container(f"c{i}") for i in range(mains)]}
    if inits:
        spec["initContainers"] = [_container(f"i{i}") for i in range(inits)]
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec}


def _container(name: str) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", "resources": {}}


@pytest.mark.parametrize(
    ("given", "known", "line"),
    [
        (pod("Never"), {}, "some never ran"),
        (pod("Never"), {"c0": ContainerFacts(asked=0)}, "some never ran"),
        (pod("Never"), {"c0": RUNNING}, "some run or will run again"),
        (pod("Never", 2), {"c0": RUNNING, "c1": ended(1)}, "some run or will run again"),
        (pod("Never", 2), {"c0": RUNNING}, "some never ran"),
        (pod("Never"), {"c0": ended(0)}, "all succeeded"),
        (pod("Never"), {"c0": ended(1)}, "all ended"),
        (pod("Never", 2), {"c0": ended(0), "c1": ended(1)}, "all ended"),
        (pod("OnFailure"), {"c0": ended(0)}, "all succeeded"),
        (pod("OnFailure"), {"c0": ended(1)}, "some run or will run again"),
        (pod("Always"), {"c0": ended(0)}, "some run or will run again"),
        (pod("Never", 1, 1), {}, "initialising"),
        (pod("Never", 1, 1), {"i0": ended(2)}, "init failed"),
        (pod("OnFailure", 1, 1), {"i0": ended(2)}, "initialising"),
        (pod("Never", 1, 1), {"i0": ended(0), "c0": RUNNING}, "some run or will run again"),
    ],
)
def test_situations(given: Object, known: dict[str, ContainerFacts], line: str) -> None:
    assert phase_case(assess_progress(parse_pod_spec(given), PodFacts(containers=known), NOW)) == line
    assert status_of(given, PodFacts(containers=known), NOW)["phase"] == dict(PHASES)[line]


def _facts(**known: ContainerFacts) -> PodFacts:
    return PodFacts("10.77.1.1", "127.0.0.1", NOW, known)


def test_a_running_pod_has_the_fields_of_a_real_one() -> None:
    steps = {s["name"]: s["result"] for s in json.loads(GOLDEN.read_text())["steps"]}
    real = steps["get-yaml"]["object"]["status"]
    ours = status_of(pod("Always"), _facts(c0=RUNNING), NOW)
    assert set(real) - set(ours) == {"qosClass"}, "qosClass is the API server's"
    assert not set(ours) - set(real)
    assert set(ours["containerStatuses"][0]) == set(real["containerStatuses"][0])
    assert [set(c) for c in ours["conditions"]] == [set(c) for c in real["conditions"]]
    assert [(c["type"], c["status"]) for c in ours["conditions"]] == [
        (c["type"], c["status"]) for c in real["conditions"]
    ]


def test_a_failed_init_container_as_a_real_kubelet_tells_it() -> None:
    steps = {s["name"]: s["result"] for s in json.loads(GOLDEN.read_text())["steps"]}
    ours = status_of(pod("Never", 1, 1), _facts(i0=ended(2)), NOW)
    lines = [f"{c['type']}={c['status']} {c.get('reason', '')} {c.get('message', '')}" for c in ours["conditions"]]
    real = [line.replace("setup", "i0") for line in steps["badinit-conditions"]["stdout"]]
    assert [" ".join(line.split()) for line in lines] == [" ".join(line.split()) for line in real]
    assert ours["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_crash_loop() -> None:
    known = ContainerFacts(Run(2, 1, 1, 2, NOW, 2, Exit(3, NOW, NOW)), last=Exit(3, NOW, NOW))
    found = status_of(pod("Always"), _facts(c0=known), NOW)["containerStatuses"][0]
    sentence = "back-off 20s restarting failed container=c0 pod=p_n(u)"
    assert found["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": sentence}}
    assert found["lastState"]["terminated"]["exitCode"] == 3 and found["restartCount"] == 2


def test_a_problem_is_the_waiting_state_and_leaves_no_container() -> None:
    known = ContainerFacts(problem=Problem("ErrImagePull", "no image"))
    found = status_of(pod("Never"), _facts(c0=known), NOW)
    assert found["phase"] == "Pending"
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "ErrImagePull", "message": "no image"}}
    assert "containerID" not in found["containerStatuses"][0]


def test_the_emulated_init_container_runs_until_the_master_is_ready() -> None:
    worker = pod("Never")
    worker["spec"]["initContainers"] = [
        {"name": "init-pytorch", "image": "alpine:3.10", "command": ["sh", "-c", LOOKUP]}
    ]
    waiting = status_of(worker, _facts(), NOW)
    assert "running" in waiting["initContainerStatuses"][0]["state"] and waiting["phase"] == "Pending"
    done = status_of(worker, PodFacts("10.77.1.1", start_time=NOW, containers={"c0": RUNNING}, master_ready=NOW), NOW)
    assert done["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert done["phase"] == "Running"


def test_transition_times_move_only_with_the_status() -> None:
    first = status_of(pod("Always"), _facts(c0=RUNNING), NOW)
    later = status_of({**pod("Always"), "status": first}, _facts(c0=RUNNING), NOW + 60)
    assert later == first


def test_what_ended_before_the_records_begin_is_known_as_such() -> None:
    """After a restore nothing is known of pods that had ended; their exit codes stand in their status alone."""
    told = status_of(pod("Never", 2), _facts(c0=ended(0), c1=ended(3)), NOW)
    over = {**pod("Never", 2), "status": told}

    def is_without_records(given: Object, known: PodFacts) -> bool:
        return assess_progress(parse_pod_spec(given), known, NOW).is_without_records

    assert is_without_records(over, _facts())
    assert not is_without_records(over, _facts(c0=ended(0), c1=ended(3)))
    waiting = status_of(pod("Never", 2), _facts(), NOW)
    assert not is_without_records({**over, "status": {**waiting, "phase": "Failed"}}, _facts()), "it was rejected"
    assert not is_without_records({**over, "status": {**told, "phase": "Running"}}, _facts()), "it starts anew"


def test_conditions_of_others_stay() -> None:
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    given = pod("Never") | {"status": {"conditions": [{"type": "Ready", "status": "True"}, theirs]}}
    found = status_of(given, _facts(c0=ended(3)), NOW)["conditions"]
    assert found[0] == theirs
    assert [c["type"] for c in found].count("Ready") == 1


@pytest.mark.parametrize(("span", "text"), [(0.4, "400ms"), (10, "10s"), (160, "2m40s"), (300, "5m0s")])
def test_durations_read_as_in_go(span: float, text: str) -> None:
    assert format_duration(span) == text


def test_a_pod_with_a_sidecar_is_over_when_the_sidecar_is() -> None:
    given = pod("Never", 1, 1)
    given["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    both = status_of(given, _facts(i0=RUNNING, c0=RUNNING), NOW)
    side = both["initContainerStatuses"][0]
    assert both["phase"] == "Running" and side["ready"] and side["started"] and "running" in side["state"]
    assert status_of(given, _facts(i0=RUNNING, c0=ended(0)), NOW)["phase"] == "Running"
    assert status_of(given, _facts(i0=ended(143), c0=ended(0)), NOW)["phase"] == "Succeeded"
    assert status_of(given, _facts(), NOW)["phase"] == "Pending"
    unready = {
        c["type"]: c.get("message") for c in status_of(given, _facts(i0=ended(1), c0=RUNNING), NOW)["conditions"]
    }
    assert unready["Ready"] == "containers with unready status: [i0]" and unready["Initialized"] is None


def test_who_has_probes_is_not_ready_before_they_say_so() -> None:
    given = pod("Never")
    given["spec"]["containers"][0] |= {"readinessProbe": {"exec": {}}, "startupProbe": {"exec": {}}}
    fresh = ContainerFacts(Run(0, 1, 1, 2, NOW))

    def flags(known: ContainerFacts) -> tuple[bool, bool]:
        said = status_of(given, _facts(c0=known), NOW)["containerStatuses"][0]
        return said["started"], said["ready"]

    assert flags(fresh) == (False, False)
    assert flags(replace(fresh, ready=True)) == (False, False)
    assert flags(replace(fresh, started=True)) == (True, False)
    assert flags(replace(fresh, started=True, ready=True)) == (True, True)


def test_a_pod_that_has_failed_stays_so_and_tells_how_its_containers_end() -> None:
    failed = {**pod("Always"), "status": {"phase": "Failed", "reason": "Evicted", "message": "too much"}}
    told = status_of(failed, _facts(c0=ended(137)), NOW)
    assert (told["phase"], told["reason"], told["message"]) == ("Failed", "Evicted", "too much")
    assert told["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


@pytest.mark.parametrize(
    ("main", "look", "phase"),
    [
        (RUNNING, RUNNING, "Running"),
        (RUNNING, ended(1), "Running"),
        (ContainerFacts(), RUNNING, "Pending"),
        (ended(0), RUNNING, "Running"),  # it is stopped first, as by a real kubelet
        (ended(0), ended(1), "Succeeded"),
        (ended(0), ContainerFacts(), "Succeeded"),
        (ended(1), ended(0), "Failed"),
    ],
)
def test_an_ephemeral_container_never_decides_the_phase(main: ContainerFacts, look: ContainerFacts, phase: str) -> None:
    given = pod("Never")
    given["spec"]["ephemeralContainers"] = [_container("e")]
    status = status_of(given, PodFacts(containers={"c0": main, "e": look}), NOW)
    assert status["phase"] == phase and [c["name"] for c in status["containerStatuses"]] == ["c0"]
    (shown,) = status["ephemeralContainerStatuses"]
    assert shown["name"] == "e" and shown["ready"] is False and shown["restartCount"] == 0 and "started" not in shown
    assert status["conditions"][2]["message" if phase == "Pending" else "type"] in (
        "containers with unready status: [c0]",
        "Ready",
    )
