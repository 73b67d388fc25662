"""`kubectl debug` of a pod that runs: an ephemeral container beside its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.run.terminal import Terminal
from tests.kubectl.walks import kubectl, missing

PODS = "/api/v1/namespaces/runai-default/pods"
DEBUG = ("--image=rowlock.dev/host", "--profile=general")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not kubectl():
        pytest.skip(missing())
    with lent(tmp_path_factory.mktemp("debug")) as made:
        made.up()
        yield made


@contextmanager
def running(cluster: Cluster, name: str, *command: str, **spec: Any) -> Iterator[str]:
    """A pod that runs, and is gone afterwards."""
    container = {"name": "main", "image": "rowlock.dev/host", "command": list(command)}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    cluster.api("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    try:
        cluster.until(lambda: status(cluster, name).get("phase") == "Running", f"{name} to run")
        yield name
    finally:
        cluster.api("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def status(cluster: Cluster, pod: str) -> dict[str, Any]:
    return dict(cluster.api("GET", f"{PODS}/{pod}")["status"])


def state_of(cluster: Cluster, pod: str, container: str) -> dict[str, Any]:
    """Of an ephemeral container."""
    listed = status(cluster, pod).get("ephemeralContainerStatuses", [])
    return dict(next((c["state"] for c in listed if c["name"] == container), {}))


def is_running(cluster: Cluster, pod: str, container: str) -> bool:
    return "running" in state_of(cluster, pod, container)


def test_a_container_beside_the_others_can_be_entered_and_read(place: Cluster) -> None:
    program = kubectl()
    with running(place, "alone", "sh", "-c", "echo own; exec sleep 100000") as pod:
        script = "echo looking from $HOSTNAME; exec sleep 100000"
        place.run(program, "debug", pod, *DEBUG, "-c", "look", "--target=main", "--", "sh", "-c", script)
        place.until(lambda: is_running(place, pod, "look"), "look to run")
        for container, text in (
            ("look", "looking from alone\n"),
            ("main", "own\n"),
        ):  # Running is told before it speaks
            log = (program, "logs", pod, "-c", container)
            place.until(lambda log=log, text=text: place.run(*log) == text, lambda log=log: place.run(*log))  # type: ignore[misc]
        entered = place.run(program, "exec", pod, "-c", "look", "--", "sh", "-c", "echo in $ROWLOCK_POD_UID $PPID")
        assert place.api("GET", f"{PODS}/{pod}")["metadata"]["uid"] in entered
        described = place.run(program, "describe", "pod", pod)
        assert "Ephemeral Containers:\n  look:\n" in described and "Started container look" in described
        assert place.api("GET", f"{PODS}/{pod}")["spec"]["ephemeralContainers"][0]["targetContainerName"] == "main"
        one = place.run(program, "get", "pod", pod)
        assert "1/1" in one and "Running" in one, "who looks does not count"


def test_a_program_gets_what_is_typed_and_its_end_changes_nothing(place: Cluster) -> None:
    program = kubectl()
    with running(place, "asked", "sleep", "100000", restartPolicy="Always") as pod:
        argv = (program, "debug", pod, *DEBUG, "-i", "-c", "look", "--", "sh")
        done = subprocess.run(
            argv, env=place.env, input=b"echo $((40 + 2)); exit 3\n", capture_output=True, timeout=200
        )
        assert b"42" in done.stdout, done
        place.until(lambda: "terminated" in state_of(place, pod, "look"), "look to end")
        assert state_of(place, pod, "look")["terminated"]["exitCode"] == 3
        terminal = Terminal(place, program, "debug", pod, *DEBUG, "-it", "-c", "shell", "--", "sh")
        terminal.hear(b"If you don't see a command prompt, try pressing enter.")
        terminal.type(b"\ntest -t 0 && echo terminal=$((6 * 7))\n")
        terminal.hear(b"terminal=42")
        terminal.type(b"exit\n")
        terminal.end()
        place.until(lambda: "terminated" in state_of(place, pod, "shell"), "shell to end")
        shown = status(place, pod)
        assert [c["restartCount"] for c in shown["ephemeralContainerStatuses"]] == [0, 0], "they are never restarted"
        assert shown["phase"] == "Running" and [c["name"] for c in shown["containerStatuses"]] == ["main"]


def test_a_pod_ends_as_its_own_containers_do(place: Cluster, tmp_path: Path) -> None:
    program, go = kubectl(), tmp_path / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done"
    with running(place, "ending", "sh", "-c", script) as pod:
        place.run(program, "debug", pod, *DEBUG, "-c", "failed", "--", "false")
        place.run(program, "debug", pod, *DEBUG, "-c", "look", "--", "sleep", "100000")
        place.until(lambda: is_running(place, pod, "look"), "look to run")
        place.until(lambda: "terminated" in state_of(place, pod, "failed"), "the other to end")
        assert status(place, pod)["phase"] == "Running"
        go.touch()
        place.until(lambda: status(place, pod)["phase"] == "Succeeded", "the pod to succeed")
        assert "terminated" in state_of(place, pod, "look"), "it was stopped with the pod"


def test_it_outlives_the_server(place: Cluster) -> None:
    program = kubectl()
    with running(place, "kept", "sleep", "100000") as pod:
        script = "echo first; exec sleep 100000"
        place.run(program, "debug", pod, *DEBUG, "-c", "look", "--", "sh", "-c", script)
        place.until(lambda: "first\n" in place.run(program, "logs", pod, "-c", "look", code=None), "it to speak")
        place.until(lambda: is_running(place, pod, "look"), "its state to say so")
        before = state_of(place, pod, "look")
        os.kill(place.pid, signal.SIGKILL)
        place.up()
        assert state_of(place, pod, "look") == before
        assert place.run(program, "exec", pod, "-c", "look", "--", "echo", "still").strip() == "still"


def test_what_cannot_be_added_is_refused_or_says_why_it_waits(place: Cluster) -> None:
    program = kubectl()
    with running(place, "strict", "sleep", "100000") as pod:
        said = place.run(program, "debug", pod, *DEBUG, "-c", "main", "--", "true", code=1)
        assert 'spec.ephemeralContainers[0].name: Duplicate value: "main"' in said
        said = place.run(program, "debug", pod, *DEBUG, "-c", "look", "--target=nobody", "--", "true", code=1)
        assert 'spec.ephemeralContainers[0].targetContainerName: Not found: "nobody"' in said
        place.run(program, "debug", pod, "--image=nobody.test/none:1", "--profile=general", "-c", "absent", "--", "x")
        place.until(lambda: "waiting" in state_of(place, pod, "absent"), "the reason")
        place.until(
            lambda: state_of(place, pod, "absent")["waiting"]["reason"] in ("ErrImagePull", "ImagePullBackOff"), "why"
        )
        assert "rowlock image add" in state_of(place, pod, "absent")["waiting"]["message"]
        assert status(place, pod)["phase"] == "Running"
