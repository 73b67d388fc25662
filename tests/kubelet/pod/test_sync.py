"""What to do about a pod: by equality, no process in sight."""

from typing import Any

import pytest

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerFacts, Exit, PodFacts, Problem, Run
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.progress import assess_progress, backoff_delay
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.sync import PodActions, Publish, Remove, Start, Stop, compute_pod_actions
from rowlock.objects import Object, timestamp

NOW = 1_000_000.0
DONE, FAILED = Exit(0, NOW - 2, NOW - 1), Exit(3, NOW - 2, NOW - 1)
LOOKUP = [
    "sh",
    "-c",
    "err=1;for i in $(seq 100); do if nslookup job-master-0; then err=0 && break; fi; done; exit $err",
]


def pod(policy: str = "Never", *, containers: int = 1, init: list[dict[str, Any]] | None = None, **more: Any) -> Object:
    spec = {
        "restartPolicy": policy,
        "containers": [{"name": f"c{i}"} for i in range(containers)],
        **more.pop("spec", {}),
    }
    if init:
        spec["initContainers"] = init
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", **more}, "spec": spec, "status": {}}


def facts(*known: ContainerFacts, **more: Any) -> PodFacts:
    names = more.pop("names", [f"c{i}" for i in range(len(known))])
    return PodFacts("10.77.1.1", start_time=NOW, containers=dict(zip(names, known, strict=True)), **more)


def actions_of(given: Object, known: PodFacts, now: float) -> PodActions:
    return compute_pod_actions(assess_progress(parse_pod_spec(given), known, now))


def run(number: int = 0, end: Exit | None = None, backoff: int = 0) -> ContainerFacts:
    return ContainerFacts(Run(number, 1, 1, 2, NOW - 2, backoff, end))


@pytest.mark.parametrize(
    ("given", "known", "turn"),
    [
        (pod(), facts(), PodActions((Start("c0", 0, 0),), 0.5)),
        (pod(containers=2), facts(), PodActions((Start("c0", 0, 0), Start("c1", 0, 0)), 0.5)),
        (pod(), facts(ContainerFacts(asked=0)), PodActions((), 0.5)),
        (pod(), facts(start_delay=4.0), PodActions((Publish(),), 4.0)),
        (pod(init=[{"name": "i"}]), facts(start_delay=4.0), PodActions((Publish(),), 4.0)),
        (pod(spec={"activeDeadlineSeconds": 3}), facts(start_delay=4.0), PodActions((Publish(),), 3.0)),
        (pod(deletionTimestamp=timestamp(NOW)), facts(start_delay=4.0), PodActions((Remove(),))),
        (pod(), facts(run(), start_delay=4.0), PodActions((Publish(),))),
        (pod(), facts(run()), PodActions((Publish(),))),
        (pod(), facts(run(end=FAILED)), PodActions((Publish(),))),
        (pod("OnFailure"), facts(run(end=DONE)), PodActions((Publish(),))),
        (pod("OnFailure"), facts(run(end=FAILED)), PodActions((Start("c0", 1, 1),), 0.5)),
        (pod("Always"), facts(run(end=DONE)), PodActions((Start("c0", 1, 1),), 0.5)),
        (pod("Always"), facts(run(1, FAILED, 1)), PodActions((Publish(),), 9.0)),
        (pod("Always"), facts(run(5, FAILED, 5)), PodActions((Publish(),), 159.0)),
        (pod("Always"), facts(run(9, FAILED, 9)), PodActions((Publish(),), 299.0)),
        (pod("Always"), facts(run(9, Exit(1, NOW - 700, NOW - 1), 9)), PodActions((Start("c0", 10, 1),), 0.5)),
        (
            pod(),
            facts(ContainerFacts(problem=Problem("ErrImagePull", ""), problem_since=NOW)),
            PodActions((Publish(),), 5.0),
        ),
        (pod(spec={"activeDeadlineSeconds": 60}), facts(run()), PodActions((Publish(),), 60.0)),
        (pod(init=[{"name": "i"}]), facts(), PodActions((Start("i", 0, 0),), 0.5)),
        (pod(init=[{"name": "i"}]), facts(run(end=DONE), names=["i"]), PodActions((Start("c0", 0, 0),), 0.5)),
        (pod(init=[{"name": "i"}]), facts(run(end=FAILED), names=["i"]), PodActions((Publish(),))),
        (
            pod("OnFailure", init=[{"name": "i"}]),
            facts(run(end=FAILED), names=["i"]),
            PodActions((Start("i", 1, 1),), 0.5),
        ),
    ],
)
def test_turns(given: Object, known: PodFacts, turn: PodActions) -> None:
    assert actions_of(given, known, NOW) == turn


