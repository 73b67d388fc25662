"""A machine whose kernel refuses namespaces: pods run all the same, and the node, the pod and `rowlock doctor` say what they share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster

REFUSES = """for kind in cgroup ipc mnt net pid user uts; do echo 0 > /proc/sys/user/max_${kind}_namespaces || exit 77; done
exec "$@" """
"""`sysctl user.max_pid_namespaces=0` and the others, as hardened machines have them: of the user namespace that it is played in."""
REASON = "the limit of namespaces is reached (`sysctl -a | grep namespaces`)"


def test_what_the_kernel_refuses_is_said_by_doctor_by_the_node_and_to_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    refusing = ("unshare", "--user", "--map-root-user", "sh", "-c", REFUSES, "sh")
    if shutil.which("unshare") is None or subprocess.run([*refusing, "true"], capture_output=True).returncode:
        pytest.skip("a kernel that refuses is played in a user namespace, which this one does not make")
    said = cluster.run(*refusing, "rowlock", "doctor", code=None)
    assert f"warn  pod processes   shared ({REASON})" in said, said
    cluster.run(*refusing, "rowlock", "up", "-d")
    (node,) = cluster.api("GET", "/api/v1/nodes")["items"]
    shared = "pods see each other's processes, IPC and /dev/shm"
    told = node["metadata"]["annotations"]
    assert told["rowlock.dev/processes"] == f"shared: {shared} (a PID namespace cannot be made: {REASON})"
    assert told["rowlock.dev/network"] == "rewrite" and REASON in told["rowlock.dev/network-reason"]
    assert not [text for text in told.values() if "left on device" in text]
    assert "trained" in cluster.run(*refusing, "rowlock", "run", "--name", "first", "--", "echo", "trained")
    sentence = f"the pod sees processes, IPC and /dev/shm of others: a PID namespace cannot be made: {REASON}"

    def events() -> list[tuple[str, str]]:
        found = cluster.api("GET", "/api/v1/namespaces/runai-default/events")["items"]
        return [(event["reason"], event["message"]) for event in found]

    cluster.until(lambda: ("NotIsolated", sentence) in events(), lambda: str(events()))
