"""Flags of `runai` in real pods: a repository, a claim, a directory of the node, a home, a share of a GPU by memory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from tests.end_to_end.cluster import Cluster

PROGRAM = """python /code/main.py; echo kept > /data/kept; echo home $HOME; cat /node/note; echo x > /node/other;
cat /empty/none; while [ ! -e "{}" ]; do sleep 0.05; done"""


def test_what_flags_ask_for_is_in_the_pod(cluster: Cluster) -> None:
    folder = cluster.data.parent
    repository, node = folder / "repository", folder / "node"
    node.mkdir()
    (node / "note").write_text("from the node\n")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "main.py").write_text("print('from the repository')\n")
    commit = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*commit, "add", "-A"], check=True)
    subprocess.run([*commit, "commit", "-q", "-m", "first"], check=True)
    cluster.up("--simulated-gpus", "1")
    flags = [
        *("--git-sync", f"source={repository},target=/code", "--new-pvc", "claimname=results,size=1Gi,path=/data"),
        *("-v", f"{node}:/node:ro", "--create-home-dir", "--gpu-memory", "4000M", "--port", "8080"),
    ]
    program = PROGRAM.format(folder / "stop")
    cluster.run("runai", "submit", "t1", "-i", "rowlock.dev/host", *flags, "--command", "--", "sh", "-c", program)
    cluster.run("rowlock", "wait", "t1", "--for", "running", "--timeout", "200s")
    cluster.until(lambda: "none" in cluster.run("runai", "logs", "t1"), "the program has said everything")
    log = cluster.run("runai", "training", "logs", "t1").splitlines()
    assert log[:3] == ["from the repository", "home /home/job", "from the node"]
    assert "Read-only file system" in log[3]
    assert cluster.run("runai", "training", "exec", "t1", "--", "cat", "/data/kept") == "kept\n"
    assert cluster.run("runai", "training", "list", "--no-headers", "--columns", "name,type,status,gpu").split() == [
        "t1", "Training", "Running", "0.05",
    ]  # fmt: skip
    (folder / "stop").touch()
    cluster.run("rowlock", "wait", "t1", "--timeout", "200s", code=None)
    cluster.run("runai", "delete", "job", "t1")
    claims = cluster.api("GET", "/api/v1/namespaces/runai-default/persistentvolumeclaims")["items"]
    assert [c["metadata"]["name"] for c in claims] == ["results"]


FILLS = """import os
disk = os.statvfs("/dev/shm")
print("MiB:", disk.f_blocks * disk.f_frsize >> 20)
with open("/dev/shm/batch", "wb", buffering=0) as batch:
    for _ in range(80):
        batch.write(bytes(1 << 20))
print("80 MiB written")
"""


def test_a_job_that_asks_for_a_large_dev_shm_can_fill_more_than_the_default(cluster: Cluster) -> None:
    def said_by(name: str) -> list[str]:
        return [line.removeprefix("[rank 0] ") for line in cluster.run("rowlock", "logs", name).splitlines()]

    cluster.up()
    program = [sys.executable, "-c", FILLS]
    v1 = ["runai", "submit", "--image", "rowlock.dev/host", "--memory-limit", "200Mi"]
    v2 = ["runai", "training", "submit", "--image", "rowlock.dev/host", "--cpu-memory-limit", "200Mi"]
    cluster.run(*v1, "v1", "--large-shm", "--command", "--", *program)
    cluster.run(*v2, "v2", "--large-shm", "--command", "--", *program)
    cluster.run(*v1, "default", "--backoff-limit", "0", "--command", "--", *program)
    cluster.run("rowlock", "run", "-d", "--name", "run", "--", *program)
    spec = {
        "image": "rowlock.dev/host", "command": shlex.join(program),
        "compute": {"cpuMemoryLimit": "200Mi", "largeShmRequest": True},
    }  # fmt: skip
    project = cluster.api("GET", "/api/v1/org-unit/projects")["projects"][0]
    place = {"projectId": project["id"], "clusterId": cluster.api("GET", "/api/v1/clusters")[0]["uuid"]}
    cluster.api("POST", "/api/v1/workloads/trainings", {"name": "rest", **place, "spec": spec})
    for name in ("v1", "v2", "rest", "run"):
        cluster.run("rowlock", "wait", name, "--timeout", "200s")
    for name in ("v1", "v2", "rest"):
        assert said_by(name) == ["MiB: 200", "80 MiB written"], name
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21
    size, written = said_by("run")
    assert abs(int(size.partition(": ")[2]) - half) <= 1 and written == "80 MiB written"
    cluster.run("rowlock", "wait", "default", "--timeout", "200s", code=1)
    assert said_by("default")[0] == "MiB: 64" and "No space left on device" in said_by("default")[-1]


def test_attach_reaches_the_program(cluster: Cluster) -> None:
    cluster.up()
    program = "[ $RANK != 0 ] || read line; echo rank $RANK read $line"
    submit = ["runai", "pytorch", "submit", "t1", "-i", "rowlock.dev/host", "--workers", "1", "--stdin", "--attach"]
    line = [*submit, "--command", "--", "sh", "-c", program]
    done = subprocess.run(line, env=cluster.env, input="a word\n", capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "rank 0 read a word" in done.stdout and "Connecting to pod t1-master-0" in done.stderr


@pytest.mark.parametrize(
    "program",
    ["echo first; read line; echo second $line; exit 6", "echo first; echo second a word; exit 6"],
    ids=["reached", "has-ended"],
)
def test_a_submit_that_attaches_shows_all_and_ends_as_its_program(cluster: Cluster, program: str) -> None:
    cluster.up()
    submit = ["runai", "submit", "t1", "-i", "rowlock.dev/host", "--attach", "--command", "--", "sh", "-c", program]
    done = subprocess.run(submit, env=cluster.env, input="a word\n", capture_output=True, text=True, timeout=200)
    assert done.returncode == 6, done.stderr
    said = done.stdout.split("\n")
    assert [line for line in said if line in ("first", "second a word")] == ["first", "second a word"], done.stdout
