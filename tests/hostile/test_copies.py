"""A copied data directory commands nothing of the original: neither its server nor its pods."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent, make

from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.runtime.processes import find_strays


def _pids(cluster: Cluster) -> dict[str, int]:
    """The programs of a cluster's running pods, by pod."""
    identity = PodDirectories(cluster.data).identity
    pods = cluster.api("GET", "/api/v1/namespaces/runai-default/pods")["items"]
    uids = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods if p["status"].get("phase") == "Running"}
    return {name: min(pids) for name, uid in uids.items() if (pids := find_strays([uid], identity))}


@pytest.mark.timeout(240)
def test_a_copy_of_a_live_cluster_leaves_it_alone(tmp_path: Path) -> None:
    with lent(tmp_path) as original:
        original.up()
        original.run("rowlock", "run", "-d", "--name", "work", "--", "sleep", "600")
        original.until(lambda: len(_pids(original)) == 1, "the job to run")
        pids, pid = _pids(original), original.pid
        copy = make(tmp_path / "copy", tmp_path)
        shutil.copytree(original.data, copy.data, ignore=lambda _, names: [n for n in names if n in ("wake",) or n.endswith(".sock")])  # fmt: skip
        said = copy.run("rowlock", "down", "--yes")
        assert f"is a copy of {original.data}, whose server, pid {pid}, goes on" in said
        assert f"is a copy of {original.data}" in copy.run("rowlock", "list", code=1)
        for _ in range(2):  # beside the original's server, and after it
            refusal = copy.run("rowlock", "up", "-d", code=1)
            assert f"is a copy of {original.data}, and 1 program of its pods still runs" in refusal
            assert _pids(original) == pids
            original.run("rowlock", "down", "--keep-jobs")
            original.up()
        assert _pids(original) == pids
        original.run("rowlock", "down", "--yes")
        try:
            copy.up()  # nothing of the original runs any more: from now on it is a cluster of its own
        finally:
            copy.run("rowlock", "down", "--yes", code=None)


@pytest.mark.timeout(240)
def test_a_restored_cluster_beside_the_original_has_programs_of_its_own(tmp_path: Path) -> None:
    """Its pods have the same uids: what one does with strays must not end the other's."""
    with lent(tmp_path) as original:
        original.up()
        original.run("rowlock", "run", "-d", "--name", "work", "--", "sleep", "600")
        original.until(lambda: len(_pids(original)) == 1, "the job to run")
        pids = _pids(original)
        original.run("rowlock", "backup", str(tmp_path / "b.tar"))
        restored = make(tmp_path / "restored", tmp_path)
        restored.run("rowlock", "restore", str(tmp_path / "b.tar"))
        restored.up()
        try:
            restored.until(lambda: len(_pids(restored)) == 1, "the restored job to run")
            ours = next(iter(_pids(restored).values()))
            assert ours not in pids.values()
            parent = int(Path(f"/proc/{ours}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(parent, 9)  # the shim: what it looked after are strays now
            restored.until(lambda: ours not in _pids(restored).values(), "the stray to be ended")
        finally:
            restored.run("rowlock", "down", "--yes", code=None)
        assert _pids(original) == pids, "the original's program was ended"


def test_a_stray_is_known_by_its_pod_and_its_directory(tmp_path: Path) -> None:
    def start(**variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **variables})

    processes = [
        start(ROWLOCK_POD_UID="u-1", ROWLOCK_DATA_DIRECTORY_ID="1:1"),
        start(ROWLOCK_POD_UID="u-1"),  # an older rowlock's
        start(ROWLOCK_POD_UID="u-1", ROWLOCK_DATA_DIRECTORY_ID="1:2"),
        start(ROWLOCK_POD_UID="u-2", ROWLOCK_DATA_DIRECTORY_ID="1:1"),
    ]
    try:
        assert sorted(find_strays(["u-1"], "1:1")) == sorted(p.pid for p in processes[:2])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_directory_that_is_named_by_a_link_is_the_same_one(tmp_path: Path) -> None:
    """Two servers on one directory would each write what the other does not see."""
    with lent(tmp_path) as original:
        original.up()
        linked = make(tmp_path / "link", tmp_path)
        linked.data.symlink_to(original.data)
        assert f"already running: {original.door('')[0]} (pid {original.pid})" in linked.run("rowlock", "up", "-d")
        argv = [sys.executable, "-P", "-m", "rowlock.serve", "--data-dir", str(linked.data)]
        second = subprocess.run(argv, env=linked.env, capture_output=True, text=True, timeout=200)
        assert (
            second.returncode == 1
            and f"another rowlock server (pid {original.pid}) uses the data directory" in second.stderr
        )
        linked.run("rowlock", "run", "--name", "through-the-link", "--", "true")
        assert "through-the-link" in original.run("rowlock", "list")
