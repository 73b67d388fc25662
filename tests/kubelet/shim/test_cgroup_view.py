"""A container's own control group as its /sys/fs/cgroup: on the kernel's own version 2, wherever it is mounted here."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowlock.kubelet.mounts import calls
from rowlock.kubelet.mounts.cgroup_view import CgroupView, probe_view
from rowlock.kubelet.node.node_context import PodHostAbilities
from rowlock.kubelet.shim import cgroups


def _version_2() -> str:
    """Where the kernel's version 2 is mounted, by itself or beside version 1; "" = nowhere."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next((row[1] for row in rows if row[2] == "cgroup2"), "")


POINT = _version_2()


@pytest.fixture
def group() -> Iterator[str]:
    made = f"{POINT}/rowlock-test.{os.getpid()}"
    try:
        os.mkdir(made)
    except OSError as error:
        pytest.skip(f"control groups of version 2 cannot be made here: {error}")
    yield made
    os.rmdir(made)


@pytest.mark.skipif(not POINT, reason="control groups of version 2 are not mounted here")
def test_a_container_of_version_2_sees_its_own_group_alone_and_cannot_write(group: str) -> None:
    assert probe_view(group, POINT, "v2") == ""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            cgroups.join_group([f"{group}/cgroup.procs"])
            view = CgroupView([(group, POINT)], version="v2")
            calls.unshare_mounts()
            view.attach()
            own = Path("/proc/self/cgroup").read_text().splitlines()
            has_self = str(os.getpid()) in Path(POINT, "cgroup.procs").read_text().split()
            said = f"{[line for line in own if line.startswith('0:')]} {has_self} {os.path.exists(group)}"
            os.mkdir(f"{POINT}/below")
        except OSError as error:
            said += f" {errno.errorcode[error.errno or 0]}"
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read().decode() == "['0::/'] True False EROFS"
    os.waitpid(child, 0)


def test_what_cannot_be_mounted_is_named(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    problem = probe_view(str(tmp_path / "group"), str(tmp_path / "nowhere"), "v1")
    assert problem.startswith("its control group cannot be mounted at") or "not permitted" in problem
    assert cgroups.probe_container_view("watchdog") == ""
    assert PodHostAbilities.from_hello({"cgroups": problem}).cgroup_problem == problem
