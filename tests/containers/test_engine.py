"""What only containers have: an engine that can go, limits of its own, tidiness, several clusters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.containers.conftest import IMAGE, Engine, listed
from tests.kubelet.conftest import WAY, Node, node, on_node, pod, until
from tests.kubelet.streams.test_exec_sessions import said

from rowlock.api import DeleteOptions
from rowlock.diagnostics import stack_dumps
from rowlock.diagnostics.rank_failures import find_run_error
from rowlock.diagnostics.rank_processes import find_python_ranks
from rowlock.kubelet.images.images import Image
from rowlock.objects import Key

ENGINE = "podman" if "podman" in os.environ.get("ROWLOCK_TEST_ENGINE", "") else "docker"


def start_fact(data: Path, node: Node, name: str) -> dict[str, Any]:
    where = data / "pods" / node.pod(name)["metadata"]["uid"] / "main" / "start.0"
    return dict(json.loads(where.read_text()))


def test_nothing_is_left_of_a_pod_nor_of_its_cluster(tmp_path: Path) -> None:
    before = listed("network", "ls", "-q")

    async def body(node: Node) -> None:
        memory = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}
        mounts = {"volumeMounts": [{"name": "m", "mountPath": "/dev/shm"}]}
        await node.add(pod("a", "df /dev/shm; exit 3", spec=memory, container=mounts), pod("b", "sleep 300"))
        await node.ended("a")
        assert "tmpfs" in await node.log("a")
        await node.phase("b", "Running")
        assert node.state("b", "containerID").startswith(f"{ENGINE}://") and node.state("b", "imageID").startswith(
            f"{ENGINE}://sha256:"
        )
        await until(lambda: len(listed("ps", "-aq")) == 1 and not listed("volume", "ls", "-q"), "what a had to go")
        await node.delete("b")
        assert not listed("ps", "-aq")

    on_node(tmp_path, body)
    assert listed("network", "ls", "-q") == before


def test_a_lost_shim_takes_its_container_along_and_the_pod_runs_again(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 300", policy="OnFailure"))
        await node.phase("a", "Running")
        first = listed("ps", "-q", "--no-trunc")
        os.kill(start_fact(tmp_path, node, "a")["shim"], signal.SIGKILL)
        await until(lambda: node.state("a", "restartCount") == 1 and node.state("a", "state.running"))
        assert node.state("a", "lastState.terminated.reason") == "ContainerStatusUnknown"
        assert len(listed("ps", "-aq")) == 1 and listed("ps", "-q", "--no-trunc") != first

    on_node(tmp_path, body)


def test_what_nobody_looks_after_is_removed_when_the_server_comes_back(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 300"), pod("b", "sleep 300"))
        for name in ("a", "b"):
            await node.phase(name, "Running")
        await node.stop()
        os.kill(start_fact(tmp_path, node, "a")["shim"], signal.SIGKILL)
        await node.start()
        await node.ended("a")
        await until(lambda: len(listed("ps", "-aq")) == 1, "the container of the lost shim to go")
        assert node.state("b", "state.running") and node.state("b", "restartCount") == 0
        assert await said(node, "b", "hostname") == (0, "", b"b\n")

    on_node(tmp_path, body)


@pytest.mark.parametrize("user", [0, 1234])
def test_torchs_account_of_a_failure_can_be_replaced_by_any_user(tmp_path: Path, user: int) -> None:
    """torch removes an older file first: of one that is mounted itself that would fail, and hide the failure."""
    report = json.dumps({"message": {"message": "ValueError: bad batch", "extraInfo": {}}})
    script = (
        "echo old > $TORCHELASTIC_ERROR_FILE && rm $TORCHELASTIC_ERROR_FILE"
        f" && echo '{report}' > $TORCHELASTIC_ERROR_FILE && echo written; exit 3"
    )

    async def body(node: Node) -> None:
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "j1", "controller": True}
        container = {"securityContext": {"runAsUser": user}}
        await node.add(pod("a", script, container=container, ownerReferences=[owner]))
        await node.ended("a")
        assert await node.log("a") == "written\n"
        error = find_run_error(tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "main", 0)
        assert error is not None and (error.kind, error.text) == ("ValueError", "bad batch")

    on_node(tmp_path, body)


GREED = ["python", "-c", "x = bytearray(300 << 20); print(len(x))"]


def test_limits_are_the_engines_own(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        limits = {"limits": {"memory": "64Mi", "cpu": "500m"}, "requests": {"cpu": "250m"}}
        await node.add(pod("a", "", container={"command": GREED, "resources": limits}))
        text = (
            "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.shares /sys/fs/cgroup/cpu.max 2>/dev/null"
        )
        await node.add(pod("b", f"{text}; true", container={"resources": limits}))
        await node.ended("a", "b")
        ended = node.state("a", "state.terminated")
        assert ended["exitCode"] == 137
        if ENGINE == "docker":  # Podman tells it where control groups are of version 2
            assert ended["reason"] == "OOMKilled"
            assert ended["message"] == "it needed more memory than its limit of 64.0Mi (killed by docker)"
            await until(lambda: "OOMKilled" in [reason for _, reason, _ in node.events("a")])
        assert (await node.log("b")).split() in (["50000", "256"], ["50000", "100000"])

    on_node(tmp_path, body)


def test_a_helper_that_was_killed_for_memory_is_told_though_the_program_went_on(tmp_path: Path) -> None:
    greedy = f"import subprocess; print(subprocess.run({GREED!r}).returncode)"

    async def body(node: Node) -> None:
        limits = {"limits": {"memory": "64Mi"}}
        await node.add(pod("a", "", container={"command": ["python", "-c", greedy], "resources": limits}))
        await node.ended("a")
        assert (await node.log("a"), node.state("a", "state.terminated.exitCode")) == ("-9\n", 0)
        (state,) = node.kubelet.pod_states.values()
        exit_ = state.containers["main"].run.exit if state.containers["main"].run else None
        assert exit_ is not None
        if ENGINE == "docker":
            assert exit_.helpers_overuse == "it needed more memory than its limit of 64.0Mi (killed by docker)"

    on_node(tmp_path, body)


def test_a_container_has_no_variables_of_the_machine(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "env"))
        await node.ended("a")
        names = {line.partition("=")[0] for line in (await node.log("a")).splitlines()}
        assert not {name for name in names if name.startswith(("KUBERNETES_", "CUDA_", "NVIDIA_"))}
        assert {"HOSTNAME", "OMP_NUM_THREADS", "ROWLOCK_CHECKPOINT_DIR"} <= names and "VIRTUAL_ENV" not in names

    on_node(tmp_path, body)


def test_a_security_context_is_applied(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        context = {
            "runAsUser": 1234,
            "runAsGroup": 55,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        spec = {"securityContext": {"fsGroup": 77, "supplementalGroups": [88]}}
        script = (
            "id -u; id -G; touch /x || echo read-only; grep -E 'NoNewPrivs|CapBnd' /proc/self/status | tr '\\t' ' '"
        )
        await node.add(pod("a", script, container={"securityContext": context, "workingDir": "/tmp"}, spec=spec))
        await node.add(pod("b", "true", container={"securityContext": {"runAsNonRoot": True}}))
        await node.ended("a")
        lines = (await node.log("a")).splitlines()
        assert {"1234", "read-only", "NoNewPrivs: 1", "CapBnd: 0000000000000000"} <= set(lines)
        assert {"55", "77", "88"} <= {group for line in lines for group in line.split()}
        await until(lambda: node.state("b", "state.waiting.reason") == "CreateContainerConfigError")
        assert "runAsNonRoot and image will run as root" in node.state("b", "state.waiting.message")

    on_node(tmp_path, body)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_that_goes_is_one_sentence_and_one_that_comes_back_is_used(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    from tests.containers import base

    with Engine(tmp_path_factory.mktemp("other")) as other:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{other.socket}")
        base.load(IMAGE)

        async def body(node: Node) -> None:
            await node.add(pod("a", "sleep 300"), pod("b", "sleep 300", policy="OnFailure"))
            for name in ("a", "b"):
                await node.phase(name, "Running")
            await asyncio.to_thread(other.stop, how)
            await node.ended("a")
            ended = node.state("a", "state.terminated")
            if how == signal.SIGKILL or ended["reason"] != "Error":
                assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
                assert ended["message"].startswith(f"the container engine at {other.socket} does not answer")
                assert "it is unknown how the container ended" in ended["message"]
            await until(lambda: node.state("b", "state.waiting.reason") == "CreateContainerError")
            sentence = node.state("b", "state.waiting.message")
            assert sentence.startswith(f"the container engine at {other.socket} does not answer"), sentence
            await asyncio.to_thread(other.start)
            await until(lambda: node.state("b", "state.running"))
            await until(lambda: len(listed("ps", "-q")) == 1, "what ran without its engine to be ended")
            await node.delete("b")

        on_node(tmp_path, body)


def test_two_clusters_have_two_networks(tmp_path: Path) -> None:
    async def both() -> None:
        async with node(tmp_path / "one") as one, node(tmp_path / "two") as two:
            for each in (one, two):
                await each.add(pod("a", "getent hosts a; sleep 300"))
                await each.phase("a", "Running")
                await each.said("a", each.pod("a")["status"]["podIP"])
            first, second = (str(each.pod("a")["status"]["podIP"]) for each in (one, two))
            assert first[:6] != second[:6] and first[6:] == second[6:] == "1.1", (first, second)

    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    asyncio.run(both())


def test_images_decide_and_kinds_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAY.settings, "runtime", "auto")

    async def body(node: Node) -> None:
        host = {"image": "rowlock.dev/host"}
        mixed = pod("mixed", "sleep 300", spec={"initContainers": [{"name": "first", **host, "command": ["true"]}]})
        await node.add(pod("process", "exit 3", container=host), pod("container", "cat /etc/nsswitch.conf"), mixed)
        await node.ended("process", "container")
        assert node.state("process", "containerID").startswith("process://")
        assert node.state("container", "containerID").startswith(f"{ENGINE}://")
        assert await node.log("container") == "passwd: files\ngroup: files\nhosts: files dns\n"
        await until(lambda: any("runs as a process, other images" in text for *_, text in node.events("mixed")))
        node.kubelet.engine_images.images.add(Image(IMAGE, host=True))  # rowlock's own table comes first
        await node.add(pod("added", "true"))
        await node.ended("added")
        assert node.state("added", "containerID").startswith("process://")
        await node.delete("mixed", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_containers_only_means_containers_only(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "true", container={"image": "rowlock.dev/host"}))
        await until(lambda: node.state("a", "state.waiting.reason") == "CreateContainerConfigError")
        assert "the cluster runs containers only" in node.state("a", "state.waiting.message")

    on_node(tmp_path, body)


def test_attached_to_a_container(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "cat; echo end", container={"stdin": True, "stdinOnce": True}))
        await node.phase("a", "Running")
        session = await node.kubelet.streaming.attach(Key("default", "a"), "main", stdin=True)
        await session.write(b"hello\n")
        session.finish_input()
        await session.close()
        await node.ended("a")
        assert await node.log("a") == "hello\nend\n"

    on_node(tmp_path, body)


def test_a_terminal_in_a_container_has_a_size(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 300"))
        await node.phase("a", "Running")
        session = await node.kubelet.streaming.exec(Key("default", "a"), "main", ["sh"], tty=True, stdin=True)
        session.resize(123, 45)
        text = b""
        while b"45 123" not in text:
            await session.write(b"stty size\n")
            text += await session.read(1)
        await session.write(b"exit 7\n")
        while await session.read(1):
            pass
        assert (await session.wait_exit())[0] == 7
        await session.close()

    on_node(tmp_path, body)


def test_the_stack_of_a_rank_in_a_container_is_read_from_outside(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        source = "import time\ndef stuck():\n    print('there', flush=True)\n    time.sleep(1e6)\nstuck()"
        await node.add(pod("a", "", container={"command": ["python", "-c", source]}))
        await node.phase("a", "Running")
        await node.said("a", "there")
        (tended,) = node.kubelet.pod_states.values()
        (run,) = tended.live_runs()
        ((pid, _),) = find_python_ranks(run.pid)
        shot = (await stack_dumps.dump_stacks([pid]))[pid]
        if shot.stack is None:
            pytest.skip(shot.blind)
        assert "stuck" in [frame.function for frame in shot.stack.frames]

    on_node(tmp_path, body)


def test_a_pod_in_the_machines_network_is_found_at_the_machines_address(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        listen = "import socket; s = socket.create_server(('', 23499)); print('up', flush=True); s.accept()[0].sendall(b'here')"
        made = pod("a", "", container={"command": ["python", "-c", listen]}, spec={"hostNetwork": True})
        await node.add(made)
        await node.phase("a", "Running")
        await node.said("a", "up")
        assert node.pod("a")["status"]["podIP"].endswith(".0.1")
        ask = "import socket; print(socket.create_connection(('a', 23499), 20).recv(9))"
        await node.add(pod("b", "", container={"command": ["python", "-c", ask]}))
        await node.ended("b")
        assert await node.log("b") == "b'here'\n"

    on_node(tmp_path, body)