def test_deletion() -> None:
    leaving = pod(deletionTimestamp=timestamp(NOW + 30), deletionGracePeriodSeconds=30)
    assert actions_of(leaving, facts(run()), NOW) == PodActions((Stop("c0", 30.0),), 31.0)
    asked = ContainerFacts(Run(0, 1, 1, 2, NOW), stop_by=NOW + 30)
    assert actions_of(leaving, facts(asked), NOW) == PodActions((), 31.0)
    sooner = pod(deletionTimestamp=timestamp(NOW + 5), deletionGracePeriodSeconds=5)
    assert actions_of(sooner, facts(asked), NOW) == PodActions((Stop("c0", 5.0),), 6.0)
    for seconds in (1, 0):  # a kubelet gives no less than 2 s
        at_once = pod(deletionTimestamp=timestamp(NOW + seconds), deletionGracePeriodSeconds=seconds)
        assert actions_of(at_once, facts(asked), NOW) == PodActions((Stop("c0", 2.0),), seconds + 1.0)
        soon = ContainerFacts(Run(0, 1, 1, 2, NOW), stop_by=NOW + 2)
        assert actions_of(at_once, facts(soon), NOW + seconds) == PodActions((), 1.0)
    assert actions_of(leaving, facts(run(end=FAILED)), NOW) == PodActions((Remove(),))


SIDE = {"name": "s", "restartPolicy": "Always"}
BESIDE = pod(init=[SIDE, {"name": "i"}])


@pytest.mark.parametrize(
    ("known", "turn"),
    [
        ({}, PodActions((Start("s", 0, 0),), 0.5)),
        ({"s": run()}, PodActions((Start("i", 0, 0),), 0.5)),
        ({"s": run(end=FAILED)}, PodActions((Start("s", 1, 1),), 0.5)),
        ({"s": run(), "i": run(end=DONE)}, PodActions((Start("c0", 0, 0),), 0.5)),
        ({"s": run(), "i": run(end=FAILED)}, PodActions((Stop("s", 30.0), Publish()))),
        ({"s": run(end=DONE), "i": run(end=DONE), "c0": run()}, PodActions((Start("s", 1, 1),), 0.5)),
        ({"s": run(), "i": run(end=DONE), "c0": run(end=DONE)}, PodActions((Stop("s", 30.0), Publish()))),
        ({"s": run(end=FAILED), "i": run(end=DONE), "c0": run(end=DONE)}, PodActions((Publish(),))),
    ],
)
def test_sidecars(known: dict[str, ContainerFacts], turn: PodActions) -> None:
    assert actions_of(BESIDE, PodFacts(containers=known, start_time=NOW), NOW) == turn


def test_a_sidecar_with_a_startup_probe_holds_the_next_one_until_it_has_passed() -> None:
    probed = pod(init=[{**SIDE, "startupProbe": {"exec": {}}}])
    assert actions_of(probed, facts(run(), names=["s"]), NOW) == PodActions((Publish(),))
    passed = ContainerFacts(Run(0, 1, 1, 2, NOW), started=True)
    assert actions_of(probed, facts(passed, names=["s"]), NOW) == PodActions((Start("c0", 0, 0),), 0.5)


def test_deletion_stops_sidecars_last() -> None:
    leaving = pod(
        init=[SIDE, {**SIDE, "name": "t"}], deletionTimestamp=timestamp(NOW + 30), deletionGracePeriodSeconds=30
    )
    both = {"s": run(), "t": run()}
    known = PodFacts(containers={**both, "c0": run()})
    assert actions_of(leaving, known, NOW).actions == (Stop("c0", 30.0),)
    known = PodFacts(containers={**both, "c0": run(end=DONE)})
    assert actions_of(leaving, known, NOW).actions == (Stop("t", 30.0),)
    known = PodFacts(containers={"s": run(), "t": run(end=DONE), "c0": run(end=DONE)})
    assert actions_of(leaving, known, NOW).actions == (Stop("s", 30.0),)
    known = PodFacts(containers={**both, "c0": run()})
    assert {c.container for c in actions_of(leaving, known, NOW + 30).actions if isinstance(c, Stop)} == {
        "s",
        "t",
        "c0",
    }


