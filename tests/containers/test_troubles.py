"""An engine in trouble: containers that others remove or freeze, one that hangs, one whose disk is full, names that are no images."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers import base
from tests.containers.conftest import IMAGE, Engine, listed
from tests.kubelet.conftest import WAY, Node, on_node, pod, until

from rowlock.api import DeleteOptions

HOST = {"image": "rowlock.dev/host"}
pytestmark = pytest.mark.timeout(240)


def identifier(node: Node, name: str) -> str:
    """Of its first container in the engine."""
    return str(node.state(name, "containerID")).partition("://")[2]


async def waits(node: Node, name: str, sentence: str) -> None:
    await until(lambda: sentence in str(node.state(name, "state.waiting.message")), f"{name} to say {sentence!r}")


def test_a_container_that_somebody_removes_ends_its_run_with_a_sentence_and_no_other(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 300"), pod("b", "sleep 300", policy="OnFailure"), pod("c", "sleep 300"))
        for name in "abc":
            await node.phase(name, "Running")
        for name in "ab":
            await asyncio.to_thread(listed, "rm", "-f", identifier(node, name))
        await node.ended("a")
        await until(lambda: node.state("b", "restartCount") == 1 and node.state("b", "state.running"))
        ends = [node.state("a", "state.terminated"), node.state("b", "lastState.terminated")]
        for end in ends:
            assert end["exitCode"] == 137
            if end["reason"] != "Error":  # the engine still knew it when it was asked how it had ended
                assert end["reason"] == "ContainerStatusUnknown"
                assert end["message"].startswith("the container was removed in docker, and not by rowlock")
        assert node.state("c", "restartCount") == 0 and node.state("c", "state.running")

    on_node(tmp_path, body)


def test_a_container_that_somebody_has_frozen_can_be_deleted(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "exec sleep 300"))
        await node.phase("a", "Running")
        await asyncio.to_thread(listed, "pause", identifier(node, "a"))
        await node.delete("a", DeleteOptions(grace=1))
        await node.told(
            "a", "Container main was stopped (delete: the pod was deleted)"
        )  # thawed by the engine, or killed
        await until(lambda: not listed("ps", "-aq"))

    on_node(tmp_path, body)


def test_what_is_no_image_is_said(tmp_path: Path) -> None:
    images = {
        "Bad:::tag": ("InvalidImageName", "invalid reference format"),
        "UPPER/case:1": ("InvalidImageName", "repository name must be lowercase"),
        "a b": ("InvalidImageName", "invalid reference format"),
        "never:1": ("ErrImageNeverPull", "is not present with pull policy of Never"),
    }

    async def body(node: Node) -> None:
        for number, image in enumerate(images):
            policy = {"imagePullPolicy": "Never"} if image == "never:1" else {}
            await node.add(pod(f"a{number}", "true", container={"image": image, **policy}))
        await node.add(pod("well", "true"))
        await node.ended("well")
        for number, (reason, words) in enumerate(images.values()):
            await waits(node, f"a{number}", words)
            assert node.state(f"a{number}", "state.waiting.reason") == reason

    on_node(tmp_path, body)


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine of the test's own, on a disk of its own."""
    home = tmp_path_factory.mktemp("other")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", str(home)], check=True)
    monkeypatch.setitem(WAY.settings, "runtime", "auto")
    try:
        with Engine(home) as engine:
            monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
            base.load(IMAGE)
            yield engine
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_an_engine_that_hangs_keeps_no_process_waiting_and_pods_in_containers_are_told(
    tmp_path: Path, other: Engine
) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("old", "sleep 300"))
        await node.phase("old", "Running")
        other.send(signal.SIGSTOP)
        try:
            await node.add(*(pod(f"c{n}", "true") for n in range(12)))
            await node.add(*(pod(f"p{n}", "true", container=HOST) for n in range(10)))
            await node.ended(*(f"p{n}" for n in range(10)))
            waiting = f"the container engine at {other.socket} does not answer (timed out)"
            for n in range(12):
                await waits(node, f"c{n}", waiting)
            assert node.state("old", "state.running")
        finally:
            other.send(signal.SIGCONT)
        await node.ended(*(f"c{n}" for n in range(12)))
        assert [node.state(f"c{n}", "state.terminated.exitCode") for n in range(12)] == [0] * 12
        assert node.state("old", "state.running") and node.state("old", "restartCount") == 0

    on_node(tmp_path, body, restart_backoff=2.0)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_an_engine_whose_disk_is_full_keeps_pods_waiting_until_there_is_room(
    tmp_path: Path, other: Engine, policy: str
) -> None:
    fill = other.home / "fill"

    async def body(node: Node) -> None:
        await node.add(pod("old", "sleep 300"))
        await node.phase("old", "Running")
        await asyncio.to_thread(
            subprocess.run, ["dd", "if=/dev/zero", f"of={fill}", "bs=1M"], capture_output=True, check=False
        )
        await node.add(pod("a", "true", policy), pod("process", "true", container=HOST))
        await node.ended("process")
        sentence = "docker could not create the container: no space left on device for docker: `docker system df`"
        await waits(node, "a", sentence)
        assert node.state("a", "state.waiting.reason") == "CreateContainerError"
        await node.told("a", sentence)
        assert node.state("old", "state.running")
        os.unlink(fill)
        await node.ended("a")
        assert node.state("a", "state.terminated.exitCode") == 0 and node.state("a", "restartCount") == 0

    on_node(tmp_path, body)
