"""Memory and CPU limits: by control groups and by the watchdog, with the same outcome."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.errors import Unavailable
from rowlock.kubelet.node.pids_watch import pids_directory, refuse_unkept_limit
from rowlock.kubelet.pod.spec import parse_container, parse_pod_spec, shim_limits
from rowlock.kubelet.pod.unsupported import pod_warnings
from rowlock.kubelet.shim import cgroups
from rowlock.kubelet.shim.cgroups import Cgroup, resident_memory
from rowlock.objects import Key

GREEDY = "x = bytearray(200 << 20); print(len(x)); import time; time.sleep(60)"
HOW = pytest.mark.parametrize("how", ["watchdog", "cgroup"])


@HOW
def test_who_uses_more_memory_than_the_limit_is_oom_killed(tmp_path: Path, how: str) -> None:
    async def body(node: Node) -> None:
        have = node.kubelet.node.limits_mode
        if how == "cgroup" and have == "watchdog":
            pytest.skip("control groups cannot be written here")
        limited = {"resources": {"limits": {"memory": "60Mi"}}, "command": ["python3", "-c", GREEDY]}
        await node.add(pod("a", "", container=limited))
        await node.ended("a")
        ended = node.state("a", "state.terminated")
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
        assert "the limit is 60.0Mi" in ended["message"] and ("watchdog" in ended["message"]) == (how == "watchdog")
        sentence = f"container main was killed: {ended['message']}; raise resources.limits.memory, or use less"
        await until(lambda: ("Warning", "OOMKilled", sentence) in node.events("a"))
        assert node.pod("a")["status"]["phase"] == "Failed"

    on_node(tmp_path, body, limits="auto" if how == "cgroup" else how)


def test_a_limit_that_is_enough_is_not_felt_and_its_group_goes(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        have = node.kubelet.node.limits_mode
        limited = {"resources": {"limits": {"memory": "300Mi", "cpu": "500m"}, "requests": {"cpu": "100m"}}}
        await node.add(pod("a", "cat /proc/self/cgroup; sleep 0.2; exit 3", container=limited))
        await node.ended("a")
        assert node.state("a", "state.terminated.reason") == "Error"
        uid = node.pod("a")["metadata"]["uid"]
        told = {"v1": f"/rowlock/{uid}.main.0" in await node.log("a"), "v2": (await node.log("a")) == "0::/\n"}
        assert told.get(have, True)  # in version 2 a container's own group is where its hierarchy begins
        await until(lambda: not [d for d, _, _ in os.walk("/sys/fs/cgroup") if uid in d], "its group to go")
        found = node.store.view.get(kinds.NODE, "", node.name) or {}
        said = found["metadata"]["annotations"]["rowlock.dev/limits"]
        assert said.startswith("watchdog" if have == "watchdog" else f"cgroup {have}")

    on_node(tmp_path, body)


def test_a_cpu_limit_holds_back(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        if node.kubelet.node.limits_mode == "watchdog":
            pytest.skip("control groups cannot be written here")
        script = "import os, time\nend = time.time() + 1\nwhile time.time() < end: pass\nprint(sum(os.times()[:2]))"
        limited = {"resources": {"limits": {"cpu": "200m"}}, "command": ["python3", "-c", script]}
        await node.add(pod("a", "", container=limited))
        await node.ended("a")
        assert float(await node.log("a")) < 0.6

    on_node(tmp_path, body)


def test_a_program_started_beside_is_held_by_the_same_group(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        if node.kubelet.node.limits_mode == "watchdog":
            pytest.skip("control groups cannot be written here")
        await node.add(pod("a", "sleep 60", container={"resources": {"limits": {"memory": "300Mi"}}}))
        await node.phase("a", "Running")
        uid = node.pod("a")["metadata"]["uid"]
        inside = json.loads((tmp_path / "pods" / uid / "main" / "program.0").read_text())
        assert all(f"/rowlock/{uid}.main.0." in door for door in inside["cgroup"]) and inside["cgroup"]
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_version_2_has_other_files(tmp_path: Path) -> None:
    """No kernel: the same calls on a directory that looks like one."""
    for directory in (tmp_path, tmp_path / "rowlock"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.subtree_control").write_text("cpu memory")
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    assert cgroups.detect_backend(str(tmp_path)) == "v2"
    here = tmp_path / "rowlock" / "u.c.0"
    here.mkdir()
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "cpu.weight", "pids.max"):
        (here / name).touch()
    assert cgroups.probe_pids("v2", str(tmp_path)).startswith("the controller pids is not handed down")
    wanted = {"how": "v2", "memory": 1 << 20, "cpu": 1.5, "share": 1.0, "pids": 100}
    group = Cgroup.make("u.c.0", wanted, str(tmp_path))
    assert (here / "memory.max").read_text() == "1048576" and (here / "cpu.max").read_text() == "150000 100000"
    assert (here / "cpu.weight").read_text() == "39" and group.procs_files == [f"{here}/cgroup.procs"]
    (here / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (here / "memory.peak").write_text("1048576\n")
    (here / "pids.events").write_text("max 7\n")
    assert (group.oom_kills(), group.peak_memory(), group.refused_pids()) == (2, 1 << 20, 7)
    assert (here / "pids.max").read_text() == "100"
    (tmp_path / "rowlock" / "cgroup.subtree_control").write_text("cpu memory pids")
    assert cgroups.probe_pids("v2", str(tmp_path)) == ""


def test_who_requests_no_cpu_shares_the_least_of_groups(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        if node.kubelet.node.limits_mode == "watchdog":
            pytest.skip("control groups cannot be written here")
        await node.add(pod("modest", "cat /proc/self/cgroup"))
        await node.add(pod("asks", "cat /proc/self/cgroup", container={"resources": {"requests": {"cpu": "2"}}}))
        await node.ended("modest")
        await node.ended("asks")
        assert f"/rowlock/{cgroups.BEST_EFFORT_GROUP}" in await node.log("modest")
        is_root = node.kubelet.node.limits_mode == "v2"  # where a container's own group is the root that it sees
        name = "0::/\n" if is_root else f"/rowlock/{node.pod('asks')['metadata']['uid']}.main.0"
        assert name in await node.log("asks")
        top = Path(cgroups.cpu_directory(node.kubelet.node.limits_mode))
        weights = (top, top / cgroups.BEST_EFFORT_GROUP)
        file, cores = ("cpu.weight", 39) if node.kubelet.node.limits_mode == "v2" else ("cpu.shares", 1024)
        most, least = (int((directory / file).read_text()) for directory in weights)
        assert most >= cores and least <= 2, "all pods weigh as much as their CPUs, these as little as can be"

    on_node(tmp_path, body)


FORKING = """
import subprocess, time
held = []
try:
    while len(held) < 60:
        held.append(subprocess.Popen(["sleep", "600"]))
