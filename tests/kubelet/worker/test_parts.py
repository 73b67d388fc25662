"""Parts of the kubelet, each made alone from plain arguments: no store, no pod host, no other part."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.kubelet.conftest import until

from rowlock.kubelet.node.node_context import PodHostAbilities
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.pod.facts import ContainerFacts, Run
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.spec import ContainerSpec, parse_pod_spec
from rowlock.kubelet.prober.probe_handlers import Outcome
from rowlock.kubelet.prober.prober import Prober
from rowlock.kubelet.runtime.container_runs import ContainerRuns
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.objects import Object

NOW = 1000.0


def running_state(run: Run) -> PodState:
    return PodState(PodCard("default", "a", "u-1", "n", "", NOW), {"main": ContainerFacts(run=run)})


def test_a_prober_needs_a_task_group_and_callbacks(tmp_path: Path) -> None:
    container = {"name": "main", "livenessProbe": {"exec": {"command": ["x"]}, "failureThreshold": 1}}
    pod: Object = {
        "metadata": {"name": "a", "uid": "u-1"},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    stopped, events, looks = list[tuple[str, float]](), list[str](), [0.0]

    async def perform(
        card: PodCard, container: ContainerSpec, action: Mapping[str, Any], timeout: float | None
    ) -> Outcome:
        return Outcome(False, f"{card.name} is ill")

    async def body() -> None:
        async with asyncio.TaskGroup() as tasks:
            prober = Prober(
                tasks,
                perform,
                lambda: NOW + 100,
                on_changed=lambda uid: looks.append(1.0),
                record_event=lambda pod, kind, reason, message, name: events.append(f"{reason}: {message}"),
                stop_container=lambda state, name, grace: stopped.append((name, grace)),
            )
            container["livenessProbe"]["periodSeconds"] = 0.01  # type: ignore[index]
            prober.sync_probes(parse_pod_spec(pod), running_state(Run(0, started=NOW)))
            await until(lambda: stopped)

    asyncio.run(body())
    assert stopped == [("main", 30.0)]
    assert events == [
        "Unhealthy: Liveness probe failed: a is ill",
        "Killing: Container main failed liveness probe",
    ]


def test_container_runs_need_directories_and_a_clock(tmp_path: Path) -> None:
    directories = PodDirectories(tmp_path)
    directory = directories.container_directory("u-1", "main")
    directory.mkdir(parents=True)
    (directory / "start.0").write_text('{"shim": 999999999, "shim_ticks": 1, "pid": 1, "started": 999.0}')
    runs, state = ContainerRuns(directories, lambda: NOW), running_state(Run(0))
    assert runs.read_facts(state, "main") == []
    lost = state.containers["main"].run
    assert lost is not None and lost.exit is not None, "its shim is no process"
    assert (lost.exit.code, lost.exit.finished, lost.exit.reason) == (137, NOW, "ContainerStatusUnknown")
    runs.stop_container(state, "main", 5.0)
    assert not (directory / "stop").exists(), "what has ended is not stopped"


def test_a_run_that_nobody_asked_for_is_a_programs_invention(tmp_path: Path) -> None:
    directories = PodDirectories(tmp_path)
    directory = directories.container_directory("u-1", "main")
    directory.mkdir(parents=True)
    fact = {"shim": os.getpid(), "shim_ticks": ticks(os.getpid()), "pid": 1, "started": 999.0}
    (directory / "start.0").write_text(json.dumps(fact))
    (directory / "start.7").write_text(json.dumps(fact))
    runs, state = ContainerRuns(directories, lambda: NOW), running_state(Run(0))
    assert [run.number for run in runs.read_facts(state, "main")] == [0]
    state.set_facts("main", replace(state.containers["main"], asked=1))
    (directory / "start.1").write_text(json.dumps(fact))
    assert [run.number for run in runs.read_facts(state, "main")] == [1]


def test_what_the_pod_host_can_do_is_read_from_its_hello() -> None:
    hello = {
        "fabric": False,
        "problem": "no user namespaces",
        "limits": "v2",
        "unmountable": "",
        "memory": True,
        "rootfs": "no overlay",
        "processes": "no PID namespaces",
        "cgroups": "no mount",
        "pids": "no pids",
    }
    assert PodHostAbilities.from_hello(hello) == PodHostAbilities(
        False, "no user namespaces", "v2", "", True, "no overlay", "no PID namespaces", "no mount", "no pids"
    )
    another = "the pod host is of another version"
    assert PodHostAbilities.from_hello({}) == PodHostAbilities(
        False, "no fabric", "watchdog", "", False, another, another, "", another
    )
