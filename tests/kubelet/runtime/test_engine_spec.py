"""What an engine is asked for, and where one is looked for: pure, so no engine is needed."""

from __future__ import annotations

import platform
import resource
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod

from rowlock.kubelet.images.images import Image
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.unsupported import pod_warnings
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.runtime import engine_spec, pause
from rowlock.kubelet.runtime.engine_spec import LABEL_PREFIX, ContainerConfig, PodSandboxConfig
from rowlock.kubelet.shim import engine_client
from rowlock.objects import Object

CARD = PodCard("default", "a", "u1", "n", "10.77.1.1", 0.0, (), True)


def scene(made: Object, **more: Any) -> PodSandboxConfig:
    made["metadata"]["uid"] = "u1"
    return PodSandboxConfig(
        cluster="c1", network="net", pod=parse_pod_spec(made), card=CARD, hosts="/h", shared_memory=9, **more
    )


def body(made: Object, where: PodSandboxConfig | None = None, **more: Any) -> dict[str, Any]:
    where = where or scene(made)
    image = Image("x:1", engine="docker://sha256:1")
    container = where.pod.main_containers[0]
    return engine_spec.container_create_body(
        where, ContainerConfig(container, image, ["sh", "-c", "x"], {"A": "1"}, "/w", **more), 2
    )


def test_a_plain_container() -> None:
    found = body(pod("a", "x"))
    assert found["Image"] == "sha256:1" and found["Entrypoint"] == ["sh"] and found["Cmd"] == ["-c", "x"]
    assert found["Env"] == ["A=1"] and found["WorkingDir"] == "/w" and found["Hostname"] == "a" and found["User"] == ""
    assert found["NetworkingConfig"] == {"EndpointsConfig": {"net": {"IPAMConfig": {"IPv4Address": "10.77.1.1"}}}}
    host = {"LogConfig": {"Type": "none"}, "NetworkMode": "net", "ShmSize": 9, "Mounts": [], "Init": True}
    assert found["HostConfig"] == host
    assert found["Labels"][f"{LABEL_PREFIX}run"] == "2" and found["Labels"][f"{LABEL_PREFIX}pod"] == "u1"
    assert engine_spec.sandbox_create_spec(scene(pod("a", "x"))) is None