except BlockingIOError as error:
    print(f"refused: {error}", flush=True)
print(f"{len(held)} started", flush=True)
time.sleep(600)
"""


def test_a_program_that_forks_without_end_meets_its_limit_and_others_go_on(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("forks", "", container={"command": ["python3", "-c", FORKING]}))
        await node.add(pod("other", "for i in 1 2 3 4 5 6; do sleep 600 & done; wait"))
        await node.phase("forks", "Running")
        await node.said("forks", "refused: [Errno 11] Resource temporarily unavailable")
        await node.said("forks", " started")  # the next line, written apart
        assert 1 < int((await node.log("forks")).splitlines()[1].split()[-2]) < 20
        await node.told("forks", "has as many processes and threads as it may have (20)")
        await until(lambda: {reason for _, reason, _ in node.events("forks")} >= {"ProcessLimitReached"})
        await node.phase("other", "Running")
        session = await node.kubelet.streaming.exec(Key("default", "forks"), "main", ["true"])
        assert await session.wait_exit() == (0, ""), "a program may still come in from outside"
        await session.close()
        await node.delete("forks", DeleteOptions(grace=0))
        await node.add(pod("next", "sh -c 'exit 3'"))
        await node.ended("next")
        assert node.state("next", "state.terminated.exitCode") == 3
        assert not any(
            reason == "ProcessLimitReached" for name in ("other", "next") for _, reason, _ in node.events(name)
        )

    needs_pids_controller()
    on_node(tmp_path, body, pids_limit=20)


def test_a_program_that_ended_at_its_limit_is_told_and_weighs_as_before(tmp_path: Path) -> None:
    script = "cat /proc/self/cgroup; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait"

    async def body(node: Node) -> None:
        await node.add(pod("a", script))
        await node.ended("a")
        await node.told("a", "container main has as many processes and threads as it may have (5)")
        name = f"{node.pod('a')['metadata']['uid']}.main.0"
        assert not [d for d, _, _ in os.walk("/sys/fs/cgroup") if name in d], "its groups go with it"
        await node.add(pod("b", "sleep 600"))
        await node.phase("b", "Running")
        where, least = {"v1": ("cpu/rowlock", "cpu.shares"), "v2": ("rowlock", "cpu.weight")}[
            node.kubelet.node.limits_mode
        ]
        uid = node.pod("b")["metadata"]["uid"]
        (group,) = Path("/sys/fs/cgroup", where).glob(f"{uid}.main.0.*")
        assert int((group / least).read_text()) <= 2, (
            "it requests no CPU, and weighs as what is in the group of all such"
        )

    needs_pids_controller()
    on_node(tmp_path, body, pids_limit=5)


def needs_pids_controller() -> None:
    if cgroups.probe_pids(cgroups.detect_backend()):
        pytest.skip("control groups cannot be written here")


def test_a_limit_of_processes_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    problem = cgroups.probe_pids("watchdog")
    with pytest.raises(
        Unavailable, match=r"--pids-limit 20 cannot be kept here: control groups cannot be written. Start without it"
    ):
        refuse_unkept_limit(20, problem)
    refuse_unkept_limit(0, problem)
    refuse_unkept_limit(20, "")
    assert cgroups.probe_pids("v1", str(tmp_path)) == f"no control group can be made in {tmp_path}/pids"


def test_whose_processes_are_counted_where() -> None:
    assert (
        pids_directory("8:pids:/rowlock/u.c.0\n4:memory:/rowlock/u.c.0\n0::/\n") == "/sys/fs/cgroup/pids/rowlock/u.c.0"
    )
    assert pids_directory("0::/rowlock/u.c.0\n") == "/sys/fs/cgroup/rowlock/u.c.0"
    assert pids_directory("4:memory:/a\n") == pids_directory("") == ""


def test_what_cannot_be_written_is_watched(tmp_path: Path) -> None:
    assert cgroups.detect_backend(str(tmp_path / "none")) == "watchdog"
    assert Cgroup.make("u.c.0", {"how": "watchdog", "memory": 1}).procs_files == []


def test_limits_and_what_is_said_of_them() -> None:
    resources = {"limits": {"memory": "1Gi", "cpu": "1500m"}, "requests": {"cpu": "250m"}}
    container = {"name": "c", "resources": resources}
    assert shim_limits(parse_container(container)) == {"memory": 1 << 30, "cpu": 1.5, "share": 0.25}
    assert shim_limits(parse_container({"name": "c", "resources": {"requests": {"cpu": "1"}}})) == {"share": 1.0}
    assert shim_limits(parse_container({"name": "c", "resources": {"requests": {"memory": "1Gi"}}})) == {}
    limited = parse_pod_spec({"spec": {"containers": [container]}})
    assert "cpu limit of c counts for the scheduler but is not enforced" in pod_warnings(limited)[0]
    assert pod_warnings(limited, "v1") == []


def test_memory_that_is_shared_counts_once() -> None:
    mine = resident_memory([os.getpid()])
    assert resident_memory([os.getpid(), 2**30]) == mine > 1 << 20
    assert 0 < resident_memory([os.getpid()], exact=True) <= mine * 1.2


READ_LIMITS = """
cd /sys/fs/cgroup
if [ -e memory/memory.limit_in_bytes ]; then cd memory; file=memory.limit_in_bytes; else file=memory.max; fi
cat $$file; cat cpu.max ../cpu/cpu.cfs_quota_us ../cpu/cpu.cfs_period_us 2>/dev/null
(echo 1 > $$file) 2>/dev/null || echo read-only
"""


def test_programs_see_the_limits_of_their_container(tmp_path: Path) -> None:
    """As in every container: what reads /sys/fs/cgroup must not size itself by the machine."""

    async def body(node: Node) -> None:
        limits = {"memory": "300Mi", "cpu": "500m"}
        await node.add(pod("a", READ_LIMITS, container={"resources": {"limits": limits}}), pod("b", "sleep 600"))
        await node.ended("a")
        said = (await node.log("a")).split()
        numbers = [word for word in said if word.isdecimal()]
        expected = {"v1": ["314572800", "50000", "100000"], "v2": ["314572800", "50000", "100000"], "watchdog": numbers}
        assert numbers == expected[node.kubelet.node.limits_mode]
        assert said[-1] == "read-only" or node.kubelet.node.limits_mode == "watchdog"
        await node.phase("b", "Running")  # without limits it has no group of its own, and starts all the same

    on_node(tmp_path, body)


def test_a_group_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    """Removal went on at the next pod only: the groups after one in which something still ran stayed for ever."""
    for number in range(4):
        (tmp_path / "rowlock" / f"uid.main.{number}").mkdir(parents=True)
        (tmp_path / "pids" / "rowlock" / f"uid.main.{number}").mkdir(parents=True)
    (tmp_path / "rowlock" / "uid-of-another.main.0").mkdir()
    first = next(iter(os.listdir(tmp_path / "rowlock")))
    busy = first if first.startswith("uid.") else "uid.main.0"
    (tmp_path / "rowlock" / busy / "cgroup.procs").touch()
    cgroups.remove_pod_groups("uid", str(tmp_path))
    assert sorted(os.listdir(tmp_path / "rowlock")) == sorted((busy, "uid-of-another.main.0"))
    assert os.listdir(tmp_path / "pids" / "rowlock") == []