def test_the_emulated_init_container_holds_the_pod_and_its_first_status() -> None:
    worker = pod(init=[{"name": "init-pytorch", "command": LOOKUP}])
    assert parse_pod_spec(worker).awaited_master == "job-master-0"
    nameless = parse_pod_spec(pod(init=[{"name": "init-pytorch", "command": ["sh", "-c", "nslookup"]}]))
    assert nameless.awaited_master == "" and not nameless.init_containers[0].is_emulated_init, "a program like others"
    assert actions_of(worker, facts(), NOW + 0.01).actions == ()
    assert actions_of(worker, facts(), NOW + 1) == PodActions((Publish(),))
    assert actions_of(worker, facts(master_ready=NOW), NOW) == PodActions((Start("c0", 0, 0),), 0.5)


def test_delays_double_to_thirty_times_the_first() -> None:
    assert [backoff_delay(n, 10.0) for n in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_pods_object_is_read_once_and_anew_when_it_is_another_one() -> None:
    state = PodState(PodCard("n", "p", "u", "node", "", NOW))
    first, second = pod("Never"), pod("Always", containers=2)
    spec = state.spec_of(first)
    assert state.spec_of(first) is spec and spec == parse_pod_spec(first)
    assert state.spec_of(second).restart_policy == "Always" and len(state.spec_of(second).containers) == 2
    later = {**second, "status": {"phase": "Running"}}
    assert state.spec_of(later) == parse_pod_spec(later), "containers of an unchanged spec are not parsed again"
    changed = {**later, "spec": {**later["spec"], "containers": later["spec"]["containers"][:1]}}
    assert state.spec_of(changed) == parse_pod_spec(changed)
    assert not hasattr(spec, "__dict__") and not hasattr(spec.containers[0], "__dict__"), "a thousand pods are kept"
    labelled = pod(labels={"a": "b"}, spec={"volumes": [{"name": "v"}]})
    read = parse_pod_spec(labelled)
    assert read.labels is labelled["metadata"]["labels"] and read.volumes is labelled["spec"]["volumes"], "no copies"


LOOKED_INTO = pod(spec={"ephemeralContainers": [{"name": "e"}]})


@pytest.mark.parametrize(
    ("given", "known", "turn"),
    [
        (LOOKED_INTO, {"c0": run()}, PodActions((Start("e", 0, 0),), 0.5)),
        (LOOKED_INTO, {}, PodActions((Start("c0", 0, 0), Start("e", 0, 0)), 0.5)),
        (LOOKED_INTO, {"c0": run(), "e": ContainerFacts(asked=0)}, PodActions((), 0.5)),
        (LOOKED_INTO, {"c0": run(), "e": run()}, PodActions((Publish(),))),
        (LOOKED_INTO, {"c0": run(), "e": run(end=FAILED)}, PodActions((Publish(),))),
        (
            pod("Always", spec={"ephemeralContainers": [{"name": "e"}]}),
            {"c0": run(), "e": run(end=FAILED)},
            PodActions((Publish(),)),
        ),
        (
            pod(init=[{"name": "i"}], spec={"ephemeralContainers": [{"name": "e"}]}),
            {"i": run()},
            PodActions((Start("e", 0, 0),), 0.5),
        ),
        (LOOKED_INTO, {"c0": run(end=DONE), "e": run()}, PodActions((Stop("e", 30.0), Publish()))),
        (LOOKED_INTO, {"c0": run(end=DONE)}, PodActions((Publish(),))),
        (
            LOOKED_INTO,
            {"c0": run(), "e": ContainerFacts(problem=Problem("ErrImagePull", ""), problem_since=NOW)},
            PodActions((Publish(),), 5.0),
        ),
    ],
)
def test_an_ephemeral_container_starts_once_and_holds_nobody_up(
    given: Object, known: dict[str, ContainerFacts], turn: PodActions
) -> None:
    assert actions_of(given, PodFacts(start_time=NOW, containers=known), NOW) == turn


def test_a_deleted_pod_waits_for_its_ephemeral_containers() -> None:
    leaving = pod(
        spec={"ephemeralContainers": [{"name": "e"}]},
        deletionTimestamp=timestamp(NOW + 30),
        deletionGracePeriodSeconds=30,
    )
    known = PodFacts(start_time=NOW, containers={"c0": run(end=DONE), "e": run()})
    assert actions_of(leaving, known, NOW) == PodActions((Stop("e", 30.0),), 31.0)