def test_podman_asks_for_no_more_open_files_than_there_may_be() -> None:
    made = pod("a", "x", spec={"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]})
    limits = {
        name: resource.getrlimit(kind)[1]
        for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    }
    there_are = int(Path("/proc/sys/kernel/pid_max").read_text())
    most = {**limits, "nproc": there_are if limits["nproc"] < 0 else min(limits["nproc"], there_are)}
    wanted = [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in most.items()]
    where = scene(made, engine="podman", memory=(Volume("m", "memory"),))
    sandbox = engine_spec.sandbox_create_spec(where)
    assert sandbox and sandbox["create"]["HostConfig"]["Ulimits"] == wanted
    assert body(made, where)["HostConfig"]["Ulimits"] == wanted


def test_podman_gets_no_init_in_processes_that_are_shared() -> None:
    for engine, has_init in (("docker", True), ("podman", False)):
        made = pod("a", "x", spec={"hostPID": True})
        assert body(made, scene(made, engine=engine))["HostConfig"]["Init"] is has_init
        assert body(pod("b", "x"), scene(pod("b", "x"), engine=engine))["HostConfig"]["Init"] is True


def test_several_containers_share_a_sandbox_and_memory_volumes_live_in_it() -> None:
    made = pod("a", "x", spec={"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]})
    where = scene(made, memory=(Volume("m", "memory", limit=100),))
    sandbox = engine_spec.sandbox_create_spec(where)
    assert sandbox and sandbox["name"] == "rowlock_POD_a_default_u1_0"
    assert sandbox["volumes"][0]["DriverOpts"]["o"] == "mode=1777,size=100"
    found = body(
        made, where, binds=[{"memory": "m", "target": "/dev/shm"}, {"source": "/s", "target": "/t", "read_only": True}]
    )
    assert (
        found["HostConfig"]["NetworkMode"] == "container:rowlock_POD_a_default_u1_0" == found["HostConfig"]["IpcMode"]
    )
    assert found["HostConfig"]["Mounts"] == [
        {"Target": "/dev/shm", "ReadOnly": False, "Type": "volume", "Source": "rowlock_u1_m"},
        {"Target": "/t", "ReadOnly": True, "Type": "bind", "Source": "/s"},
    ]
    assert "Hostname" not in found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("docker", {"Driver": "nvidia", "DeviceIDs": ["GPU-1"], "Capabilities": [["gpu"]]}),
        ("podman", {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-1"]}),
    ],
)
def test_gpus_are_asked_for_by_uuid_and_their_ranks_share_memory(name: str, expected: Object) -> None:
    made = pod("a", "x")
    found = body(made, scene(made, engine=name), devices=("GPU-1",))["HostConfig"]
    assert found["DeviceRequests"] == [expected] and found["IpcMode"] == "host"
    assert "DeviceRequests" not in body(made)["HostConfig"]


def test_limits_and_rights() -> None:
    context = {"runAsUser": 5, "runAsGroup": 6, "capabilities": {"add": ["SYS_PTRACE"]}, "privileged": True}
    made = pod("a", "x", container={"securityContext": context, "resources": {"requests": {"cpu": "2"}}})
    found = body(made, limits={"memory": 1 << 20, "cpu": 1.5, "pids": 500})
    assert found["User"] == "5:6"
    wanted = {"Memory": 1 << 20, "MemorySwap": 1 << 20, "CpuQuota": 150000, "CpuPeriod": 100000, "CpuShares": 2048}
    more: dict[str, Any] = {"CapAdd": ["SYS_PTRACE"], "Privileged": True, "PidsLimit": 500}
    assert {**wanted, **more}.items() <= found["HostConfig"].items()


def test_what_is_left_to_the_engine_is_said() -> None:
    made = pod("a", "x", container={"securityContext": {"seccompProfile": {"type": "Unconfined"}}})
    assert pod_warnings(parse_pod_spec(made), engine="docker") == [
        "securityContext of main: seccompProfile left to the container engine's defaults"
    ]


def test_podmans_memory_volumes_have_no_size_which_is_said() -> None:
    made = pod("a", "x", spec={"volumes": [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]})
    where = scene(made, memory=(Volume("m", "memory", limit=1 << 20),), engine="podman")
    sandbox = engine_spec.sandbox_create_spec(where)
    assert sandbox and sandbox["volumes"][0]["DriverOpts"]["o"] == "mode=1777"
    assert pod_warnings(parse_pod_spec(made), engine="podman") == [
        "sizeLimit of the memory volume m is not kept: Podman's have no size"
    ]
    assert pod_warnings(parse_pod_spec(made), engine="docker") == []


def test_orphans_are_what_nobody_looks_after() -> None:
    def row(pod: str, container: str, run: str) -> Object:
        labels = {f"{LABEL_PREFIX}pod": pod, f"{LABEL_PREFIX}container": container, f"{LABEL_PREFIX}run": run}
        return {"Id": f"{pod}.{container}.{run}", "Labels": labels}

    rows = [row("p", "main", "0"), row("p", "main", "1"), row("p", "", "0"), row("q", "", "0"), row("q", "main", "0")]
    assert engine_spec.orphan_ids(rows, {("p", "main", "1")}, {"p"}) == ["p.main.0", "q..0", "q.main.0"]


def test_where_an_engine_may_be() -> None:
    assert engine_client.socket_paths({"DOCKER_HOST": "unix:///x"}, 0) == ["/x"]
    assert engine_client.socket_paths({"DOCKER_HOST": "tcp://x"}, 0) == []
    assert engine_client.socket_paths({"HOME": "/h"}, 7)[:2] == ["/var/run/docker.sock", "/run/user/7/docker.sock"]
    assert engine_client.find_engine({"DOCKER_HOST": "tcp://x"})[1].startswith("DOCKER_HOST=tcp://x is no unix socket")
    assert engine_client.find_engine({"DOCKER_HOST": "unix:///no/such"}) == (
        None,
        "no container engine listens here (looked at /no/such)",
    )


def test_a_sandbox_sleeps_until_it_is_killed(tmp_path: Path) -> None:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
    if platform.system() != "Linux" or not arch:
        pytest.skip("the sandbox's program is for Linux on amd64 and arm64")
    program = tmp_path / "pause"
    program.write_bytes(pause.program(arch))
    program.chmod(0o755)
    with subprocess.Popen([program]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()
    assert process.returncode == -9
    with pytest.raises(ValueError, match="not supported yet on s390x"):
        pause.program("s390x")


def test_pods_as_processes_wait_for_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = socket.socket(socket.AF_UNIX)
    deaf.bind(str(tmp_path / "deaf"))
    deaf.listen()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/deaf")
    monkeypatch.setattr(engine_client, "PROBE", 0.2)

    async def body(node: Node) -> None:
        assert (
            node.kubelet.engine_images.engine_problem
            == f"the container engine at {tmp_path}/deaf does not answer (timed out)"
        )
        monkeypatch.setattr(engine_client, "PROBE", 60.0)
        await node.add(pod("a", "exit 3"))
        await node.ended("a")
        assert node.state("a", "state.terminated.exitCode") == 3

    with deaf:
        on_node(tmp_path / "data", body)


def _looked_into(**more: Any) -> dict[str, Any]:
    """HostConfig of an ephemeral container in a pod whose one container runs for the third time."""
    look = {"name": "look", "image": "x:1", **more.pop("look", {})}
    made = pod("a", "x", spec={"ephemeralContainers": [look], **more.pop("spec", {})})
    where = scene(made, **{"running": {"main": 2}, **more})
    config = ContainerConfig(where.pod.ephemeral_containers[0], Image("x:1", engine="docker://1"), ["sh"], {}, "/")
    found: dict[str, Any] = engine_spec.container_create_body(where, config, 0)
    assert "Hostname" not in found and "NetworkingConfig" not in found
    return dict(found["HostConfig"])


def test_an_ephemeral_container_joins_the_pod_as_it_runs() -> None:
    name = "container:rowlock_main_a_default_u1_2"
    alone = _looked_into()
    assert alone["NetworkMode"] == name and "PidMode" not in alone and "IpcMode" not in alone
    beside = _looked_into(look={"targetContainerName": "main"})
    assert beside["PidMode"] == name and beside["Init"] is False
    shared = _looked_into(
        look={"targetContainerName": "main"},
        spec={"shareProcessNamespace": True, "volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]},
    )
    assert shared["PidMode"] == name and shared["NetworkMode"] == "container:rowlock_POD_a_default_u1_0"
    assert _looked_into(spec={"hostNetwork": True}, running={})["NetworkMode"] == "host"
    for look in ({}, {"targetContainerName": "main"}):
        with pytest.raises(ContainerConfigError, match="unable to find target container main: it is not running"):
            _looked_into(look=look, running={})
